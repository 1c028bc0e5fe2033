mod volumes;

use std::collections::BTreeMap;

use backup_core::labels::{
    DRILL_INSTALLATION_LABEL, DRILL_LABEL, DRILL_RESTORE_ANNOTATION, SCRATCH_UID_ANNOTATION,
};
use backup_testkit::{FakeApi, Fault, LastWrite, velero_path};
use rstest::rstest;
use serde_json::Value;

use super::*;
use crate::testing;

/// The namespaces of drill `r`.
const SHOP: &str = "drill-0123abcd-shop";
const DB: &str = "drill-0123abcd-db";
const NOW: &str = "2026-01-02T00:00:00Z";

pub(super) fn controller(fake: &FakeApi, metrics: &Arc<Metrics>) -> Arc<DrillController> {
    let cluster = testing::cluster(fake.client());
    Arc::new(DrillController {
        locations: testing::locations(&cluster),
        cluster,
        metrics: Arc::clone(metrics),
        limits: Limits::DEFAULT,
        sweep_due: Notify::default(),
    })
}

pub(super) fn key(name: &str) -> Key {
    Key {
        namespace: "velero".to_owned(),
        name: name.to_owned(),
    }
}

fn namespace_path(name: &str) -> String {
    format!("/api/v1/namespaces/{name}")
}

/// A scratch namespace of the drill with this uid, as it is after it was marked.
fn scratch_namespace(name: &str, drill: &str) -> Value {
    let uid = format!("uid-{name}");
    json!({ "metadata": {
        "name": name, "uid": uid, "creationTimestamp": NOW,
        "labels": { DRILL_LABEL: drill, DRILL_INSTALLATION_LABEL: "velero" },
        "annotations": { DRILL_RESTORE_ANNOTATION: "r", SCRATCH_UID_ANNOTATION: uid },
    } })
}

/// The drill `r` of backup `b`, whose restore has ended, with its two namespaces and one check.
struct Setup {
    fake: FakeApi,
}

