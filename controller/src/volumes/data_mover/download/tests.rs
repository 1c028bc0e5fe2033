//! Restores into the volume of a claim that exists, against an API server in memory.

use backup_core::data_movement::{FINALIZER, TRANSFER_LABEL};
use backup_testkit::{FakeApi, LastWrite};
use serde_json::json;

use super::*;
use crate::testing;

const NAME: &str = "download-data-1";
const DOWNLOAD: &str = "/apis/velero.io/v2alpha1/namespaces/velero/datadownloads/download-data-1";
const POD: &str = "/api/v1/namespaces/velero/pods/download-data-1";
const CLAIM: &str = "/api/v1/namespaces/velero/persistentvolumeclaims/download-data-1";
const TARGET: &str = "/api/v1/namespaces/shop/persistentvolumeclaims/data";
const VOLUME: &str = "/api/v1/persistentvolumes/pv-1";

/// A cluster with a bound claim, and an accepted DataDownload that restores into its volume.
fn cluster() -> FakeApi {
    let fake = FakeApi::new();
    fake.put(
        "/apis/velero.io/v1/namespaces/velero/backupstoragelocations/default",
        json!({
            "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
            "metadata": { "name": "default", "namespace": "velero" },
            "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } },
        }),
    );
    fake.put(
        TARGET,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "data", "namespace": "shop", "uid": "uid-t" },
            "spec": { "volumeName": "pv-1", "storageClassName": "fast" },
            "status": { "phase": "Bound" },
        }),
    );
    fake.put(
        VOLUME,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": "pv-1", "uid": "uid-v",
                "annotations": { "pv.kubernetes.io/provisioned-by": "disk.example.com" } },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
                "csi": { "driver": "disk.example.com", "volumeHandle": "h" },
                "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
                "claimRef": { "namespace": "shop", "name": "data", "uid": "uid-t" },
            },
            "status": { "phase": "Bound" },
        }),
    );
    fake.put(
        DOWNLOAD,
        json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataDownload",
            "metadata": { "name": NAME, "namespace": "velero", "uid": "uid-d", "finalizers": [FINALIZER],
                "labels": { "backup-controller/active": "true" },
                "annotations": { "backup-controller/target-uid": "uid-t" } },
            "spec": {
                "targetVolume": { "pvc": "data", "pv": "pv-1", "namespace": "shop" },
                "backupStorageLocation": "default", "snapshotID": "4f1c0a7d", "sourceNamespace": "shop",
                "datamover": DATA_MOVER, "operationTimeout": "10m0s", "restoreType": "full",
            },
            "status": { "phase": "Accepted", "acceptedTimestamp": Timestamp::now().to_string() },
        }),
    );
    fake
}

fn mover(fake: &FakeApi) -> Arc<DataMover> {
    let mut cluster = testing::cluster(fake.client());
    cluster.patch_budget = Duration::ZERO;
    Arc::new(testing::data_mover(cluster))
}

/// What binder and kubelet do next.
fn others(fake: &FakeApi) {
    let holder = fake.get(VOLUME).unwrap()["spec"]["claimRef"]["uid"].clone();
    for (path, otherwise) in [(TARGET, "Lost"), (CLAIM, "Pending")] {
        fake.edit(path, |claim| {
            let is_bound = claim["metadata"]["uid"] == holder;
            claim["status"] = json!({ "phase": if is_bound { "Bound" } else { otherwise } });
        });
    }
    let claim = fake.get(CLAIM).unwrap_or_default();
    if claim["status"]["phase"] != "Bound" {
        return;
    }
    fake.edit(POD, |pod| {
        let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
        assert!(args.iter().any(|arg| arg == "--existing=overwrite"));
        let (phase, state) = if pod["status"]["phase"] == "Running" {
            let outcome = json!({ "operation": "restore", "result": "complete", "bytes": 70 });
            let ended = json!({ "exitCode": 0, "message": outcome.to_string() });
            ("Succeeded", json!({ "terminated": ended }))
        } else {
            ("Running", json!({ "running": {} }))
        };
        if pod["status"]["phase"] != "Succeeded" {
            pod["status"] = json!({ "phase": phase, "containerStatuses": [{ "name": "mover", "image": "i",
                "imageID": "", "ready": true, "restartCount": 0, "state": state }] });
        }
    });
}

