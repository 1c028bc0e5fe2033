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

/// Work that was cancelled, with this status.
fn cancelled(base: Value, status: &Value) -> Value {
    let annotations = json!({ CANCEL_ANNOTATION: "now" });
    let over = json!({ "metadata": { "annotations": annotations }, "status": status });
    with(base, &over)
}

#[tokio::test]
async fn what_was_cancelled_before_its_first_item_says_that_nothing_came_of_it() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    let failed =
        |reason: &str| json!({ "phase": "Failed", "failureReason": reason, "progress": null });
    let never_begun = |reason: &str| json!({ "phase": "Failed", "failureReason": reason, "progress": null, "startTimestamp": null });
    let without_items = |total: i64| {
        let progress = json!({ "totalItems": total, "itemsBackedUp": 0, "itemsRestored": 0 });
        json!({ "phase": "PartiallyFailed", "errors": 1, "progress": progress })
    };
    let before = "never started: it was cancelled";
    for (status, sentence) in [
        (
            never_begun(before),
            "Failed. It was cancelled before it began; nothing was saved.\nMore",
        ),
        (
            without_items(0),
            "PartiallyFailed. It was cancelled before anything was saved (1 error).\n",
        ),
        (
            without_items(300),
            "PartiallyFailed. It was cancelled before anything was saved (1 error).\n",
        ),
        (
            failed("the store is away"),
            "Failed. It failed: there is nothing to restore from.\n  the store is away\n",
        ),
    ] {
        api.has(cancelled(completed_backup("b"), &status));
        assert_says!(person.types("wait b").await, sentence);
    }
    let before = "it was cancelled by a user before anything was restored";
    for (status, sentence) in [
        (
            never_begun(before),
            "Failed. It was cancelled before it began; nothing was restored.\nMore",
        ),
        (
            failed(before),
            "Failed. It was cancelled before anything was restored.\nMore",
        ),
        (
            without_items(0),
            "PartiallyFailed. It was cancelled; what it had restored by then stays (1 error).\n",
        ),
    ] {
        api.has(cancelled(completed_restore("r", "b"), &status));
        assert_says!(person.types("restore wait r").await, sentence);
    }
}

#[tokio::test]
async fn what_was_cancelled_before_it_began_has_no_log_to_look_at() {
    let status = json!({ "phase": "Failed", "failureReason": "never started: it was cancelled", "startTimestamp": null });
    let api = FakeApi::with([cancelled(completed_backup("b"), &status)]).await;
    let seen = Person::at(&api).types("describe b").await;
    let verdict = "  It was cancelled before it began; nothing was saved.\n";
    assert_says!(seen, verdict);
    assert!(!seen.contains("NEXT"), "{seen}");
}
