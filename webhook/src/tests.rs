//! Whole requests through the router of one or more replicas, over one API server in memory.

use std::{sync::Arc, time::Duration};

use axum::{
    body::to_bytes,
    http::{Request, StatusCode},
};
use backup_core::profile::{Mode, OnConflict, Profile};
use backup_lock::{
    Guard, LedgerStore, ObjectKey, State, VELERO_SCOPE, activate,
    fake_api::{FakeApi, LEDGER_PATH},
};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{metrics::Metrics, peers::Peers, people::People, review::Webhook, server};

const GRACE: Duration = Duration::from_mins(2);

/// One replica of the webhook.
struct Replica {
    client: Client,
    metrics: Arc<Metrics>,
    store: LedgerStore,
}

impl Replica {
    fn over(api: &FakeApi) -> Self {
        Self::of(api, |_| {})
    }

    /// A replica with another policy for Velero.
    fn of(api: &FakeApi, change: impl FnOnce(&mut Profile)) -> Self {
        let metrics = Arc::new(Metrics::new());
        let mut profiles = Profile::builtin();
        if let Some(velero) = profiles.iter_mut().find(|profile| profile.name == "velero") {
            change(velero);
        }
        let guard = |profile| Guard::new(api.client(), "velero", profile, GRACE);
        let guards: Vec<Guard> = profiles.into_iter().map(guard).collect();
        let store = guards.iter().find(|guard| guard.profile.name == "velero").unwrap().store.clone();
        let people = People::new(api.client());
        let webhook = Webhook::new(guards, people, Peers::default(), Arc::clone(&metrics));
        Self { client: Client::new(server::router(webhook), "velero"), metrics, store }
    }

