//! Whole requests through the router of one or more replicas, over one API server in memory.

mod absences;
mod blockers;
mod callers;
mod deletion_rights;
mod deletions;
mod drills;
mod names;
mod owners;
mod percona;
mod policies;
mod refusals;
mod writers;

use std::{sync::Arc, time::Duration};

use axum::{
    body::to_bytes,
    http::{Request, StatusCode},
};
use backup_core::profile::{Mode, OnConflict, Profile, published::UnusableProfile};
use backup_lock::{
    Installations, Ledger, LedgerStore, ObjectKey, ProtectedProfile, State, VELERO_SCOPE, activate,
    admission::REFUSAL_MEMORY,
};
use backup_testkit::{FakeApi, Fault, LEDGER_PATH, Request as ApiRequest};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    authorization::Authorization,
    callers::{Callers, SecretPaths},
    metrics::Metrics,
    review::Webhook,
    server,
};

const GRACE: Duration = Duration::from_mins(2);

struct Replica {
    client: Client,
    /// The path on which it accepts calls.
    path: String,
    paths: SecretPaths,
    metrics: Arc<Metrics>,
    store: LedgerStore,
}

fn one_replica() -> (FakeApi, Replica) {
    let api = FakeApi::new();
    let replica = Replica::over(&api);
    (api, replica)
}

impl Replica {
    fn over(api: &FakeApi) -> Self {
        Self::of(api, |_| {})
    }

    /// A replica with another policy for Velero.
    fn of(api: &FakeApi, change: impl FnOnce(&mut Profile)) -> Self {
        Self::without(api, Vec::new(), change)
    }

    /// The same, without the unusable profiles.
    fn without(
        api: &FakeApi,
        unusable: Vec<UnusableProfile>,
        change: impl FnOnce(&mut Profile),
    ) -> Self {
        Self::looking_by(mpsc::channel(1).0, api, unusable, change)
    }

    /// One whose looks at the registration are answered by the receiver.
    fn looking_by(
        look: mpsc::Sender<oneshot::Sender<bool>>,
        api: &FakeApi,
        unusable: Vec<UnusableProfile>,
        change: impl FnOnce(&mut Profile),
    ) -> Self {
        let metrics = Arc::new(Metrics::default());
        let mut profiles = Profile::builtin();
        profiles.retain(|profile| unusable.iter().all(|one| one.name != profile.name));
        if let Some(velero) = profiles.iter_mut().find(|profile| profile.name == "velero") {
            change(velero);
        }
        let installations = Installations::default();
        installations.update(["velero".to_owned()].into());
        let protected = |profile| {
            ProtectedProfile::new(api.client(), "velero", profile, GRACE).only_in(&installations)
        };
        let profiles: Vec<ProtectedProfile> = profiles.into_iter().map(protected).collect();
        let store = profiles
            .iter()
            .find(|protected| protected.profile.name == "velero")
            .unwrap()
            .store
            .clone();
        let authorization = Authorization::new(api.client(), false);
        let (path, paths) = (SecretPaths::make().unwrap(), SecretPaths::default());
        paths.saw(&path, Instant::now());
        let callers = Callers::new(paths.clone(), look);
        let webhook = Webhook::new(
            profiles,
            unusable.into(),
            authorization,
            callers,
            None,
            Arc::clone(&metrics),
        );
        Self {
            client: Client::new(server::router(webhook), "velero"),
            path,
            paths,
            metrics,
            store,
        }
    }

    async fn ledger(&self) -> Arc<Ledger> {
        let stored = self.store.read(VELERO_SCOPE).await.unwrap();
        stored.unwrap().ledger
    }

    async fn post(&self, body: Vec<u8>) -> (StatusCode, Value) {
        // As each look at the registration does.
        self.paths.saw(&self.path, Instant::now());
        self.post_to(&self.path, body).await
    }

