//! The volume that an upload reads: the snapshot as a content and a VolumeSnapshot in our namespace,
//! a claim made of it, and the pod. All have the name of the DataUpload.

use std::collections::BTreeMap;

use backup_core::{
    api::DataUpload,
    data_movement::{ATTEMPTS_ANNOTATION, CLAIM_UID_ANNOTATION, TRANSFER_LABEL},
    labels::{BACKUP_NAME, BACKUP_UID, EXCLUDE_FROM_BACKUP, MOVER_USER_ANNOTATION},
    quantity,
};
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::{Value, json};

use super::{
    Uploads,
    source::{SourceSnapshot, is_block},
};
use crate::{
    error::ReconcileError,
    volumes::data_mover::{
        DataMover,
        objects::create_once,
        pod::{PodRequest, PodWork},
    },
};

const GROUP: &str = "snapshot.storage.k8s.io";
const VERSION: &str = "snapshot.storage.k8s.io/v1";

impl Uploads {
    /// Creates what does not exist. Returns what is awaited before the rest can be created; `None`
    /// once all exists.
    pub(super) async fn copy(
        &self,
        upload: &DataUpload,
        source: &SourceSnapshot,
    ) -> Result<Option<String>, ReconcileError> {
        let mover = &self.mover;
        let namespace = &mover.cluster.namespace;
        let name = upload.name_any();
        let copy = VolumeCopy {
            upload,
            source,
            namespace,
        };
        let api = self.snapshots();
        api.create_content(&copy.content().map_err(|error| not_made(&error))?)
            .await?;
        let snapshot = copy.snapshot().map_err(|error| not_made(&error))?;
        let snapshot = api.create(namespace, &snapshot).await?;
        if let Some(awaited) = awaited(&snapshot) {
            return Ok(Some(awaited));
        }
        let claim = copy.claim().map_err(|error| not_made(&error))?;
        create_once(mover, &mover.cluster.api(), &claim).await?;
        let location = &upload.spec.backup_storage_location;
        let Some(location) = mover.location(location).await? else {
            return Ok(Some(format!(
                "BackupStorageLocation {location} does not exist"
            )));
        };
        let request = PodRequest {
            name: &name,
            owner: DataMover::owner(upload),
            location: &location,
            repository: &upload.spec.source_namespace,
            work: copy.work(&name),
        };
        mover.create_pod(&request).await?;
        Ok(None)
    }
}

fn not_made(error: &serde_json::Error) -> ReconcileError {
    ReconcileError::Impossible(format!("an object of the volume cannot be made: {error}"))
}

/// Why our VolumeSnapshot cannot be read yet; `None` if it can. It is ready within seconds, as the
/// snapshot exists; a claim that is made before is provisioned later, after a backoff.
fn awaited(snapshot: &DynamicObject) -> Option<String> {
    let status = &snapshot.data["status"];
    if status["readyToUse"] == true {
        return None;
    }
    let name = snapshot.name_any();
    Some(match status["error"]["message"].as_str() {
        Some(why) => format!("VolumeSnapshot {name} of the data mover is not ready: {why}"),
        None => format!("VolumeSnapshot {name} of the data mover is not ready yet"),
    })
}

/// The objects of an upload.
struct VolumeCopy<'a> {
    upload: &'a DataUpload,
    source: &'a SourceSnapshot,
    /// Namespace of the installation.
    namespace: &'a str,
}

impl<'a> VolumeCopy<'a> {
    fn labels(&self) -> Value {
        json!({ TRANSFER_LABEL: self.upload.name_any(), EXCLUDE_FROM_BACKUP: "true" })
    }

    fn owners(&self) -> [OwnerReference; 1] {
        [DataMover::owner(self.upload)]
    }

    /// Without an owner, as it is in no namespace: the finalizer of the DataUpload stays until the
    /// content is removed. Its removal keeps the snapshot, which belongs to the original content.
    fn content(&self) -> Result<DynamicObject, serde_json::Error> {
        let source = self.source;
        let name = self.upload.name_any();
        let mut spec = json!({
            "deletionPolicy": "Retain",
            "driver": source.driver,
            "source": { "snapshotHandle": source.handle },
            "volumeSnapshotRef": {
                "apiVersion": VERSION, "kind": "VolumeSnapshot", "namespace": self.namespace, "name": name,
            },
        });
        if let Some(mode) = &source.volume_mode {
            spec["sourceVolumeMode"] = json!(mode);
        }
        if let Some(class) = &source.snapshot_class {
            spec["volumeSnapshotClassName"] = json!(class);
        }
        let mut metadata = json!({ "name": name, "labels": self.labels() });
        if !source.secrets.is_empty() {
            metadata["annotations"] = json!(source.secrets);
        }
        serde_json::from_value(json!({
            "apiVersion": VERSION, "kind": "VolumeSnapshotContent", "metadata": metadata, "spec": spec,
        }))
    }