    async fn post(&self, body: Vec<u8>) -> (StatusCode, Value) {
        let request = Request::post("/validate?timeout=10s").header("content-type", "application/json");
        let response = self.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = response.status();
        let bytes = to_bytes(axum::body::Body::new(response.into_body()), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    /// The response to a review.
    async fn review(&self, request: Value) -> Value {
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let (status, answer) = self.post(serde_json::to_vec(&review).unwrap()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["response"]["uid"], request["uid"], "the request's uid comes back");
        answer["response"].clone()
    }

    async fn create(&self, kind: &str, name: &str, uid: &str, spec: Value) -> Value {
        self.review(creation(kind, name, uid, spec)).await
    }
}

#[allow(clippy::needless_pass_by_value)] // reads better where it is called
fn creation(kind: &str, name: &str, uid: &str, spec: Value) -> Value {
    json!({
        "uid": format!("request-{uid}"), "operation": "CREATE", "name": name, "namespace": "velero", "dryRun": false,
        "kind": {"group": "velero.io", "version": "v1", "kind": kind},
        "resource": {"group": "velero.io", "version": "v1", "resource": format!("{}s", kind.to_lowercase())},
        "userInfo": {"username": "alice"},
        "object": {
            "apiVersion": "velero.io/v1", "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": "velero", "uid": uid, "creationTimestamp": "2026-11-21T09:30:00Z"},
        },
    })
}

fn backup_spec() -> Value {
    json!({"includedNamespaces": ["shop"]})
}

fn restore_spec() -> Value {
    json!({"backupName": "old", "includedNamespaces": ["shop"]})
}

fn allowed(response: &Value) -> bool {
    response["allowed"].as_bool().unwrap()
}

fn message(response: &Value) -> &str {
    response["status"]["message"].as_str().unwrap()
}

fn ledger_version(api: &FakeApi) -> Value {
    api.get(LEDGER_PATH).map_or(Value::Null, |lease| lease["metadata"]["resourceVersion"].clone())
}

#[tokio::test]
async fn a_backup_is_refused_while_a_restore_holds_the_scope_and_the_message_stands_alone() {
    let api = FakeApi::new();
    let (one, two) = (Replica::over(&api), Replica::over(&api));
    assert!(allowed(&one.create("Restore", "r1", "1", restore_spec()).await));
    api.put_velero("Restore", "r1", "1", "InProgress", &restore_spec());
    activate(&one.store, &ObjectKey::restore("velero", "r1"), "1").await.unwrap();

    let refused = two.create("Backup", "b1", "2", backup_spec()).await;
    assert!(!allowed(&refused));
    let status = &refused["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(403), &json!("Forbidden")));
    assert_eq!(status["details"]["retryAfterSeconds"], 30);
    assert_eq!(
        (&status["details"]["name"], &status["details"]["group"], &status["details"]["kind"]),
        (&json!("b1"), &json!("velero.io"), &json!("backups"))
    );
    assert_eq!(status["details"]["causes"][0]["reason"], "RestoreInProgress");
    for part in [
        "Backup velero/b1",
        "Restore velero/r1 is running",
        "phase InProgress",
        "2026-11-21T09:00:00Z",
        "namespace shop",
        "kubectl backup restore describe r1 --namespace velero",
    ] {
        assert!(message(&refused).contains(part), "no {part:?} in {:?}", message(&refused));
    }
}

#[tokio::test]
async fn a_restore_is_refused_while_a_backup_runs_and_admitted_once_it_was_seen_completed() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    assert!(allowed(&replica.create("Backup", "b1", "1", backup_spec()).await));
    api.put_velero("Backup", "b1", "1", "InProgress", &backup_spec());
    let refused = replica.create("Restore", "r1", "2", restore_spec()).await;
    assert!(message(&refused).contains("`kubectl backup describe b1 --namespace velero`"), "{refused}");
    // The controller is down: nobody releases the claim. The webhook sees for itself.
    api.put_velero("Backup", "b1", "1", "Completed", &backup_spec());
    assert!(allowed(&replica.create("Restore", "r2", "3", restore_spec()).await));
    assert!(
        replica.metrics.text().contains("claims_freed_total{reason=\"over\"} 1"),
        "{}",
        replica.metrics.text()
    );
}

/// Conflicting creations sent at once through two replicas, many times over; who was admitted, and how often the replicas
/// got in one another's way.
async fn race(dry_run: bool) -> (u32, u32, u32, u64) {
    let (mut backups, mut restores, mut both, mut conflicts) = (0, 0, 0, 0);
    for round in 0..40 {
        let api = FakeApi::new();
        let replicas = [Replica::over(&api), Replica::over(&api)];
        if !dry_run {
            replicas[0].store.open(VELERO_SCOPE).await.unwrap();
        }
        let send = |replica: usize, kind: &str, name: &str, spec: Value| {
            let mut request = creation(kind, name, name, spec);
            request["dryRun"] = json!(dry_run);
            replicas[replica].review(request)
        };
        // A restore from a schedule needs no read of its backup, so neither side has a head start.
        let restore = json!({"scheduleName": "nightly"});
        let responses = if round % 2 == 0 {
            let backup = send(0, "Backup", "b", backup_spec());
            tokio::join!(backup, send(1, "Restore", "r", restore), send(0, "Backup", "b2", backup_spec()))
        } else {
            let restore = send(0, "Restore", "r", restore);
            let (r, b, b2) = tokio::join!(
                restore,
                send(1, "Backup", "b", backup_spec()),
                send(0, "Backup", "b2", backup_spec())
            );
            (b, r, b2)
        };
        let backup = allowed(&responses.0) || allowed(&responses.2);
        let restore = allowed(&responses.1);
        assert!(backup || restore, "nobody was admitted in round {round}: {responses:?}");
        backups += u32::from(backup);
        restores += u32::from(restore);
        both += u32::from(backup && restore);
        conflicts += api.conflicts();
    }
    (backups, restores, both, conflicts)
}

#[tokio::test]
async fn of_conflicting_creations_through_two_replicas_at_once_only_one_side_is_admitted() {
    let (backups, restores, both, conflicts) = race(false).await;
    assert_eq!(both, 0);
    assert!(backups > 0 && restores > 0 && conflicts > 0, "no real race: {backups} {restores} {conflicts}");
}

#[tokio::test]
async fn the_same_race_catches_a_webhook_that_looks_and_then_allows() {
    // A dry run is just that: it looks, and writes nothing.
    let (.., both, _) = race(true).await;
    assert!(both > 0);
}

#[tokio::test]
async fn disjoint_requests_and_backups_beside_backups_pass() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    assert!(allowed(&replica.create("Backup", "b1", "1", backup_spec()).await));
    assert!(allowed(&replica.create("Backup", "b2", "2", backup_spec()).await));
    let elsewhere = json!({"backupName": "old", "includedNamespaces": ["elsewhere"]});
    assert!(allowed(&replica.create("Restore", "r1", "3", elsewhere).await));
}

