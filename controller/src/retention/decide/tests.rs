use backup_core::{
    api::{Backup, BackupPhase, BackupSpec, delete_backup_request::DeleteBackupRequestSpec},
    keep::Rule,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const HOUR: Duration = Duration::from_hours(1);

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn backup(phase: &str, expired_ago: Option<i64>) -> Backup {
    let mut backup = Backup::new("b", BackupSpec::default());
    backup.status.phase = Some(phase.into());
    backup.status.expiration = expired_ago.map(|seconds| Time(ago(seconds)));
    backup
}

#[test]
fn only_what_has_ended_and_expired_is_deleted() {
    for (phase, expired, deleted, expected) in [
        ("Completed", Some(1), false, true),
        ("Completed", Some(0), false, true),
        ("Completed", Some(-7), false, false),
        ("Completed", None, false, false),
        ("Completed", Some(1), true, false),
        ("PartiallyFailed", Some(1), false, true),
        ("Failed", Some(1), false, true),
        ("FailedValidation", Some(1), false, true),
        // A deletion that failed.
        ("Deleting", Some(1), false, true),
        ("New", Some(1), false, false),
        ("Queued", Some(1), false, false),
        ("ReadyToStart", Some(1), false, false),
        ("InProgress", Some(1), false, false),
        ("WaitingForPluginOperations", Some(1), false, false),
        (
            "WaitingForPluginOperationsPartiallyFailed",
            Some(1),
            false,
            false,
        ),
        ("Finalizing", Some(1), false, false),
        ("FinalizingPartiallyFailed", Some(1), false, false),
        ("Tomorrow", Some(1), false, false),
    ] {
        let mut backup = backup(phase, expired);
        backup.metadata.deletion_timestamp = deleted.then(|| Time(ago(0)));
        let facts = RetentionFacts::of(&backup);
        assert_eq!(
            facts.has_expired(now()),
            expected,
            "{phase} {expired:?} {deleted}"
        );
    }
    assert_eq!(
        BackupPhase::KNOWN.len(),
        13,
        "a phase that is not in the table"
    );
}

#[test]
fn there_is_one_request_at_a_time_and_one_that_failed_is_made_again_later() {
    let request = |name: &str, phase: Option<&str>, age: i64| {
        let mut request = DeleteBackupRequest::new(name, DeleteBackupRequestSpec::default());
        request.status.phase = phase.map(Phase::from);
        request.metadata.creation_timestamp = Some(Time(ago(age)));
        request
    };
    let ours = "expired-b";
    let processed = Some("Processed");
    for (requests, failure, expected) in [
        (vec![], None, "Request"),
        (vec![], Some(Failure::ReadOnly), "Label"),
        (vec![request("b-x", None, 9999)], None, "Nothing"),
        (
            vec![request("b-x", None, 9999)],
            Some(Failure::ReadOnly),
            "Nothing",
        ),
        (vec![request("b-x", Some("New"), 1)], None, "Nothing"),
        (
            vec![request(ours, Some("InProgress"), 9999)],
            None,
            "Nothing",
        ),
        // A failed request of another client.
        (vec![request("b-x", processed, 1)], None, "Request"),
        (vec![request(ours, processed, 3599)], None, "Nothing"),
        (vec![request(ours, processed, 3600)], None, "Renew"),
        (
            vec![request(ours, processed, 3600)],
            Some(Failure::Unavailable),
            "Label",
        ),
        (
            vec![request(ours, processed, 3600), request("b-x", None, 1)],
            None,
            "Nothing",
        ),
    ] {
        let case = Case {
            failure,
            requests,
            own_request: ours.to_owned(),
            ..Case::default()
        };
        let step = format!("{:?}", decide(&case, now(), HOUR));
        assert!(step.starts_with(expected), "{case:?}: {step}");
    }
}

#[test]
fn what_is_kept_is_not_requested_whatever_the_state_of_its_location() {
    let by_rule = RetentionVerdict {
        rules: vec![Rule::Daily],
        ..RetentionVerdict::default()
    };
    let unknown = RetentionVerdict {
        unknown_rules: Some("why".to_owned()),
        ..RetentionVerdict::default()
    };
    let last = RetentionVerdict {
        is_last_good: true,
        ..RetentionVerdict::default()
    };
    let read_only = Some(Failure::ReadOnly);
    for (verdict, failure, expected) in [
        (&by_rule, None, Step::Keep),
        (&by_rule, read_only, Step::Keep),
        (&unknown, None, Step::Keep),
        (&last, None, Step::Keep),
        // Whether it is the last one may depend on its location.
        (&last, read_only, Step::Label(Failure::ReadOnly)),
        (&RetentionVerdict::default(), None, Step::Request),
    ] {
        let case = Case {
            verdict: verdict.clone(),
            failure,
            ..Case::default()
        };
        assert_eq!(decide(&case, now(), HOUR), expected, "{case:?}");
    }
}

#[test]
fn a_pass_is_made_when_something_expires_and_repeated_while_something_stays() {
    let new = |seconds: i64| WatchedExpiry {
        at: ago(seconds),
        was_checked: false,
    };
    let stays = |seconds: i64| WatchedExpiry {
        at: ago(seconds),
        was_checked: true,
    };
    let wait = |seconds| Next::Wait(Action::RequeueAfter(Duration::from_secs(seconds)));
    let nothing = Next::Wait(Action::AwaitChange);
    for (expiries, requested, last, expected) in [
        (vec![], false, None, nothing),
        (vec![], true, Some(1), Next::Pass),
        (vec![new(0)], false, None, Next::Pass),
        (vec![new(0)], false, Some(1), Next::Pass),
        (vec![new(-7)], false, None, wait(7)),
        (vec![new(-7), new(-3)], false, Some(1), wait(3)),
        // The clock may have been wrong.
        (
            vec![new(-365 * 86_400)],
            false,
            None,
            Next::Wait(Action::RequeueAfter(MAX_WAIT)),
        ),
        (vec![stays(9000)], false, Some(600), wait(3000)),
        (vec![stays(9000), new(-60)], false, Some(600), wait(60)),
        (vec![stays(9000), new(1)], false, Some(600), Next::Pass),
        (vec![stays(9000)], false, Some(3600), Next::Pass),
        (vec![stays(9000)], false, None, Next::Pass),
        // The clock went back since.
        (vec![stays(9000)], false, Some(-86_400), wait(3600)),
    ] {
        let found = next(
            expiries.iter().copied(),
            requested,
            last.map(ago),
            now(),
            HOUR,
        );
        assert_eq!(found, expected, "{expiries:?} {requested} {last:?}");
    }
}

#[test]
fn what_is_removed_is_counted_once_and_what_has_no_data_is_no_loss() {
    let facts = |phase: &str| RetentionFacts::of(&backup(phase, Some(1)));
    let (stored, failed) = (facts("Completed"), facts("Failed"));
    let renewed = DeleteBackupRequest::new("r", DeleteBackupRequestSpec::default());
    let steps = [
        (&stored, Step::Request),
        (&stored, Step::Keep),
        (&stored, Step::Renew(Box::new(renewed))),
        (&failed, Step::Request),
    ];
    let load = load(&[&stored, &stored, &failed], &steps);
    assert_eq!((load.held.len(), load.due.len(), load.removals), (2, 1, 2));
}

/// The values are part of the API: users select backups by Velero's label.
#[test]
fn the_label_has_the_values_that_velero_gives_it() {
    let all = [
        Failure::NotFound,
        Failure::CannotGet,
        Failure::ReadOnly,
        Failure::Unavailable,
    ];
    let values = [
        "BSLNotFound",
        "BSLCannotGet",
        "BSLReadOnly",
        "BSLUnavailable",
    ];
    assert_eq!(all.map(Failure::as_str), values);
}