impl Setup {
    fn new() -> Self {
        let fake = FakeApi::new();
        let check = json!({ "name": "smoke", "namespace": "shop",
            "job": { "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } } } });
        let spec = json!({ "backupName": "b", "namespaceMapping": { "shop": SHOP, "db": DB },
            "drill": { "checks": [check] } });
        let status = json!({ "phase": "Completed", "startTimestamp": "2026-01-01T00:00:00Z",
            "completionTimestamp": "2026-01-01T00:01:00Z", "progress": { "totalItems": 3, "itemsRestored": 3 } });
        let drill = testing::velero("Restore", "r", spec, status);
        fake.put(&velero_path("Restore", "r"), drill);
        let backup = testing::velero("Backup", "b", json!({}), json!({ "phase": "Completed" }));
        fake.put(&velero_path("Backup", "b"), backup);
        for name in [SHOP, DB] {
            fake.put(&namespace_path(name), scratch_namespace(name, "uid-r"));
        }
        fake.put("/api/v1/nodes/n", json!({ "metadata": { "name": "n" } }));
        Self { fake }
    }

    fn controller(&self) -> Arc<DrillController> {
        controller(&self.fake, &Arc::default())
    }

    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        self.controller().reconcile(key("r")).await
    }

    fn edit(&self, edit: impl FnOnce(&mut Value)) {
        self.fake.edit(&velero_path("Restore", "r"), edit);
    }

    /// Reconciles until the drill is over. Jobs end with this status as soon as they are there, and
    /// a server that has failed is there again.
    async fn run_to_the_end(&self, of_jobs: &Value) {
        for _ in 0..40 {
            if self.state().is_over {
                return;
            }
            if self.reconcile().await.is_err() {
                self.fake.recover();
            }
            for path in self.fake.under("/apis/batch/v1/").into_keys() {
                self.fake.edit(&path, |job| job["status"] = of_jobs.clone());
            }
        }
        panic!("the drill does not end: {:?}", self.state());
    }

    fn state(&self) -> DrillState {
        let text = self.annotation("Restore", "r", DRILL_STATE_ANNOTATION);
        text.map_or_else(DrillState::default, |text| {
            serde_json::from_str(&text).unwrap()
        })
    }

    fn of_backup(&self) -> Option<DrillResult> {
        let text = self.annotation("Backup", "b", DRILLED_ANNOTATION);
        DrillResult::read(text.as_deref())
    }

    fn annotation(&self, kind: &str, name: &str, key: &str) -> Option<String> {
        let object = self.fake.get(&velero_path(kind, name))?;
        let text = object["metadata"]["annotations"][key].as_str()?;
        Some(text.to_owned())
    }

    fn namespaces(&self) -> Vec<String> {
        let all = self.fake.under("/api/v1/namespaces/").into_iter();
        let names = all.filter_map(|(path, _)| {
            let name = path.strip_prefix("/api/v1/namespaces/")?;
            (!name.contains('/')).then(|| name.to_owned())
        });
        names.collect()
    }
}

fn complete() -> Value {
    json!({ "conditions": [{ "type": "Complete", "status": "True" }] })
}

fn failed(message: &str) -> Value {
    json!({ "conditions": [{ "type": "Failed", "status": "True", "message": message }] })
}

#[tokio::test]
async fn a_drill_runs_its_checks_publishes_its_result_and_removes_its_namespaces() {
    let setup = Setup::new();
    setup.run_to_the_end(&complete()).await;
    let result = setup.of_backup().unwrap();
    assert_eq!(
        (result.items, result.restored, result.failure.as_str()),
        (3, 3, "")
    );
    assert_eq!((result.checks, result.passed), (1, 1));
    assert_eq!(setup.state().result, Some(result));
    assert_eq!(setup.namespaces(), Vec::<String>::new());
    let jobs = format!("POST /apis/batch/v1/namespaces/{SHOP}/jobs");
    assert_eq!(setup.fake.count(&jobs), 1);
    let writes = setup.fake.writes();
    assert_eq!(setup.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(setup.fake.writes(), writes, "it is over");
}

#[tokio::test]
async fn a_restore_that_works_is_left_alone() {
    for (field, value) in [
        ("status", json!({ "phase": "InProgress" })),
        ("spec", json!({ "backupName": "b" })),
    ] {
        let setup = Setup::new();
        setup.edit(|object| object[field] = value);
        assert_eq!(setup.reconcile().await.unwrap(), Action::AwaitChange);
        assert_eq!(setup.fake.writes(), 0, "{field}");
    }
}

/// A Deployment of the drill, and one of its name in a namespace of another.
fn put_deployments(setup: &Setup, ready: i64) {
    for namespace in [SHOP, "elsewhere"] {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/web");
        let status =
            json!({ "observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": ready });
        let metadata = json!({ "name": "web", "namespace": namespace, "generation": 1, "labels": { RESTORE_NAME: "r" } });
        let object = json!({ "metadata": metadata, "spec": { "selector": {}, "template": {} }, "status": status });
        setup.fake.put(&path, object);
    }
}

#[tokio::test]
async fn a_drill_waits_until_its_workloads_are_ready() {
    let setup = Setup::new();
    let now = whole_seconds(Timestamp::now());
    setup.edit(|object| object["status"]["completionTimestamp"] = json!(now));
    put_deployments(&setup, 0);
    let waits = setup.reconcile().await.unwrap();
    assert_eq!(waits, Action::RequeueAfter(POLL_INTERVAL));
    assert_eq!(setup.fake.writes(), 0);
    put_deployments(&setup, 1);
    assert_eq!(setup.reconcile().await.unwrap(), REQUEUE_NOW);
    let ready = setup.state().ready.unwrap();
    assert_eq!((ready.workloads, ready.ready), (1, 1));
    // From now on its workloads count no longer.
    put_deployments(&setup, 0);
    setup.run_to_the_end(&complete()).await;
    assert_eq!(setup.of_backup().unwrap().ready, 1);
}

#[tokio::test]
async fn without_nodes_nothing_is_waited_for() {
    for (required, failure) in [
        (false, ""),
        (true, "no workload can become ready, as there is no node"),
    ] {
        let setup = Setup::new();
        let now = whole_seconds(Timestamp::now());
        setup.edit(|object| {
            object["status"]["completionTimestamp"] = json!(now);
            object["spec"]["drill"] = json!({ "requireReady": required });
        });
        put_deployments(&setup, 0);
        setup.fake.delete("/api/v1/nodes/n");
        setup.run_to_the_end(&complete()).await;
        let result = setup.of_backup().unwrap();
        assert_eq!((result.workloads, result.ready), (1, 0));
        assert_eq!(result.failure, failure);
    }
}

#[tokio::test]
async fn a_check_that_fails_is_named_with_its_exit_code() {
    let setup = Setup::new();
    let terminated = json!({ "exitCode": 3 });
    let pod = json!({
        "metadata": { "name": "p", "namespace": SHOP,
            "labels": { "batch.kubernetes.io/job-name": "drill-check-smoke" } },
        "status": { "containerStatuses": [{ "name": "c", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": { "terminated": terminated } }] },
    });
    let path = format!("/api/v1/namespaces/{SHOP}/pods/p");
    setup.fake.put(&path, pod);
    setup.run_to_the_end(&failed("Job has reached")).await;
    let result = setup.of_backup().unwrap();
    assert_eq!(result.failure, "check smoke: exit code 3: Job has reached");
    assert_eq!((result.checks, result.passed), (1, 0));
    assert_eq!(setup.namespaces(), Vec::<String>::new());
}

#[tokio::test]
async fn a_check_whose_job_is_refused_fails() {
    let setup = Setup::new();
    setup.fake.fault(|_, request| {
        let is_job = request.method == "POST" && request.path.ends_with("/jobs");
        is_job.then(|| Fault::refuse(403, "Forbidden", "exceeded quota: drill"))
    });
    setup.run_to_the_end(&Value::Null).await;
    let failure = setup.of_backup().unwrap().failure;
    let expected = "check smoke: its Job was not created: exceeded quota: drill";
    assert_eq!(failure, expected);
}

/// A drill with a check by this expression over Deployments, of which two were restored, and a
/// third one was not.
fn with_expression(resource: &str, expression: &str) -> Setup {
    let setup = Setup::new();
    let check = json!({ "name": "ready", "namespace": "shop", "resource": resource, "expression": expression });
    setup.edit(|object| object["spec"]["drill"] = json!({ "checks": [check] }));
    let types = [("deployments", "Deployment", "Namespaced")];
    setup.fake.put("/api", testing::discovery("", &[]));
    setup.fake.put("/apis", testing::discovery("apps", &types));
    for (name, restore) in [("web", "r"), ("worker", "r"), ("made", "other")] {
        let metadata =
            json!({ "name": name, "namespace": SHOP, "labels": { RESTORE_NAME: restore } });
        let spec = json!({ "replicas": 2, "selector": {}, "template": {} });
        let path = format!("/apis/apps/v1/namespaces/{SHOP}/deployments/{name}");
        setup
            .fake
            .put(&path, json!({ "metadata": metadata, "spec": spec }));
    }
    setup
}

#[rstest]
#[case::is_true(
    "deployments.apps",
    "objects.size() == 2 && objects.all(o, o.spec.replicas == 2)",
    ""
)]
#[case::is_not_true(
    "deployments.apps",
    "objects.exists(o, o.metadata.name == 'made')",
    "check ready: its expression is not true of 2 objects"
)]
#[case::has_no_value(
    "deployments.apps",
    "objects[0].status.readyReplicas > 0",
    "check ready: an object has no field \"status\"; has() tells whether there is one"
)]
#[case::of_no_type(
    "widgets.example.com",
    "objects.size() == 0",
    "check ready: the cluster serves no type widgets.example.com of objects in namespaces"
)]
#[tokio::test]
async fn an_expression_has_to_be_true_of_the_restored_objects(
    #[case] resource: &str,
    #[case] expression: &str,
    #[case] failure: &str,
) {
    let setup = with_expression(resource, expression);
    setup.run_to_the_end(&Value::Null).await;
    let result = setup.of_backup().unwrap();
    assert_eq!(result.failure, failure);
    assert_eq!(
        (result.checks, result.passed),
        (1, usize::from(failure.is_empty()))
    );
    assert!(setup.fake.under("/apis/batch/v1/").is_empty());
    assert_eq!(setup.namespaces(), Vec::<String>::new());
}

