use std::{fs, io::Write as _, path::Path};

use backup_core::labels::{DRILL_STATE_ANNOTATION, SCHEDULE_NAME};
use backup_testkit::{FakeApi, Fault, LastWrite, status, velero_path};
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use super::*;
use crate::backup_turns::MAX_SLEEP;
use crate::{
    drill::tests::{controller, key},
    metrics::Metrics,
    testing,
};

const RESTORES: &str = "/apis/velero.io/v1/namespaces/velero/restores";

/// A schedule `nightly` with drills each day, and a stored backup `b` of it with namespaces `shop`,
/// `db`, and some that a drill leaves out.
struct Setup {
    fake: FakeApi,
    folder: tempfile::TempDir,
    metrics: Arc<Metrics>,
}

fn schedule_path() -> String {
    velero_path("Schedule", "nightly")
}

fn list_file(folder: &Path) -> std::path::PathBuf {
    folder.join("backups/b/b-resource-list.json.gz")
}

impl Setup {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let list = json!({ "v1/ConfigMap": ["shop/a", "db/a", "velero/a", "kube-system/a"], "v1/Node": ["n"] });
        let file = list_file(folder.path());
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(list.to_string().as_bytes()).unwrap();
        fs::write(file, encoder.finish().unwrap()).unwrap();

        let fake = FakeApi::new();
        let status = json!({ "phase": "Completed", "completionTimestamp": "2026-01-01T01:00:00Z" });
        let spec = json!({ "storageLocation": "default" });
        let mut backup = testing::velero("Backup", "b", spec, status);
        backup["metadata"]["labels"] = json!({ SCHEDULE_NAME: "nightly" });
        fake.put(&velero_path("Backup", "b"), backup);
        let drill = json!({ "every": "24h", "quota": { "pods": "5" }, "requireReady": true });
        let spec = json!({ "schedule": "@daily", "template": {}, "drill": drill });
        let schedule = testing::velero("Schedule", "nightly", spec, json!({}));
        fake.put(&schedule_path(), schedule);
        let location = testing::local_location(folder.path());
        let mut object = serde_json::to_value(location).unwrap();
        object["metadata"]["namespace"] = json!("velero");
        object["status"] = json!({ "phase": "Available" });
        let path = velero_path("BackupStorageLocation", "default");
        fake.put(&path, object);
        Self {
            fake,
            folder,
            metrics: Arc::default(),
        }
    }

    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        let controller = controller(&self.fake, &self.metrics);
        controller.reconcile_schedule(key("nightly")).await
    }

    fn edit(&self, edit: impl FnOnce(&mut Value)) {
        self.fake.edit(&schedule_path(), edit);
    }

    fn last(&self) -> Option<LastDrill> {
        let object = self.fake.get(&schedule_path())?;
        LastDrill::read(object["metadata"]["annotations"][LAST_DRILL_ANNOTATION].as_str())
    }

    fn restores(&self) -> Vec<Value> {
        self.fake.under(RESTORES).into_values().collect()
    }

    /// A drill of the schedule that is over, with this result.
    fn put_drill(&self, name: &str, at: &str, failure: &str) -> DrillResult {
        let result = DrillResult {
            seconds: 41,
            items: 2,
            restored: 2,
            ..DrillResult::of_nothing(name, failure.to_owned(), at.parse().unwrap())
        };
        let state = DrillState {
            result: Some(result.clone()),
            is_over: true,
            ..DrillState::default()
        };
        let spec = json!({ "backupName": "b", "drill": {} });
        let mut drill = testing::velero("Restore", name, spec, json!({ "phase": "Completed" }));
        drill["metadata"]["labels"] = json!({ DRILL_SCHEDULE_LABEL: "nightly" });
        drill["metadata"]["annotations"] = json!({ DRILL_STATE_ANNOTATION: state.annotation() });
        self.fake.put(&velero_path("Restore", name), drill);
        result
    }
}