#[tokio::test]
async fn a_restore_of_everything_is_bounded_by_what_its_backup_holds() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    api.put_velero("Backup", "old", "0", "Completed", &json!({"includedNamespaces": ["other"]}));
    assert!(allowed(&replica.create("Backup", "b1", "1", backup_spec()).await));
    assert!(allowed(&replica.create("Restore", "r1", "2", json!({"backupName": "old"})).await));
    // A schedule's newest backup is not known yet: that counts as everything.
    assert!(!allowed(&replica.create("Restore", "r2", "3", json!({"scheduleName": "nightly"})).await));
}

#[tokio::test]
async fn requests_that_wait_together_are_written_together() {
    let api = FakeApi::new();
    let replica = Arc::new(Replica::over(&api));
    replica.create("Backup", "first", "0", backup_spec()).await;
    let before = api.writes();
    let mut requests = tokio::task::JoinSet::new();
    for n in 1..=50 {
        let replica = Arc::clone(&replica);
        requests.spawn(async move {
            replica.create("Backup", &format!("b{n}"), &n.to_string(), backup_spec()).await
        });
    }
    let answers = requests.join_all().await;
    assert!(answers.iter().all(allowed));
    assert!(api.writes() - before < 15, "{} writes for 50 requests", api.writes() - before);
}

#[tokio::test]
async fn the_same_uid_may_come_again_and_a_retry_of_the_name_is_not_refused_because_of_itself() {
    let api = FakeApi::new();
    let (one, two) = (Replica::over(&api), Replica::over(&api));
    assert!(allowed(&one.create("Restore", "r", "1", restore_spec()).await));
    assert!(allowed(&two.create("Restore", "r", "1", restore_spec()).await));
    assert!(allowed(&one.create("Restore", "r", "2", restore_spec()).await));
    let ledger = one.store.read(backup_lock::VELERO_SCOPE).await.unwrap().unwrap().ledger;
    assert_eq!((ledger.claims.len(), ledger.len()), (1, 2));
}

#[tokio::test]
async fn a_dry_run_gives_the_same_verdict_and_writes_nothing() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    let dry = |kind: &str, spec: Value| {
        let mut request = creation(kind, "dry", "throw-away", spec);
        request["dryRun"] = json!(true);
        request
    };
    // Not even a first ledger.
    assert!(allowed(&replica.review(dry("Backup", backup_spec())).await));
    assert_eq!((api.writes(), ledger_version(&api)), (0, Value::Null));

    assert!(allowed(&replica.create("Restore", "r", "1", restore_spec()).await));
    api.put_velero("Restore", "r", "1", "InProgress", &restore_spec());
    let before = (api.writes(), ledger_version(&api));
    let refused = replica.review(dry("Backup", backup_spec())).await;
    assert!(message(&refused).contains("Restore velero/r"), "{refused}");
    api.put_velero("Restore", "r", "1", "Completed", &restore_spec());
    assert!(
        allowed(&replica.review(dry("Backup", backup_spec())).await),
        "an ended restore is in nobody's way"
    );
    assert_eq!((api.writes(), ledger_version(&api)), before);
}

