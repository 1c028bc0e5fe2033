use backup_core::labels::CANCEL_ANNOTATION;

use crate::prelude::*;

fn backup(name: &str, phase: &str) -> Value {
    with(new_backup(name), &json!({ "status": { "phase": phase } }))
}

#[tokio::test]
async fn cancelling_a_backup_marks_it_once() {
    let api = FakeApi::start().await;
    api.has(backup("nightly", "InProgress"));
    let person = Person::at(&api);
    transcript!(person, "cancel nightly");
    let stored = api.stored("backups", "nightly").unwrap();
    assert!(stored["metadata"]["annotations"][CANCEL_ANNOTATION].is_string(), "{stored}");
    transcript!(person, "cancel nightly");
    assert_eq!(api.stored("backups", "nightly"), Some(stored));
}

#[tokio::test]
async fn what_has_ended_or_is_being_stored_is_not_cancelled() {
    let api = FakeApi::start().await;
    api.has(completed_backup("done")).has(backup("late", "Finalizing"));
    api.has(backup("running", "WaitingForPluginOperations"));
    transcript!(Person::at(&api), "cancel done late missing running");
    assert!(
        api.stored("backups", "running").unwrap()["metadata"]["annotations"][CANCEL_ANNOTATION].is_string()
    );
}

#[tokio::test]
async fn waiting_for_a_cancelled_backup_ends_well_at_any_end() {
    let api = FakeApi::start().await;
    api.has(backup("nightly", "InProgress"));
    let over =
        json!({ "metadata": { "annotations": { CANCEL_ANNOTATION: "now" } }, "status": { "errors": 1 } });
    let ended = with(backup("nightly", "PartiallyFailed"), &over);
    api.on_get("/backups/nightly", Fault::Becomes(backup("nightly", "InProgress")));
    api.on_get("/backups/nightly", Fault::Becomes(ended));
    transcript!(Person::at(&api), "cancel nightly --wait");
}

#[tokio::test]
async fn cancelling_restores_marks_those_that_are_not_over() {
    let api = FakeApi::start().await;
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    for (name, at) in [("running", "InProgress"), ("late", "FinalizingPartiallyFailed")] {
        api.has(with(completed_restore(name, "nightly"), &phase(at)));
    }
    api.has(completed_restore("done", "nightly"));
    let person = Person::at(&api);
    transcript!(person, "restore cancel done late running");
    let stored = api.stored("restores", "running").unwrap();
    assert!(stored["metadata"]["annotations"][CANCEL_ANNOTATION].is_string(), "{stored}");
    transcript!(person, "restore describe running");
}
