//! What is read is written back: with fields and values that this version does not know, and as Go
//! writes it.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{kind::for_each_kind, *};

fn round_trip<T: DeserializeOwned + Serialize>(json: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(json.clone()).unwrap()).unwrap()
}

/// A Backup as a Velero server leaves it in a bucket.
fn stored_backup() -> Value {
    json!({
        "kind": "Backup",
        "apiVersion": "velero.io/v1",
        "metadata": {
            "name": "nightly-20260304050607",
            "namespace": "velero",
            "uid": "0b6e1c1a-6f0e-4a34-8f4e-1f6a2f1f5e11",
            "resourceVersion": "4711",
            "generation": 12,
            "creationTimestamp": "2026-03-04T05:06:07Z",
            "labels": { "velero.io/schedule-name": "nightly", "velero.io/storage-location": "default" },
            "annotations": { "velero.io/resource-timeout": "10m0s" },
            "ownerReferences": [{
                "apiVersion": "velero.io/v1", "kind": "Schedule", "name": "nightly", "uid": "1", "controller": true,
            }],
            "managedFields": [{
                "manager": "velero-server", "operation": "Update", "apiVersion": "velero.io/v1",
                "time": "2026-03-04T05:06:09Z", "fieldsType": "FieldsV1",
                "fieldsV1": { "f:status": { ".": {}, "f:phase": {} } },
            }],
        },
        "spec": {
            "metadata": {},
            "includedNamespaces": ["*"],
            "excludedNamespaces": ["kube-*"],
            "excludedClusterScopedResources": ["volumesnapshotcontents.snapshot.storage.k8s.io"],
            "excludedNamespaceScopedResources": ["volumesnapshots.snapshot.storage.k8s.io"],
            "orLabelSelectors": [{ "matchLabels": { "app": "web" } }],
            "snapshotVolumes": false,
            "ttl": "720h0m0s",
            "volumeGroupSnapshotLabelKey": "velero.io/volume-group",
            "hooks": { "resources": [{
                "name": "freeze",
                "includedNamespaces": ["db"],
                "labelSelector": { "matchExpressions": [{ "key": "app", "operator": "In", "values": ["db"] }] },
                "pre": [{ "exec": { "container": "db", "command": ["sync"], "onError": "Continue", "timeout": "30s" } }],
            }] },
            "storageLocation": "default",
            "volumeSnapshotLocations": ["default"],
            "defaultVolumesToFsBackup": true,
            "orderedResources": { "pods": "db/db-0,db/db-1" },
            "csiSnapshotTimeout": "10m0s",
            "itemOperationTimeout": "4h0m0s",
            "resourcePolicy": { "kind": "configmap", "name": "policy" },
            "snapshotMoveData": false,
            "uploaderConfig": { "parallelFilesUpload": 4 },
        },
        "status": {
            "version": 1,
            "formatVersion": "1.1.0",
            "expiration": "2026-04-03T05:06:07Z",
            "phase": "PartiallyFailed",
            "startTimestamp": "2026-03-04T05:06:07Z",
            "completionTimestamp": "2026-03-04T05:07:00Z",
            "warnings": 2,
            "errors": 1,
            "progress": { "totalItems": 812, "itemsBackedUp": 811 },
            "csiVolumeSnapshotsAttempted": 3,
            "backupItemOperationsAttempted": 3,
            "backupItemOperationsCompleted": 2,
            "backupItemOperationsFailed": 1,
            "hookStatus": { "hooksAttempted": 1 },
        },
    })
}

#[test]
fn a_backup_from_a_bucket_is_written_back_as_it_was() {
    let stored = stored_backup();
    assert_eq!(round_trip::<Backup>(&stored), stored);
    let backup: Backup = serde_json::from_value(stored).unwrap();
    assert_eq!(backup.phase(), BackupPhase::PartiallyFailed);
    assert_eq!(backup.spec.ttl.map(GoDuration::as_secs), Some(720 * 3600));
}

#[test]
fn unknown_fields_are_kept_at_every_level_of_a_backup() {
    let mut object = stored_backup();
    for path in [
        "/spec",
        "/spec/metadata",
        "/spec/hooks",
        "/spec/hooks/resources/0",
        "/spec/hooks/resources/0/pre/0",
        "/spec/hooks/resources/0/pre/0/exec",
        "/spec/uploaderConfig",
        "/status",
        "/status/progress",
        "/status/hookStatus",
    ] {
        object.pointer_mut(path).unwrap()["newer"] = json!({ "deep": [1, null, "x"] });
    }
    assert_eq!(round_trip::<Backup>(&object), object);
}