#[tokio::test]
async fn a_drill_that_is_due_is_created_after_a_dry_run() {
    let setup = Setup::new();
    let action = setup.reconcile().await.unwrap();
    assert_eq!(action, Action::RequeueAfter(POLL_INTERVAL));
    let restores = setup.restores();
    let [restore] = restores.as_slice() else {
        panic!("{restores:?}");
    };
    let (metadata, spec) = (&restore["metadata"], &restore["spec"]);
    assert_eq!(metadata["labels"][DRILL_SCHEDULE_LABEL], "nightly");
    assert_eq!(spec["includedNamespaces"], json!(["db", "shop"]));
    assert_eq!(spec["drill"]["quota"], json!({ "pods": "5" }));
    assert_eq!(spec["drill"]["requireReady"], true);
    let scratch = spec["namespaceMapping"]["shop"].as_str().unwrap();
    let id = drill::id_of_scratch(scratch).unwrap();
    assert_eq!(metadata["name"], format!("b-drill-{id}"));
    let tries = setup.fake.requests();
    let dry_runs: Vec<&str> = tries
        .iter()
        .filter(|request| request.is("POST", RESTORES))
        .map(|request| request.parameter("dryRun"))
        .collect();
    assert_eq!(dry_runs, ["All", ""]);
    let line = "velero_schedule_drill_due_timestamp_seconds{schedule=\"nightly\"} 1767229200";
    testing::assert_exported(&setup.metrics, &[line]);

    let writes = setup.fake.writes();
    let again = setup.reconcile().await.unwrap();
    assert_eq!(again, Action::RequeueAfter(POLL_INTERVAL));
    assert_eq!(setup.fake.writes(), writes, "it is open");
}

