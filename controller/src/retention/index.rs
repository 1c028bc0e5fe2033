//! Expirations and requests as the watches have shown them, so that nothing is read until a backup
//! has expired. No deletion depends on them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use backup_core::{
    api::{Backup, BackupStorageLocation},
    labels::{RETENTION_REQUEST_ANNOTATION, annotation},
};
use backup_runtime::queue::Key;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::decide::{Next, WatchedExpiry, next};

#[derive(Default)]
pub(super) struct ExpiryIndex(Mutex<State>);

#[derive(Default)]
struct State {
    /// Backups that have ended and expire, by name.
    backups: HashMap<String, WatchedBackup>,
    /// Names of locations with a user's request.
    requested: HashSet<String>,
    /// Time of the last pass over each location.
    passes: HashMap<String, Timestamp>,
    clock: Option<ClockReading>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct WatchedBackup {
    location: String,
    expiry: WatchedExpiry,
    /// Whether the last pass did not find it; the watch may have missed its end.
    was_missing: bool,
}

/// The time of the API server at a time of the monotonic clock.
#[derive(Clone, Copy)]
struct ClockReading {
    server: Timestamp,
    local: Duration,
}

/// The expirations that a pass has seen, by name of the backup.
pub(super) type CheckedExpiries = BTreeMap<String, Timestamp>;

impl ExpiryIndex {
    pub(super) fn observe_backup(&self, name: &str, backup: Option<&Backup>) {
        let mut state = self.0.lock();
        let Some(seen) = backup.and_then(watched) else {
            state.backups.remove(name);
            return;
        };
        let known = state.backups.get_mut(name);
        match known
            .filter(|known| known.location == seen.location && known.expiry.at == seen.expiry.at)
        {
            Some(known) => known.was_missing = false,
            None => _ = state.backups.insert(name.to_owned(), seen),
        }
    }

    pub(super) fn observe_location(&self, name: &str, location: Option<&BackupStorageLocation>) {
        let is_requested = location
            .is_some_and(|location| annotation(location, RETENTION_REQUEST_ANNOTATION).is_some());
        let mut state = self.0.lock();
        if is_requested {
            state.requested.insert(name.to_owned());
        } else {
            state.requested.remove(name);
        }
    }

    /// The key of a backup's location; `None` if the backup never expires.
    pub(super) fn location_of(&self, backup: &Key) -> Option<Key> {
        let state = self.0.lock();
        let known = state.backups.get(&backup.name)?;
        Some(Key {
            namespace: backup.namespace.clone(),
            name: known.location.clone(),
        })
    }

    /// Whether nothing can be due at a location.
    pub(super) fn is_idle(&self, location: &str) -> bool {
        let state = self.0.lock();
        !state.requested.contains(location) && state.expiries(location).next().is_none()
    }

    /// Records the time of the API server.
    pub(super) fn set_clock(&self, server: Timestamp, local: Duration) {
        self.0.lock().clock = Some(ClockReading { server, local });
    }

    /// The time of the API server, by the last reading; `None` if there was none.
    pub(super) fn time(&self, local: Duration) -> Option<Timestamp> {
        let clock = self.0.lock().clock?;
        let passed = local.saturating_sub(clock.local);
        clock.server.checked_add(passed).ok()
    }

    pub(super) fn next(&self, location: &str, now: Timestamp, period: Duration) -> Next {
        let state = self.0.lock();
        next(
            state.expiries(location),
            state.requested.contains(location),
            state.passes.get(location).copied(),
            now,
            period,
        )
    }

    /// Records a pass over a location that has seen these expirations.
    pub(super) fn passed(&self, location: &str, now: Timestamp, checked: &CheckedExpiries) {
        let mut state = self.0.lock();
        state.passes.insert(location.to_owned(), now);
        state.requested.remove(location);
        state.backups.retain(|name, known| {
            if known.location != location {
                return true;
            }
            match checked.get(name) {
                Some(at) => {
                    known.was_missing = false;
                    known.expiry.was_checked |= *at == known.expiry.at && *at <= now;
                    true
                }
                // It may have been created during the pass.
                None => !std::mem::replace(&mut known.was_missing, true),
            }
        });
    }
}

impl State {
    fn expiries(&self, location: &str) -> impl Iterator<Item = WatchedExpiry> {
        self.backups
            .values()
            .filter(move |known| known.location == location)
            .map(|known| known.expiry)
    }
}

/// A backup that has ended and expires.
fn watched(backup: &Backup) -> Option<WatchedBackup> {
    let at = backup.status.expiration.as_ref()?.0;
    let stays = backup.phase().is_terminal() && backup.metadata.deletion_timestamp.is_none();
    let location = backup.spec.storage_location.clone().unwrap_or_default();
    stays.then_some(WatchedBackup {
        location,
        expiry: WatchedExpiry {
            at,
            was_checked: false,
        },
        was_missing: false,
    })
}

#[cfg(test)]
mod tests {
    use backup_runtime::queue::Action;
    use serde_json::{Value, json};

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(hour: u8) -> Timestamp {
        format!("2026-03-01T{hour:02}:00:00Z").parse().unwrap()
    }

