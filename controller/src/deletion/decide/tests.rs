use backup_core::api::{BackupPhase, BackupSpec, delete_backup_request::DeleteBackupRequestSpec};

use super::*;

fn request(phase: Option<&str>, uid: Option<&str>) -> DeleteBackupRequest {
    let mut request = DeleteBackupRequest::new("request", DeleteBackupRequestSpec::default());
    request.spec.backup_name = "nightly".to_owned();
    request.status.phase = phase.map(Phase::from);
    if let Some(uid) = uid {
        request
            .labels_mut()
            .insert(labels::BACKUP_UID.to_owned(), uid.to_owned());
    }
    request
}

fn backup(phase: &str) -> Backup {
    let mut backup = Backup::new("nightly", BackupSpec::default());
    backup.metadata.uid = Some("u1".to_owned());
    backup.status.phase = Some(phase.into());
    backup
}

fn now() -> Timestamp {
    "2026-11-01T12:00:00Z".parse().unwrap()
}

fn facts(phase: &str) -> Facts {
    Facts {
        backup: Some(backup(phase)),
        users: Vec::new(),
        store: Store::Ready,
        now: now(),
    }
}

fn plan(request: &DeleteBackupRequest, facts: &Facts) -> &'static str {
    match decide(request, facts) {
        Plan::Nothing => "nothing",
        Plan::Wait(_) => "wait",
        Plan::Sleep(_) => "sleep",
        Plan::Refuse(errors) => {
            assert_eq!(errors.len(), 1);
            "refuse"
        }
        Plan::Begin(_) => "begin",
        Plan::Continue(_) => "continue",
        Plan::Finish => "finish",
        Plan::Sweep => "sweep",
    }
}

#[test]
fn every_phase_of_a_backup_has_an_answer_and_only_ended_backups_are_deleted() {
    for phase in BackupPhase::KNOWN.iter().copied().chain(["FromTheFuture"]) {
        let ended = [
            "Completed",
            "PartiallyFailed",
            "Failed",
            "FailedValidation",
            "Deleting",
        ]
        .contains(&phase);
        let facts = facts(phase);
        assert_eq!(
            plan(&request(None, None), &facts),
            if ended { "begin" } else { "refuse" },
            "{phase}"
        );
        assert_eq!(
            plan(&request(Some("InProgress"), Some("u1")), &facts),
            if ended { "continue" } else { "refuse" }
        );
    }
}

#[test]
fn everything_is_checked_before_and_waited_for_after_the_deletion_has_begun() {
    let used = Facts {
        users: vec!["r1 (InProgress)".to_owned()],
        ..facts("Completed")
    };
    let gone = Facts {
        backup: None,
        ..facts("Completed")
    };
    let store = |store| Facts {
        store,
        ..facts("Completed")
    };
    let text = || "why".to_owned();
    for (what, facts, new, begun) in [
        ("ready", facts("Completed"), "begin", "continue"),
        ("used by a restore", used, "refuse", "wait"),
        ("backup is gone", gone, "refuse", "finish"),
        (
            "location is read-only or missing",
            store(Store::Never(text())),
            "refuse",
            "refuse",
        ),
        (
            "location is unavailable",
            store(Store::NotNow(text())),
            "refuse",
            "wait",
        ),
        (
            "location was not validated yet",
            store(Store::Unknown(text())),
            "wait",
            "wait",
        ),
    ] {
        assert_eq!(plan(&request(None, None), &facts), new, "{what}");
        assert_eq!(
            plan(&request(Some("New"), Some("u1")), &facts),
            new,
            "{what}"
        );
        assert_eq!(
            plan(&request(Some("InProgress"), Some("u1")), &facts),
            begun,
            "{what}"
        );
    }
}

#[test]
fn a_recreated_backup_is_not_deleted_for_its_predecessor() {
    assert_eq!(
        plan(&request(None, Some("u0")), &facts("Completed")),
        "refuse"
    );
    assert_eq!(
        plan(
            &request(Some("InProgress"), Some("u0")),
            &facts("Completed")
        ),
        "finish"
    );
}

