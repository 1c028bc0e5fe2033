//! `wait` and `--retry-for`, on which pipelines depend.

use backup_lock::{Footprint, Ledger, ObjectKey, State, ledger::Ask};

use crate::prelude::*;

#[tokio::test]
async fn every_outcome_has_its_code() {
    for (phase, code) in [
        ("Completed", 0),
        ("PartiallyFailed", 3),
        ("Failed", 3),
        ("FailedValidation", 3),
        ("Deleting", 3),
    ] {
        let api = FakeApi::with([with(
            completed_backup("b"),
            &json!({"status": {"phase": phase}}),
        )])
        .await;
        api.has(with(
            completed_restore("r", "b"),
            &json!({"status": {"phase": phase}}),
        ));
        let person = Person::at(&api);
        let seen = person.types("wait b").await;
        assert!(seen.ends_with(&format!("--- exit {code}\n")), "{seen}");
        if phase != "Deleting" {
            let seen = person.types("restore wait r").await;
            assert!(seen.ends_with(&format!("--- exit {code}\n")), "{seen}");
        }
    }
}

#[tokio::test]
async fn waiting_begins_also_while_the_api_server_is_away() {
    let api = FakeApi::start().await;
    let away = Fault::unavailable("apiserver is shutting down");
    let new = Fault::Becomes(new_backup("b"));
    let (running, completed) = (backup_in("InProgress", "b"), backup_in("Completed", "b"));
    let (running, completed) = (Fault::Becomes(running), Fault::Becomes(completed));
    api.has(new_backup("b"));
    api.meets(
        &Method::GET,
        "/b",
        [away.clone(), new, running, away, completed],
    );
    transcript!(Person::at(&api), "wait b --timeout=1m");
}