    fn backup(hour: u8, patch: &Value) -> Backup {
        let mut object = json!({ "metadata": { "name": "b" }, "spec": { "storageLocation": "default" },
            "status": { "phase": "Completed", "expiration": at(hour).to_string() } });
        json_patch::merge(&mut object, patch);
        serde_json::from_value(object).unwrap()
    }

    fn checked(all: &[(&str, u8)]) -> CheckedExpiries {
        all.iter()
            .map(|(name, hour)| ((*name).to_owned(), at(*hour)))
            .collect()
    }

    fn waits(hours: u64) -> Next {
        Next::Wait(Action::RequeueAfter(HOUR * u32::try_from(hours).unwrap()))
    }

    #[test]
    fn a_backup_that_stays_is_checked_at_each_period_and_a_changed_one_at_once() {
        let index = ExpiryIndex::default();
        assert!(index.is_idle("default"));
        index.observe_backup("b", Some(&backup(3, &json!({}))));
        assert!(!index.is_idle("default") && index.is_idle("other"));
        assert_eq!(index.next("default", at(1), HOUR), waits(2));
        assert_eq!(index.next("default", at(3), HOUR), Next::Pass);
        index.passed("default", at(3), &checked(&[("b", 3)]));
        assert_eq!(index.next("default", at(3), HOUR), waits(1));
        // Another change of it.
        let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
        index.observe_backup("b", Some(&backup(3, &labelled)));
        assert_eq!(index.next("default", at(3), HOUR), waits(1));
        index.observe_backup("b", Some(&backup(2, &json!({}))));
        assert_eq!(index.next("default", at(3), HOUR), Next::Pass);
        // A pass that has seen the former expiration.
        index.passed("default", at(3), &checked(&[("b", 3)]));
        assert_eq!(index.next("default", at(3), HOUR), Next::Pass);
        index.observe_backup("b", None);
        assert!(index.is_idle("default"));
        let running = json!({ "status": { "phase": "InProgress" } });
        let forever = json!({ "status": { "expiration": null } });
        for patch in [running, forever] {
            index.observe_backup("b", Some(&backup(1, &patch)));
            assert!(index.is_idle("default"), "{patch}");
        }
    }

    #[test]
    fn one_whose_deletion_was_missed_is_forgotten_after_two_passes() {
        let index = ExpiryIndex::default();
        index.observe_backup("b", Some(&backup(3, &json!({}))));
        index.passed("default", at(3), &checked(&[]));
        assert_eq!(index.next("default", at(3), HOUR), Next::Pass);
        index.passed("other", at(3), &checked(&[]));
        assert!(!index.is_idle("default"));
        index.passed("default", at(3), &checked(&[]));
        assert!(index.is_idle("default"));
    }

    #[test]
    fn a_request_makes_a_pass_and_keys_are_those_of_locations() {
        let index = ExpiryIndex::default();
        let location = |annotations: Value| -> BackupStorageLocation {
            serde_json::from_value(
                json!({ "metadata": { "name": "default", "annotations": annotations },
                "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } } }),
            )
            .unwrap()
        };
        index.observe_location("default", Some(&location(json!({}))));
        assert!(index.is_idle("default"));
        let requested = location(json!({ RETENTION_REQUEST_ANNOTATION: "{}" }));
        index.observe_location("default", Some(&requested));
        assert_eq!(index.next("default", at(1), HOUR), Next::Pass);
        index.passed("default", at(1), &checked(&[]));
        assert!(index.is_idle("default"));
        index.observe_location("default", Some(&requested));
        index.observe_location("default", None);
        assert!(index.is_idle("default"));

        let key = Key {
            namespace: "velero".to_owned(),
            name: "b".to_owned(),
        };
        assert_eq!(index.location_of(&key), None);
        index.observe_backup("b", Some(&backup(3, &json!({}))));
        let found = index.location_of(&key).unwrap();
        assert_eq!(
            (found.namespace.as_str(), found.name.as_str()),
            ("velero", "default")
        );
    }

    #[test]
    fn the_time_goes_on_from_the_last_reading() {
        let index = ExpiryIndex::default();
        let local = Duration::from_secs(1000);
        assert_eq!(index.time(local), None);
        index.set_clock(at(1), local);
        assert_eq!(index.time(local + HOUR), Some(at(2)));
        assert_eq!(index.time(Duration::ZERO), Some(at(1)));
    }
}
