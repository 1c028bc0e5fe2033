use std::num::NonZeroU64;

use backup_core::{api::BackupPhase, labels::SCHEDULE_NAME};
use backup_store::Location;
use backup_testkit::{FakeApi, velero_path};
use serde_json::Value;

use super::*;
use crate::backup_turns::MAX_SLEEP;
use crate::testing;

/// A schedule `nightly` that verifies its newest backup, and a stored backup `b` of it.
struct Setup {
    fake: FakeApi,
    folder: tempfile::TempDir,
    metrics: Arc<Metrics>,
}

fn backup_path() -> String {
    velero_path("Backup", "b")
}

fn schedule_path() -> String {
    velero_path("Schedule", "nightly")
}

impl Setup {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let location = testing::local_location(folder.path());
        let store = Location::open(&location, None, None).unwrap();
        let claimant = testing::claimant("uid-b");
        let writer = store.open_backup("b", &claimant).await.unwrap();
        let pending = writer.finish().await.unwrap();
        let mut end = testing::backup(BackupPhase::Completed);
        end.metadata.uid = Some("uid-b".to_owned());
        let plan = pending.commit(&testing::no_files(), &end).await;
        plan.unwrap().publish().await.unwrap();

        let fake = FakeApi::new();
        let spec = json!({ "storageLocation": "default" });
        let status = json!({ "phase": "Completed", "completionTimestamp": "2026-01-01T01:00:00Z" });
        let mut backup = testing::velero("Backup", "b", spec, status);
        backup["metadata"]["labels"] = json!({ SCHEDULE_NAME: "nightly" });
        fake.put(&backup_path(), backup);
        let verify = json!({ "every": "24h" });
        let spec = json!({ "schedule": "@daily", "template": {}, "verify": verify });
        let schedule = testing::velero("Schedule", "nightly", spec, json!({}));
        fake.put(&schedule_path(), schedule);
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

    fn controller(&self, rate: Option<u64>) -> Arc<VerificationController> {
        let cluster = testing::cluster(self.fake.client());
        Arc::new(VerificationController {
            locations: testing::locations(&cluster),
            cluster,
            metrics: Arc::clone(&self.metrics),
            limits: Limits::DEFAULT,
            throttle: Arc::new(Throttle::new(rate.and_then(NonZeroU64::new))),
            stop: CancellationToken::new(),
        })
    }

    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        let key = Key {
            namespace: "velero".to_owned(),
            name: "nightly".to_owned(),
        };
        self.controller(None).reconcile(key).await
    }

    fn remove_log(&self) {
        let log = self.folder.path().join("backups/b/b-logs.gz");
        std::fs::remove_file(log).unwrap();
    }

    fn annotation(&self, path: &str, key: &str) -> Option<String> {
        let object: Value = self.fake.get(path)?;
        let text = object["metadata"]["annotations"][key].as_str()?;
        Some(text.to_owned())
    }

    fn of_backup(&self) -> Option<Verification> {
        let text = self.annotation(&backup_path(), VERIFIED_ANNOTATION);
        Verification::read(text.as_deref())
    }

    fn of_schedule(&self) -> Option<ScheduleVerification> {
        let text = self.annotation(&schedule_path(), VERIFICATION_ANNOTATION);
        ScheduleVerification::read(text.as_deref())
    }
}

#[tokio::test]
async fn a_whole_backup_is_recorded_and_verified_again_after_the_interval() {
    let setup = Setup::new().await;
    assert_eq!(setup.reconcile().await.unwrap(), REQUEUE_NOW);
    let verified = setup.of_backup().unwrap();
    assert_eq!((verified.findings, verified.compared), (0, true));
    let last = setup.of_schedule().unwrap();
    assert_eq!((last.backup.as_str(), last.findings), ("b", 0));
    assert_eq!((last.whole, last.at), (Some(verified.at), verified.at));
    let line = "velero_schedule_verification_success_total{schedule=\"nightly\"} 1";
    testing::assert_exported(&setup.metrics, &[line]);

    let writes = setup.fake.writes();
    let again = setup.reconcile().await.unwrap();
    assert_eq!(again, Action::RequeueAfter(MAX_SLEEP));
    assert_eq!(setup.fake.writes(), writes);
    let due = verified.at.as_second() + 24 * 3600;
    let line =
        format!("velero_schedule_verification_due_timestamp_seconds{{schedule=\"nightly\"}} {due}");
    testing::assert_exported(&setup.metrics, &[line.as_str()]);
}