#[tokio::test]
async fn an_expression_reads_no_more_objects_than_its_limit() {
    let setup = with_expression("deployments.apps", "objects.size() > 0");
    for n in 0..500 {
        let metadata =
            json!({ "name": format!("d-{n}"), "namespace": SHOP, "labels": { RESTORE_NAME: "r" } });
        let path = format!("/apis/apps/v1/namespaces/{SHOP}/deployments/d-{n}");
        let spec = json!({ "selector": {}, "template": {} });
        setup
            .fake
            .put(&path, json!({ "metadata": metadata, "spec": spec }));
    }
    setup.run_to_the_end(&Value::Null).await;
    let failure = setup.of_backup().unwrap().failure;
    assert_says!(failure, "its objects are more than 500");
}

#[rstest]
#[case::failed(json!({ "phase": "Failed", "failureReason": "no bucket" }), "no bucket")]
#[case::refused(json!({ "phase": "FailedValidation", "validationErrors": ["a", "b"] }), "a; b")]
#[tokio::test]
async fn a_restore_that_failed_ends_the_drill_at_once(
    #[case] status: Value,
    #[case] expected: &str,
) {
    let setup = Setup::new();
    setup.edit(|object| object["status"] = status);
    setup.run_to_the_end(&Value::Null).await;
    let result = setup.of_backup().unwrap();
    assert_eq!((result.failure.as_str(), result.items), (expected, 0));
    assert_eq!(setup.namespaces(), Vec::<String>::new());
    assert!(setup.fake.under("/apis/batch/v1/").is_empty());
}

