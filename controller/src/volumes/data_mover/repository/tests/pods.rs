//! Pods of a repository: how they end, or do not.

use backup_core::{
    data_movement::{AffectedSnapshot, CheckReport, MoverFailure, MoverFailures},
    repository_records::{CHECK_REQUEST_ANNOTATION, DATA_CHECK_ANNOTATION, DataCheck},
};
use backup_testkit::Fault;

use super::*;
use crate::volumes::data_mover::repository::check::Check;

const NODE: &str = "/api/v1/nodes/n1";

impl World {
    /// Adds the pod of a repository, which has ended.
    pub(super) fn add_pod(
        &self,
        name: &str,
        work: &str,
        valid_for: Option<&str>,
        outcome: &MoverOutcome,
    ) {
        let terminated = json!({"exitCode": outcome.result.code(), "message": outcome.json()});
        let status = json!({
            "phase": "Succeeded",
            "containerStatuses": [{
                "name": "mover", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": terminated},
            }],
        });
        self.put_pod(name, work, valid_for, &status);
    }

    fn put_pod(&self, name: &str, work: &str, valid_for: Option<&str>, status: &Value) {
        let mut metadata = json!({
            "name": name, "namespace": "velero", "uid": "uid-p",
            "creationTimestamp": Timestamp::now().to_string(),
            "labels": {
                "backup-controller/mover-work": work, "backup-controller/repository": name,
            },
        });
        if let Some(valid_for) = valid_for {
            metadata["annotations"] = json!({"backup-controller/valid-for": valid_for});
        }
        let spec = json!({"nodeName": "n1", "containers": []});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status});
        self.fake.put(&pod_path(name), pod);
    }

    /// Adds a pod of a maintenance that was to be gone an hour ago.
    fn add_stuck_pod(&self, name: &str) {
        let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let status = json!({
            "phase": "Running",
            "containerStatuses": [{
                "name": "mover", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state,
            }],
        });
        self.put_pod(name, "maintain", None, &status);
        let hour = jiff::SignedDuration::from_hours(1);
        let deleted = Timestamp::now().checked_sub(hour).unwrap();
        self.fake.edit(&pod_path(name), |pod| {
            pod["metadata"]["deletionTimestamp"] = json!(deleted.to_string());
        });
    }

    fn add_node(&self, taints: &Value) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"taints": taints}});
        self.fake.put(NODE, node);
    }
}

#[tokio::test]
async fn a_maintenance_on_a_node_that_does_not_answer_is_reported_and_not_removed() {
    let world = World::new();
    world.add_location("default", "aws", "b");
    world.add_password("p");
    let name = world.add_repository(json!({"phase": "Ready"}));
    world.add_stuck_pod(&name);
    world.add_node(&json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]));
    let upload = json!({
        "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
        "metadata": {"name": "u", "namespace": "velero", "uid": "uid-u"},
        "spec": {"snapshotType": "CSI", "datamover": "backup-mover", "sourcePVC": "data", "sourceNamespace": "shop",
            "backupStorageLocation": "default", "operationTimeout": "10m0s"},
    });
    let uploads = "/apis/velero.io/v2alpha1/namespaces/velero/datauploads/u";
    world.fake.put(uploads, upload);
    world.reconcile(&name).await;
    let (phase, message) = world.status(&name);
    assert_eq!(phase, "Ready", "restores can use it");
    assert!(
        message.contains("node n1") && message.contains("kubectl taint"),
        "{message}"
    );
    for kind in ["BackupRepository", "DataUpload"] {
        assert_eq!(world.event("Blocked", kind).await, message);
    }
    let awaited = world
        .mover
        .awaited_maintenance(&name)
        .await
        .unwrap()
        .unwrap();
    let RepositoryState::Waiting(awaited) = awaited else {
        panic!("it is not bounded: {awaited:?}")
    };
    for part in [&name[..], "on node n1", "since ", "does not end"] {
        assert!(awaited.contains(part), "{awaited}");
    }
    let before = world.patches(&name);
    let action = world.reconcile(&name).await;
    assert_eq!(world.patches(&name), before, "it is said once");
    assert_eq!(action, Action::RequeueAfter(Duration::from_secs(30)));
    assert!(world.fake.get(&pod_path(&name)).is_some());
}