    async fn post_to(&self, path: &str, body: Vec<u8>) -> (StatusCode, Value) {
        let request = Request::post(format!("{path}?timeout=10s"))
            .header("content-type", "application/json")
            .header("content-length", body.len());
        let response = self
            .client
            .send(request.body(Body::from(body)).unwrap())
            .await
            .unwrap();
        let status = response.status();
        let bytes = to_bytes(axum::body::Body::new(response.into_body()), usize::MAX)
            .await
            .unwrap();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    async fn review(&self, request: Value) -> Value {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let (status, answer) = self.post(serde_json::to_vec(&review).unwrap()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(
            answer["response"]["uid"], request["uid"],
            "the request's uid comes back"
        );
        answer["response"].clone()
    }

    async fn create(&self, kind: &str, name: &str, uid: &str, spec: Value) -> Value {
        self.review(creation(kind, name, uid, spec)).await
    }

    /// Creates an object that is admitted, stored, and runs.
    async fn run(&self, api: &FakeApi, kind: &str, name: &str, uid: &str, spec: Value) {
        assert!(allowed(&self.create(kind, name, uid, spec.clone()).await));
        api.put_velero(kind, name, uid, "InProgress", &spec);
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
    api.get(LEDGER_PATH).map_or(Value::Null, |lease| {
        lease["metadata"]["resourceVersion"].clone()
    })
}

#[tokio::test]
async fn what_no_installation_runs_passes_without_a_claim() {
    let (api, replica) = one_replica();
    replica.run(&api, "Backup", "b1", "1", backup_spec()).await;
    let before = ledger_version(&api);
    for (operation, warned) in [("CREATE", true), ("DELETE", false)] {
        let mut request = creation("Restore", "r1", "2", restore_spec());
        request["operation"] = json!(operation);
        request["namespace"] = json!("team-b");
        let answer = replica.review(request).await;
        assert!(allowed(&answer), "{answer}");
        let warning = answer["warnings"][0].as_str().unwrap_or_default();
        assert_eq!(
            warning.contains("no installation works in namespace team-b"),
            warned,
            "{answer}"
        );
        assert_eq!(ledger_version(&api), before);
    }
}

#[tokio::test]
async fn a_backup_is_refused_while_a_restore_holds_the_scope_and_the_message_stands_alone() {
    let api = FakeApi::new();
    let (one, two) = (Replica::over(&api), Replica::over(&api));
    one.run(&api, "Restore", "r1", "1", restore_spec()).await;
    activate(&one.store, &ObjectKey::restore("velero", "r1"), "1")
        .await
        .unwrap();

    let refused = two.create("Backup", "b1", "2", backup_spec()).await;
    assert!(!allowed(&refused));
    let status = &refused["status"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(403), &json!("Forbidden"))
    );
    assert_eq!(status["details"]["retryAfterSeconds"], 30);
    assert_eq!(
        (
            &status["details"]["name"],
            &status["details"]["group"],
            &status["details"]["kind"]
        ),
        (&json!("b1"), &json!("velero.io"), &json!("backups"))
    );
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "RestoreInProgress"
    );
    for part in [
        "Backup velero/b1",
        "Restore velero/r1 is running",
        "phase InProgress",
        "2026-11-21T09:00:00Z",
        "namespace shop",
        "kubectl backup restore describe r1 --namespace velero",
    ] {
        assert!(
            message(&refused).contains(part),
            "no {part:?} in {:?}",
            message(&refused)
        );
    }
}

/// A refusal is cached briefly only if it was because of a running object.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_released_by_hand_is_soon_in_nobodys_way() {
    for (runs, wait) in [(true, REFUSAL_MEMORY), (false, Duration::ZERO)] {
        let (api, replica) = one_replica();
        assert!(allowed(
            &replica.create("Restore", "r1", "1", restore_spec()).await
        ));
        if runs {
            api.put_velero("Restore", "r1", "1", "InProgress", &restore_spec());
        }
        assert!(!allowed(
            &replica.create("Backup", "b", "2", backup_spec()).await
        ));
        let key = ObjectKey::restore("velero", "r1");
        let deadline = Instant::now() + Duration::from_secs(5);
        let change = replica.store.change(VELERO_SCOPE, deadline, |ledger| {
            ledger.force_release(&key, "1", "")
        });
        change.await.unwrap();
        tokio::time::advance(wait).await;
        assert!(
            allowed(&replica.create("Backup", "b", "3", backup_spec()).await),
            "{runs}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_ledger_is_read_again_to_refuse_unless_the_one_in_the_way_is_at_work() {
    let (api, replica) = one_replica();
    replica
        .run(&api, "Restore", "r1", "1", restore_spec())
        .await;
    assert!(!allowed(
        &replica.create("Backup", "b", "2", backup_spec()).await
    ));
    api.fail(|request| request.path == LEDGER_PATH);
    assert_eq!(
        replica.create("Backup", "b", "3", backup_spec()).await["status"]["code"],
        403
    );
    api.put_velero("Restore", "r1", "1", "Completed", &restore_spec());
    assert_eq!(
        replica.create("Backup", "b", "4", backup_spec()).await["status"]["code"],
        503
    );
}

#[tokio::test]
async fn a_restore_is_refused_while_a_backup_runs_and_admitted_once_it_was_seen_completed() {
    let (api, replica) = one_replica();
    replica.run(&api, "Backup", "b1", "1", backup_spec()).await;
    let refused = replica.create("Restore", "r1", "2", restore_spec()).await;
    assert_says!(
        message(&refused),
        "`kubectl backup describe b1 --namespace velero`"
    );
    // The controller is down, so the claim is not released. The webhook detects its end by itself.
    api.put_velero("Backup", "b1", "1", "Completed", &backup_spec());
    assert!(allowed(
        &replica.create("Restore", "r2", "3", restore_spec()).await
    ));
    assert_says!(
        replica.metrics.text(true),
        "claims_freed_total{reason=\"over\"} 1"
    );
}

/// Concurrent conflicting creations through two replicas, many times: counts of admissions and
/// ledger conflicts.
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
            tokio::join!(
                backup,
                send(1, "Restore", "r", restore),
                send(0, "Backup", "b2", backup_spec())
            )
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
        assert!(
            backup || restore,
            "nobody was admitted in round {round}: {responses:?}"
        );
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
    assert!(
        backups > 0 && restores > 0 && conflicts > 0,
        "no real race: {backups} {restores} {conflicts}"
    );
}

#[tokio::test]
async fn the_same_race_catches_a_webhook_that_looks_and_then_allows() {
    // A dry run reads, and writes nothing.
    let (.., both, _) = race(true).await;
    assert!(both > 0);
}

/// If each looked first, both would see the other and give up.
#[tokio::test]
async fn of_two_restores_created_together_one_is_admitted() {
    for round in 0..40 {
        let api = FakeApi::new();
        let replicas = [Replica::over(&api), Replica::over(&api)];
        replicas[0].store.open(VELERO_SCOPE).await.unwrap();
        let send = |replica: usize, name: &'static str| {
            replicas[replica].create("Restore", name, name, json!({"scheduleName": "nightly"}))
        };
        // Through one replica, and through two.
        let (one, two) = tokio::join!(send(round % 2, "one"), send(0, "two"));
        assert!(allowed(&one) != allowed(&two), "round {round}: {one} {two}");
    }
}