#[tokio::test]
async fn a_drill_may_be_of_some_namespaces() {
    let setup = Setup::new();
    setup.edit(|object| object["spec"]["drill"]["includedNamespaces"] = json!(["shop"]));
    setup.reconcile().await.unwrap();
    let restores = setup.restores();
    let spec = &restores[0]["spec"];
    assert_eq!(spec["includedNamespaces"], json!(["shop"]));
    assert_eq!(spec["namespaceMapping"].as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn a_drill_that_would_wait_is_not_created() {
    let setup = Setup::new();
    setup.fake.fault(|_, request| {
        let is_try = request.is("POST", RESTORES);
        is_try.then(|| Fault::refuse(403, "Forbidden", "backup b2 holds the namespaces"))
    });
    let later = setup.reconcile().await.unwrap();
    assert_eq!(later, Action::RequeueAfter(RETRY_INTERVAL));
    assert_eq!(setup.fake.count(&format!("POST {RESTORES}")), 1);
    assert_eq!((setup.restores().len(), setup.last()), (0, None));
    setup.fake.recover();
    setup.reconcile().await.unwrap();
    assert_eq!(setup.restores().len(), 1);
}

#[tokio::test]
async fn a_drill_whose_answer_was_lost_is_not_created_twice() {
    // The first write is the dry run.
    for last in [LastWrite::Lost, LastWrite::Unanswered] {
        let setup = Setup::new();
        setup.fake.crash_after(1, last);
        let later = setup.reconcile().await.unwrap();
        assert_eq!(later, Action::RequeueAfter(RETRY_INTERVAL));
        setup.fake.recover();
        let action = setup.reconcile().await.unwrap();
        assert_eq!(action, Action::RequeueAfter(POLL_INTERVAL));
        assert_eq!(setup.restores().len(), 1, "{last:?}");
    }
}

#[tokio::test]
async fn the_name_of_a_drill_may_be_that_of_another_restore() {
    let setup = Setup::new();
    setup.reconcile().await.unwrap();
    let restore = setup.restores().remove(0);
    let path = format!(
        "{RESTORES}/{}",
        restore["metadata"]["name"].as_str().unwrap()
    );
    setup
        .fake
        .edit(&path, |object| object["metadata"]["labels"] = json!({}));
    setup.reconcile().await.unwrap();
    let last = setup.last().unwrap();
    assert_says!(last.result.failure, "is not of this schedule");
}

#[tokio::test]
async fn a_server_that_does_not_know_drills_is_said() {
    let setup = Setup::new();
    setup.fake.fault(|_, request| {
        if !request.is("POST", RESTORES) {
            return None;
        }
        let mut answer = request.body.clone();
        answer["spec"]["drill"] = Value::Null;
        Some(Fault::Answer(status(201, answer)))
    });
    setup.reconcile().await.unwrap();
    assert_eq!(setup.fake.count(&format!("POST {RESTORES}")), 1);
    let last = setup.last().unwrap();
    assert_says!(last.result.failure, "does not know spec.drill");
}

#[tokio::test]
async fn the_result_is_recorded_once_and_the_next_drill_is_due_later() {
    let setup = Setup::new();
    let now = whole_seconds(Timestamp::now());
    setup.put_drill("old", "2026-01-01T02:00:00Z", "");
    let result = setup.put_drill("new", &now.to_string(), "");
    assert_eq!(setup.reconcile().await.unwrap(), super::super::REQUEUE_NOW);
    let last = setup.last().unwrap();
    assert_eq!(last, LastDrill::after(None, "b", result));
    let next = setup.reconcile().await.unwrap();
    assert_eq!(next, Action::RequeueAfter(MAX_SLEEP));
    assert_eq!(setup.restores().len(), 1, "earlier ones are deleted");
    let seconds = now.as_second();
    let success = format!(
        "velero_schedule_drill_last_success_timestamp_seconds{{schedule=\"nightly\"}} {seconds}"
    );
    let lines = [
        "velero_schedule_drill_success_total{schedule=\"nightly\"} 1",
        "velero_schedule_drill_last_status{schedule=\"nightly\"} 1",
        "velero_schedule_drill_last_duration_seconds{schedule=\"nightly\"} 41",
        success.as_str(),
    ];
    testing::assert_exported(&setup.metrics, &lines);
    let writes = setup.fake.writes();
    setup.reconcile().await.unwrap();
    assert_eq!(setup.fake.writes(), writes);
}

#[tokio::test]
async fn a_failed_drill_keeps_the_time_of_the_last_success() {
    let setup = Setup::new();
    let success: Timestamp = "2026-01-01T02:00:00Z".parse().unwrap();
    let earlier = DrillResult::of_nothing("old", String::new(), success);
    let earlier = LastDrill::after(None, "b", earlier).annotation();
    setup.edit(|object| {
        object["metadata"]["annotations"] = json!({ LAST_DRILL_ANNOTATION: earlier });
    });
    setup.put_drill("new", "2026-01-02T02:00:00Z", "check a: exit code 1");
    setup.reconcile().await.unwrap();
    let last = setup.last().unwrap();
    assert!(last.result.has_failed());
    assert_eq!(last.success, Some(success));
    let line = "velero_schedule_drill_failure_total{schedule=\"nightly\"} 1";
    testing::assert_exported(&setup.metrics, &[line]);
}

#[tokio::test]
async fn a_result_in_the_future_hides_no_later_one() {
    let setup = Setup::new();
    let future = Timestamp::now() + jiff::SignedDuration::from_hours(24);
    let forged = DrillResult::of_nothing("old", String::new(), future);
    let forged = LastDrill::after(None, "b", forged).annotation();
    setup.edit(|object| {
        object["metadata"]["annotations"] = json!({ LAST_DRILL_ANNOTATION: forged });
    });
    setup.put_drill("new", "2026-01-02T02:00:00Z", "check a: exit code 1");
    setup.reconcile().await.unwrap();
    assert!(setup.last().unwrap().result.has_failed());
}

#[tokio::test]
async fn a_backup_without_its_list_fails_the_drill() {
    let setup = Setup::new();
    fs::remove_file(list_file(setup.folder.path())).unwrap();
    setup.reconcile().await.unwrap();
    let last = setup.last().unwrap();
    assert_says!(last.result.failure, "list of the backup's items");
    assert_eq!((last.backup.as_str(), setup.restores().len()), ("b", 0));
    let backup = setup.fake.get(&velero_path("Backup", "b")).unwrap();
    let of_backup = backup["metadata"]["annotations"][DRILLED_ANNOTATION].as_str();
    assert_eq!(DrillResult::read(of_backup), Some(last.result));
    let next = setup.reconcile().await.unwrap();
    assert_eq!(next, Action::RequeueAfter(MAX_SLEEP));
}

#[tokio::test]
async fn a_location_that_is_not_available_makes_the_drill_late() {
    let setup = Setup::new();
    let location = velero_path("BackupStorageLocation", "default");
    setup.fake.edit(&location, |object| {
        object["status"]["phase"] = json!("Unavailable");
    });
    let later = setup.reconcile().await.unwrap();
    assert_eq!(later, Action::RequeueAfter(RETRY_INTERVAL));
    assert_eq!((setup.restores().len(), setup.last()), (0, None));
}

#[tokio::test]
async fn a_schedule_that_asks_for_nothing_has_no_series() {
    let setup = Setup::new();
    setup.reconcile().await.unwrap();
    setup.edit(|object| object["spec"]["drill"] = Value::Null);
    assert_eq!(setup.reconcile().await.unwrap(), Action::AwaitChange);
    assert!(!setup.metrics.encode().contains("nightly"));
}
