//! Decides what to do about the copies of a backup. Pure.

use std::time::Duration;

use backup_core::api::{
    Backup,
    backup::{BackupCopy, BackupCopyStatus, CopyPhase},
};
use backup_runtime::queue::Action;
use jiff::Timestamp;

use crate::retention::KeptCopies;

/// Time after which a copy that has failed is tried again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_hours(1);
/// Interval between checks of an expired copy that stays.
const KEPT_INTERVAL: Duration = Duration::from_hours(1);
/// Maximum time between checks of an expiration: the clock may have been wrong.
const MAX_WAIT: Duration = Duration::from_hours(24);

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Copies to make, or to resume.
    pub(super) make: Vec<BackupCopy>,
    /// Locations of complete copies whose time is over, and which may stay all the same.
    pub(super) expired: Vec<String>,
    /// Locations of copies to remove.
    pub(super) remove: Vec<String>,
    /// Time until the next check.
    pub(super) next: Option<Duration>,
}

impl Plan {
    /// The action if nothing is to be done now.
    pub(super) fn idle(&self) -> Option<Action> {
        let is_idle = self.make.is_empty() && self.expired.is_empty() && self.remove.is_empty();
        is_idle.then(|| self.wait())
    }

    /// Has the expired copies removed but those that are kept, which are checked again later.
    /// Returns the locations of these, and why they stay.
    pub(super) fn remove_expired(&mut self, kept: &KeptCopies) -> Vec<(String, &'static str)> {
        let mut staying = Vec::new();
        for location in std::mem::take(&mut self.expired) {
            match kept.get(&location) {
                Some(why) => staying.push((location, *why)),
                None => self.remove.push(location),
            }
        }
        if !staying.is_empty() {
            self.check_after(KEPT_INTERVAL);
        }
        staying
    }

    pub(super) fn wait(&self) -> Action {
        self.next.map_or(Action::AwaitChange, Action::RequeueAfter)
    }

    /// Has the copies checked again after this time.
    pub(super) fn check_after(&mut self, wait: Duration) {
        let next = self.next.map_or(wait, |next| next.min(wait));
        self.next = Some(next.min(MAX_WAIT));
    }

    /// Has the copies checked at this time, if it is still to come.
    fn check_at(&mut self, time: Option<Timestamp>, now: Timestamp) {
        if let Some(time) = time
            && let Ok(wait) = Duration::try_from(time.duration_since(now))
        {
            self.check_after(wait);
        }
    }
}

/// Only for a backup that has ended with files and is not being deleted. An expired copy is removed
/// and not made again, unless it is complete and something else keeps it. A copy without a time of
/// its own lasts as long as the backup.
pub(super) fn plan(backup: &Backup, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if !backup.has_copyable_files() {
        return plan;
    }
    let wanted_copies = backup.wanted_copies();
    let lasts_with_backup = |location: &str| {
        let wanted = wanted_copies.iter().find(|copy| copy.location == location);
        wanted.is_some_and(|copy| copy.lasts_with_backup())
    };
    for copy in &backup.status.copies {
        match copy.phase() {
            CopyPhase::Expired | CopyPhase::Unknown(_) => {}
            CopyPhase::Deleting => plan.remove.push(copy.location.clone()),
            CopyPhase::Completed | CopyPhase::New | CopyPhase::InProgress | CopyPhase::Failed => {
                let expiration = copy.expiration.as_ref().map(|time| time.0);
                let expiration = expiration.filter(|_| !lasts_with_backup(&copy.location));
                if expiration.is_none_or(|expiration| expiration > now) {
                    plan.check_at(expiration, now);
                } else if copy.is_complete() {
                    plan.expired.push(copy.location.clone());
                } else {
                    plan.remove.push(copy.location.clone());
                }
            }
        }
    }
    for wanted in &wanted_copies {
        let state = backup.copy_in(&wanted.location);
        let expiration = wanted
            .expiration(backup)
            .filter(|_| !wanted.lasts_with_backup());
        if plan.remove.contains(&wanted.location) || state.is_some_and(has_ended) {
            continue;
        }
        if expiration.is_some_and(|expiration| expiration <= now) {
            plan.remove.push(wanted.location.clone());
            continue;
        }
        match state.and_then(|state| retry_at(state, now)) {
            Some(wait) => plan.check_after(wait),
            None => plan.make.push((*wanted).clone()),
        }
    }
    plan
}

