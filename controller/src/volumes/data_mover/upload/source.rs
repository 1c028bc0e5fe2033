//! The snapshot that an upload reads. Pure.

use std::collections::BTreeMap;

use backup_core::{
    api::{DataUpload, transfer::CsiSnapshotSpec},
    data_movement::{CLAIM_UID_ANNOTATION, VOLUME_MODE_ANNOTATION},
    quantity,
};
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::api::resource::Quantity,
};
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::Value;

const BLOCK: &str = "Block";
const STORAGE: &str = "storage";

/// A snapshot that can be read: what a volume is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceSnapshot {
    /// The storage system's handle of the snapshot.
    pub(super) handle: String,
    pub(super) driver: String,
    pub(super) snapshot_class: Option<String>,
    /// Mode of the volume, as the content says; unset by old drivers.
    pub(super) volume_mode: Option<String>,
    /// Annotations of the content by which the driver finds its Secrets.
    pub(super) secrets: BTreeMap<String, String>,
    /// Size of the volume to make.
    pub(super) bytes: u64,
}

/// What was found of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Ready(SourceSnapshot),
    /// It cannot be read yet; why.
    Waiting(String),
    /// It can never be read; why, and what to do.
    Unusable(String),
}

/// The objects that describe a snapshot; `None` for those that do not exist.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceObjects {
    pub(super) snapshot: Option<DynamicObject>,
    pub(super) content: Option<DynamicObject>,
    /// Claim of that name in the namespace of the snapshot.
    pub(super) claim: Option<PersistentVolumeClaim>,
}

impl SourceObjects {
    pub(super) fn source(&self, upload: &DataUpload, csi: &CsiSnapshotSpec) -> Source {
        let name = format!("{}/{}", upload.spec.source_namespace, csi.volume_snapshot);
        let Some(snapshot) = &self.snapshot else {
            return Source::Unusable(format!(
                "VolumeSnapshot {name} does not exist: it was deleted before its data was saved; make another backup"
            ));
        };
        let status = &snapshot.data["status"];
        if status["readyToUse"] != true {
            let why = status["error"]["message"].as_str();
            return Source::Waiting(match why {
                Some(why) => format!("VolumeSnapshot {name} is not ready to use: {why}"),
                None => format!("VolumeSnapshot {name} is not ready to use yet"),
            });
        }
        let Some(content) = &self.content else {
            return Source::Waiting(format!("the content of VolumeSnapshot {name} is not found"));
        };
        let Some(handle) = text(&content.data["status"]["snapshotHandle"]) else {
            return Source::Waiting(format!(
                "VolumeSnapshot {name} has no handle of the storage system yet"
            ));
        };
        let driver = text(&content.data["spec"]["driver"]).or(csi.driver.as_deref());
        let Some(driver) = driver.filter(|driver| !driver.is_empty()) else {
            return Source::Unusable(format!("VolumeSnapshot {name} does not name its driver"));
        };
        let bytes = self.bytes(upload, content);
        if bytes == 0 {
            return Source::Unusable(format!(
                "the size of the volume of VolumeSnapshot {name} is not known: neither the snapshot nor claim {} has it",
                upload.spec.source_pvc
            ));
        }
        Source::Ready(SourceSnapshot {
            handle: handle.to_owned(),
            driver: driver.to_owned(),
            snapshot_class: text(&content.data["spec"]["volumeSnapshotClassName"])
                .map(str::to_owned),
            volume_mode: text(&content.data["spec"]["sourceVolumeMode"]).map(str::to_owned),
            secrets: secrets(content),
            bytes,
        })
    }

    /// The largest of the sizes of snapshot and claim: a driver refuses less than the snapshot's,
    /// and the file system may have grown to the claim's.
    fn bytes(&self, upload: &DataUpload, content: &DynamicObject) -> u64 {
        let needed = content.data["status"]["restoreSize"].as_u64();
        let of_snapshot = self
            .snapshot
            .as_ref()
            .and_then(|snapshot| text(&snapshot.data["status"]["restoreSize"]))
            .and_then(bytes_of);
        let claim = self.claim.as_ref().filter(|claim| {
            let uid = upload.annotations().get(CLAIM_UID_ANNOTATION);
            uid.is_none_or(|uid| claim.uid().as_ref() == Some(uid))
        });
        let spec = claim.and_then(|claim| claim.spec.as_ref());
        let requested = spec
            .and_then(|spec| spec.resources.as_ref())
            .and_then(|resources| resources.requests.as_ref());
        let present = claim
            .and_then(|claim| claim.status.as_ref())
            .and_then(|status| status.capacity.as_ref());
        [
            needed,
            of_snapshot,
            requested.and_then(storage),
            present.and_then(storage),
        ]
        .into_iter()
        .flatten()
        .max()
        .unwrap_or_default()
    }
}

/// Whether the volume is a block volume.
pub(super) fn is_block(upload: &DataUpload) -> bool {
    let mode = upload.annotations().get(VOLUME_MODE_ANNOTATION);
    mode.is_some_and(|mode| mode == BLOCK)
}

fn storage(sizes: &BTreeMap<String, Quantity>) -> Option<u64> {
    bytes_of(&sizes.get(STORAGE)?.0)
}