#[test]
fn unknown_fields_are_kept_at_every_level_of_a_restore() {
    let newer = json!({ "deep": [1, null, "x"] });
    let object = json!({
        "kind": "Restore",
        "apiVersion": "velero.io/v1",
        "metadata": { "name": "r" },
        "spec": {
            "backupName": "b",
            "restorePVs": true,
            "namespaceMapping": { "a": "b" },
            "restoreStatus": { "includedResources": ["pods"], "newer": newer },
            "hooks": {
                "resources": [{
                    "name": "h",
                    "postHooks": [
                        { "exec": { "command": ["true"], "waitForReady": false, "newer": newer }, "newer": newer },
                        { "init": { "initContainers": [{ "name": "i", "any": { "thing": 1 } }], "newer": newer } },
                    ],
                    "newer": newer,
                }],
                "newer": newer,
            },
            "existingResourcePolicy": "update",
            "uploaderConfig": { "writeSparseFiles": true, "newer": newer },
            "newer": newer,
        },
        "status": {
            "phase": "InProgress",
            "progress": { "totalItems": 3, "newer": newer },
            "newer": newer,
        },
    });
    assert_eq!(round_trip::<Restore>(&object), object);
}

#[test]
fn an_unknown_phase_is_kept() {
    let object = json!({
        "kind": "Backup",
        "apiVersion": "velero.io/v1",
        "metadata": {},
        "spec": {},
        "status": { "phase": "Resting" },
    });
    assert_eq!(round_trip::<Backup>(&object), object);
    let backup: Backup = serde_json::from_value(object).unwrap();
    assert_eq!(backup.phase(), BackupPhase::Unknown("Resting".to_owned()));
}

#[test]
fn an_object_without_spec_and_status_is_read() {
    fn check<T: DeserializeOwned + VeleroKind + std::fmt::Debug + Default + PartialEq>() {
        for object in [
            json!({ "metadata": { "name": "x" } }),
            json!({ "metadata": { "name": "x" }, "spec": null, "status": null }),
        ] {
            let read: T = serde_json::from_value(object).unwrap();
            assert_eq!(read.meta().name.as_deref(), Some("x"));
        }
    }
    for_each_kind!(check);
}

#[test]
fn null_is_read_as_nothing_given() {
    let spec: BackupSpec = serde_json::from_value(json!({
        "includedNamespaces": null, "orderedResources": null, "labelSelector": null, "ttl": null,
    }))
    .unwrap();
    assert_eq!(spec, BackupSpec::default());
}

#[test]
fn a_new_object_names_its_group_version_and_kind() {
    let upload = DataUpload::new("u", transfer::DataUploadSpec::default());
    assert_eq!(
        (upload.api_version.as_str(), upload.kind.as_str()),
        ("velero.io/v2alpha1", "DataUpload")
    );
    let backup = Backup::new("b", BackupSpec::default());
    assert_eq!(
        (backup.api_version.as_str(), backup.phase()),
        ("velero.io/v1", BackupPhase::New)
    );
}

#[test]
fn fields_whose_names_are_no_camel_case_have_the_names_of_velero() {
    for object in [
        json!({ "phase": "Completed", "snapshotID": "s", "node": "n", "nodeOS": "linux", "progress": { "totalBytes": 2, "bytesDone": 1 } }),
        json!({ "dataMoverResult": { "a": "b" }, "acceptedByNode": "n", "incrementalBytes": 7 }),
    ] {
        assert_eq!(round_trip::<transfer::DataUploadStatus>(&object), object);
        let status: transfer::DataUploadStatus = serde_json::from_value(object).unwrap();
        assert!(status.extra.is_empty(), "{:?}", status.extra);
    }
    let object =
        json!({ "phase": "Processed", "downloadURL": "https://example.com", "message": "m" });
    let status: download_request::DownloadRequestStatus = serde_json::from_value(object).unwrap();
    assert!(status.extra.is_empty(), "{:?}", status.extra);
    let object = json!({ "provider": "aws", "objectStorage": { "bucket": "b", "caCert": "eA==" } });
    let spec: BackupStorageLocationSpec = serde_json::from_value(object.clone()).unwrap();
    assert!(spec.extra.is_empty() && spec.object_storage.extra.is_empty());
    assert_eq!(serde_json::to_value(spec).unwrap(), object);
}
