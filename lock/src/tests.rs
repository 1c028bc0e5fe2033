//! The ledger in its Lease, against an API server in memory.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    ActivateError, Collector, Footprint, Ledger, LedgerStore, ObjectKey, State, VELERO_SCOPE, activate,
    activate::holds,
    collect::Reason,
    fake_api::{FakeApi, LEDGER_PATH, velero_path},
    lease::{LedgerError, UpdateError},
    ledger::Refusal,
    release,
};

fn deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(5)
}

fn setup() -> (FakeApi, LedgerStore) {
    let api = FakeApi::new();
    let store = LedgerStore::new(api.client(), "velero");
    (api, store)
}

async fn admit(store: &LedgerStore, key: &ObjectKey, uid: &str) -> Result<(), UpdateError<Refusal>> {
    let change = |ledger: &mut Ledger| ledger.admit(key, uid, &Footprint::everything(), "now");
    store.update(VELERO_SCOPE, deadline(), change).await.map(|_| ())
}

async fn ledger(store: &LedgerStore) -> Ledger {
    (*store.read(VELERO_SCOPE).await.unwrap().unwrap().ledger).clone()
}

fn backup(name: &str) -> ObjectKey {
    ObjectKey::backup("velero", name)
}

fn restore(name: &str) -> ObjectKey {
    ObjectKey::restore("velero", name)
}

fn all() -> Value {
    json!({})
}

#[tokio::test]
async fn the_lease_shows_people_who_holds_it() {
    let (api, store) = setup();
    admit(&store, &restore("r1"), "1").await.unwrap();
    let lease = api.get(LEDGER_PATH).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "restore/velero/r1");
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    assert_eq!(lease["metadata"]["labels"]["velero.io/exclude-from-backup"], "true");
}

#[tokio::test]
async fn a_first_ledger_holds_what_runs_already() {
    let (api, store) = setup();
    api.put_velero("Backup", "running", "1", "InProgress", &all());
    api.put_velero("Backup", "new", "2", "", &all());
    api.put_velero("Backup", "done", "3", "Completed", &all());
    api.put_velero("Backup", "future", "4", "SomePhaseOfTomorrow", &json!({"ttl": 7}));
    let refused = admit(&store, &restore("r"), "5").await.unwrap_err();
    assert!(refused.to_string().contains("Backup velero/future"), "{refused}");
    // A refused change was not written, but the ledger was made.
    let ledger = ledger(&store).await;
    assert_eq!(ledger.len(), 3);
    assert_eq!(ledger.entry(&backup("running"), "1").unwrap().state, State::Active);
    assert_eq!(ledger.entry(&backup("new"), "2").unwrap().state, State::Reserved);
}

#[tokio::test]
async fn many_writers_lose_nothing() {
    let (api, store) = setup();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..20 {
        // Each its own client, as replicas have.
        let store = LedgerStore::new(api.client(), "velero");
        tasks.spawn(async move { admit(&store, &backup(&format!("b{n}")), "1").await });
    }
    let granted = tasks.join_all().await.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(ledger(&store).await.len(), granted, "each success is in the ledger, and nothing else");
    assert!(granted > 0 && api.conflicts() > 0, "{granted} granted, {} conflicts", api.conflicts());
}

#[tokio::test]
async fn a_ledger_of_a_newer_format_is_left_alone() {
    let (api, store) = setup();
    api.put(
        LEDGER_PATH,
        json!({"metadata": {"name": "backup-lock-velero", "uid": "u", "annotations": {"backup-lock/ledger": "{\"v\":9}"}}}),
    );
    let before = api.get(LEDGER_PATH);
    let error = admit(&store, &backup("b"), "1").await.unwrap_err();
    assert!(matches!(&error, UpdateError::Ledger(e) if e.category() == "newer"), "{error}");
    assert_eq!(api.get(LEDGER_PATH), before);
}