fn bytes_of(text: &str) -> Option<u64> {
    u64::try_from(quantity::bytes(text)?).ok()
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn secrets(content: &DynamicObject) -> BTreeMap<String, String> {
    let annotations = content.annotations().iter();
    annotations
        .filter(|(key, _)| key.contains("secret"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use backup_core::api::transfer::DataUploadSpec;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn upload() -> DataUpload {
        let spec = DataUploadSpec {
            source_pvc: "data".to_owned(),
            source_namespace: "shop".to_owned(),
            ..DataUploadSpec::default()
        };
        let mut upload = DataUpload::new("upload-data-1", spec);
        let uid = (CLAIM_UID_ANNOTATION.to_owned(), "uid-of-claim".to_owned());
        upload.metadata.annotations = Some([uid].into());
        upload
    }

    fn csi() -> CsiSnapshotSpec {
        CsiSnapshotSpec {
            volume_snapshot: "velero-data-1".to_owned(),
            storage_class: "fast".to_owned(),
            ..CsiSnapshotSpec::default()
        }
    }

    fn snapshot() -> Value {
        json!({
            "metadata": { "name": "velero-data-1", "namespace": "shop" },
            "status": { "readyToUse": true, "boundVolumeSnapshotContentName": "c", "restoreSize": "1Gi" },
        })
    }

    fn content() -> Value {
        json!({
            "metadata": { "name": "c", "annotations": {
                "snapshot.storage.kubernetes.io/deletion-secret-name": "key",
                "snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes",
            } },
            "spec": { "driver": "disk.example.com", "deletionPolicy": "Delete",
                "volumeSnapshotClassName": "fast", "sourceVolumeMode": "Filesystem" },
            "status": { "snapshotHandle": "snap-1", "readyToUse": true, "restoreSize": 1_073_741_824_u64 },
        })
    }

    fn claim() -> Value {
        json!({
            "metadata": { "name": "data", "namespace": "shop", "uid": "uid-of-claim" },
            "spec": { "resources": { "requests": { "storage": "2Gi" } } },
            "status": { "capacity": { "storage": "3Gi" } },
        })
    }

    fn source(snapshot: &Value, content: &Value, claim: &Value) -> Source {
        let objects = SourceObjects {
            snapshot: serde_json::from_value(snapshot.clone()).ok(),
            content: serde_json::from_value(content.clone()).ok(),
            claim: serde_json::from_value(claim.clone()).unwrap(),
        };
        objects.source(&upload(), &csi())
    }

    fn changed(mut value: Value, at: &str, to: Value) -> Value {
        *value.pointer_mut(at).unwrap() = to;
        value
    }

    #[test]
    fn a_ready_snapshot_is_described_by_its_content() {
        let expected = SourceSnapshot {
            handle: "snap-1".to_owned(),
            driver: "disk.example.com".to_owned(),
            snapshot_class: Some("fast".to_owned()),
            volume_mode: Some("Filesystem".to_owned()),
            secrets: [(
                "snapshot.storage.kubernetes.io/deletion-secret-name".to_owned(),
                "key".to_owned(),
            )]
            .into(),
            bytes: 3 << 30,
        };
        assert_eq!(
            source(&snapshot(), &content(), &claim()),
            Source::Ready(expected)
        );
    }

    #[rstest]
    #[case::claim_is_larger(claim(), 3 << 30)]
    #[case::claim_is_smaller(changed(changed(claim(), "/status/capacity/storage", json!("5Mi")),
        "/spec/resources/requests/storage", json!("5Mi")), 1 << 30)]
    #[case::claim_is_gone(Value::Null, 1 << 30)]
    #[case::claim_is_another(changed(claim(), "/metadata/uid", json!("other")), 1 << 30)]
    fn the_volume_is_as_large_as_snapshot_and_claim(#[case] claim: Value, #[case] bytes: u64) {
        match source(&snapshot(), &content(), &claim) {
            Source::Ready(source) => assert_eq!(source.bytes, bytes),
            other => panic!("{other:?}"),
        }
    }

    #[rstest]
    #[case::not_ready(changed(snapshot(), "/status/readyToUse", json!(false)), content(), "not ready to use yet")]
    #[case::error(changed(snapshot(), "/status",
        json!({ "readyToUse": false, "error": { "message": "quota" } })), content(), "not ready to use: quota")]
    #[case::no_status(
        changed(snapshot(), "/status", Value::Null),
        content(),
        "not ready to use yet"
    )]
    #[case::no_content(snapshot(), Value::Null, "is not found")]
    #[case::no_handle(
        snapshot(),
        changed(content(), "/status/snapshotHandle", Value::Null),
        "no handle"
    )]
    fn a_snapshot_that_is_not_ready_is_awaited(
        #[case] snapshot: Value,
        #[case] content: Value,
        #[case] part: &str,
    ) {
        match source(&snapshot, &content, &claim()) {
            Source::Waiting(why) => assert!(why.contains(part), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[rstest]
    #[case::gone(Value::Null, content(), claim(), "does not exist")]
    #[case::no_driver(snapshot(), changed(content(), "/spec/driver", json!("")), claim(), "does not name its driver")]
    #[case::no_size(
        changed(snapshot(), "/status/restoreSize", Value::Null),
        changed(content(), "/status/restoreSize", Value::Null),
        Value::Null,
        "neither the snapshot nor claim data"
    )]
    fn a_snapshot_that_can_never_be_read_is_an_error(
        #[case] snapshot: Value,
        #[case] content: Value,
        #[case] claim: Value,
        #[case] part: &str,
    ) {
        match source(&snapshot, &content, &claim) {
            Source::Unusable(why) => assert!(why.contains(part), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_mode_of_the_volume_is_an_annotation() {
        let mut upload = upload();
        assert!(!is_block(&upload));
        let annotations = upload.metadata.annotations.as_mut().unwrap();
        annotations.insert(VOLUME_MODE_ANNOTATION.to_owned(), "Block".to_owned());
        assert!(is_block(&upload));
    }
}
