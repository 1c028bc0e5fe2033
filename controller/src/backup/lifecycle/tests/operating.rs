//! Backups whose items are collected, and whose operations are running.

use std::{collections::HashMap, sync::Mutex};

use async_trait::async_trait;
use backup_actions::{
    ActionError, AppliesTo, ItemAction, OperationProgress,
    backup::{BackupActionOutput, BackupItemAction},
};
use backup_core::{
    data_movement::repository_name,
    operation::{BackupOperation, BackupOperationSpec, OperationStatus, ResourceIdentifier},
    repository_records::{DATA_CHECK_ANNOTATION, DataCheck},
    volume_info::VolumeInfo,
};
use backup_store::{ItemPath, JobFiles};
use flate2::read::MultiGzDecoder;

use super::*;
use crate::job::operations::{call::Registry, records};
use backup_plugins::Host;

/// An action whose operations answer as the test sets.
#[derive(Default)]
struct Scripted {
    answers: Mutex<HashMap<String, OperationProgress>>,
    asked: Mutex<Vec<String>>,
}

impl Scripted {
    fn answer(&self, operation: &str, answer: OperationProgress) {
        self.answers
            .lock()
            .unwrap()
            .insert(operation.to_owned(), answer);
    }
}

impl ItemAction for Scripted {
    fn name(&self) -> &'static str {
        "test/scripted"
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo::default()
    }
}

#[async_trait]
impl BackupItemAction for Scripted {
    async fn execute(&self, _: &Value, _: &Backup) -> Result<BackupActionOutput, ActionError> {
        Ok(BackupActionOutput::default())
    }

    async fn progress(
        &self,
        operation: &str,
        _: &Backup,
    ) -> Result<OperationProgress, ActionError> {
        self.asked.lock().unwrap().push(operation.to_owned());
        let answer = self.answers.lock().unwrap().get(operation).cloned();
        Ok(answer.unwrap_or_default())
    }

    async fn cancel(&self, operation: &str, _: &Backup) -> Result<(), ActionError> {
        self.asked
            .lock()
            .unwrap()
            .push(format!("cancel {operation}"));
        Ok(())
    }
}

fn done(error: &str) -> OperationProgress {
    OperationProgress {
        completed: true,
        error: error.to_owned(),
        ..OperationProgress::default()
    }
}

fn knowing(ctx: &JobContext, action: &Arc<Scripted>) -> (Worker<Backups>, Cancellation) {
    let (mut worker, cancellation) = worker(ctx);
    let known: Arc<dyn BackupItemAction> = action.clone();
    worker.ctx.polling.registry = Arc::new(Registry::new([known], [], Host::none()));
    (worker, cancellation)
}

/// A Backup that has begun, and the action that has started its operations.
async fn begun(phase: &str, operations: &[&str]) -> (Cluster, Arc<Scripted>) {
    let cluster = Cluster::with(metadata_comes_first);
    let action = begin(&cluster, phase, operations).await;
    (cluster, action)
}

/// Backup `b` has begun; with operations, its items are collected, too.
async fn begin(cluster: &Cluster, phase: &str, operations: &[&str]) -> Arc<Scripted> {
    begin_with(cluster, phase, operations, Vec::new()).await
}