#[tokio::test]
async fn disjoint_requests_and_backups_beside_backups_pass() {
    let (_, replica) = one_replica();
    assert!(allowed(
        &replica.create("Backup", "b1", "1", backup_spec()).await
    ));
    assert!(allowed(
        &replica.create("Backup", "b2", "2", backup_spec()).await
    ));
    let elsewhere = json!({"backupName": "old", "includedNamespaces": ["elsewhere"]});
    assert!(allowed(
        &replica.create("Restore", "r1", "3", elsewhere).await
    ));
}

#[tokio::test]
async fn a_restore_of_everything_is_bounded_by_what_its_backup_holds() {
    let (api, replica) = one_replica();
    api.put_velero(
        "Backup",
        "old",
        "0",
        "Completed",
        &json!({"includedNamespaces": ["other"]}),
    );
    assert!(allowed(
        &replica.create("Backup", "b1", "1", backup_spec()).await
    ));
    assert!(allowed(
        &replica
            .create("Restore", "r1", "2", json!({"backupName": "old"}))
            .await
    ));
    // The newest backup of a schedule is not known yet: that counts as everything.
    assert!(!allowed(
        &replica
            .create("Restore", "r2", "3", json!({"scheduleName": "nightly"}))
            .await
    ));
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
            replica
                .create("Backup", &format!("b{n}"), &n.to_string(), backup_spec())
                .await
        });
    }
    let answers = requests.join_all().await;
    assert!(answers.iter().all(allowed));
    assert!(
        api.writes() - before < 15,
        "{} writes for 50 requests",
        api.writes() - before
    );
}

