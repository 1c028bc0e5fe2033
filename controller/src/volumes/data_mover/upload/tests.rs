use std::{ops::Deref, path::PathBuf};

use backup_core::data_movement::{
    ABANDONED_ANNOTATION, DATA_MOVER, FINALIZER, TRANSFER_LABEL, snapshot_notes,
};
use backup_testkit::{FakeApi, LastWrite};
use jiff::SignedDuration;
use kube::core::Status;
use serde_json::json;

use super::*;
use crate::{testing, volumes::data_mover::repository_wait::WAIT_ANNOTATION};

const NAME: &str = "upload-data-1";
const UPLOAD: &str = "/apis/velero.io/v2alpha1/namespaces/velero/datauploads/upload-data-1";
const POD: &str = "/api/v1/namespaces/velero/pods/upload-data-1";
const CLAIM: &str = "/api/v1/namespaces/velero/persistentvolumeclaims/upload-data-1";
const VOLUME: &str = "/api/v1/persistentvolumes/pv-1";
const SNAPSHOT: &str =
    "/apis/snapshot.storage.k8s.io/v1/namespaces/velero/volumesnapshots/upload-data-1";
const CONTENT: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/upload-data-1";
const LOCATION: &str = "/apis/velero.io/v1/namespaces/velero/backupstoragelocations/default";

/// An API server, and the folder that is the bucket.
struct World {
    fake: FakeApi,
    folder: tempfile::TempDir,
}

impl Deref for World {
    type Target = FakeApi;

    fn deref(&self) -> &FakeApi {
        &self.fake
    }
}

impl World {
    /// The object of a snapshot in the repository.
    fn snapshot(&self, id: &str) -> PathBuf {
        self.folder.path().join("restic/shop/snapshots").join(id)
    }

    /// Adds a snapshot with a note, as a pod does.
    fn note_snapshot(&self, id: &str) {
        let notes = snapshot_notes("uid-b", "uid-1");
        let notes = self.folder.path().join("restic/shop").join(notes);
        for file in [notes.join(id), self.snapshot(id)] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
    }
}

/// Has the controller use the bucket as a folder, which no pod could.
fn store_is_a_folder(fake: &FakeApi) {
    fake.edit(LOCATION, |location| {
        location["spec"]["provider"] = json!("local");
    });
}

/// A cluster with a snapshot, and an upload of it that is accepted.
fn cluster() -> World {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeApi::new();
    fake.put(
        LOCATION,
        json!({
            "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
            "metadata": { "name": "default", "namespace": "velero" },
            "spec": { "provider": "aws", "objectStorage": { "bucket": folder.path() } },
        }),
    );
    fake.put(
        "/apis/snapshot.storage.k8s.io/v1/namespaces/shop/volumesnapshots/velero-data-1",
        json!({
            "metadata": { "name": "velero-data-1", "namespace": "shop" },
            "status": { "readyToUse": true, "boundVolumeSnapshotContentName": "c" },
        }),
    );
    fake.put(
        "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/c",
        json!({
            "metadata": { "name": "c" },
            "spec": { "driver": "disk.example.com", "deletionPolicy": "Delete" },
            "status": { "snapshotHandle": "snap-1", "restoreSize": 1_073_741_824_u64 },
        }),
    );
    fake.put(
        VOLUME,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": "pv-1", "annotations": { "pv.kubernetes.io/provisioned-by": "d" } },
            "spec": { "persistentVolumeReclaimPolicy": "Retain" },
        }),
    );
    fake.put(
        UPLOAD,
        json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
            "metadata": { "name": NAME, "namespace": "velero", "uid": "uid-1", "finalizers": [FINALIZER],
                "labels": { "backup-controller/active": "true", "velero.io/backup-uid": "uid-b" },
                "ownerReferences": [{ "apiVersion": "velero.io/v1", "kind": "Backup", "name": "b", "uid": "uid-b" }] },
            "spec": {
                "snapshotType": "CSI", "datamover": DATA_MOVER, "sourcePVC": "data", "sourceNamespace": "shop",
                "backupStorageLocation": "default", "operationTimeout": "10m0s",
                "csiSnapshot": { "volumeSnapshot": "velero-data-1", "storageClass": "fast", "snapshotClass": "" },
            },
            "status": { "phase": "Accepted", "acceptedTimestamp": Timestamp::now().to_string() },
        }),
    );
    World { fake, folder }
}

