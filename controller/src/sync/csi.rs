//! Snapshots of CSI volumes that Velero up to 1.16 has recorded beside a backup. They are created
//! in the cluster so that they are deleted from the storage system with the backup. Pure.
//!
//! Until then their VolumeSnapshotContents have the policy Retain: removing such an object from the
//! cluster, as the sync does with orphans, must not destroy the backup's data. The deletion of the
//! backup sets Delete.

use backup_core::{
    api::Backup,
    labels::{self, SYNCED_FOR},
};
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::{Map, Value, json, value::RawValue};

const API_VERSION: &str = "snapshot.storage.k8s.io/v1";

/// The VolumeSnapshotClass to create. It is kept when the backup is deleted: others may use it by
/// then.
pub(super) fn class(object: &RawValue) -> Result<DynamicObject, String> {
    let stored = read(object, "VolumeSnapshotClass")?;
    let name = name(&stored, "VolumeSnapshotClass")?;
    let mut made = json!({
        "apiVersion": API_VERSION, "kind": "VolumeSnapshotClass",
        "metadata": { "name": name, "labels": stored["metadata"]["labels"], "annotations": stored["metadata"]["annotations"] },
    });
    // The default class is this cluster's choice.
    if let Some(all) = made
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        all.retain(|key, _| {
            key != labels::csi::DEFAULT_CLASS && !key.starts_with("kubectl.kubernetes.io/")
        });
    }
    copy(
        &stored,
        &mut made,
        &["driver", "deletionPolicy", "parameters"],
    );
    serde_json::from_value(made).map_err(|error| format!("VolumeSnapshotClass {name}: {error}"))
}

/// The VolumeSnapshotContent to create: for a snapshot that exists in the storage system, without a
/// VolumeSnapshot.
pub(super) fn content(object: &RawValue, backup: &Backup) -> Result<DynamicObject, String> {
    let stored = read(object, "VolumeSnapshotContent")?;
    let name = name(&stored, "VolumeSnapshotContent")?;
    let handle = stored
        .pointer("/status/snapshotHandle")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if handle.is_empty() {
        return Err(format!(
            "VolumeSnapshotContent {name} has no status.snapshotHandle, so its snapshot cannot be found"
        ));
    }
    let uid = stored
        .pointer("/metadata/uid")
        .and_then(Value::as_str)
        .unwrap_or(name);
    // Drivers find their Secrets in annotations.
    let secrets: Map<String, Value> = stored["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.ends_with("secret-name") || key.ends_with("secret-namespace"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut made = json!({
        "apiVersion": API_VERSION, "kind": "VolumeSnapshotContent",
        "metadata": { "name": name, "annotations": secrets, "labels": {
            labels::BACKUP_NAME: labels::valid_value(&backup.name_any()),
            SYNCED_FOR: backup.uid().unwrap_or_default(),
        } },
        "spec": {
            "deletionPolicy": "Retain", "driver": stored["spec"]["driver"], "source": { "snapshotHandle": handle },
            // Required, but the object does not exist.
            "volumeSnapshotRef": { "apiVersion": API_VERSION, "kind": "VolumeSnapshot",
                "namespace": format!("ns-{uid}"), "name": format!("name-{uid}") },
        },
    });
    copy(
        &stored["spec"],
        &mut made["spec"],
        &["volumeSnapshotClassName", "sourceVolumeMode"],
    );
    serde_json::from_value(made).map_err(|error| format!("VolumeSnapshotContent {name}: {error}"))
}

fn copy(from: &Value, to: &mut Value, fields: &[&str]) {
    for field in fields.iter().filter(|field| !from[**field].is_null()) {
        to[*field] = from[*field].clone();
    }
}