/// Reconciles until the DataDownload needs no work.
async fn drive(fake: &FakeApi) -> Result<(), ReconcileError> {
    let mover = mover(fake);
    for _ in 0..60 {
        let key = Key {
            namespace: "velero".to_owned(),
            name: NAME.to_owned(),
        };
        let action = Box::pin(reconcile(Arc::clone(&mover), key)).await?;
        if action == Action::AwaitChange {
            return Ok(());
        }
        others(fake);
    }
    panic!("it does not come to an end: {:?}", fake.get(DOWNLOAD));
}

/// The claim has its volume as before, and nothing of ours is left.
fn assert_given_back(fake: &FakeApi) {
    for path in [POD, CLAIM] {
        assert_eq!(fake.get(path), None, "{path}");
    }
    let volume = fake.get(VOLUME).unwrap();
    let spec = &volume["spec"];
    assert_eq!(spec["claimRef"]["uid"], "uid-t");
    assert_eq!(spec["persistentVolumeReclaimPolicy"], "Delete");
    assert!(volume["metadata"]["labels"][TRANSFER_LABEL].is_null());
    assert_eq!(fake.get(TARGET).unwrap()["status"]["phase"], "Bound");
    let log = fake.log();
    let deletions = log.iter().filter(|line| line.starts_with("DELETE"));
    for line in deletions {
        assert!(line.contains("/namespaces/velero/"), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_volume_of_a_claim_is_taken_over_restored_and_given_back() {
    let fake = cluster();
    drive(&fake).await.unwrap();
    assert_given_back(&fake);
    let download = fake.get(DOWNLOAD).unwrap();
    assert_eq!(download["status"]["phase"], "Completed", "{download}");
}

#[tokio::test(start_paused = true)]
async fn a_restore_in_place_continues_after_a_crash_at_any_write() {
    for writes in 0..14 {
        for last in [LastWrite::Lost, LastWrite::Unanswered] {
            let fake = cluster();
            fake.crash_after(writes, last);
            let before = drive(&fake).await;
            fake.recover();
            if before.is_err() {
                drive(&fake).await.unwrap();
            }
            assert_given_back(&fake);
            let download = fake.get(DOWNLOAD).unwrap();
            assert_eq!(
                download["status"]["phase"], "Completed",
                "{writes} {last:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_in_use_is_left_alone_and_the_pod_is_named() {
    let fake = cluster();
    fake.put(
        "/api/v1/namespaces/shop/pods/web-5d9-1",
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "web-5d9-1", "namespace": "shop", "labels": { "pod-template-hash": "5d9" },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9",
                    "uid": "uid-r", "controller": true }] },
            "spec": { "containers": [], "nodeName": "n1", "volumes": [
                { "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] },
            "status": { "phase": "Running" },
        }),
    );
    drive(&fake).await.unwrap();
    assert_given_back(&fake);
    let download = fake.get(DOWNLOAD).unwrap();
    assert_eq!(download["status"]["phase"], "Failed");
    let message = download["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("web-5d9-1 (of Deployment web)"),
        "{message}"
    );
    let patches = format!("PATCH {VOLUME}");
    assert_eq!(fake.count(&patches), 0, "the volume was not touched");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_scheduled_in_between_has_the_volume_given_back() {
    let fake = cluster();
    let web = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "containers": [], "nodeName": "n1", "volumes": [
            { "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] },
        "status": { "phase": "Pending" },
    });
    // The first patch retains the volume, and the second one takes it over.
    fake.before("PATCH", VOLUME, |fake| {
        fake.before("PATCH", VOLUME, |fake| {
            fake.put("/api/v1/namespaces/shop/pods/web", web);
        });
    });
    drive(&fake).await.unwrap();
    assert_given_back(&fake);
    let download = fake.get(DOWNLOAD).unwrap();
    assert_eq!(download["status"]["phase"], "Failed");
    assert!(
        download["status"]["message"]
            .as_str()
            .unwrap()
            .contains("is used by web")
    );
    let line = "POST /api/v1/namespaces/velero/pods";
    assert_eq!(fake.count(line), 0, "no pod writes to it");
    let patches = format!("PATCH {VOLUME}");
    assert!(
        fake.count(&patches) > 2,
        "it was taken over: {:?}",
        fake.log()
    );
}