#[tokio::test]
async fn the_same_uid_may_come_again_and_a_retry_of_the_name_is_not_refused_because_of_itself() {
    let api = FakeApi::new();
    let (one, two) = (Replica::over(&api), Replica::over(&api));
    assert!(allowed(
        &one.create("Restore", "r", "1", restore_spec()).await
    ));
    assert!(allowed(
        &two.create("Restore", "r", "1", restore_spec()).await
    ));
    assert!(allowed(
        &one.create("Restore", "r", "2", restore_spec()).await
    ));
    let ledger = one.ledger().await;
    assert_eq!((ledger.claims.len(), ledger.len()), (1, 2));
}

#[tokio::test]
async fn a_dry_run_gives_the_same_verdict_and_writes_nothing() {
    let (api, replica) = one_replica();
    let dry = |kind: &str, spec: Value| {
        let mut request = creation(kind, "dry", "throw-away", spec);
        request["dryRun"] = json!(true);
        request
    };
    // Not even a first ledger is written.
    assert!(allowed(&replica.review(dry("Backup", backup_spec())).await));
    assert_eq!((api.writes(), ledger_version(&api)), (0, Value::Null));

    replica.run(&api, "Restore", "r", "1", restore_spec()).await;
    let before = (api.writes(), ledger_version(&api));
    let refused = replica.review(dry("Backup", backup_spec())).await;
    assert_says!(message(&refused), "Restore velero/r");
    api.put_velero("Restore", "r", "1", "Completed", &restore_spec());
    assert!(
        allowed(&replica.review(dry("Backup", backup_spec())).await),
        "an ended restore is in nobody's way"
    );
    assert_eq!((api.writes(), ledger_version(&api)), before);
}

#[tokio::test]
async fn an_unconfirmed_reservation_is_named_as_such_with_its_end() {
    let (_, replica) = one_replica();
    assert!(allowed(
        &replica.create("Restore", "r", "1", restore_spec()).await
    ));
    let refused = replica.create("Backup", "b", "2", backup_spec()).await;
    assert_says!(message(&refused), "was not stored so far");
    assert_says!(
        message(&refused),
        "unless it still comes, its place is free by "
    );
    let way_out = "`kubectl backup locks release restore/velero/r --reason=TEXT`";
    assert_says!(message(&refused), way_out);
    assert_eq!(
        refused["status"]["details"]["causes"][0]["reason"],
        "RestoreReserved"
    );
}