#[tokio::test]
async fn an_unconfirmed_reservation_is_named_as_such_with_its_end() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    assert!(allowed(&replica.create("Restore", "r", "1", restore_spec()).await));
    let refused = replica.create("Backup", "b", "2", backup_spec()).await;
    assert!(message(&refused).contains("not stored yet"), "{refused}");
    assert!(message(&refused).contains("120 s"), "{refused}");
    assert_eq!(refused["status"]["details"]["causes"][0]["reason"], "RestoreReserved");
}

#[tokio::test]
async fn a_reservation_is_not_taken_for_the_object_that_has_its_name() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    api.put_velero("Backup", "b", "1", "Completed", &backup_spec());
    // The API server will refuse this creation: the name is taken.
    assert!(allowed(&replica.create("Backup", "b", "2", backup_spec()).await));
    let refused = replica.create("Restore", "r", "3", restore_spec()).await;
    assert!(message(&refused).contains("not stored yet"), "{refused}");
    assert!(!message(&refused).contains("Completed"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_reservation_is_in_the_way_for_the_grace_and_no_longer() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    assert!(allowed(&replica.create("Restore", "never-stored", "1", restore_spec()).await));
    assert!(!allowed(&replica.create("Backup", "b", "2", backup_spec()).await));
    tokio::time::sleep(GRACE / 2).await;
    assert!(!allowed(&replica.create("Backup", "b", "3", backup_spec()).await));
    tokio::time::sleep(GRACE / 2).await;
    // The suspicion is written down first, and the next look frees it.
    assert!(!allowed(&replica.create("Backup", "b", "4", backup_spec()).await));
    assert!(allowed(&replica.create("Backup", "b", "5", backup_spec()).await));
}

/// A review of the deletion of a Backup; with a collection, the request names nothing.
fn deletion(name: &str, uid: &str, phase: &str, of_collection: bool) -> Value {
    json!({
        "uid": "request", "operation": "DELETE", "namespace": "velero", "dryRun": false,
        "name": if of_collection { "" } else { name },
        "kind": {"group": "velero.io", "version": "v1", "kind": "Backup"},
        "resource": {"group": "velero.io", "version": "v1", "resource": "backups"},
        "userInfo": {"username": "alice"},
        "oldObject": {
            "apiVersion": "velero.io/v1", "kind": "Backup", "spec": {}, "status": {"phase": phase},
            "metadata": {"name": name, "namespace": "velero", "uid": uid},
        },
    })
}

#[tokio::test]
async fn a_backup_that_is_being_restored_from_can_not_be_deleted_in_any_way() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    api.put("/api/v1/namespaces/velero", json!({"metadata": {"name": "velero"}}));
    api.put_velero("Backup", "old", "0", "Completed", &backup_spec());
    assert!(allowed(&replica.create("Restore", "r1", "1", restore_spec()).await));
    api.put_velero("Restore", "r1", "1", "InProgress", &restore_spec());
    for of_collection in [false, true] {
        let refused = replica.review(deletion("old", "0", "Completed", of_collection)).await;
        assert!(message(&refused).contains("Nothing was deleted"), "{refused}");
        assert!(message(&refused).contains("Restore velero/r1 is running"), "{refused}");
    }
    let request = replica.create("DeleteBackupRequest", "d1", "2", json!({"backupName": "old"})).await;
    assert!(message(&request).contains("Restore velero/r1 is running"), "{request}");
    assert!(allowed(&replica.review(deletion("other", "9", "Completed", false)).await), "another backup");
    assert!(allowed(&replica.review(deletion("old", "0", "Failed", false)).await), "nobody restores from it");

    api.put_velero("Restore", "r1", "1", "Completed", &restore_spec());
    assert!(allowed(&replica.create("DeleteBackupRequest", "d1", "3", json!({"backupName": "old"})).await));
    // The request is not even stored yet, and keeps restores from this backup out already.
    let refused = replica.create("Restore", "r2", "4", restore_spec()).await;
    assert!(message(&refused).contains("DeleteBackupRequest velero/d1"), "{refused}");
    assert_eq!(refused["status"]["details"]["causes"][0]["reason"], "DeletionInProgress");
    let elsewhere = json!({"backupName": "newer", "includedNamespaces": ["elsewhere"]});
    assert!(allowed(&replica.create("Restore", "r3", "5", elsewhere).await), "from another backup");
}