/// The same, with these volumes.
async fn begin_with(
    cluster: &Cluster,
    phase: &str,
    operations: &[&str],
    volume_info: Vec<VolumeInfo>,
) -> Arc<Scripted> {
    cluster.change_backup(&json!({
        "spec": {"storageLocation": "default", "itemOperationTimeout": "10m"},
        "status": {"phase": phase, "startTimestamp": "2026-01-01T00:00:00Z"},
        "metadata": {"finalizers": Backups::FINALIZERS},
    }));
    if operations.is_empty() {
        return Arc::default();
    }
    let (_, location) = cluster.context().locations.open("default").await.unwrap();
    let mut writer = location.open_backup("b", &claimant("uid-b")).await.unwrap();
    let path = ItemPath {
        group_resource: "configmaps",
        version: "v1",
        preferred: true,
        namespace: Some("a"),
        name: "one",
    };
    writer.item(&path, b"{\"as\":\"it was\"}").await.unwrap();
    let operation = |id: &&str| BackupOperation {
        spec: BackupOperationSpec {
            backup_item_action: "test/scripted".into(),
            operation_id: (*id).into(),
            resource_identifier: ResourceIdentifier::new(
                "volumesnapshots.snapshot.storage.k8s.io",
                Some("a"),
                id,
            ),
            post_operation_items: vec![ResourceIdentifier::new("configmaps", Some("a"), "one")],
            ..BackupOperationSpec::default()
        },
        status: OperationStatus {
            created: Some(Timestamp::now()),
            ..OperationStatus::default()
        },
        ..BackupOperation::default()
    };
    let operations: Vec<_> = operations.iter().map(operation).collect();
    let files = JobFiles {
        item_operations: records::encode(&operations).unwrap(),
        volume_info,
        ..testing::no_files()
    };
    writer
        .await_operations(files, json!({ "hookStatus": { "hooksAttempted": 2 } }))
        .await
        .unwrap();
    Arc::default()
}

