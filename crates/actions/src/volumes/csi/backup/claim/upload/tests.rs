use std::sync::Arc;

use backup_core::{
    data_movement::{ABANDONED_ANNOTATION, FINALIZER},
    volume_info::VolumeMethod,
};
use backup_testkit::FakeApi;
use rstest::rstest;

use super::*;
use crate::{
    backup::{BackupItemAction as _, BackupVolumes},
    csi::{
        fake::{
            GROUP, UPLOADS, backup, binds, cluster, only_snapshot, requests, snapshot_api,
            upload_api,
        },
        tidy,
    },
};

fn action(fake: &FakeApi) -> (ClaimAction, Arc<BackupVolumes>) {
    let volumes = Arc::new(BackupVolumes::default());
    let action = ClaimAction::new(&snapshot_api(fake), &upload_api(fake), &volumes);
    (action, volumes)
}

fn moving() -> Backup {
    let mut backup = backup("InProgress");
    backup.spec.snapshot_move_data = Some(true);
    backup.spec.storage_location = Some("default".to_owned());
    backup
}

fn claim(volume: &str) -> Value {
    let mut claim = crate::csi::fake::claim(volume);
    claim["spec"]["storageClassName"] = json!("standard");
    claim
}

fn only_upload(fake: &FakeApi) -> (String, Value) {
    let mut found = fake.under(UPLOADS).into_iter();
    let first = found.next().unwrap();
    assert_eq!(found.next(), None, "more than one");
    first
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_moved_names_its_upload_and_no_snapshot() {
    let fake = cluster(binds(
        json!({ "snapshotHandle": "snap-1", "restoreSize": 2_u64 << 30 }),
    ));
    let (action, volumes) = action(&fake);
    let mut claim = claim("pv-csi");
    // As a restore of a Velero server leaves it.
    claim["metadata"]["annotations"] = json!({
        csi::VOLUME_SNAPSHOT_NAME: "old",
        "backup-controller/mover-user": "1000",
    });
    let output = action.execute(&claim, &moving()).await.unwrap();

    let snapshot = only_snapshot(&fake).unwrap();
    let labels = &snapshot["metadata"]["labels"];
    assert_eq!(labels["backup-controller/data-moved"], "true");
    assert_eq!(labels["velero.io/exclude-from-backup"], "true");
    let (_, content) = fake
        .under(&format!("{GROUP}/volumesnapshotcontents/"))
        .pop_first()
        .unwrap();
    assert_eq!(
        content["metadata"]["labels"]["velero.io/exclude-from-backup"],
        "true"
    );

    let (_, upload) = only_upload(&fake);
    let name = upload["metadata"]["name"].as_str().unwrap();
    assert_eq!(name, upload_name("data", "uid-b", "uid-claim"));
    assert_eq!(
        upload["metadata"]["labels"],
        json!({ "velero.io/backup-name": "b", "velero.io/backup-uid": "uid-b", "velero.io/pvc-uid": "uid-claim",
            "velero.io/async-operation-id": name })
    );
    assert_eq!(
        upload["metadata"]["annotations"],
        json!({
            "backup-controller/claim-uid": "uid-claim",
            "backup-controller/mover-user": "1000",
        })
    );
    assert_eq!(
        upload["metadata"]["ownerReferences"],
        json!([{ "apiVersion": "velero.io/v1", "kind": "Backup", "name": "b", "uid": "uid-b", "controller": true }])
    );
    assert_eq!(
        upload["spec"],
        json!({
            "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop", "backupStorageLocation": "default",
            "datamover": "backup-mover", "operationTimeout": "30s",
            "csiSnapshot": { "volumeSnapshot": snapshot["metadata"]["name"], "storageClass": "standard",
                "snapshotClass": "fast", "driver": "disk.example.com" },
        })
    );

    let stored = output.item.unwrap();
    assert_eq!(
        stored["metadata"]["annotations"],
        json!({
            "velero.io/data-upload-name": format!("velero/{name}"),
            "backup-controller/mover-user": "1000",
        })
    );
    assert_eq!(
        stored["metadata"]["labels"],
        json!({ "app": "db", "velero.io/backup-name": "b" })
    );
    assert_eq!(stored["spec"]["resources"]["requests"]["storage"], "2Gi");
    assert!(output.additional.is_empty());
    assert_eq!(output.operation.as_deref(), Some(name));
    assert_eq!(
        output.after_operation,
        [ItemId::new("datauploads.velero.io", Some("velero"), name)]
    );
    let info = &volumes.info()[0];
    assert_eq!(info.backup_method, Some(VolumeMethod::CsiSnapshot));
    let movement = info.snapshot_data_movement_info.as_ref().unwrap();
    assert_eq!(movement.operation_id, name);
}

#[tokio::test(start_paused = true)]
async fn an_upload_of_a_scheduled_backup_names_the_schedule() {
    let fake = cluster(binds(json!({ "snapshotHandle": "snap-1" })));
    let (action, _) = action(&fake);
    let mut backup = moving();
    let schedule = (labels::SCHEDULE_NAME.to_owned(), "nightly".to_owned());
    backup.metadata.labels = Some([schedule].into());
    action.execute(&claim("pv-csi"), &backup).await.unwrap();
    let (_, upload) = only_upload(&fake);
    assert_eq!(
        upload["metadata"]["labels"]["velero.io/schedule-name"],
        "nightly"
    );
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_created_once_and_one_of_another_backup_is_left_alone() {
    let fake = cluster(binds(json!({ "snapshotHandle": "snap-1" })));
    let mut block = claim("pv-csi");
    block["spec"]["volumeMode"] = json!("Block");
    // In advance, at its execution, and again after a crash.
    action(&fake).0.begin(&block, &moving()).await;
    let first = action(&fake).0.execute(&block, &moving()).await.unwrap();
    let again = action(&fake).0.execute(&block, &moving()).await.unwrap();
    assert_eq!(first, again);
    assert!(only_snapshot(&fake).is_some());
    let (path, upload) = only_upload(&fake);
    assert_eq!(
        upload["metadata"]["annotations"]["backup-controller/volume-mode"],
        "Block"
    );
    fake.edit(&path, |upload| {
        upload["metadata"]["labels"] = json!({ "velero.io/backup-uid": "other" });
    });
    let error = action(&fake)
        .0
        .execute(&block, &moving())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("creating a DataUpload failed"),
        "{error}"
    );
    let (_, upload) = only_upload(&fake);
    assert_eq!(
        upload["metadata"]["labels"]["velero.io/backup-uid"],
        "other"
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_storage_class_is_refused_before_its_snapshot() {
    let fake = cluster(binds(json!({ "snapshotHandle": "snap-1" })));
    let (action, volumes) = action(&fake);
    let claim = crate::csi::fake::claim("pv-csi");
    let error = action.execute(&claim, &moving()).await.unwrap_err();
    assert!(
        error.to_string().contains("it has no storage class"),
        "{error}"
    );
    assert_eq!((only_snapshot(&fake), fake.under(UPLOADS).len()), (None, 0));
    assert!(volumes.info().is_empty());
    // The class of its volume counts, too.
    fake.edit("/api/v1/persistentvolumes/pv-csi", |volume| {
        volume["spec"]["storageClassName"] = json!("of-the-volume");
    });
    action.execute(&claim, &moving()).await.unwrap();
    let (_, upload) = only_upload(&fake);
    assert_eq!(
        upload["spec"]["csiSnapshot"]["storageClass"],
        "of-the-volume"
    );
}

#[tokio::test(start_paused = true)]
async fn volumes_that_csi_does_not_snapshot_are_not_moved() {
    let fake = cluster(|_| {});
    let (action, volumes) = action(&fake);
    action.execute(&claim("pv-other"), &moving()).await.unwrap();
    assert_eq!(requests(&fake, "POST"), 0);
    assert_eq!(volumes.missing().len(), 1);
}

/// What the data mover says, and what becomes of the operation.
#[rstest]
#[case::not_begun(json!({}), false, "", "New")]
#[case::waits(json!({ "phase": "Accepted", "message": "the snapshot is not ready" }), false, "", "Accepted: the snapshot is not ready")]
#[case::runs(json!({ "phase": "InProgress" }), false, "", "InProgress")]
#[case::stops(json!({ "phase": "Canceling" }), false, "", "Canceling")]
#[case::of_a_newer_version(json!({ "phase": "Paused" }), false, "", "Paused")]
#[case::done(json!({ "phase": "Completed" }), true, "", "Completed")]
#[case::failed(json!({ "phase": "Failed", "message": "1 file could not be read" }), true, "1 file could not be read", "Failed: 1 file could not be read")]
#[case::cancelled(json!({ "phase": "Canceled" }), true, "DataUpload u is Canceled", "Canceled")]
fn an_operation_ends_with_its_upload(
    #[case] mut status: Value,
    #[case] completed: bool,
    #[case] error: &str,
    #[case] description: &str,
) {
    status["progress"] = json!({ "bytesDone": 5, "totalBytes": 9 });
    status["startTimestamp"] = json!("2026-01-01T00:00:00Z");
    let upload = json!({ "metadata": { "name": "u" }, "status": status });
    let progress = progress(&serde_json::from_value(upload).unwrap());
    assert_eq!(
        (progress.completed, progress.error.as_str()),
        (completed, error)
    );
    assert_eq!(progress.description, description);
    assert_eq!(
        (progress.done, progress.total, progress.units.as_str()),
        (5, 9, "Bytes")
    );
    assert!(progress.started.is_some());
    assert_eq!(progress.updated.is_some(), completed);
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_cancelled_at_its_upload() {
    let fake = cluster(binds(json!({ "snapshotHandle": "snap-1" })));
    let (action, _) = action(&fake);
    let output = action.execute(&claim("pv-csi"), &moving()).await.unwrap();
    let operation = output.operation.unwrap();
    let running = action.progress(&operation, &moving()).await.unwrap();
    assert!(!running.completed);

    action.cancel(&operation, &moving()).await.unwrap();
    let (path, upload) = only_upload(&fake);
    assert_eq!(upload["spec"]["cancel"], true);
    assert_eq!(upload["spec"]["datamover"], "backup-mover");

    fake.delete(&path);
    let gone = action.progress(&operation, &moving()).await.unwrap();
    assert!(
        gone.completed && gone.error.ends_with("is gone"),
        "{gone:?}"
    );
    action.cancel(&operation, &moving()).await.unwrap();
    for bad in ["", "shop/vs/2026-01-01T00:00:00Z", "\u{0}"] {
        assert!(
            matches!(
                action.progress(bad, &moving()).await,
                Err(ActionError::Final { .. })
            ),
            "{bad:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn uploads_of_an_abandoned_backup_are_marked_and_those_that_run_are_cancelled() {
    let fake = cluster(|_| {});
    for (name, uid, phase, finalizers) in [
        ("runs", "uid-b", "InProgress", json!([FINALIZER])),
        ("ended", "uid-b", "Completed", json!([FINALIZER])),
        ("waits", "uid-b", "New", json!([])),
        ("clean", "uid-b", "Completed", json!(["other"])),
        ("other", "uid-other", "InProgress", json!([FINALIZER])),
    ] {
        let upload = json!({ "metadata": { "name": name, "namespace": "velero",
                "labels": { "velero.io/backup-uid": uid }, "finalizers": finalizers },
            "spec": { "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop",
                "backupStorageLocation": "default", "operationTimeout": "10m0s" },
            "status": { "phase": phase } });
        fake.put(&format!("{UPLOADS}{name}"), upload);
    }
    for _ in 0..2 {
        upload_api(&fake).abandon_all("uid-b").await.unwrap();
    }
    let marked: Vec<_> = fake
        .under(UPLOADS)
        .into_values()
        .filter(|upload| upload["metadata"]["annotations"][ABANDONED_ANNOTATION] == "true")
        .map(|upload| {
            let is_cancelled = upload["spec"]["cancel"] == true;
            (upload["metadata"]["name"].clone(), is_cancelled)
        })
        .collect();
    let expected = [("ended", false), ("runs", true), ("waits", true)];
    assert_eq!(marked, expected.map(|(name, is)| (json!(name), is)));
    assert_eq!(requests(&fake, "PATCH"), 3, "each once");
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_of_moved_data_is_destroyed_at_the_end() {
    let fake = cluster(binds(
        json!({ "snapshotHandle": "snap-1", "readyToUse": true }),
    ));
    let (action, _) = action(&fake);
    action.execute(&claim("pv-csi"), &moving()).await.unwrap();
    let removed = tidy::stored(&snapshot_api(&fake), &moving()).await.unwrap();
    assert_eq!((removed, only_snapshot(&fake)), (1, None));
    let (_, content) = fake
        .under(&format!("{GROUP}/volumesnapshotcontents/"))
        .pop_first()
        .unwrap();
    assert_eq!(
        content["spec"]["deletionPolicy"], "Delete",
        "its controller removes the snapshot"
    );
}
