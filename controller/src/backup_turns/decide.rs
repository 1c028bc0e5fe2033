//! Decides which backup of a schedule is verified, or restored on trial, and when. Pure.

use std::time::Duration;

use backup_core::{
    api::{Backup, BackupPhase, GoDuration, schedule::BackupChoice},
    digest::sha256,
    labels::{VERIFIED_ANNOTATION, annotation},
    verification::Verification,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::RETRY_INTERVAL;

/// How often a schedule asks for a verification or a drill, and of which backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) every: SignedDuration,
    pub(crate) which: BackupChoice,
}

impl Terms {
    /// `None` if they are not valid.
    pub(crate) fn of(every: Option<GoDuration>, which: Option<&BackupChoice>) -> Option<Self> {
        let every = SignedDuration::try_from(every?.as_std()).ok()?;
        let which = which.cloned().unwrap_or(BackupChoice::Newest);
        let is_valid = every > SignedDuration::ZERO && !matches!(which, BackupChoice::Unknown(_));
        is_valid.then_some(Self { every, which })
    }

    /// Delay before a turn that is due, and not possible now, is tried again.
    pub(crate) fn retry_interval(&self) -> Duration {
        self.every.unsigned_abs().min(RETRY_INTERVAL)
    }

    /// When the next turn is due after the last one; `None` if it is due as soon as there is a
    /// backup.
    pub(crate) fn next(&self, last: Option<Timestamp>) -> Option<Timestamp> {
        Some(last?.checked_add(self.every).unwrap_or(Timestamp::MAX))
    }
}

/// A backup of the schedule that has ended with files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) location: String,
    /// End of the backup; its creation if that is not known.
    ended: Option<Timestamp>,
    began: Option<Timestamp>,
    /// Time of its last turn: of its last verification, by anyone, or of its last drill.
    verified: Option<Timestamp>,
}

impl Candidate {
    /// `None` for a backup that has no files, or is being deleted.
    pub(crate) fn of(backup: &Backup) -> Option<Self> {
        if !has_files(backup) {
            return None;
        }
        let status = &backup.status;
        let created = backup.metadata.creation_timestamp.as_ref();
        let ended = status.completion_timestamp.as_ref().or(created);
        let began = status.start_timestamp.as_ref().or(created);
        let verified = Verification::read(annotation(backup, VERIFIED_ANNOTATION));
        Some(Self {
            name: backup.name_any(),
            uid: backup.uid().unwrap_or_default(),
            location: backup.spec.storage_location.clone().unwrap_or_default(),
            ended: ended.map(|time| time.0),
            began: began.map(|time| time.0),
            verified: verified.map(|last| last.at),
        })
    }

    /// The same backup, of which this was the last turn.
    pub(crate) fn with_turn(self, last: Option<Timestamp>) -> Self {
        Self {
            verified: last,
            ..self
        }
    }
}

/// Whether a backup has its files, and is not being deleted.
pub(crate) fn has_files(backup: &Backup) -> bool {
    backup.metadata.deletion_timestamp.is_none()
        && matches!(
            backup.phase(),
            BackupPhase::Completed | BackupPhase::PartiallyFailed
        )
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// There is no backup that has ended.
    Nothing,
    /// It has been due since then, and no backup is in a location that can be read.
    Unreadable(Timestamp),
    /// It has been due since then.
    Chosen(Timestamp, Candidate),
}

/// Chooses the backup of a turn that is due: `next` is the result of [`Terms::next`]. `seed` is the
/// same for each attempt of one turn, so that an attempt that was cut is begun again with
/// the same backup.
pub(crate) fn decide(
    terms: &Terms,
    next: Option<Timestamp>,
    seed: &str,
    candidates: Vec<Candidate>,
    is_readable: impl Fn(&str) -> bool,
) -> Plan {
    let first = candidates.iter().filter_map(|one| one.ended).min();
    if candidates.is_empty() {
        return Plan::Nothing;
    }
    let due = next.or(first).unwrap_or(Timestamp::UNIX_EPOCH);
    let mut readable: Vec<Candidate> = candidates
        .into_iter()
        .filter(|one| is_readable(&one.location))
        .collect();
    match terms.which {
        BackupChoice::Random => readable.sort_by_cached_key(|one| rank(seed, one)),
        BackupChoice::All => readable.sort_by(|a, b| in_turn(a).cmp(&in_turn(b))),
        BackupChoice::Newest | BackupChoice::Unknown(_) => {
            readable.sort_by(|a, b| (b.began, &b.name).cmp(&(a.began, &a.name)));
        }
    }
    readable
        .into_iter()
        .next()
        .map_or(Plan::Unreadable(due), |one| Plan::Chosen(due, one))
}