fn read(object: &RawValue, kind: &str) -> Result<Value, String> {
    let stored: Value = serde_json::from_str(object.get())
        .map_err(|error| format!("a {kind} cannot be read: {error}"))?;
    let stored_kind = stored["kind"].as_str().unwrap_or_default();
    if stored_kind.is_empty() || stored_kind == kind {
        Ok(stored)
    } else {
        Err(format!("among the {kind}s is a {stored_kind}"))
    }
}

fn name<'a>(stored: &'a Value, kind: &str) -> Result<&'a str, String> {
    let name = stored
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if backup_core::names::is_object_name(name) {
        Ok(name)
    } else {
        Err(format!("a {kind} has the name {name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn backup() -> Backup {
        let mut backup = Backup::new("b", backup_core::api::BackupSpec::default());
        backup.metadata.uid = Some("u-new".to_owned());
        backup
    }

    #[test]
    fn a_content_stands_for_its_handle_alone_and_destroys_nothing_by_itself() {
        let stored = json!({
            "metadata": { "name": "snapcontent-1", "uid": "c1", "resourceVersion": "4", "finalizers": ["x"],
                "labels": { "velero.io/backup-name": "other" },
                "annotations": { "snapshot.storage.kubernetes.io/deletion-secret-name": "key",
                    "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes" } },
            "spec": { "deletionPolicy": "Delete", "driver": "disk", "volumeSnapshotClassName": "fast",
                "source": { "volumeHandle": "v" }, "volumeSnapshotRef": { "name": "live", "namespace": "a", "uid": "s1" } },
            "status": { "snapshotHandle": "snap-1", "readyToUse": true },
        });
        let made = serde_json::to_value(content(&raw(&stored), &backup()).unwrap()).unwrap();
        let expected = json!({
            "apiVersion": API_VERSION, "kind": "VolumeSnapshotContent",
            "metadata": { "name": "snapcontent-1",
                "labels": { "velero.io/backup-name": "b", SYNCED_FOR: "u-new" },
                "annotations": { "snapshot.storage.kubernetes.io/deletion-secret-name": "key" } },
            "spec": { "deletionPolicy": "Retain", "driver": "disk", "volumeSnapshotClassName": "fast",
                "source": { "snapshotHandle": "snap-1" },
                "volumeSnapshotRef": { "apiVersion": API_VERSION, "kind": "VolumeSnapshot", "namespace": "ns-c1",
                    "name": "name-c1" } },
        });
        assert_eq!(made, expected);
    }

    #[test]
    fn what_stands_for_nothing_or_is_something_else_is_told() {
        let good = json!({ "metadata": { "name": "c" }, "spec": { "driver": "d" }, "status": { "snapshotHandle": "h" } });
        content(&raw(&good), &backup()).unwrap();
        for (pointer, value) in [
            ("/status", Value::Null),
            ("/status/snapshotHandle", json!("")),
            ("/metadata/name", json!("../x")),
            ("/metadata", json!(7)),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value;
            assert!(content(&raw(&bad), &backup()).is_err(), "{pointer}");
        }
        let mut other = good;
        other["kind"] = json!("Secret");
        assert!(content(&raw(&other), &backup()).is_err() && class(&raw(&other)).is_err());
    }

    #[test]
    fn a_class_is_created_as_it_was_but_never_as_the_default() {
        let stored = json!({
            "metadata": { "name": "fast", "uid": "x", "labels": { "velero.io/csi-volumesnapshot-class": "true" },
                "annotations": { "snapshot.storage.kubernetes.io/is-default-class": "true", "a": "b" } },
            "driver": "disk", "deletionPolicy": "Delete", "parameters": { "k": "v" },
        });
        let made = serde_json::to_value(class(&raw(&stored)).unwrap()).unwrap();
        assert_eq!(made["metadata"]["annotations"], json!({ "a": "b" }));
        assert_eq!(
            (&made["driver"], &made["parameters"]),
            (&json!("disk"), &json!({ "k": "v" }))
        );
        assert!(made["metadata"].get("uid").is_none());
    }
}