#[tokio::test]
async fn a_deleted_ledger_is_not_brought_back_by_an_old_copy() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let old = store.read(VELERO_SCOPE).await.unwrap().unwrap();
    api.delete(LEDGER_PATH);
    let error = store.write(&old, (*old.ledger).clone()).await.unwrap_err();
    assert!(matches!(error, LedgerError::Changed { .. }), "{error}");
    assert!(api.get(LEDGER_PATH).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_never_answers_is_given_up_on() {
    let (api, store) = setup();
    api.set_hung(true);
    let start = tokio::time::Instant::now();
    let error = admit(&store, &backup("b"), "1").await.unwrap_err();
    assert!(matches!(&error, UpdateError::Ledger(e) if e.category() == "timeout"), "{error}");
    assert!(start.elapsed() <= Duration::from_secs(5));
}

#[tokio::test]
async fn work_may_start_only_with_an_activated_claim() {
    let (api, store) = setup();
    let (b, r) = (backup("b"), restore("r"));
    assert!(matches!(activate(&store, &b, "1").await, Err(ActivateError::Gone { .. })));
    api.put_velero("Backup", "b", "1", "", &all());
    assert!(matches!(activate(&store, &b, "other-uid").await, Err(ActivateError::Gone { .. })));
    // Created while the webhook was off: it gets its claim now.
    let token = activate(&store, &b, "1").await.unwrap();
    assert_eq!(activate(&store, &b, "1").await.unwrap(), token, "a successor gets the same token");
    assert!(holds(&store, &b, "1", &token).await.unwrap());
    // So did this one, but something is in its way.
    api.put_velero("Restore", "r", "2", "", &all());
    match activate(&store, &r, "2").await {
        Err(ActivateError::Conflict(conflict)) => assert_eq!(conflict.holders[0].key, b),
        other => panic!("{other:?}"),
    }
    api.put_velero("Backup", "b", "1", "Completed", &all());
    assert!(release(&store, &b, "1").await.unwrap());
    assert!(!release(&store, &b, "1").await.unwrap(), "a second release is fine");
    assert!(!holds(&store, &b, "1", &token).await.unwrap());
    assert!(matches!(activate(&store, &b, "1").await, Err(ActivateError::Over { .. })));
    let second = activate(&store, &r, "2").await.unwrap();
    assert!(second.epoch > token.epoch);
}

#[tokio::test]
async fn work_that_has_begun_is_resumed_even_if_its_footprint_looks_different_now() {
    let (api, store) = setup();
    api.put_velero("Backup", "source", "0", "Completed", &json!({"includedNamespaces": ["a"]}));
    api.put_velero("Restore", "r", "1", "InProgress", &json!({"backupName": "source"}));
    api.put_velero("Backup", "other", "2", "InProgress", &json!({"includedNamespaces": ["b"]}));
    let token = activate(&store, &restore("r"), "1").await.unwrap();
    activate(&store, &backup("other"), "2").await.unwrap();
    api.delete_velero("Backup", "source");
    assert_eq!(activate(&store, &restore("r"), "1").await.unwrap(), token);
}

#[tokio::test]
async fn nobody_is_kept_from_work_by_a_claim_whose_work_is_over() {
    let (api, store) = setup();
    for (name, uid) in [("ended", "1"), ("went", "2")] {
        api.put_velero("Backup", name, uid, "New", &all());
        activate(&store, &backup(name), uid).await.unwrap();
    }
    // Both are over, and not released yet. The restore comes while the webhook is off.
    api.put_velero("Backup", "ended", "1", "Completed", &all());
    api.delete_velero("Backup", "went");
    api.put_velero("Restore", "r", "3", "", &all());
    activate(&store, &restore("r"), "3").await.unwrap();
    assert_eq!(ledger(&store).await.len(), 1);
}

#[tokio::test]
async fn a_blocker_that_can_not_be_read_is_trouble_and_no_conflict() {
    let (api, store) = setup();
    admit(&store, &backup("b"), "1").await.unwrap();
    api.put_velero("Restore", "r", "2", "", &all());
    api.set_gone_for(&velero_path("Backup", "b"));
    let error = activate(&store, &restore("r"), "2").await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn an_edit_between_admission_and_start_is_claimed_or_refused() {
    let (api, store) = setup();
    let only = |namespace: &str| json!({"includedNamespaces": [namespace]});
    api.put_velero("Restore", "r", "1", "", &only("a"));
    activate(&store, &restore("r"), "1").await.unwrap();
    api.put_velero("Restore", "r", "1", "", &only("b"));
    assert!(activate(&store, &restore("r"), "1").await.unwrap().footprint.includes("b"));
    api.put_velero("Backup", "busy", "2", "InProgress", &only("c"));
    activate(&store, &backup("busy"), "2").await.unwrap();
    api.put_velero("Restore", "r", "1", "", &only("c"));
    assert!(matches!(activate(&store, &restore("r"), "1").await, Err(ActivateError::Conflict(_))));
    // Once it works, an edit gives it nothing.
    api.put_velero("Restore", "r", "1", "InProgress", &only("d"));
    assert!(!activate(&store, &restore("r"), "1").await.unwrap().footprint.includes("d"));
}

#[tokio::test]
async fn a_restore_that_names_its_backup_and_its_schedule_touches_what_the_backup_holds() {
    let (api, store) = setup();
    api.put_velero("Backup", "source", "0", "Completed", &json!({"includedNamespaces": ["a"]}));
    for schedule in [Value::Null, json!(""), json!("nightly")] {
        let spec = json!({"backupName": "source", "scheduleName": schedule});
        let footprint = store.objects().footprint(&restore("r"), &spec).await.unwrap();
        assert_eq!(footprint, Footprint::namespaces(["a"]), "{spec}");
    }
}

#[tokio::test]
async fn claims_of_objects_that_ended_or_went_are_freed_at_once() {
    let (api, store) = setup();
    for (name, uid) in [("ended", "1"), ("went", "2"), ("runs", "3")] {
        api.put_velero("Backup", name, uid, "New", &all());
        activate(&store, &backup(name), uid).await.unwrap();
    }
    api.put_velero("Backup", "ended", "1", "Failed", &all());
    api.delete_velero("Backup", "went");
    let mut collector = Collector::new(Duration::from_mins(2));
    let collected = collector.collect(&store, VELERO_SCOPE, Instant::now()).await.unwrap();
    let freed: Vec<_> = collected.freed.iter().map(|(key, _, reason)| (key.name.as_str(), *reason)).collect();
    assert_eq!(freed, [("ended", Reason::Over), ("went", Reason::Gone)]);
    assert_eq!(ledger(&store).await.len(), 1);
}

#[tokio::test]
async fn a_reservation_without_an_object_is_freed_after_the_grace_of_the_observers_own_clock() {
    let (api, store) = setup();
    // Another object has the name: the reservation of this uid is an orphan all the same.
    api.put_velero("Backup", "b", "other", "InProgress", &all());
    store.read_or_create(VELERO_SCOPE).await.unwrap();
    admit(&store, &backup("b"), "1").await.unwrap();
    let grace = Duration::from_mins(2);
    let (mut collector, start) = (Collector::new(grace), Instant::now());
    for after in [0, 60, 119] {
        let at = start + Duration::from_secs(after);
        assert!(
            collector.collect(&store, VELERO_SCOPE, at).await.unwrap().freed.is_empty(),
            "after {after} s"
        );
    }
    let collected = collector.collect(&store, VELERO_SCOPE, start + grace).await.unwrap();
    assert_eq!(collected.freed, [(backup("b"), "1".to_owned(), Reason::Orphan)]);
    assert!(ledger(&store).await.entry(&backup("b"), "other").is_some(), "the other entry of the name stays");
}

#[tokio::test]
async fn a_reservation_whose_object_was_seen_stored_is_freed_as_soon_as_that_is_gone() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    api.put_velero("Restore", "r", "1", "", &all());
    let mut collector = Collector::new(Duration::from_mins(2));
    let now = Instant::now();
    assert!(collector.collect(&store, VELERO_SCOPE, now).await.unwrap().freed.is_empty());
    api.delete_velero("Restore", "r");
    let collected = collector.collect(&store, VELERO_SCOPE, now).await.unwrap();
    assert_eq!(collected.freed, [(restore("r"), "1".to_owned(), Reason::Gone)]);
}

#[tokio::test]
async fn an_api_server_that_can_not_tell_frees_nothing() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    // A kind that is not served is "not found" too, but names no object.
    api.set_unserved(true);
    let mut collector = Collector::new(Duration::ZERO);
    let collected = collector.collect(&store, VELERO_SCOPE, Instant::now()).await.unwrap();
    assert_eq!((collected.freed.len(), collected.unknown), (0, 1));
    assert!(api.get(&velero_path("Restore", "r")).is_none());
    assert_eq!(ledger(&store).await.len(), 1);
}