#[tokio::test]
async fn a_maintenance_on_a_node_that_is_off_is_removed_and_counts_as_failed() {
    let off = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    for taints in [Some(off), None] {
        let world = World::new();
        world.add_location("default", "aws", "b");
        world.add_password("p");
        let name = world.add_repository(json!({"phase": "Ready"}));
        world.add_stuck_pod(&name);
        if let Some(taints) = &taints {
            world.add_node(taints);
        }
        world.reconcile(&name).await;
        assert_eq!(world.fake.get(&pod_path(&name)), None);
        let requests = world.fake.requests();
        let deletion = requests.iter().find(|request| request.method == "DELETE");
        let body = &deletion.unwrap().body;
        assert_eq!(body["gracePeriodSeconds"], 0);
        assert_eq!(body["preconditions"]["uid"], "uid-p");
        let repository = repository(&world, &name);
        let maintenance = &repository.status.recent_maintenance[0];
        let message = maintenance.message.as_deref().unwrap();
        assert!(message.contains("node n1, which is off"), "{message}");
        let awaited = world.mover.awaited_maintenance(&name).await.unwrap();
        assert_eq!(awaited, None, "uploads continue");
    }
}

/// A pod that does not start, as its image is missing.
fn without_image() -> Value {
    let waiting = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image \"i\""});
    json!({
        "phase": "Pending",
        "containerStatuses": [{
            "name": "mover", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": waiting},
        }],
    })
}

#[tokio::test]
async fn a_transfer_is_told_why_the_pod_of_its_repository_does_not_start() {
    let world = World::new();
    world.add_location("default", "aws", "b");
    world.add_password("p");
    let name = world.add_repository(json!({}));
    let state = async || world.mover.repository("shop", "default").await.unwrap();
    let prepared = "the repository of namespace shop is being prepared";
    assert_eq!(state().await, RepositoryState::Waiting(prepared.to_owned()));
    world.put_pod(&name, "init", None, &without_image());
    let expected =
        "its pod does not start (ImagePullBackOff): Back-off pulling image \"i\"".to_owned();
    let waiting = RepositoryState::Waiting(format!("{prepared}: {expected}"));
    assert_eq!(state().await, waiting);
    let hour = jiff::SignedDuration::from_hours(1);
    let created = Timestamp::now().checked_sub(hour).unwrap();
    world.fake.edit(&pod_path(&name), |pod| {
        pod["metadata"]["creationTimestamp"] = json!(created.to_string());
    });
    world.reconcile(&name).await;
    let RepositoryState::Waiting(reason) = state().await else {
        panic!("it is tried again")
    };
    assert!(
        reason.contains("within 30m0s") && reason.ends_with(&expected),
        "{reason}"
    );
}

#[tokio::test]
async fn a_pod_that_a_quota_refuses_is_published() {
    let world = World::new();
    world.add_location("default", "aws", "b");
    world.add_password("p");
    let name = world.add_repository(json!({}));
    let stored = repository(&world, &name);
    let location = world.mover.location("default").await.unwrap().unwrap();
    let password = world.mover.password_secret().await.unwrap();
    let facts = Facts {
        inputs: world.inputs().await,
        repository: &stored,
        location: Some(&location),
        password: &password,
        pod: None,
        node: NodeState::Unknown,
        has_check_slot: false,
        prepare_timeout: Duration::from_mins(30),
        now: Timestamp::now(),
    };
    world.fake.fault(|_, request| {
        let is_refused = request.method == "POST" && request.path.ends_with("/pods");
        is_refused.then(|| Fault::refuse(403, "Forbidden", "exceeded quota: no-pods"))
    });
    let begun = world.mover.begin_pod(&facts, &location, PodWork::Init);
    begun.await.unwrap();
    let (phase, message) = world.status(&name);
    assert_eq!(phase, "NotReady");
    assert!(
        message.ends_with("cannot be created: exceeded quota: no-pods"),
        "{message}"
    );
    // A repository that can be used stays so.
    let work = PodWork::Maintain { request: None };
    let maintenance = world.mover.begin_pod(&facts, &location, work);
    assert!(maintenance.await.is_err());
}

