//! A cluster with CSI volumes, and a driver whose behaviour the test defines.

use backup_core::api::Backup;
use backup_runtime::leader::Leadership;
use backup_testkit::FakeApi;
use serde_json::{Value, json};

use super::SnapshotApi;
use crate::volumes::transfers::UploadApi;

pub(crate) const GROUP: &str = "/apis/snapshot.storage.k8s.io/v1";
pub(crate) const UPLOADS: &str = "/apis/velero.io/v2alpha1/namespaces/velero/datauploads/";
pub(crate) const SNAPSHOTS: &str =
    "/apis/snapshot.storage.k8s.io/v1/namespaces/shop/volumesnapshots/";

/// A CSI volume `pv-csi`, another one `pv-other`, and a class; `driver` changes the stored objects
/// before each request is served.
pub(crate) fn cluster(driver: impl Fn(&FakeApi) + Send + Sync + 'static) -> FakeApi {
    let fake = FakeApi::new();
    for (name, source) in [
        ("pv-csi", json!({ "csi": { "driver": "disk.example.com" } })),
        ("pv-other", json!({ "hostPath": { "path": "/" } })),
    ] {
        let mut volume = json!({ "metadata": { "name": name }, "spec": source });
        volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        fake.put(&format!("/api/v1/persistentvolumes/{name}"), volume);
    }
    let class = json!({ "metadata": { "name": "fast" }, "driver": "disk.example.com" });
    fake.put(&format!("{GROUP}/volumesnapshotclasses/fast"), class);
    fake.fault(move |fake, _| {
        driver(fake);
        None
    });
    fake
}

pub(crate) fn snapshot_api(fake: &FakeApi) -> SnapshotApi {
    SnapshotApi::new(&fake.client(), &Leadership::always())
}

pub(crate) fn upload_api(fake: &FakeApi) -> UploadApi {
    UploadApi::new(&fake.client(), "velero", &Leadership::always())
}

pub(crate) fn requests(fake: &FakeApi, line: &str) -> usize {
    fake.log()
        .iter()
        .filter(|other| other.starts_with(line))
        .count()
}

pub(crate) fn only_snapshot(fake: &FakeApi) -> Option<Value> {
    let mut found = fake.under(SNAPSHOTS).into_values();
    let first = found.next();
    assert!(found.next().is_none(), "more than one");
    first
}

/// A driver that binds every snapshot to a content of its own, with this status.
pub(crate) fn binds(status: Value) -> impl Fn(&FakeApi) + Send + Sync {
    move |fake| {
        for (at, mut snapshot) in fake.under(SNAPSHOTS) {
            if !snapshot["status"].is_null() {
                continue;
            }
            let name = format!("content-{}", snapshot["metadata"]["uid"].as_str().unwrap());
            let content = json!({
                "metadata": { "name": name, "uid": format!("uid-of-{name}") },
                "spec": { "deletionPolicy": "Delete", "driver": "disk.example.com" }, "status": status,
            });
            snapshot["status"] = json!({
                "boundVolumeSnapshotContentName": name, "readyToUse": status["readyToUse"],
                "creationTime": "2026-01-01T00:00:01Z",
            });
            fake.put(&format!("{GROUP}/volumesnapshotcontents/{name}"), content);
            fake.put(&at, snapshot);
        }
    }
}

pub(crate) fn claim(volume: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": "shop", "uid": "uid-claim", "labels": { "app": "db" } },
        "spec": { "volumeName": volume, "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Bound" },
    })
}

pub(crate) fn backup(phase: &str) -> Backup {
    serde_json::from_value(json!({
        "metadata": { "name": "b", "namespace": "velero", "uid": "uid-b" },
        "spec": { "csiSnapshotTimeout": "30s" }, "status": { "phase": phase },
    }))
    .unwrap()
}