fn uploads(fake: &FakeApi) -> Uploads {
    uploads_within(fake, Duration::ZERO)
}

/// With this budget for a patch.
fn uploads_within(fake: &FakeApi, patch_budget: Duration) -> Uploads {
    let mut cluster = testing::cluster(fake.client());
    cluster.patch_budget = patch_budget;
    Uploads {
        mover: Arc::new(testing::data_mover(cluster)),
    }
}

fn key() -> Key {
    Key {
        namespace: "velero".to_owned(),
        name: NAME.to_owned(),
    }
}

/// What snapshot controller, provisioner and kubelet do next; a pod ends with this outcome.
fn others(fake: &FakeApi, outcome: &Value) {
    let upload = fake.get(UPLOAD).unwrap_or_default();
    if upload["status"]["completionTimestamp"].is_string() {
        store_is_a_folder(fake);
    }
    fake.edit(SNAPSHOT, |snapshot| {
        snapshot["status"] = json!({ "readyToUse": true, "boundVolumeSnapshotContentName": NAME });
    });
    if let Some(claim) = fake.get(CLAIM) {
        fake.edit(CLAIM, |claim| {
            claim["spec"]["volumeName"] = json!("pv-1");
            claim["status"] = json!({ "phase": "Bound" });
        });
        fake.edit(VOLUME, |volume| {
            volume["spec"]["claimRef"] = json!({ "uid": claim["metadata"]["uid"] });
        });
    }
    fake.edit(POD, |pod| {
        let is_running = pod["status"]["phase"] == "Running";
        let state = if is_running {
            json!({ "terminated": { "exitCode": 0, "message": outcome.to_string() } })
        } else {
            json!({ "running": {} })
        };
        let phase = if is_running { "Succeeded" } else { "Running" };
        if pod["status"]["phase"] != "Succeeded" {
            pod["status"] = json!({ "phase": phase, "containerStatuses": [{ "name": "mover", "image": "i",
                "imageID": "", "ready": true, "restartCount": 0, "state": state }] });
        }
    });
}

fn complete() -> Value {
    json!({ "operation": "backup", "result": "complete", "snapshot": "abc", "files": 3, "bytes": 70, "newBytes": 50 })
}