#[tokio::test]
async fn a_phase_may_be_waited_for_and_another_end_is_told() {
    let api = FakeApi::with([new_backup("b")]).await;
    api.becomes(
        "/b",
        [
            new_backup("b"),
            backup_in("Queued", "b"),
            backup_in("InProgress", "b"),
        ],
    );
    let person = Person::at(&api);
    let mut all = person.types("wait b --for=phase=InProgress").await;
    api.becomes(
        "/b",
        ["InProgress", "Completed"].map(|phase| backup_in(phase, "b")),
    );
    all += &person.types("wait b --for=Failed").await;
    api.has(new_backup("b"));
    all += &person
        .types("wait b --for=phase=InProgress --timeout=200ms")
        .await;
    all += &person.types("wait gone").await;
    all += &person.types("wait").await;
    all += &person.types("wait b --for=phase=Complted").await;
    all += &person.types("wait b --for=free").await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_scope_is_waited_for_until_nobody_holds_it() {
    let api = FakeApi::start().await;
    let mut ledger = Ledger::default();
    let key = ObjectKey::restore("velero", "back-again");
    ledger.adopt(
        &key,
        "uid-1",
        &Footprint::namespaces(["shop"]),
        State::Reserved,
        "2026-11-03T05:00:00Z",
    );
    let held = lease(&ledger).await;
    api.has(held.clone());
    let person = Person::at(&api);
    let mut all = person
        .types("wait --for=free --namespaces=shop --timeout=200ms")
        .await;
    all += &person.types("wait --for=free --namespaces=db").await;
    let name = held["metadata"]["name"].as_str().unwrap().to_owned();
    api.becomes(&name, [held, lease(&Ledger::default()).await]);
    all += &person.types("wait --for=free --timeout=10s").await;
    assert_snapshot!(all);
}

/// Ledgers with the intent of a refused restore, before and after the intent has lapsed.
fn refused_restore() -> [Ledger; 2] {
    let shop = Footprint::namespaces(["shop"]);
    let (backup, restore) = (
        ObjectKey::backup("velero", "b"),
        ObjectKey::restore("velero", "back-again"),
    );
    let mut ledger = Ledger::default();
    ledger.adopt(
        &backup,
        "uid-1",
        &shop,
        State::Active,
        "2026-11-03T05:00:00Z",
    );
    assert!(ledger.leave_intent(
        &restore,
        "uid-2",
        &shop,
        "2026-11-03T05:00:00Z",
        &Ask::default()
    ));
    ledger.release(&backup, "uid-1");
    let expected = ledger.clone();
    assert!(ledger.lapse(&restore, "uid-2"));
    [expected, ledger]
}

#[tokio::test]
async fn a_refused_restore_is_waited_for_while_it_keeps_backups_out() {
    let api = FakeApi::start().await;
    let [expected, lapsed] = refused_restore();
    let person = Person::at(&api);
    let mut all = String::new();
    for ledger in [expected, lapsed] {
        api.has(lease(&ledger).await);
        for line in ["wait --for=free --timeout=200ms", "status"] {
            let seen = person.types(line).await;
            all += &seen;
        }
    }
    assert_snapshot!(all);
}

fn refused(seconds: u32) -> Fault {
    let words = "Restore velero/back-again is InProgress since 2026-11-03T05:10:12Z and writes namespace shop";
    let message = format!(
        "admission webhook \"claims.backup-webhook.velero.io\" denied the request: {words}"
    );
    let details = json!({"name": "shop", "group": "velero.io", "kind": "backups", "retryAfterSeconds": seconds});
    Fault::refused_with(403, "Forbidden", &message, details)
}

#[tokio::test]
async fn a_refused_creation_is_tried_again_at_the_pace_that_is_named() {
    let api = FakeApi::start().await;
    api.on_post("/backups", refused(1));
    let start = std::time::Instant::now();
    let seen = Person::at(&api).types("create shop --retry-for=10s").await;
    assert!(
        start.elapsed() >= std::time::Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    assert_says!(seen, "trying again in 1s\n", "--- exit 0\n");
    assert!(api.stored("backups", "shop").is_some());
}

#[tokio::test]
async fn the_last_refusal_in_time_ends_with_exit_code_124() {
    let api = FakeApi::start().await;
    api.meets(&Method::POST, "/restores", vec![refused(30); 9]);
    api.has(completed_backup("b"));
    let seen = Person::at(&api)
        .types("restore --from-backup=b --name=again --retry-for=300ms")
        .await;
    assert_snapshot!(seen);
    assert_eq!(
        api.seen()
            .iter()
            .filter(|one| one.starts_with("POST"))
            .count(),
        2,
        "at once, and at the end"
    );
}

#[tokio::test]
async fn what_will_not_pass_is_not_tried_again() {
    let api = FakeApi::start().await;
    api.on_post("/backups", refused(0));
    let seen = Person::at(&api).types("create shop --retry-for=10s").await;
    assert!(
        !seen.contains("trying again") && seen.ends_with("--- exit 1\n"),
        "{seen}"
    );
}

#[tokio::test]
async fn several_are_waited_for_side_by_side() {
    let api = FakeApi::with([backup_in("InProgress", "a"), backup_in("InProgress", "b")]).await;
    api.becomes(
        "/b",
        ["InProgress", "InProgress", "Failed"].map(|phase| backup_in(phase, "b")),
    );
    transcript!(Person::at(&api), "wait a b gone --timeout=2s");
}

/// One event of a watch.
fn modified(phase: &str) -> String {
    format!(
        "{}\n",
        json!({ "type": "MODIFIED", "object": backup_in(phase, "b") })
    )
}

#[tokio::test]
async fn a_phase_that_passes_between_two_looks_was_there() {
    let api = FakeApi::with([new_backup("b")]).await;
    let watched = (modified("InProgress") + &modified("Completed")).into_bytes();
    api.on_get(
        "/backups?watch",
        Fault::Bytes(
            200,
            vec![("content-type", "application/json".to_owned())],
            watched,
        ),
    );
    let seen = Person::at(&api)
        .types("wait b --for=phase=InProgress --timeout=1m")
        .await;
    assert!(
        seen.ends_with("backup b: InProgress\n--- exit 0\n"),
        "{seen}"
    );
    let asked: Vec<String> = api
        .seen()
        .into_iter()
        .filter(|line| line.contains("watch"))
        .collect();
    assert!(
        asked[0].contains("resourceVersion=1"),
        "nothing is missed before the watch: {asked:?}"
    );
}