#[tokio::test]
async fn a_backup_goes_with_its_namespace_whoever_restores_from_it() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    let deleted = json!({"metadata": {"name": "velero", "deletionTimestamp": "2026-11-21T09:00:00Z"}});
    api.put("/api/v1/namespaces/velero", deleted);
    assert!(allowed(&replica.create("Restore", "r1", "1", restore_spec()).await));
    api.put_velero("Restore", "r1", "1", "InProgress", &restore_spec());
    let answer = replica.review(deletion("old", "0", "Completed", true)).await;
    assert!(allowed(&answer) && answer["warnings"][0].as_str().unwrap().contains("namespace"), "{answer}");
}

#[tokio::test]
async fn a_restore_that_may_wait_is_admitted_with_a_warning_and_has_the_next_turn() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    assert!(allowed(&replica.create("Backup", "b1", "1", backup_spec()).await));
    api.put_velero("Backup", "b1", "1", "InProgress", &backup_spec());
    let mut request = creation("Restore", "r1", "2", restore_spec());
    request["object"]["metadata"]["annotations"] = json!({"backup-lock/on-conflict": "queue"});
    let answer = replica.review(request).await;
    assert!(allowed(&answer));
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.contains("Backup velero/b1 is running"), "{warning}");
    api.put_velero("Restore", "r1", "2", "", &restore_spec());
    let refused = replica.create("Backup", "b2", "3", backup_spec()).await;
    assert!(message(&refused).contains("Restore velero/r1 waits for its turn"), "{refused}");
    api.put_velero("Backup", "b1", "1", "Completed", &backup_spec());
    // Whoever frees the last one in its way gives it its turn in the same write.
    let late = replica.create("Backup", "b3", "4", backup_spec()).await;
    assert!(!allowed(&late));
    backup_lock::release(&replica.store, &ObjectKey::backup("velero", "b1"), "1").await.unwrap();
    let ledger = replica.store.read(VELERO_SCOPE).await.unwrap().unwrap().ledger;
    assert_eq!(ledger.entry(&ObjectKey::restore("velero", "r1"), "2").unwrap().state, State::Reserved);
}