/// Reconciles until the upload needs no work. Returns the phases that were seen.
async fn drive(fake: &FakeApi, outcome: &Value) -> Result<Vec<String>, ReconcileError> {
    let uploads = uploads(fake);
    let key = key();
    let mut phases: Vec<String> = Vec::new();
    for _ in 0..40 {
        let action = uploads.reconcile(&key).await?;
        let upload = fake.get(UPLOAD).unwrap_or_default();
        let phase = upload["status"]["phase"].as_str().unwrap_or("gone");
        if phases.last().is_none_or(|last| last != phase) {
            phases.push(phase.to_owned());
        }
        if action == Action::AwaitChange {
            return Ok(phases);
        }
        others(fake, outcome);
    }
    panic!("it does not come to an end: {phases:?}");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_existed_before_is_not_saved_for_the_snapshot_and_is_not_deleted() {
    for annotations in [
        json!({}),
        json!({ "pv.kubernetes.io/provisioned-by": "d", "pv.kubernetes.io/bound-by-controller": "yes" }),
    ] {
        let fake = cluster();
        fake.edit(VOLUME, |volume| {
            volume["metadata"]["annotations"] = annotations.clone();
        });
        let phases = drive(&fake, &complete()).await.unwrap();
        assert_eq!(
            phases.last().map(String::as_str),
            Some("Failed"),
            "{phases:?}"
        );
        let upload = fake.get(UPLOAD).unwrap();
        assert!(upload["status"]["snapshotID"].is_null(), "{upload}");
        let volume = fake.get(VOLUME).unwrap();
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_clean(&fake);
    }
}

fn assert_clean(fake: &FakeApi) {
    for path in [POD, CLAIM, SNAPSHOT, CONTENT] {
        assert_eq!(fake.get(path), None, "{path}");
    }
    let upload = fake.get(UPLOAD).unwrap_or_default();
    assert_eq!(
        upload["metadata"]["finalizers"]
            .as_array()
            .map_or(0, Vec::len),
        0
    );
    assert!(upload["metadata"]["labels"]["backup-controller/active"].is_null());
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_prepared_runs_is_complete_and_leaves_nothing() {
    let fake = cluster();
    let phases = drive(&fake, &complete()).await.unwrap();
    assert_eq!(phases, ["Accepted", "Prepared", "InProgress", "Completed"]);
    assert_clean(&fake);
    let upload = fake.get(UPLOAD).unwrap();
    assert_eq!(upload["status"]["snapshotID"], "abc");
    assert_eq!(
        upload["metadata"]["annotations"]["backup-controller/files"],
        "3"
    );
    assert_eq!(
        fake.get(VOLUME).unwrap()["spec"]["persistentVolumeReclaimPolicy"],
        "Delete",
        "else the volume would stay"
    );
    let original = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/c";
    let original = fake.get(original).unwrap();
    assert_eq!(original["spec"]["deletionPolicy"], "Delete", "untouched");
}

#[tokio::test(start_paused = true)]
async fn an_upload_continues_after_a_crash_at_any_write() {
    for writes in 0..20 {
        for last in [LastWrite::Lost, LastWrite::Unanswered] {
            let fake = cluster();
            fake.crash_after(writes, last);
            let before = drive(&fake, &complete()).await;
            fake.recover();
            if before.is_err() {
                drive(&fake, &complete()).await.unwrap();
            }
            assert_clean(&fake);
            let upload = fake.get(UPLOAD).unwrap();
            assert_eq!(upload["status"]["phase"], "Completed", "{writes} {last:?}");
            assert_eq!(upload["status"]["snapshotID"], "abc", "{writes} {last:?}");
            let annotations = &upload["metadata"]["annotations"];
            assert!(annotations["backup-controller/attempts"].is_null());
        }
    }
}

/// The first backup with a wrong image of the mover.
#[tokio::test(start_paused = true)]
async fn an_upload_whose_repository_cannot_be_made_fails_in_time_with_the_reason_of_the_pod() {
    const REASON: &str = "its pod does not start (ImagePullBackOff): no such image";
    let fake = cluster();
    fake.edit(UPLOAD, |upload| {
        upload["status"] = json!({ "phase": "New" });
        upload["metadata"]["labels"] = json!({});
    });
    let uploads = uploads(&fake);
    uploads.reconcile(&key()).await.unwrap();
    let name = repository_name("shop", "default");
    let waiting =
        json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "velero", "uid": "uid-p",
            "creationTimestamp": Timestamp::now().to_string(),
            "labels": { "backup-controller/mover-work": "init" } },
        "spec": { "containers": [] },
        "status": { "phase": "Pending", "containerStatuses": [{ "name": "mover", "image": "i",
            "imageID": "", "ready": false, "restartCount": 0, "state": waiting }] },
    });
    fake.put(&format!("/api/v1/namespaces/velero/pods/{name}"), pod);
    let action = uploads.reconcile(&key()).await.unwrap();
    assert_eq!(action, Action::RequeueAfter(ACCEPT_INTERVAL));
    let status = |field: &str| {
        let upload = fake.get(UPLOAD).unwrap();
        upload["status"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(status("phase"), "New");
    assert!(status("message").ends_with(REASON), "{}", status("message"));
    let half_an_hour_ago = Timestamp::now() - SignedDuration::from_mins(30);
    fake.edit(UPLOAD, |upload| {
        let annotations = &mut upload["metadata"]["annotations"];
        assert!(annotations[WAIT_ANNOTATION].is_string());
        annotations[WAIT_ANNOTATION] = json!(half_an_hour_ago.to_string());
    });
    uploads.reconcile(&key()).await.unwrap();
    assert_eq!(status("phase"), "Failed");
    let message = status("message");
    assert!(
        message.contains("within 30m0s (--data-mover-prepare-timeout)")
            && message.ends_with(REASON),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn everything_that_is_made_has_the_label_of_the_upload() {
    let fake = cluster();
    let uploads = uploads(&fake);
    let key = key();
    while fake.get(POD).is_none() {
        uploads.reconcile(&key).await.unwrap();
        others(&fake, &complete());
    }
    for path in [POD, CLAIM, SNAPSHOT, CONTENT] {
        let object = fake.get(path).unwrap();
        assert_eq!(object["metadata"]["labels"][TRANSFER_LABEL], NAME, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_disappears_is_made_once_more_with_less() {
    let fake = cluster();
    let uploads = uploads(&fake);
    let key = key();
    let mut cpu_limits = Vec::new();
    for _ in 0..60 {
        if uploads.reconcile(&key).await.unwrap() == Action::AwaitChange {
            break;
        }
        let upload = fake.get(UPLOAD).unwrap();
        if upload["status"]["phase"] == "InProgress"
            && let Some(pod) = fake.get(POD)
        {
            cpu_limits.push(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"].clone());
            fake.delete(POD);
        } else {
            others(&fake, &complete());
        }
    }
    assert_eq!(cpu_limits, [Value::Null, json!("1")]);
    assert_clean(&fake);
    let upload = fake.get(UPLOAD).unwrap();
    assert_eq!(upload["status"]["phase"], "Failed");
    let message = upload["status"]["message"].as_str().unwrap();
    let expected = "in the first one its pod has disappeared; in the last one, with fewer threads \
                    and smaller buffers, its pod has disappeared";
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_upload_ends_and_leaves_nothing() {
    let fake = cluster();
    let uploads = uploads(&fake);
    let key = key();
    while fake.get(POD).is_none() {
        uploads.reconcile(&key).await.unwrap();
        others(&fake, &complete());
    }
    fake.edit(UPLOAD, |upload| upload["spec"]["cancel"] = json!(true));
    fake.edit(POD, |pod| pod["status"] = json!({}));
    // The pod had saved it when it was deleted, and nothing has read its outcome.
    let id = "4f".repeat(32);
    fake.note_snapshot(&id);
    store_is_a_folder(&fake);
    while uploads.reconcile(&key).await.unwrap() != Action::AwaitChange {}
    assert_clean(&fake);
    assert!(!fake.snapshot(&id).exists());
    assert_eq!(fake.get(UPLOAD).unwrap()["status"]["phase"], "Canceled");
}

/// An upload that has ended with this snapshot, if any, and only has to be cleaned up.
fn ended(snapshot: Option<&str>) -> World {
    let fake = cluster();
    store_is_a_folder(&fake);
    fake.edit(UPLOAD, |upload| {
        upload["metadata"]["annotations"] = json!({ "backup-controller/attempts": "2" });
        upload["status"] = json!({ "phase": "Completed", "snapshotID": snapshot,
            "completionTimestamp": Timestamp::now().to_string() });
    });
    fake
}

fn mark(fake: &FakeApi) {
    fake.edit(UPLOAD, |upload| {
        upload["metadata"]["annotations"][ABANDONED_ANNOTATION] = json!("true");
    });
}

fn has_finalizer(fake: &FakeApi) -> bool {
    let upload = fake.get(UPLOAD).unwrap();
    upload["metadata"]["finalizers"] == json!([FINALIZER])
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_of_a_pod_whose_outcome_was_not_read_is_forgotten() {
    let [first, second] = ["4f", "5f"].map(|digits| digits.repeat(32));
    let fake = ended(Some(&second));
    fake.note_snapshot(&first);
    fake.note_snapshot(&second);
    let action = uploads(&fake).reconcile(&key()).await.unwrap();
    assert_eq!(action, Action::AwaitChange);
    assert!(!has_finalizer(&fake));
    assert!(!fake.snapshot(&first).exists() && fake.snapshot(&second).exists());
    let notes = fake.folder.path().join("restic/shop/uploads/uid-b/uid-1");
    assert!(notes.join(&second).exists() && !notes.join(&first).exists());
}

#[tokio::test(start_paused = true)]
async fn the_upload_of_an_abandoned_backup_forgets_its_snapshots_before_it_goes() {
    let id = "4f".repeat(32);
    let fake = ended(Some(&id));
    fake.note_snapshot(&id);
    // The backup is abandoned while its upload is cleaned up.
    fake.before("GET", LOCATION, mark);
    let patient = uploads_within(&fake, Duration::from_secs(2));
    let action = patient.reconcile(&key()).await.unwrap();
    assert_eq!(action, REQUEUE_NOW);
    assert!(has_finalizer(&fake) && fake.snapshot(&id).exists());
    let action = uploads(&fake).reconcile(&key()).await.unwrap();
    assert_eq!(action, Action::AwaitChange);
    assert!(!has_finalizer(&fake) && !fake.snapshot(&id).exists());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_mark_removes_no_snapshot_of_a_stored_backup() {
    for (uid, is_kept) in [("uid-b", true), ("uid-of-another", false)] {
        let id = "4f".repeat(32);
        let fake = ended(Some(&id));
        fake.note_snapshot(&id);
        mark(&fake);
        let backup = fake.folder.path().join("backups/b");
        std::fs::create_dir_all(&backup).unwrap();
        let mut metadata =
            testing::velero("Backup", "b", json!({}), json!({ "phase": "Completed" }));
        metadata["metadata"]["uid"] = json!(uid);
        std::fs::write(backup.join("velero-backup.json"), metadata.to_string()).unwrap();
        uploads(&fake).reconcile(&key()).await.unwrap();
        assert!(!has_finalizer(&fake), "{uid}");
        assert_eq!(fake.snapshot(&id).exists(), is_kept, "{uid}");
    }
}

/// The notes stay: the snapshots are removed with the backup.
#[tokio::test(start_paused = true)]
async fn an_upload_waits_an_hour_at_most_for_its_location() {
    let id = "4f".repeat(32);
    let fake = ended(None);
    fake.note_snapshot(&id);
    fake.fail(|request| request.path == LOCATION);
    let uploads = uploads(&fake);
    let action = uploads.reconcile(&key()).await.unwrap();
    assert_eq!(action, Action::RequeueAfter(FORGET_INTERVAL));
    assert!(has_finalizer(&fake));
    let long_ago = Timestamp::now() - SignedDuration::from_hours(2);
    fake.edit(UPLOAD, |upload| {
        upload["status"]["completionTimestamp"] = json!(long_ago.to_string());
    });
    let action = uploads.reconcile(&key()).await.unwrap();
    assert_eq!(action, Action::AwaitChange);
    assert!(!has_finalizer(&fake) && fake.snapshot(&id).exists());
}

#[tokio::test(start_paused = true)]
async fn uploads_of_other_data_movers_are_left_alone() {
    let fake = cluster();
    fake.edit(UPLOAD, |upload| {
        upload["spec"]["datamover"] = json!("velero");
    });
    drive(&fake, &complete()).await.unwrap();
    assert_eq!(fake.writes(), 0);
}

#[test]
fn a_refusal_is_final_or_for_now() {
    let api = |code: u16, reason: &str| {
        let status = Status::failure("why", reason).with_code(code);
        kube::Error::Api(Box::new(status))
    };
    let why = || "why".to_owned();
    for (error, expected) in [
        (
            ReconcileError::Impossible(why()),
            Some(Refusal::Final(why())),
        ),
        (api(422, "Invalid").into(), Some(Refusal::Final(why()))),
        (api(403, "Forbidden").into(), Some(Refusal::ForNow(why()))),
        (api(503, "ServiceUnavailable").into(), None),
        (ReconcileError::Postponed(why()), None),
    ] {
        assert_eq!(Refusal::of(&error), expected, "{error}");
    }
}