#[tokio::test]
async fn a_reservation_is_not_taken_for_the_object_that_has_its_name() {
    let (api, replica) = one_replica();
    assert!(allowed(
        &replica.create("Backup", "b", "2", backup_spec()).await
    ));
    // Another creation was faster, and the API server refuses this one: the name is taken.
    api.put_velero("Backup", "b", "1", "Completed", &backup_spec());
    let refused = replica.create("Restore", "r", "3", restore_spec()).await;
    assert_says!(message(&refused), "was not stored so far");
    assert!(!message(&refused).contains("Completed"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_reservation_is_in_the_way_for_the_grace_and_no_longer() {
    let (_, replica) = one_replica();
    assert!(allowed(
        &replica
            .create("Restore", "never-stored", "1", restore_spec())
            .await
    ));
    assert!(!allowed(
        &replica.create("Backup", "b", "2", backup_spec()).await
    ));
    tokio::time::sleep(GRACE / 2).await;
    assert!(!allowed(
        &replica.create("Backup", "b", "3", backup_spec()).await
    ));
    tokio::time::sleep(GRACE / 2).await;
    // The first look records the suspicion, the next one frees the claim.
    assert!(!allowed(
        &replica.create("Backup", "b", "4", backup_spec()).await
    ));
    assert!(allowed(
        &replica.create("Backup", "b", "5", backup_spec()).await
    ));
}

#[tokio::test]
async fn every_bad_field_is_named_at_once() {
    let (api, replica) = one_replica();
    let spec = json!({"ttl": "soon", "itemOperationTimeout": "never"});
    let refused = replica.create("Backup", "b", "1", spec).await;
    assert!(!allowed(&refused));
    assert_eq!(refused["status"]["code"], 403);
    let causes = refused["status"]["details"]["causes"].as_array().unwrap();
    let fields: Vec<&str> = causes
        .iter()
        .map(|cause| cause["field"].as_str().unwrap())
        .collect();
    assert!(
        fields.contains(&"spec.ttl") && fields.contains(&"spec.itemOperationTimeout"),
        "{fields:?}"
    );
    assert_says!(message(&refused), "spec.ttl");
    // Values that can be decoded, but that the controller would refuse for the spec alone.
    let spec = json!({"ttl": "-1h", "datamover": "other", "includedNamespaces": ["a"], "excludedNamespaces": ["a"]});
    let refused = replica.create("Backup", "b", "2", spec).await;
    for field in ["spec.ttl", "spec.datamover", "spec.excludedNamespaces"] {
        assert!(message(&refused).contains(field), "{field}: {refused}");
    }
    let spec = json!({"backupName": "b", "existingResourcePolicy": "overwrite", "itemOperationTimeout": "-1s"});
    let refused = replica.create("Restore", "r", "3", spec).await;
    for field in ["spec.existingResourcePolicy", "spec.itemOperationTimeout"] {
        assert!(message(&refused).contains(field), "{field}: {refused}");
    }
    assert_eq!(api.writes(), 0, "what is not valid takes no claim");
}

#[tokio::test(start_paused = true)]
async fn trouble_with_the_api_server_is_told_well_inside_the_timeout() {
    for hung in [true, false] {
        let (api, replica) = one_replica();
        if hung {
            api.fault(|_, _| Some(Fault::Hang));
        } else {
            api.fail(|_| true);
        }
        for dry in [false, true] {
            let mut request = creation("Backup", "b", "1", backup_spec());
            request["dryRun"] = json!(dry);
            let start = Instant::now();
            let refused = replica.review(request).await;
            assert!(
                start.elapsed() <= Duration::from_secs(8),
                "{:?}",
                start.elapsed()
            );
            assert!(!allowed(&refused));
            let status = &refused["status"];
            assert_eq!(
                (&status["code"], &status["reason"]),
                (&json!(503), &json!("ServiceUnavailable"))
            );
            assert_eq!(status["details"]["retryAfterSeconds"], 1);
            assert_says!(message(&refused), "try again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_granted_but_by_a_write_that_succeeded() {
    let api = FakeApi::new();
    let (first, fresh) = (Replica::over(&api), Replica::over(&api));
    assert!(allowed(
        &first.create("Backup", "b1", "1", backup_spec()).await
    ));
    api.fail(ApiRequest::is_write);
    // From memory, and from a fresh read.
    for replica in [first, fresh] {
        let refused = replica.create("Backup", "b2", "2", backup_spec()).await;
        assert_eq!(refused["status"]["code"], 503, "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_works_again_after_an_outage() {
    let (api, replica) = one_replica();
    assert!(allowed(
        &replica.create("Backup", "b1", "1", backup_spec()).await
    ));
    api.fail(|_| true);
    assert!(!allowed(
        &replica.create("Backup", "b2", "2", backup_spec()).await
    ));
    api.recover();
    assert!(allowed(
        &replica.create("Backup", "b3", "3", backup_spec()).await
    ));
}