#[tokio::test]
async fn a_client_that_wants_to_wait_is_told_to_come_again_by_itself() {
    let api = FakeApi::new();
    let replica = Replica::of(&api, |velero| velero.policy.on_conflict_backup = OnConflict::Wait);
    assert!(allowed(&replica.create("Restore", "r1", "1", restore_spec()).await));
    let refused = replica.create("Backup", "b1", "2", backup_spec()).await;
    let status = &refused["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(429), &json!("TooManyRequests")));
    assert_eq!(status["details"]["retryAfterSeconds"], 10);
    let mut wish = creation("Backup", "b2", "3", backup_spec());
    wish["object"]["metadata"]["annotations"] = json!({"backup-lock/on-conflict": "queue"});
    let refused = replica.review(wish).await;
    assert!(message(&refused).contains("deny or wait"), "only restores can wait in the ledger: {refused}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_restore_keeps_new_backups_out_for_a_while_and_finds_its_way_free() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    assert!(allowed(&replica.create("Backup", "b1", "1", backup_spec()).await));
    api.put_velero("Backup", "b1", "1", "InProgress", &backup_spec());
    assert!(!allowed(&replica.create("Restore", "r1", "2", restore_spec()).await));
    api.put_velero("Backup", "b1", "1", "Completed", &backup_spec());
    let refused = replica.create("Backup", "b2", "3", backup_spec()).await;
    assert!(message(&refused).contains("Restore velero/r1 was refused a moment ago"), "{refused}");
    let elsewhere = json!({"includedNamespaces": ["elsewhere"]});
    assert!(allowed(&replica.create("Backup", "b3", "4", elsewhere).await));
    tokio::time::sleep(Duration::from_secs(121)).await;
    assert!(allowed(&replica.create("Backup", "b4", "5", backup_spec()).await), "the intent has lapsed");
    api.put_velero("Backup", "b4", "5", "Completed", &backup_spec());
    assert!(allowed(&replica.create("Restore", "r1", "6", restore_spec()).await));
}

#[tokio::test]
async fn mode_warn_admits_warns_and_counts() {
    let api = FakeApi::new();
    let replica = Replica::of(&api, |velero| {
        velero.policy.mode = Mode::Warn;
        velero.engine = false;
    });
    assert!(allowed(&replica.create("Restore", "r1", "1", restore_spec()).await));
    let answer = replica.create("Backup", "b1", "2", backup_spec()).await;
    assert!(allowed(&answer));
    assert!(answer["warnings"][0].as_str().unwrap().contains("mode warn"), "{answer}");
    assert!(replica.metrics.text().contains("decision=\"warned\"} 1"), "{}", replica.metrics.text());
}

#[tokio::test]
async fn nobody_breaks_the_glass_who_may_not() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    let mut request = creation("Backup", "b1", "1", backup_spec());
    request["object"]["metadata"]["annotations"] = json!({"backup-lock/break-glass": "I am in a hurry"});
    let refused = replica.review(request).await;
    assert!(message(&refused).contains("\"alice\" may not use"), "{refused}");
    assert!(message(&refused).contains("backup-break-glass"), "{refused}");
}

#[tokio::test]
async fn what_runs_can_not_come_to_touch_more_but_may_be_normalised() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    let update = |old: Value, new: Value| {
        let mut request = creation("Backup", "b1", "1", new);
        request["operation"] = json!("UPDATE");
        request["oldObject"] = request["object"].clone();
        request["oldObject"]["spec"] = old;
        replica.review(request)
    };
    let refused = update(backup_spec(), json!({"includedNamespaces": ["shop", "bank"]})).await;
    assert!(message(&refused).contains("can't be changed to touch namespaces bank, shop"), "{refused}");
    for (old, new) in [
        (json!({}), json!({"includedNamespaces": ["*"], "excludedNamespaces": ["no"], "ttl": "720h0m0s"})),
        (json!({"includedNamespaces": ["shop", "bank"]}), backup_spec()),
        (backup_spec(), json!({"includedNamespaces": ["shop"], "excludedResources": ["pods"]})),
    ] {
        assert!(allowed(&update(old, new).await));
    }
    let refused = update(backup_spec(), json!({"includedNamespaces": ["shop"], "ttl": "soon"})).await;
    assert!(message(&refused).contains("spec.ttl"), "{refused}");
}

/// A review of an object of Percona's operator.
fn percona(
    operation: &str,
    kind: &str,
    name: &str,
    uid: &str,
    state: &str,
    old_state: Option<&str>,
) -> Value {
    let object = |state: &str| {
        json!({
            "apiVersion": "ps.percona.com/v1", "kind": kind, "status": {"state": state},
            "spec": {"clusterName": "cluster1"},
            "metadata": {"name": name, "namespace": "db", "uid": uid, "creationTimestamp": "2026-11-21T09:30:00Z"},
        })
    };
    let mut request = json!({
        "uid": "request", "operation": operation, "name": name, "namespace": "db", "dryRun": false,
        "kind": {"group": "ps.percona.com", "version": "v1", "kind": kind},
        "resource": {"group": "ps.percona.com", "version": "v1", "resource": format!("{}s", kind.to_lowercase())},
        "userInfo": {"username": "alice"},
        "object": object(state),
    });
    if let Some(old) = old_state {
        request["oldObject"] = object(old);
        request["subResource"] = json!("status");
    }
    request
}