/// Whether nothing more is done for a copy. A phase of a newer version counts as such.
fn has_ended(state: &BackupCopyStatus) -> bool {
    !matches!(
        state.phase(),
        CopyPhase::New | CopyPhase::InProgress | CopyPhase::Failed
    )
}

/// Time until a failed copy is tried again; `None` if that is now.
fn retry_at(state: &BackupCopyStatus, now: Timestamp) -> Option<Duration> {
    let failed = state.completion_timestamp.as_ref();
    let failed = failed.filter(|_| state.phase() == CopyPhase::Failed)?;
    let retry = failed.0.checked_add(RETRY_INTERVAL).ok()?;
    let wait = Duration::try_from(retry.duration_since(now)).ok()?;
    // By a clock that was wrong it would be later.
    (!wait.is_zero()).then(|| wait.min(RETRY_INTERVAL))
}

/// The current state of a copy; New if there is none.
pub(super) fn state(backup: &Backup, location: &str) -> BackupCopyStatus {
    BackupCopyStatus {
        location: location.to_owned(),
        ..backup.copy_in(location).cloned().unwrap_or_default()
    }
}

/// The copies that go with a deleted backup: all of them if `kept` is `None`. Else complete ones
/// stay whose time is not over, or which are among `kept`.
pub(crate) fn of_deletion<'a>(
    backup: &'a Backup,
    kept: Option<&KeptCopies>,
    now: Timestamp,
) -> Vec<&'a BackupCopyStatus> {
    let goes = |copy: &&BackupCopyStatus| {
        let is_kept = copy.is_complete()
            && kept.is_some_and(|kept| !copy.has_expired(now) || kept.contains_key(&copy.location));
        !is_kept && copy.phase() != CopyPhase::Expired && !copy.uid.is_empty()
    };
    backup.status.copies.iter().filter(goes).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-03-01T12:00:00Z";

    fn backup(phase: &str, wanted: &Value, states: &Value) -> Backup {
        serde_json::from_value(json!({
            "metadata": { "name": "b", "uid": "u" },
            "spec": { "storageLocation": "first", "copies": wanted },
            "status": {
                "phase": phase, "startTimestamp": "2026-03-01T00:00:00Z", "expiration": "2026-03-31T00:00:00Z",
                "copies": states,
            },
        }))
        .unwrap()
    }

    /// The plan for one wanted copy and its state: "make", "remove", "wait 1h", "nothing".
    fn planned(backup: &Backup) -> String {
        let mut plan = plan(backup, NOW.parse().unwrap());
        assert!(plan.remove_expired(&KeptCopies::new()).is_empty());
        match (plan.make.len(), plan.remove.len(), plan.next) {
            (0, 0, None) => "nothing".to_owned(),
            (0, 0, Some(wait)) => format!("wait {}m", wait.as_secs() / 60),
            (1, 0, _) => "make".to_owned(),
            (0, 1, _) => "remove".to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn table_of_states() {
        let later = "2026-03-01T13:30:00Z";
        let over = "2026-03-01T11:30:00Z";
        for (state, expected) in [
            (json!([]), "make"),
            (json!([{ "phase": "New" }]), "make"),
            (
                json!([{ "phase": "InProgress", "expiration": later }]),
                "make",
            ),
            (
                json!([{ "phase": "InProgress", "expiration": over }]),
                "remove",
            ),
            (json!([{ "phase": "Completed" }]), "nothing"),
            (
                json!([{ "phase": "Completed", "expiration": later }]),
                "wait 90m",
            ),
            (
                json!([{ "phase": "Completed", "expiration": over }]),
                "remove",
            ),
            (
                json!([{ "phase": "Completed", "expiration": "2027-01-01T00:00:00Z" }]),
                "wait 1440m",
            ),
            (json!([{ "phase": "Failed" }]), "make"),
            (
                json!([{ "phase": "Failed", "completionTimestamp": "2026-03-01T11:40:00Z" }]),
                "wait 40m",
            ),
            (
                json!([{ "phase": "Failed", "completionTimestamp": "2026-03-01T11:00:00Z" }]),
                "make",
            ),
            (
                json!([{ "phase": "Failed", "completionTimestamp": "2027-03-01T11:00:00Z" }]),
                "wait 60m",
            ),
            (json!([{ "phase": "Deleting" }]), "remove"),
            (json!([{ "phase": "Expired" }]), "nothing"),
            (json!([{ "phase": "Later" }]), "nothing"),
        ] {
            let mut states = state.clone();
            for one in states.as_array_mut().unwrap() {
                one["location"] = json!("second");
            }
            let wanted = json!([{ "location": "second", "ttl": "720h" }]);
            let found = planned(&backup("Completed", &wanted, &states));
            assert_eq!(found, expected, "{state}");
        }
    }

    #[test]
    fn a_copy_without_a_time_of_its_own_lasts_as_long_as_the_backup() {
        let over = "2026-03-01T11:30:00Z";
        for (state, expected) in [
            (json!([]), "make"),
            (
                json!([{ "location": "second", "phase": "InProgress", "expiration": over }]),
                "make",
            ),
            (
                json!([{ "location": "second", "phase": "Completed", "expiration": over }]),
                "nothing",
            ),
            (
                json!([{ "location": "second", "phase": "Deleting", "expiration": over }]),
                "remove",
            ),
        ] {
            let wanted = json!([{ "location": "second" }]);
            let mut kept = backup("Completed", &wanted, &state);
            kept.status.expiration = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                over.parse().unwrap(),
            ));
            assert_eq!(planned(&kept), expected, "{state}");
        }
    }

    #[test]
    fn an_expired_copy_that_is_kept_stays_and_is_checked_again() {
        let over = "2026-03-01T11:30:00Z";
        let kept = KeptCopies::from([("second".to_owned(), "why")]);
        for (phase, stays) in [
            ("Completed", true),
            ("InProgress", false),
            ("Deleting", false),
        ] {
            let states = json!([{ "location": "second", "phase": phase, "expiration": over }]);
            let backup = backup("Completed", &json!([]), &states);
            let mut plan = plan(&backup, NOW.parse().unwrap());
            assert_eq!(plan.idle(), None, "{phase}");
            let staying = plan.remove_expired(&kept);
            let expected = stays.then(|| ("second".to_owned(), "why"));
            let expected: Vec<_> = expected.into_iter().collect();
            assert_eq!(staying, expected, "{phase}");
            assert_eq!(plan.remove.is_empty(), stays, "{phase}");
            let wait = stays.then_some(Action::RequeueAfter(KEPT_INTERVAL));
            assert_eq!(plan.idle(), wait, "{phase}");
        }
    }

    #[test]
    fn only_what_has_ended_with_files_is_copied() {
        let wanted = json!([{ "location": "second" }]);
        for phase in backup_core::api::BackupPhase::KNOWN {
            let expected = match *phase {
                "Completed" | "PartiallyFailed" => "make",
                _ => "nothing",
            };
            let mut backup = backup(phase, &wanted, &json!([]));
            assert_eq!(planned(&backup), expected, "{phase}");
            backup.metadata.deletion_timestamp = Some(
                k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW.parse().unwrap()),
            );
            assert_eq!(planned(&backup), "nothing", "{phase}");
        }
    }

    #[test]
    fn a_copy_whose_time_is_over_is_not_made_and_one_that_is_not_wanted_lasts_its_time() {
        let short = json!([{ "location": "second", "ttl": "1h" }]);
        let over = backup("Completed", &short, &json!([]));
        assert_eq!(planned(&over), "remove", "which records that it is over");
        let states = json!([{ "location": "second", "phase": "Completed", "expiration": "2026-03-01T13:00:00Z" }]);
        let unwanted = backup("Completed", &json!([]), &states);
        assert_eq!(planned(&unwanted), "wait 60m");
    }

    #[test]
    fn table_of_deletions() {
        let over = "2026-03-01T11:30:00Z";
        for (state, expected) in [
            (json!({ "phase": "Completed", "uid": "u" }), [1, 0, 0]),
            (
                json!({ "phase": "Completed", "uid": "u", "expiration": over }),
                [1, 1, 0],
            ),
            (json!({ "phase": "InProgress", "uid": "u" }), [1, 1, 1]),
            (json!({ "phase": "Failed", "uid": "u" }), [1, 1, 1]),
            (json!({ "phase": "Deleting", "uid": "u" }), [1, 1, 1]),
            (json!({ "phase": "Expired", "uid": "u" }), [0, 0, 0]),
            (json!({ "phase": "New" }), [0, 0, 0]),
        ] {
            let mut copy = state.clone();
            copy["location"] = json!("second");
            let backup = backup("Deleting", &json!([]), &json!([copy]));
            let now = NOW.parse().unwrap();
            let by_time = KeptCopies::new();
            let by_rules = KeptCopies::from([("second".to_owned(), "why")]);
            let found = [None, Some(&by_time), Some(&by_rules)]
                .map(|kept| of_deletion(&backup, kept, now).len());
            assert_eq!(found, expected, "{state}");
        }
    }
}