    /// Without the label of the backup's uid, by which the snapshots of a backup are destroyed.
    fn snapshot(&self) -> Result<DynamicObject, serde_json::Error> {
        let name = self.upload.name_any();
        let mut spec = json!({ "source": { "volumeSnapshotContentName": name } });
        if let Some(class) = &self.source.snapshot_class {
            spec["volumeSnapshotClassName"] = json!(class);
        }
        serde_json::from_value(json!({
            "apiVersion": VERSION, "kind": "VolumeSnapshot",
            "metadata": {
                "name": name, "namespace": self.namespace, "labels": self.labels(),
                "ownerReferences": self.owners(),
            },
            "spec": spec,
        }))
    }

    fn claim(&self) -> Result<PersistentVolumeClaim, serde_json::Error> {
        let name = self.upload.name_any();
        let mode = if is_block(self.upload) {
            "Block"
        } else {
            "Filesystem"
        };
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": mode,
            "resources": { "requests": { "storage": quantity::binary(self.source.bytes) } },
            "dataSource": { "apiGroup": GROUP, "kind": "VolumeSnapshot", "name": name },
        });
        let csi = self.upload.spec.csi_snapshot.as_ref();
        let class = csi.map(|csi| &csi.storage_class);
        // Without a class the cluster's default one is tried.
        if let Some(class) = class.filter(|class| !class.is_empty()) {
            spec["storageClassName"] = json!(class);
        }
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": self.namespace, "labels": self.labels(),
                "ownerReferences": self.owners(),
            },
            "spec": spec,
        }))
    }

    fn work(&self, claim: &'a str) -> PodWork<'a> {
        let annotations = self.upload.annotations();
        let uid = annotations.get(CLAIM_UID_ANNOTATION);
        let label = uid.unwrap_or(&self.upload.spec.source_pvc);
        PodWork::Backup {
            claim,
            block: is_block(self.upload),
            label,
            tags: self.tags(),
            note: self.note(),
            user: annotations.get(MOVER_USER_ANNOTATION).map(String::as_str),
            is_repeated: annotations.contains_key(ATTEMPTS_ANNOTATION),
        }
    }

    /// Where the snapshot is noted: a DataUpload of a backup has the label with its uid.
    fn note(&self) -> Option<String> {
        let backup = self.upload.labels().get(BACKUP_UID)?;
        Some(format!("{backup}/{}", self.upload.uid()?))
    }

    /// Tags by which a user of restic finds the snapshot of a volume.
    fn tags(&self) -> Vec<String> {
        let labels: &BTreeMap<String, String> = self.upload.labels();
        let of_backup = [("backup", BACKUP_NAME), ("backup-uid", BACKUP_UID)];
        let mut tags: Vec<String> = of_backup
            .into_iter()
            .filter_map(|(tag, label)| Some(format!("{tag}={}", labels.get(label)?)))
            .collect();
        tags.push(format!("claim={}", self.upload.spec.source_pvc));
        tags.push(format!("upload={}", self.upload.name_any()));
        tags
    }
}

#[cfg(test)]
mod tests {
    use backup_core::{
        api::transfer::{CsiSnapshotSpec, DataUploadSpec},
        data_movement::VOLUME_MODE_ANNOTATION,
    };

    use super::*;

    fn upload() -> DataUpload {
        let spec = DataUploadSpec {
            source_pvc: "data".to_owned(),
            source_namespace: "shop".to_owned(),
            csi_snapshot: Some(CsiSnapshotSpec {
                volume_snapshot: "velero-data-1".to_owned(),
                storage_class: "fast".to_owned(),
                ..CsiSnapshotSpec::default()
            }),
            ..DataUploadSpec::default()
        };
        let mut upload = DataUpload::new("upload-data-1", spec);
        upload.metadata.uid = Some("uid-1".to_owned());
        upload.metadata.labels = Some(
            [(BACKUP_NAME, "nightly"), (BACKUP_UID, "uid-b")]
                .map(|(label, value)| (label.to_owned(), value.to_owned()))
                .into(),
        );
        upload.metadata.annotations =
            Some([(CLAIM_UID_ANNOTATION.to_owned(), "uid-c".to_owned())].into());
        upload
    }

    fn source() -> SourceSnapshot {
        SourceSnapshot {
            handle: "snap-1".to_owned(),
            driver: "disk.example.com".to_owned(),
            snapshot_class: Some("quick".to_owned()),
            volume_mode: Some("Filesystem".to_owned()),
            secrets: [("a-secret-name".to_owned(), "key".to_owned())].into(),
            bytes: 3 << 30,
        }
    }