#[tokio::test]
async fn the_result_is_not_that_of_a_later_backup_of_the_name() {
    let setup = Setup::new();
    setup.fake.edit(&velero_path("Backup", "b"), |object| {
        object["metadata"]["creationTimestamp"] = json!(NOW);
    });
    setup.run_to_the_end(&complete()).await;
    assert_eq!(setup.of_backup(), None);
    assert_eq!(setup.namespaces(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_is_made_up_for() {
    for writes in 0..8 {
        for last in [LastWrite::Lost, LastWrite::Unanswered] {
            let setup = Setup::new();
            setup.fake.crash_after(writes, last);
            setup.run_to_the_end(&complete()).await;
            let case = format!("{last:?} after {writes} writes");
            let result = setup.of_backup().unwrap();
            assert_eq!((result.failure.as_str(), result.passed), ("", 1), "{case}");
            assert_eq!(setup.state().result, Some(result), "{case}");
            assert_eq!(setup.namespaces(), Vec::<String>::new(), "{case}");
            let jobs: BTreeMap<String, Value> = setup.fake.under("/apis/batch/v1/");
            assert_eq!(jobs.len(), 1, "{case}");
        }
    }
}

/// A namespace that no drill has made, or not this one. The first is created by a copy of all
/// labels and annotations, as a restore of a backup or `kubectl apply` would do.
fn put_foreign(setup: &Setup) -> Vec<String> {
    let mut copy = scratch_namespace(SHOP, "uid-r");
    copy["metadata"]["name"] = json!("copied");
    copy["metadata"]["uid"] = json!("uid-copied");
    let mut of_other_installation = scratch_namespace("other", "uid-r");
    of_other_installation["metadata"]["labels"][DRILL_INSTALLATION_LABEL] = json!("velero-2");
    let mut unlabelled = scratch_namespace("plain", "uid-r");
    unlabelled["metadata"]["labels"] = json!({});
    let all = [
        ("copied", copy),
        ("other", of_other_installation),
        ("plain", unlabelled),
    ];
    let mut names = Vec::new();
    for (name, object) in all {
        setup.fake.put(&namespace_path(name), object);
        names.push(name.to_owned());
    }
    names
}

#[tokio::test]
async fn only_namespaces_that_a_drill_has_made_are_removed() {
    let setup = Setup::new();
    let foreign = put_foreign(&setup);
    setup.run_to_the_end(&complete()).await;
    assert_eq!(setup.namespaces(), foreign);
    setup.fake.delete(&velero_path("Restore", "r"));
    let left = setup.controller().sweep(&mut BTreeMap::new()).await;
    assert_eq!((left.unwrap(), setup.namespaces()), (0, foreign));
}

#[tokio::test]
async fn a_namespace_that_is_replaced_meanwhile_stays() {
    let setup = Setup::new();
    setup.edit(|object| object["spec"]["drill"] = json!({}));
    setup.fake.before("DELETE", &namespace_path(SHOP), |api| {
        let other =
            json!({ "metadata": { "name": SHOP, "uid": "uid-new", "creationTimestamp": NOW } });
        api.put(&namespace_path(SHOP), other);
    });
    setup.run_to_the_end(&Value::Null).await;
    assert_eq!(setup.namespaces(), [SHOP]);
}

#[tokio::test]
async fn a_namespace_that_was_not_marked_is_removed_while_its_restore_says_that_it_is_its_own() {
    let setup = Setup::new();
    setup.fake.edit(&namespace_path(DB), |object| {
        object["metadata"]["annotations"] = json!({ DRILL_RESTORE_ANNOTATION: "r" });
    });
    setup.run_to_the_end(&complete()).await;
    assert_eq!(setup.namespaces(), Vec::<String>::new());
}

/// What becomes of the namespaces of a drill.
#[rstest]
#[case::works(|setup: &Setup| setup.edit(|object| object["status"] = json!({ "phase": "InProgress" })), 2)]
#[case::waits_for_workloads(|_: &Setup| {}, 2)]
#[case::is_gone(|setup: &Setup| setup.fake.delete(&velero_path("Restore", "r")), 0)]
#[case::is_another_one(|setup: &Setup| setup.edit(|object| object["metadata"]["uid"] = json!("uid-new")), 0)]
#[case::is_being_deleted(|setup: &Setup| setup.edit(|object| object["metadata"]["deletionTimestamp"] = json!(NOW)), 0)]
#[case::cannot_be_decoded(|setup: &Setup| setup.edit(|object| object["spec"] = json!("none")), 0)]
#[tokio::test]
async fn namespaces_without_a_running_drill_are_swept(
    #[case] change: fn(&Setup),
    #[case] expected: usize,
) {
    let setup = Setup::new();
    change(&setup);
    let controller = setup.controller();
    let found = controller.sweep(&mut BTreeMap::new()).await.unwrap();
    assert_eq!(found, 2);
    assert_eq!(setup.namespaces().len(), expected);
    let found = controller.sweep(&mut BTreeMap::new()).await.unwrap();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn nothing_is_swept_while_restores_cannot_be_read() {
    let setup = Setup::new();
    setup
        .fake
        .fail(|request| request.is("GET", &velero_path("Restore", "r")));
    let swept = setup.controller().sweep(&mut BTreeMap::new()).await;
    assert!(swept.is_err());
    assert_eq!(setup.namespaces().len(), 2);
}