fn json_file(cluster: &Cluster, name: &str) -> Value {
    let bytes = std::fs::read(cluster.file(name)).unwrap();
    serde_json::from_reader(MultiGzDecoder::new(bytes.as_slice())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn operations_are_followed_and_what_they_changed_is_read_again() {
    let (cluster, action) = begun("InProgress", &["one", "two"]).await;
    action.answer("one", done(""));
    let running = tokio::spawn(knowing(&cluster.context(), &action).0.run());
    cluster
        .until(|cluster| cluster.get(BACKUP)["status"]["backupItemOperationsCompleted"] == 1)
        .await;
    let status = cluster.get(BACKUP)["status"].clone();
    assert_eq!(status["phase"], "WaitingForPluginOperations");
    assert_eq!(
        (
            &status["backupItemOperationsAttempted"],
            &status["csiVolumeSnapshotsCompleted"]
        ),
        (&json!(2), &json!(1))
    );
    action.answer("two", done(""));
    running.await.unwrap();
    assert_eq!(cluster.phase(), "Completed");
    assert_eq!(
        cluster.metadata()["status"]["backupItemOperationsCompleted"],
        2
    );
    // Known from the record only: the collecting process was killed before it published them.
    assert_eq!(
        cluster.metadata()["status"]["hookStatus"]["hooksAttempted"],
        2
    );
    assert_eq!(
        json_file(&cluster, "b-itemoperations.json.gz")[1]["status"]["phase"],
        "Completed"
    );
    let tarball = std::fs::read(cluster.file("b.tar.gz")).unwrap();
    let mut text = String::new();
    let mut tar = MultiGzDecoder::new(tarball.as_slice());
    std::io::Read::read_to_string(&mut tar, &mut text).unwrap();
    let (before, after) = (
        text.rfind("\"as\":\"it was\"").unwrap(),
        text.rfind("\"k\":\"one\"").unwrap(),
    );
    assert!(
        before < after,
        "the last entry of a path is the one that counts"
    );
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_in_counts_results_and_log_and_a_lost_patch_changes_nothing() {
    // No patch with a failure succeeds while the first worker runs.
    let deaf = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let hears = Arc::clone(&deaf);
    let cluster = Cluster::with(move |_, method, path, body| {
        let failure = body["status"]["backupItemOperationsFailed"] == 1;
        (method == "PATCH"
            && path == BACKUP
            && failure
            && hears.load(std::sync::atomic::Ordering::SeqCst))
        .then_some(503)
    });
    let action = begin(&cluster, "WaitingForPluginOperations", &["one"]).await;
    action.answer("one", done("no space"));
    let ctx = cluster.context();
    let first = tokio::spawn(knowing(&ctx, &action).0.run());
    cluster
        .until(|cluster| cluster.file(".private/operations-1").exists())
        .await;
    ctx.stop.cancel();
    first.await.unwrap();
    assert_eq!(cluster.phase(), "WaitingForPluginOperations");
    deaf.store(false, std::sync::atomic::Ordering::SeqCst);
    end(&cluster, knowing(&cluster.context(), &action).0).await;
    assert_eq!(cluster.phase(), "PartiallyFailed");
    let status = cluster.get(BACKUP)["status"].clone();
    assert_eq!(
        (&status["backupItemOperationsFailed"], &status["errors"]),
        (&json!(1), &json!(1))
    );
    let results = json_file(&cluster, "b-results.gz");
    let error = results["errors"]["namespaces"]["a"][0].as_str().unwrap();
    assert_says!(error, "operation one of test/scripted failed: no space");
}

#[tokio::test(start_paused = true)]
async fn data_that_was_saved_into_a_damaged_repository_is_a_warning() {
    for is_damaged in [false, true] {
        let cluster = Cluster::with(metadata_comes_first);
        let info = vec![VolumeInfo::moved("a", "data", "pv-1", "one")];
        let action = begin_with(&cluster, "InProgress", &["one"], info).await;
        let upload = json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
            "metadata": { "name": "one", "namespace": "velero", "uid": "uid-u",
                "labels": { "velero.io/backup-uid": "uid-b" } },
            "spec": { "snapshotType": "CSI", "datamover": "backup-mover", "sourcePVC": "data",
                "sourceNamespace": "a", "backupStorageLocation": "default",
                "operationTimeout": "10m0s" },
            "status": { "phase": "Completed", "snapshotID": "5d1b" },
        });
        let uploads = "/apis/velero.io/v2alpha1/namespaces/velero/datauploads/one";
        cluster.put(uploads, upload);
        let name = repository_name("a", "default");
        let spec = json!({ "volumeNamespace": "a", "backupStorageLocation": "default",
            "repositoryType": "restic", "maintenanceFrequency": "24h0m0s" });
        let mut repository = velero("BackupRepository", &name, spec, json!({ "phase": "Ready" }));
        let damage = if is_damaged { "a pack is missing" } else { "" };
        let check = DataCheck {
            damage: damage.to_owned(),
            ..DataCheck::default()
        };
        repository["metadata"]["annotations"] =
            json!({ DATA_CHECK_ANNOTATION: check.annotation() });
        let repositories = "/apis/velero.io/v1/namespaces/velero/backuprepositories";
        cluster.put(&format!("{repositories}/{name}"), repository);
        action.answer("one", done(""));
        end(&cluster, knowing(&cluster.context(), &action).0).await;
        assert_eq!(cluster.phase(), "Completed");
        let results = json_file(&cluster, "b-results.gz");
        let warning = results["warnings"]["namespaces"]["a"][0].as_str();
        let expected =
            "the data of its volumes may rely on data that is damaged: a pack is missing";
        assert_eq!(warning, is_damaged.then_some(expected));
        let warnings = cluster.get(BACKUP)["status"]["warnings"].as_i64();
        assert_eq!(warnings.unwrap_or_default(), i64::from(is_damaged));
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_with_the_same_operations() {
    let (cluster, action) = begun("InProgress", &["one"]).await;
    for _ in 0..3 {
        let ctx = cluster.context();
        let before = action.asked.lock().unwrap().len();
        let running = tokio::spawn(knowing(&ctx, &action).0.run());
        cluster
            .until(|_| action.asked.lock().unwrap().len() > before)
            .await;
        ctx.stop.cancel();
        running.await.unwrap();
        assert_eq!(cluster.phase(), "WaitingForPluginOperations");
    }
    action.answer("one", done(""));
    end(&cluster, knowing(&cluster.context(), &action).0).await;
    assert_eq!(cluster.phase(), "Completed");
    assert!(action.asked.lock().unwrap().iter().all(|id| id == "one"));
}

#[tokio::test(start_paused = true)]
async fn operations_that_are_not_known_are_not_taken_for_none() {
    let (cluster, _) = begun("WaitingForPluginOperations", &[]).await;
    let ctx = cluster.context();
    let running = tokio::spawn(worker(&ctx).0.run());
    cluster.blocked().await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(cluster.phase(), "WaitingForPluginOperations");
    assert_eq!(collections(&cluster), 0, "nor is it begun again");
    ctx.stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_delays_what_is_kept_and_ends_no_operation() {
    let (cluster, action) = begun("InProgress", &["one", "two"]).await;
    let running = tokio::spawn(knowing(&cluster.context(), &action).0.run());
    cluster
        .until(|cluster| cluster.phase() == "WaitingForPluginOperations")
        .await;
    // A folder blocks the path of the next state.
    std::fs::create_dir_all(cluster.file(".private/operations-1/x")).unwrap();
    action.answer("one", done(""));
    cluster.blocked().await;
    assert_eq!(cluster.phase(), "WaitingForPluginOperations");
    std::fs::remove_dir_all(cluster.file(".private/operations-1")).unwrap();
    action.answer("two", done(""));
    running.await.unwrap();
    assert_eq!(cluster.phase(), "Completed");
}

#[tokio::test(start_paused = true)]
async fn what_another_controller_has_recorded_meanwhile_is_gone_on_with_and_does_not_fail() {
    // The record is written between the read of the store and the beginning of the contents.
    let cluster = Cluster::with(|cluster, method, path, _| {
        if method == "GET" && path == LEDGER && cluster.file("late").exists() {
            std::fs::rename(cluster.file("late"), cluster.file(".private/record-1")).unwrap();
        }
        None
    });
    let action = begin(&cluster, "InProgress", &["one"]).await;
    std::fs::rename(cluster.file(".private/record-1"), cluster.file("late")).unwrap();
    action.answer("one", done("no space left"));
    knowing(&cluster.context(), &action).0.run().await;
    assert_eq!(
        cluster.phase(),
        "PartiallyFailed",
        "{}",
        cluster.get(BACKUP)
    );
    assert_eq!(
        cluster.metadata()["status"]["backupItemOperationsFailed"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn errors_that_another_controller_has_told_of_are_in_the_end() {
    let (cluster, action) = begun("FinalizingPartiallyFailed", &["one"]).await;
    action.answer("one", done(""));
    knowing(&cluster.context(), &action).0.run().await;
    assert_eq!(cluster.phase(), "PartiallyFailed");
    assert_eq!(cluster.metadata()["status"]["errors"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_location_that_is_read_only_or_gone_is_waited_for() {
    for gone in [false, true] {
        let (cluster, action) = begun("InProgress", &["one"]).await;
        let running = tokio::spawn(knowing(&cluster.context(), &action).0.run());
        cluster
            .until(|cluster| cluster.phase() == "WaitingForPluginOperations")
            .await;
        let location = cluster.get(LOCATION);
        let mut changed = location.clone();
        changed["spec"]["accessMode"] = json!("ReadOnly");
        if gone {
            cluster.remove(LOCATION);
        } else {
            cluster.put(LOCATION, changed);
        }
        action.answer("one", done(""));
        cluster.blocked().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        let reason = cluster.blocked().await;
        assert_says!(reason, if gone { "not found" } else { "is read-only" });
        assert_eq!(cluster.phase(), "WaitingForPluginOperations");
        assert!(
            !cluster.file(".private/operations-1").exists(),
            "it was written to"
        );
        cluster.put(LOCATION, location);
        running.await.unwrap();
        assert_eq!(cluster.phase(), "Completed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_who_cancels_gets_an_honest_end() {
    let (cluster, action) = begun("InProgress", &["one"]).await;
    let (worker, cancellation) = knowing(&cluster.context(), &action);
    let running = tokio::spawn(worker.run());
    cluster
        .until(|cluster| cluster.phase() == "WaitingForPluginOperations")
        .await;
    cancellation.cancel();
    running.await.unwrap();
    assert_eq!(cluster.phase(), "PartiallyFailed");
    assert!(
        action
            .asked
            .lock()
            .unwrap()
            .contains(&"cancel one".to_owned())
    );
    let error = json_file(&cluster, "b-itemoperations.json.gz")[0]["status"]["error"].clone();
    assert!(error.as_str().unwrap().starts_with("cancelled"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_backup_tells_its_operations_to_stop() {
    let cluster = Cluster::new();
    let action = begin(&cluster, "WaitingForPluginOperations", &["one", "two"]).await;
    cluster.change_backup(&json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}}));
    end(&cluster, knowing(&cluster.context(), &action).0).await;
    assert!(cluster.get(BACKUP).is_null());
    let mut asked = action.asked.lock().unwrap().clone();
    asked.sort();
    assert_eq!(asked, ["cancel one", "cancel two"]);
}