#[tokio::test]
async fn damage_that_a_check_has_found_is_an_event_and_stays_in_the_status() {
    let world = World::new();
    world.add_location("default", "aws", "b");
    world.add_password("p");
    let name = world.add_repository(json!({"phase": "Ready"}));
    let report = CheckReport {
        affected_count: 1,
        affected: vec![AffectedSnapshot {
            id: "4f".repeat(32),
            tags: "backup=nightly,claim=data".to_owned(),
            ..AffectedSnapshot::default()
        }],
        ..CheckReport::default()
    };
    let outcome = MoverOutcome {
        operation: "check".to_owned(),
        result: MoverResult::Incomplete,
        reason: Some("damaged".to_owned()),
        failures: MoverFailures {
            count: 1,
            first: vec![MoverFailure {
                path: format!("data/5f/{}", "5f".repeat(32)),
                reason: "it is missing".to_owned(),
            }],
        },
        check: Some(Box::new(report)),
        ..MoverOutcome::default()
    };
    world.add_pod(&name, "check", None, &outcome);
    world.reconcile(&name).await;
    let note = world.event("Damaged", "BackupRepository").await;
    assert!(note.contains("data of backup nightly"), "{note}");
    let check = DataCheck::of(repository(&world, &name).annotations());
    assert_eq!(check.damaged_packs, ["5f".repeat(32)]);
    assert_eq!(world.fake.get(&pod_path(&name)), None);
    // Its remark is published once something is known of the repository.
    let inputs = world.inputs().await;
    let stored = repository(&world, &name);
    let ready = Verdict::ready();
    let known = world.mover.publish_verdict(&stored, &inputs, &ready);
    known.await.unwrap();
    world.reconcile(&name).await;
    assert_eq!(world.status(&name), ("Ready".to_owned(), check.damage));
}

#[tokio::test]
async fn damage_that_a_restore_has_met_is_an_event_and_requests_a_check() {
    let world = World::new();
    world.add_location("default", "aws", "b");
    let name = world.add_repository(json!({"phase": "Ready"}));
    let pack = "5f".repeat(32);
    let outcome = MoverOutcome {
        operation: "restore".to_owned(),
        reason: Some(failure_reason::DAMAGED.to_owned()),
        failures: MoverFailures {
            count: 1,
            first: vec![MoverFailure {
                path: format!("data/5f/{pack}"),
                reason: "it is missing".to_owned(),
            }],
        },
        ..MoverOutcome::default()
    };
    let state = PodState::Ended(outcome);
    for _ in 0..2 {
        let noted = world.mover.note_pod("shop", "default", &state);
        noted.await.unwrap();
    }
    let check = DataCheck::of(repository(&world, &name).annotations());
    assert_eq!(check.damaged_packs, [pack]);
    assert_eq!(world.status(&name).0, "Ready", "others can be restored");
    assert_eq!(world.patches(&name), 1);
    let annotations = repository(&world, &name).annotations().clone();
    assert!(annotations.contains_key(CHECK_REQUEST_ANNOTATION));
    let note = world.event("Damaged", "BackupRepository").await;
    assert!(note.contains("a check is under way"), "{note}");
}

#[tokio::test]
async fn a_check_begins_with_the_next_part_and_not_beside_two_others() {
    let world = World::new();
    world.add_location("default", "aws", "b");
    world.add_password("p");
    let name = world.add_repository(
        json!({"phase": "Ready", "lastMaintenanceTime": Timestamp::now().to_string()}),
    );
    let inputs = world.inputs().await;
    let before = DataCheck {
        part: 4,
        ..DataCheck::default()
    };
    let check = Check {
        inputs,
        at: Timestamp::now(),
        is_final: true,
    };
    world.fake.edit(&repository_path_of(&name), |repository| {
        repository["metadata"]["annotations"] =
            json!({DATA_CHECK_ANNOTATION: before.annotation(), CHECK_ANNOTATION: check.annotation()});
    });
    for other in ["other-1", "other-2"] {
        world.put_pod(other, "check", None, &json!({"phase": "Running"}));
    }
    world.reconcile(&name).await;
    assert_eq!(world.fake.get(&pod_path(&name)), None);
    world.fake.delete(&pod_path("other-1"));
    world.reconcile(&name).await;
    let pod = world.fake.get(&pod_path(&name)).unwrap();
    let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
    assert!(args.contains(&json!("--read-data-part=5/30")), "{args:?}");
}