const PS_BACKUP: &str = "PerconaServerMySQLBackup";
const PS_RESTORE: &str = "PerconaServerMySQLRestore";

#[tokio::test]
async fn another_operators_backups_and_restores_of_one_database_are_kept_apart() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    assert!(allowed(&replica.review(percona("CREATE", PS_RESTORE, "r", "1", "", None)).await));
    let refused = replica.review(percona("CREATE", PS_BACKUP, "b", "2", "", None)).await;
    assert!(!allowed(&refused));
    assert!(message(&refused).contains("Restore db/r"), "{refused}");
    let mut other = percona("CREATE", PS_BACKUP, "b", "3", "", None);
    other["object"]["spec"]["clusterName"] = json!("cluster2");
    assert!(allowed(&replica.review(other).await), "another database");
    assert!(allowed(&replica.create("Backup", "b", "4", backup_spec()).await), "another operator");
    let mut unnamed = percona("CREATE", PS_BACKUP, "b", "5", "", None);
    unnamed["object"]["spec"] = json!({});
    let refused = replica.review(unnamed).await;
    assert!(message(&refused).contains("spec.clusterName"), "{refused}");
}

#[tokio::test]
async fn a_restore_that_failed_and_comes_back_to_life_claims_again_or_stays() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    let revive = || percona("UPDATE", PS_RESTORE, "r", "1", "", Some("Error"));
    assert!(allowed(&replica.review(revive()).await));
    let refused = replica.review(percona("CREATE", PS_BACKUP, "b", "2", "", None)).await;
    assert!(message(&refused).contains("Restore db/r"), "{refused}");
    let dead = replica.review(percona("UPDATE", PS_RESTORE, "r", "1", "", Some("Failed"))).await;
    assert!(message(&dead).contains("has ended"), "only what the operator does itself: {dead}");

    let api = FakeApi::new();
    let replica = Replica::over(&api);
    assert!(allowed(&replica.review(percona("CREATE", PS_BACKUP, "b", "2", "", None)).await));
    let refused = replica.review(revive()).await;
    assert!(message(&refused).contains("Backup db/b"), "{refused}");
}

#[tokio::test]
async fn the_operators_own_lease_is_honoured_while_its_holder_runs() {
    let lease = |holder: &str| json!({"metadata": {"name": "restore-lock-cluster1", "namespace": "db"}, "spec": {"holderIdentity": holder}});
    let restore = |state: &str| {
        json!({"apiVersion": "ps.percona.com/v1", "kind": PS_RESTORE, "spec": {"clusterName": "cluster1"},
            "metadata": {"name": "r", "namespace": "db", "uid": "7"}, "status": {"state": state}})
    };
    let at = "/apis/ps.percona.com/v1/namespaces/db/perconaservermysqlrestores/r";
    let lease_at = "/apis/coordination.k8s.io/v1/namespaces/db/leases/restore-lock-cluster1";
    // Created while the webhook was off: it has no claim.
    for (holder, state, admitted) in [
        ("r|7", "Running", false),
        ("r|6", "Running", true),
        ("r|7", "Succeeded", true),
        ("", "Running", true),
    ] {
        let api = FakeApi::new();
        let replica = Replica::over(&api);
        replica.store.open(VELERO_SCOPE).await.unwrap();
        // Not among what runs when the ledger is made.
        let first = replica.review(percona("CREATE", PS_RESTORE, "first", "0", "", None)).await;
        assert!(allowed(&first));
        api.put("/apis/ps.percona.com/v1/namespaces/db/perconaservermysqlrestores/first", {
            let mut over = restore("Succeeded");
            over["metadata"]["name"] = json!("first");
            over["metadata"]["uid"] = json!("0");
            over
        });
        api.put(at, restore(state));
        api.put(lease_at, lease(holder));
        // The first request has just seen that nobody held it.
        let replica = Replica::over(&api);
        let answer = replica.review(percona("CREATE", PS_BACKUP, "b", "2", "", None)).await;
        assert_eq!(allowed(&answer), admitted, "{holder} {state}: {answer}");
    }
}

