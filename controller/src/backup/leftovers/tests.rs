use std::path::{Path, PathBuf};

use backup_core::data_movement::{ABANDONED_ANNOTATION, FINALIZER};
use backup_testkit::FakeApi;
use serde_json::json;

use super::*;
use crate::testing;

const UPLOADS: &str = "/apis/velero.io/v2alpha1/namespaces/velero/datauploads/";

/// A location with the folder of Backup `b` of uid `u`, which was begun.
async fn begun(folder: &Path) -> Location {
    let store = Location::open(&testing::local_location(folder), None, None).unwrap();
    let writer = store.open_backup("b", &testing::claimant("u")).await;
    drop(writer.unwrap());
    store
}

/// Adds a snapshot to the repository of namespace `shop`, with a note for the Backup of this uid.
fn note_snapshot(folder: &Path, backup_uid: &str, id: &str) -> PathBuf {
    let repository = folder.join("restic/shop");
    let notes = repository.join("uploads").join(backup_uid).join("uid-1");
    for folder in [&repository.join("snapshots"), &notes] {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join(id), "").unwrap();
    }
    repository.join("snapshots").join(id)
}

async fn remove(fake: &FakeApi, backup: &Backup, store: &Location) -> Abandonment {
    let ctx = JobContext::fake(fake.client());
    let leftovers = Backups::fake(&ctx).leftovers(&ctx);
    Box::pin(leftovers.remove(backup, Ok(store), None))
        .await
        .unwrap()
}

fn gone() -> Backup {
    Leftovers::gone("velero", "b", "u")
}

#[tokio::test]
async fn moved_data_of_a_backup_that_is_gone_is_found_by_its_notes() {
    let folder = tempfile::tempdir().unwrap();
    let store = begun(folder.path()).await;
    let of_gone = note_snapshot(folder.path(), "u", &"4f".repeat(32));
    let of_other = note_snapshot(folder.path(), "other", &"5f".repeat(32));
    let fake = FakeApi::new();
    let abandonment = remove(&fake, &gone(), &store).await;
    assert_eq!(abandonment, Abandonment::Abandoned);
    assert!(!of_gone.exists() && of_other.exists());
    assert_eq!(store.snapshot_notes("shop", "u").await.unwrap(), []);
    // A pod that was still running has written it meanwhile.
    let later = note_snapshot(folder.path(), "u", &"6f".repeat(32));
    remove(&fake, &gone(), &store).await;
    assert!(!later.exists());
}

#[tokio::test]
async fn nothing_is_removed_while_it_is_not_known_whether_a_backup_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = begun(folder.path()).await;
    let snapshot = note_snapshot(folder.path(), "u", &"4f".repeat(32));
    let record = folder.path().join("backups/b/.private/record-1");
    std::fs::write(&record, "junk").unwrap();
    let abandonment = remove(&FakeApi::new(), &gone(), &store).await;
    assert_eq!(abandonment, Abandonment::Committed);
    assert!(snapshot.exists() && record.exists());
}

#[tokio::test]
async fn uploads_that_have_not_ended_remove_what_they_still_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = begun(folder.path()).await;
    let fake = FakeApi::new();
    let path = format!("{UPLOADS}runs");
    let upload = json!({
        "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
        "metadata": { "name": "runs", "namespace": "velero", "finalizers": [FINALIZER],
            "labels": { "velero.io/backup-uid": "u" } },
        "spec": { "datamover": "backup-mover", "sourceNamespace": "shop", "sourcePVC": "data",
            "snapshotType": "CSI", "backupStorageLocation": "default", "operationTimeout": "10m0s" },
        "status": { "phase": "InProgress" },
    });
    fake.put(&path, upload);
    let snapshot = note_snapshot(folder.path(), "u", &"4f".repeat(32));
    let mut backup = testing::backup(BackupPhase::InProgress);
    backup.spec.snapshot_move_data = Some(true);
    let abandonment = remove(&fake, &backup, &store).await;
    assert_eq!(abandonment, Abandonment::Abandoned);
    assert!(!snapshot.exists());
    let upload = fake.get(&path).unwrap();
    assert_eq!(
        upload["metadata"]["annotations"][ABANDONED_ANNOTATION],
        "true"
    );
    assert_eq!(upload["spec"]["cancel"], true);
    let notes = async || store.snapshot_notes("shop", "u").await.unwrap().len();
    assert_eq!(notes().await, 1, "its pod may still write the snapshot");
    fake.edit(&path, |upload| {
        upload["status"]["phase"] = json!("Canceled");
    });
    remove(&fake, &backup, &store).await;
    assert_eq!(notes().await, 0);
}
