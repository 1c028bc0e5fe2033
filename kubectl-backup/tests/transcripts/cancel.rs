use backup_core::labels::CANCEL_ANNOTATION;

use crate::prelude::*;

fn is_marked(object: &Value) -> bool {
    object["metadata"]["annotations"][CANCEL_ANNOTATION].is_string()
}

#[tokio::test]
async fn cancelling_a_backup_marks_it_once() {
    let api = FakeApi::with([backup_in("InProgress", "nightly")]).await;
    let person = Person::at(&api);
    transcript!(person, "cancel nightly");
    let stored = api.stored("backups", "nightly").unwrap();
    assert!(is_marked(&stored), "{stored}");
    transcript!(person, "cancel nightly");
    assert_eq!(api.stored("backups", "nightly"), Some(stored));
}

#[tokio::test]
async fn what_has_ended_or_is_being_stored_is_not_cancelled() {
    let api = FakeApi::with([completed_backup("done"), backup_in("Finalizing", "late")]).await;
    api.has(backup_in("WaitingForPluginOperations", "running"));
    transcript!(Person::at(&api), "cancel done late missing running");
    assert!(is_marked(&api.stored("backups", "running").unwrap()));
}

#[tokio::test]
async fn waiting_for_a_cancelled_backup_ends_well_at_any_end() {
    let api = FakeApi::with([backup_in("InProgress", "nightly")]).await;
    let over = json!({ "metadata": { "annotations": { CANCEL_ANNOTATION: "now" } }, "status": { "errors": 1 } });
    let ended = with(backup_in("PartiallyFailed", "nightly"), &over);
    api.becomes(
        "/backups/nightly",
        [backup_in("InProgress", "nightly"), ended],
    );
    transcript!(Person::at(&api), "cancel nightly --wait");
}

#[tokio::test]
async fn cancelling_restores_marks_those_that_are_not_over() {
    let api = FakeApi::start().await;
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    for (name, at) in [
        ("running", "InProgress"),
        ("late", "FinalizingPartiallyFailed"),
    ] {
        api.has(with(completed_restore(name, "nightly"), &phase(at)));
    }
    api.has(completed_restore("done", "nightly"));
    let person = Person::at(&api);
    transcript!(person, "restore cancel done late running");
    let stored = api.stored("restores", "running").unwrap();
    assert!(is_marked(&stored), "{stored}");
    transcript!(person, "restore describe running");
}