#[test]
fn an_answered_request_is_left_with_its_errors_and_removed_without() {
    let mut answered = request(Some("Processed"), None);
    assert_eq!(plan(&answered, &facts("Completed")), "sweep");
    answered.status.errors = vec!["why".to_owned()];
    assert_eq!(plan(&answered, &facts("Completed")), "nothing");
    assert_eq!(
        plan(&request(Some("FromTheFuture"), None), &facts("Completed")),
        "nothing"
    );
}

#[test]
fn refusals_say_what_to_do() {
    let mut used = facts("Completed");
    used.users = (0..8).map(|n| format!("r{n} (New)")).collect();
    let request = request(None, None);
    let Plan::Refuse(errors) = decide(&request, &used) else {
        panic!("not refused")
    };
    assert!(
        errors[0].contains("r4 (New) and 3 more; make a new request once they have"),
        "{}",
        errors[0]
    );
    let mut unnamed = request.clone();
    unnamed.spec.backup_name = String::new();
    assert_eq!(plan(&unnamed, &facts("Completed")), "refuse");
}

#[test]
fn a_backup_that_failed_on_a_taken_name_leaves_the_other_backups_files_alone() {
    let mut failed = backup("Deleting");
    failed.status.failure_reason = Some("the name is taken".to_owned());
    let mut other = backup("Completed");
    other.metadata.uid = Some("u2".to_owned());
    assert!(!owns_files(&failed, Some(&other)));
    assert!(owns_files(&failed, None));
    assert!(owns_files(&failed, Some(&failed.clone())));
    assert!(
        owns_files(&backup("Deleting"), Some(&other)),
        "synced from the bucket: another uid, the same backup"
    );
    let mut synced = failed.clone();
    synced.metadata.uid = Some("u3".to_owned());
    assert!(
        owns_files(&synced, Some(&failed)),
        "a failed backup that was synced"
    );
    let mut refused = backup("Deleting");
    refused.status.validation_errors = vec!["spec.ttl".to_owned()];
    assert!(!has_files(&refused));
}

#[test]
fn what_a_store_keeps_is_left_alone_until_its_date_unless_somebody_asks_again() {
    let locked = |phase: &str, again: &str| {
        let mut facts = facts(phase);
        let waits = Waits {
            again: again.parse().unwrap(),
            ..Waits::default()
        };
        let backup = facts.backup.as_mut().unwrap();
        backup.annotations_mut().insert(
            labels::DELETION_WAITS_ANNOTATION.to_owned(),
            waits.annotation(),
        );
        facts
    };
    let begun = request(Some("InProgress"), Some("u1"));
    let week = locked("Deleting", "2026-11-08T12:00:00Z");
    assert_eq!(decide(&begun, &week), Plan::Sleep(Duration::from_hours(24)));
    let soon = locked("Deleting", "2026-11-01T12:00:07Z");
    assert_eq!(decide(&begun, &soon), Plan::Sleep(Duration::from_secs(7)));
    for over in ["2026-11-01T12:00:00Z", "2026-10-01T00:00:00Z"] {
        assert_eq!(
            plan(&begun, &locked("Deleting", over)),
            "continue",
            "{over}"
        );
    }
    assert_eq!(
        plan(&request(None, None), &week),
        "begin",
        "a new request looks at once"
    );
    assert_eq!(
        plan(&begun, &locked("Completed", "2026-11-08T12:00:00Z")),
        "continue",
        "of another deletion"
    );
    // While there is nothing to do, neither the store nor anything else is needed.
    let away = Facts {
        store: Store::NotNow("away".to_owned()),
        ..week
    };
    assert_eq!(plan(&begun, &away), "sleep");
}

/// A refused backup has nothing in the store: files under its name belong to another.
#[test]
fn only_a_backup_that_was_valid_may_have_files() {
    let mut refused = backup("FailedValidation");
    assert!(has_files(&refused));
    refused.status.validation_errors = vec!["spec.ttl: is not a duration".to_owned()];
    assert!(!has_files(&refused));
}