    fn copy<'a>(upload: &'a DataUpload, source: &'a SourceSnapshot) -> VolumeCopy<'a> {
        VolumeCopy {
            upload,
            source,
            namespace: "velero",
        }
    }

    fn labels() -> Value {
        json!({ "backup-controller/transfer": "upload-data-1", "velero.io/exclude-from-backup": "true" })
    }

    fn owners() -> Value {
        json!([{ "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload", "name": "upload-data-1", "uid": "uid-1",
            "controller": true }])
    }

    #[test]
    fn the_content_keeps_its_snapshot_when_it_is_removed() {
        let upload = upload();
        let source = source();
        let content = copy(&upload, &source).content().unwrap();
        let expected = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": { "name": "upload-data-1", "labels": labels(), "annotations": { "a-secret-name": "key" } },
            "spec": {
                "deletionPolicy": "Retain", "driver": "disk.example.com", "source": { "snapshotHandle": "snap-1" },
                "volumeSnapshotRef": { "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                    "namespace": "velero", "name": "upload-data-1" },
                "sourceVolumeMode": "Filesystem", "volumeSnapshotClassName": "quick",
            },
        });
        assert_eq!(serde_json::to_value(content).unwrap(), expected);
    }

    #[test]
    fn the_snapshot_is_bound_to_the_content_and_is_none_of_the_backup() {
        let upload = upload();
        let source = source();
        let snapshot = copy(&upload, &source).snapshot().unwrap();
        let expected = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": "upload-data-1", "namespace": "velero", "labels": labels(),
                "ownerReferences": owners() },
            "spec": { "source": { "volumeSnapshotContentName": "upload-data-1" },
                "volumeSnapshotClassName": "quick" },
        });
        assert_eq!(serde_json::to_value(snapshot).unwrap(), expected);
    }

    #[test]
    fn the_claim_is_made_of_the_snapshot() {
        let mut upload = upload();
        let source = source();
        let claim = copy(&upload, &source).claim().unwrap();
        let mut expected = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "upload-data-1", "namespace": "velero", "labels": labels(),
                "ownerReferences": owners() },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "fast",
                "resources": { "requests": { "storage": "3Gi" } },
                "dataSource": { "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
                    "name": "upload-data-1" },
            },
        });
        assert_eq!(serde_json::to_value(claim).unwrap(), expected);
        let annotations = upload.metadata.annotations.as_mut().unwrap();
        annotations.insert(VOLUME_MODE_ANNOTATION.to_owned(), "Block".to_owned());
        expected["spec"]["volumeMode"] = json!("Block");
        let claim = copy(&upload, &source).claim().unwrap();
        assert_eq!(serde_json::to_value(claim).unwrap(), expected);
    }

    #[test]
    fn the_pod_labels_the_snapshot_with_the_claim() {
        let mut upload = upload();
        let source = source();
        let mut expected = PodWork::Backup {
            claim: "upload-data-1",
            block: false,
            label: "uid-c",
            tags: [
                "backup=nightly",
                "backup-uid=uid-b",
                "claim=data",
                "upload=upload-data-1",
            ]
            .map(str::to_owned)
            .to_vec(),
            note: Some("uid-b/uid-1".to_owned()),
            user: None,
            is_repeated: false,
        };
        assert_eq!(copy(&upload, &source).work("upload-data-1"), expected);
        let annotations = upload.metadata.annotations.as_mut().unwrap();
        annotations.insert(MOVER_USER_ANNOTATION.to_owned(), "1000".to_owned());
        annotations.insert(ATTEMPTS_ANNOTATION.to_owned(), "2".to_owned());
        if let PodWork::Backup {
            user, is_repeated, ..
        } = &mut expected
        {
            *user = Some("1000");
            *is_repeated = true;
        }
        assert_eq!(copy(&upload, &source).work("upload-data-1"), expected);
    }

    #[test]
    fn a_snapshot_of_ours_is_awaited_with_its_error() {
        let snapshot = |status: Value| -> DynamicObject {
            serde_json::from_value(json!({ "metadata": { "name": "s" }, "status": status }))
                .unwrap()
        };
        assert_eq!(awaited(&snapshot(json!({ "readyToUse": true }))), None);
        for (status, part) in [
            (Value::Null, "not ready yet"),
            (json!({ "readyToUse": false }), "not ready yet"),
            (
                json!({ "error": { "message": "no such handle" } }),
                "no such handle",
            ),
        ] {
            let why = awaited(&snapshot(status)).unwrap();
            assert!(why.contains(part), "{why}");
        }
    }
}