#[tokio::test]
async fn a_damaged_backup_is_recorded_with_the_file() {
    let setup = Setup::new().await;
    setup.remove_log();
    assert_eq!(setup.reconcile().await.unwrap(), REQUEUE_NOW);
    let verified = setup.of_backup().unwrap();
    assert_eq!(
        (verified.findings, verified.first.as_str()),
        (1, "b-logs.gz: it is missing")
    );
    let last = setup.of_schedule().unwrap();
    assert_eq!((last.findings, last.whole), (1, None));
    let line = "velero_schedule_verification_failure_total{schedule=\"nightly\"} 1";
    testing::assert_exported(&setup.metrics, &[line]);
}

#[tokio::test]
async fn a_backup_that_is_deleted_meanwhile_has_no_result() {
    let setup = Setup::new().await;
    setup.remove_log();
    setup.fake.fault(|api, request| {
        // The second read is after its files.
        if request.is("GET", &backup_path()) && request.earlier == 1 {
            api.delete(&backup_path());
        }
        None
    });
    assert_eq!(setup.reconcile().await.unwrap(), REQUEUE_NOW);
    assert_eq!((setup.of_backup(), setup.of_schedule()), (None, None));
    let again = setup.reconcile().await.unwrap();
    assert_eq!(again, Action::RequeueAfter(RETRY_INTERVAL));
    assert!(!setup.metrics.encode().contains("due_timestamp_seconds{"));
}

#[tokio::test]
async fn a_verification_that_was_cut_before_it_was_recorded_is_begun_again() {
    let setup = Setup::new().await;
    setup
        .fake
        .fail(|request| request.is("PATCH", &schedule_path()));
    assert!(setup.reconcile().await.is_err());
    let first = setup.of_backup().unwrap();
    assert_eq!(setup.of_schedule(), None);
    setup.fake.recover();
    setup.reconcile().await.unwrap();
    let second = setup.of_backup().unwrap();
    assert!(first.at < second.at, "{first:?} {second:?}");
    assert_eq!(setup.of_schedule().unwrap().at, second.at);
}

#[tokio::test]
async fn nothing_is_read_from_a_location_that_is_not_available() {
    let setup = Setup::new().await;
    let location = velero_path("BackupStorageLocation", "default");
    setup.fake.edit(&location, |object| {
        object["status"]["phase"] = json!("Unavailable");
    });
    let later = setup.reconcile().await.unwrap();
    assert_eq!(later, Action::RequeueAfter(RETRY_INTERVAL));
    assert_eq!((setup.of_backup(), setup.of_schedule()), (None, None));
    let line =
        "velero_schedule_verification_due_timestamp_seconds{schedule=\"nightly\"} 1767229200";
    testing::assert_exported(&setup.metrics, &[line]);
}

#[tokio::test]
async fn a_process_that_ends_does_not_wait_for_a_verification() {
    let setup = Setup::new().await;
    let controller = setup.controller(Some(1));
    let stop = controller.stop.clone();
    let key = Key {
        namespace: "velero".to_owned(),
        name: "nightly".to_owned(),
    };
    let (action, ()) = tokio::join!(controller.reconcile(key), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.cancel();
    });
    assert_eq!(action.unwrap(), Action::AwaitChange);
    assert_eq!((setup.of_backup(), setup.of_schedule()), (None, None));
}

#[tokio::test]
async fn a_schedule_that_asks_for_nothing_has_no_series() {
    let setup = Setup::new().await;
    setup.reconcile().await.unwrap();
    setup.fake.edit(&schedule_path(), |object| {
        object["spec"]["verify"] = Value::Null;
    });
    assert_eq!(setup.reconcile().await.unwrap(), Action::AwaitChange);
    assert!(!setup.metrics.encode().contains("nightly"));
}