/// Backups that had no turn yet come first, then the one whose last turn is the longest ago;
/// of equal ones the oldest.
fn in_turn(one: &Candidate) -> (Option<Timestamp>, Option<Timestamp>, &str) {
    (one.verified, one.began, &one.name)
}

/// A number that depends on seed and backup only: other backups that come and go do not change the
/// order of the rest.
fn rank(seed: &str, one: &Candidate) -> String {
    sha256(format!("{seed}/{}", one.uid).as_bytes())
}

#[cfg(test)]
mod tests {
    use backup_core::api::schedule::ScheduleSpec;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_turn_that_is_not_possible_is_tried_again_no_later_than_the_next_would_be() {
        for (every, expected) in [(60, 60), (300, 300), (86_400, 300)] {
            let terms = Terms::of(Some(GoDuration::from_secs(every)), None).unwrap();
            assert_eq!(terms.retry_interval(), Duration::from_secs(expected));
        }
    }

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(hour * 3600).unwrap()
    }

    /// A backup that ended at this hour, and was verified at another one.
    fn candidate(name: &str, hour: i64, verified: Option<i64>) -> Candidate {
        Candidate {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            location: "default".to_owned(),
            ended: Some(at(hour)),
            began: Some(at(hour - 1)),
            verified: verified.map(at),
        }
    }

    fn terms_of(which: BackupChoice) -> Terms {
        Terms {
            every: SignedDuration::from_hours(24),
            which,
        }
    }

    fn chosen(plan: &Plan) -> &str {
        match plan {
            Plan::Nothing => "nothing",
            Plan::Unreadable(_) => "unreadable",
            Plan::Chosen(_, candidate) => &candidate.name,
        }
    }

    #[rstest]
    #[case::none(&[], "nothing", "nothing")]
    #[case::one(&[("a", 1, None)], "a", "a")]
    #[case::never_verified_first(&[("a", 1, Some(90)), ("b", 2, None), ("c", 3, None), ("d", 4, Some(80))], "d", "b")]
    #[case::longest_ago(&[("a", 1, Some(90)), ("b", 2, Some(70)), ("c", 3, Some(80))], "c", "b")]
    #[case::equal_times(&[("b", 1, Some(70)), ("a", 1, Some(70))], "b", "a")]
    #[case::verified_by_hand_goes_to_the_end(&[("a", 1, Some(99)), ("b", 2, Some(98))], "b", "b")]
    fn the_newest_or_the_longest_ago_is_chosen_in_whatever_order_they_are_listed(
        #[case] backups: &[(&str, i64, Option<i64>)],
        #[case] newest: &str,
        #[case] in_turn: &str,
    ) {
        let mut candidates: Vec<Candidate> = backups
            .iter()
            .map(|(name, hour, verified)| candidate(name, *hour, *verified))
            .collect();
        for _ in 0..=candidates.len() {
            for (which, expected) in [(BackupChoice::Newest, newest), (BackupChoice::All, in_turn)]
            {
                let plan = decide(&terms_of(which), None, "s", candidates.clone(), |_| true);
                assert_eq!(chosen(&plan), expected);
            }
            let len = candidates.len().max(1);
            candidates.rotate_left(1 % len);
        }
    }

    #[test]
    fn all_in_turn_verifies_each_backup_once_in_as_many_verifications() {
        let mut all: Vec<Candidate> = (0..7)
            .map(|n| candidate(&format!("b{n}"), n, None))
            .collect();
        let mut order = Vec::new();
        for hour in 100..107 {
            let plan = decide(&terms_of(BackupChoice::All), None, "s", all.clone(), |_| {
                true
            });
            let name = chosen(&plan).to_owned();
            let verified = all.iter_mut().find(|one| one.name == name).unwrap();
            verified.verified = Some(at(hour));
            order.push(name);
        }
        assert_eq!(order, ["b0", "b1", "b2", "b3", "b4", "b5", "b6"]);
    }

    #[test]
    fn a_random_backup_is_the_same_for_each_attempt_and_every_one_has_its_turn() {
        let all: Vec<Candidate> = (0..5)
            .map(|n| candidate(&format!("b{n}"), n, None))
            .collect();
        let mut all_chosen = std::collections::BTreeSet::new();
        for n in 0..200 {
            let seed = format!("seed-{n}");
            let random = terms_of(BackupChoice::Random);
            let plan = decide(&random, None, &seed, all.clone(), |_| true);
            let mut others = all.clone();
            others.rotate_left(3);
            others.retain(|one| one.name == chosen(&plan) || one.name != "b4");
            let again = decide(&random, None, &seed, others, |_| true);
            assert_eq!(plan, again, "another backup that goes changes nothing");
            all_chosen.insert(chosen(&plan).to_owned());
        }
        assert_eq!(all_chosen.len(), 5);
    }

    #[test]
    fn only_backups_in_locations_that_can_be_read_are_chosen() {
        let mut all = vec![candidate("a", 1, None), candidate("b", 2, None)];
        all[1].location = "away".to_owned();
        let newest = terms_of(BackupChoice::Newest);
        let plan =
            |is_readable: fn(&str) -> bool| decide(&newest, None, "s", all.clone(), is_readable);
        assert_eq!(chosen(&plan(|_| true)), "b");
        assert_eq!(chosen(&plan(|name| name == "default")), "a");
        assert_eq!(plan(|_| false), Plan::Unreadable(at(1)));
    }

    #[rstest]
    #[case::never(None, None)]
    #[case::later(Some(80), Some(104))]
    #[case::passed(Some(10), Some(34))]
    fn the_next_is_due_an_interval_after_the_last(
        #[case] last: Option<i64>,
        #[case] expected: Option<i64>,
    ) {
        let next = terms_of(BackupChoice::All).next(last.map(at));
        assert_eq!(next, expected.map(at));
        // Without an earlier one it is due since the first backup has ended.
        let candidates = vec![candidate("b", 7, None), candidate("a", 5, None)];
        let plan = decide(
            &terms_of(BackupChoice::Newest),
            next,
            "s",
            candidates,
            |_| true,
        );
        let due = expected.map_or(at(5), at);
        assert_eq!(plan, Plan::Chosen(due, candidate("b", 7, None)));
    }

    #[rstest]
    #[case::completed("Completed", false, true)]
    #[case::partial("PartiallyFailed", false, true)]
    #[case::deleted("Completed", true, false)]
    #[case::deleting("Deleting", false, false)]
    #[case::failed("Failed", false, false)]
    #[case::refused("FailedValidation", false, false)]
    #[case::runs("InProgress", false, false)]
    #[case::of_a_newer_version("Tomorrow", false, false)]
    fn only_backups_with_files_are_candidates(
        #[case] phase: &str,
        #[case] is_deleted: bool,
        #[case] expected: bool,
    ) {
        let deleted = is_deleted.then_some("1970-01-01T09:00:00Z");
        let record = r#"{"at":"1970-01-01T08:00:00Z","findings":0}"#;
        let object = json!({ "metadata": { "name": "a", "uid": "uid-a", "deletionTimestamp": deleted,
                "annotations": { VERIFIED_ANNOTATION: record } },
            "spec": { "storageLocation": "default" },
            "status": { "phase": phase, "startTimestamp": "1970-01-01T04:00:00Z",
                "completionTimestamp": "1970-01-01T05:00:00Z" } });
        let backup = serde_json::from_value(object).unwrap();
        let expected = expected.then(|| candidate("a", 5, Some(8)));
        assert_eq!(Candidate::of(&backup), expected);
    }

    #[rstest]
    #[case::unset(json!(null), None)]
    #[case::newest(json!({ "every": "24h" }), Some(BackupChoice::Newest))]
    #[case::all(json!({ "every": "24h", "which": "all" }), Some(BackupChoice::All))]
    #[case::no_interval(json!({ "which": "all" }), None)]
    #[case::negative(json!({ "every": "-1h" }), None)]
    #[case::unknown(json!({ "every": "24h", "which": "oldest" }), None)]
    fn only_what_is_valid_is_followed(
        #[case] verify: serde_json::Value,
        #[case] which: Option<BackupChoice>,
    ) {
        let spec = json!({ "schedule": "@daily", "template": {}, "verify": verify });
        let spec: ScheduleSpec = serde_json::from_value(spec).unwrap();
        let terms = spec
            .verify
            .and_then(|verify| Terms::of(verify.every, verify.which.as_ref()));
        assert_eq!(terms, which.map(terms_of));
    }
}
