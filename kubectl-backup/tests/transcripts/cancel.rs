use axum::http::Method;
use backup_core::labels::CANCEL_ANNOTATION;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{
    fake_api::{FakeApi, Fault},
    person::Person,
    samples::{completed_backup, completed_restore, new_backup, with},
};

fn backup(name: &str, phase: &str) -> Value {
    with(new_backup(name), &json!({ "status": { "phase": phase } }))
}

#[tokio::test]
async fn cancelling_a_backup_marks_it_once() {
    let api = FakeApi::start().await;
    api.has("backups", backup("nightly", "InProgress"));
    let person = Person::at(&api);
    assert_snapshot!(person.types("kubectl backup cancel nightly").await);
    let stored = api.stored("backups", "nightly").unwrap();
    assert!(stored["metadata"]["annotations"][CANCEL_ANNOTATION].is_string(), "{stored}");
    assert_snapshot!(person.types("kubectl backup cancel nightly").await);
    assert_eq!(api.stored("backups", "nightly"), Some(stored));
}

#[tokio::test]
async fn what_has_ended_or_is_being_stored_is_not_cancelled_and_does_not_keep_the_others() {
    let api = FakeApi::start().await;
    api.has("backups", completed_backup("done")).has("backups", backup("late", "Finalizing"));
    api.has("backups", backup("running", "WaitingForPluginOperations"));
    assert_snapshot!(Person::at(&api).types("kubectl backup cancel done late missing running").await);
    assert!(
        api.stored("backups", "running").unwrap()["metadata"]["annotations"][CANCEL_ANNOTATION].is_string()
    );
}

#[tokio::test]
async fn waiting_for_a_cancelled_backup_ends_well_in_whichever_way_it_ends() {
    let api = FakeApi::start().await;
    api.has("backups", backup("nightly", "InProgress"));
    let over =
        json!({ "metadata": { "annotations": { CANCEL_ANNOTATION: "now" } }, "status": { "errors": 1 } });
    let ended = with(backup("nightly", "PartiallyFailed"), &over);
    api.next(Method::GET, "/backups/nightly", Fault::Becomes(backup("nightly", "InProgress")));
    api.next(Method::GET, "/backups/nightly", Fault::Becomes(ended));
    assert_snapshot!(Person::at(&api).types("kubectl backup cancel nightly --wait").await);
}

#[tokio::test]
async fn cancelling_restores_marks_those_that_are_not_over() {
    let api = FakeApi::start().await;
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    for (name, at) in [("running", "InProgress"), ("late", "FinalizingPartiallyFailed")] {
        api.has("restores", with(completed_restore(name, "nightly"), &phase(at)));
    }
    api.has("restores", completed_restore("done", "nightly"));
    let person = Person::at(&api);
    assert_snapshot!(person.types("kubectl backup restore cancel done late running").await);
    let stored = api.stored("restores", "running").unwrap();
    assert!(stored["metadata"]["annotations"][CANCEL_ANNOTATION].is_string(), "{stored}");
    assert_snapshot!(person.types("kubectl backup restore describe running").await);
}