#[tokio::test]
async fn every_bad_field_is_named_at_once() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    let spec = json!({"ttl": "soon", "itemOperationTimeout": "never"});
    let refused = replica.create("Backup", "b", "1", spec).await;
    assert!(!allowed(&refused));
    assert_eq!(refused["status"]["code"], 403);
    let causes = refused["status"]["details"]["causes"].as_array().unwrap();
    let fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert!(fields.contains(&"spec.ttl") && fields.contains(&"spec.itemOperationTimeout"), "{fields:?}");
    assert!(message(&refused).contains("spec.ttl"), "{refused}");
    assert_eq!(api.writes(), 0, "what is not valid takes no claim");
}

#[tokio::test(start_paused = true)]
async fn trouble_with_the_api_server_is_told_well_inside_the_timeout() {
    for hung in [true, false] {
        let api = FakeApi::new();
        let replica = Replica::over(&api);
        if hung {
            api.set_hung(true);
        } else {
            api.set_gone(true);
        }
        for dry in [false, true] {
            let mut request = creation("Backup", "b", "1", backup_spec());
            request["dryRun"] = json!(dry);
            let start = Instant::now();
            let refused = replica.review(request).await;
            assert!(start.elapsed() <= Duration::from_secs(8), "{:?}", start.elapsed());
            assert!(!allowed(&refused));
            let status = &refused["status"];
            assert_eq!((&status["code"], &status["reason"]), (&json!(503), &json!("ServiceUnavailable")));
            assert_eq!(status["details"]["retryAfterSeconds"], 1);
            assert!(message(&refused).contains("try again"), "{refused}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_granted_but_by_a_write_that_succeeded() {
    let api = FakeApi::new();
    let (first, fresh) = (Replica::over(&api), Replica::over(&api));
    assert!(allowed(&first.create("Backup", "b1", "1", backup_spec()).await));
    api.set_read_only(true);
    // From memory, and from a fresh read.
    for replica in [first, fresh] {
        let refused = replica.create("Backup", "b2", "2", backup_spec()).await;
        assert_eq!(refused["status"]["code"], 503, "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_works_again_after_an_outage() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    assert!(allowed(&replica.create("Backup", "b1", "1", backup_spec()).await));
    api.set_gone(true);
    assert!(!allowed(&replica.create("Backup", "b2", "2", backup_spec()).await));
    api.set_gone(false);
    assert!(allowed(&replica.create("Backup", "b3", "3", backup_spec()).await));
}

#[tokio::test]
async fn what_is_no_review_gets_a_clear_answer() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    for (body, says) in [
        (b"hello".to_vec(), "no AdmissionReview"),
        (b"{}".to_vec(), "AdmissionReview"),
        (br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#.to_vec(), "no request"),
        (br#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#.to_vec(), "expected"),
    ] {
        let (status, answer) = replica.post(body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(answer["status"], "Failure");
        assert!(answer["message"].as_str().unwrap().contains(says), "{answer}");
    }
    let (status, answer) = replica.post(vec![b' '; 9 << 20]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
}

#[tokio::test]
async fn a_review_of_three_mebibytes_and_a_thousand_namespaces_is_read() {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    let names: Vec<String> = (0..1000).map(|n| format!("{}-{n:04}", "n".repeat(58))).collect();
    let mut request = creation("Backup", "b", "1", json!({"includedNamespaces": names}));
    request["object"]["metadata"]["annotations"] = json!({"big": "x".repeat(3 << 20)});
    assert!(allowed(&replica.review(request).await));
    let other = json!({"backupName": "old", "includedNamespaces": ["unheard-of"]});
    assert!(!allowed(&replica.create("Restore", "r", "2", other).await), "so many names count as everything");
}
