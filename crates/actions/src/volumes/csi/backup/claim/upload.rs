//! The move of a claim's data: a DataUpload, which is an operation until the data mover has ended
//! it.

use backup_core::{
    api::{
        Backup, DataUpload,
        transfer::{CsiSnapshotSpec, DataMover, DataUploadSpec},
    },
    data_movement::{
        CLAIM_UID_ANNOTATION, CLAIM_UID_LABEL, DATA_MOVER, DATA_UPLOAD_NAME, DATA_UPLOADS,
        OPERATION_LABEL, VOLUME_MODE_ANNOTATION, upload_name,
    },
    labels::{self, MOVER_USER_ANNOTATION, csi},
    names,
};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _, core::DynamicObject};
use serde_json::{Value, json};

use super::{ClaimAction, enlarge, timeout};
use crate::{
    ActionError, ItemId, OperationProgress,
    action::BuiltInAction as _,
    backup::BackupActionOutput,
    json::{entries, object, text},
    volumes::{backup_volumes::ClaimVolume, transfer_progress::operation_progress},
};

const BLOCK: &str = "Block";

/// A claim and its snapshot.
#[derive(Clone, Copy)]
pub(super) struct ClaimSnapshot<'a> {
    pub(super) claim: &'a Value,
    pub(super) driver: &'a str,
    pub(super) storage_class: &'a str,
    pub(super) snapshot: &'a DynamicObject,
}

impl ClaimAction {
    /// Creates the DataUpload of a claim, or finds an existing one.
    pub(super) async fn move_data(
        &self,
        snapshot: ClaimSnapshot<'_>,
        content: &DynamicObject,
        volume: ClaimVolume,
        backup: &Backup,
    ) -> Result<BackupActionOutput, ActionError> {
        // The snapshot has this label already. Its content would be in a backup of everything.
        let name = content.name_any();
        let label = json!({ "metadata": { "labels": { labels::EXCLUDE_FROM_BACKUP: "true" } } });
        let labelled = self.api.patch_content(&name, &label).await;
        let labelled = labelled
            .map_err(|error| Self::failed(&format!("labelling its content {name}"), &error))?;
        if labelled.is_none() {
            return Err(Self::refuse(format!("its content {name} is gone")));
        }
        let upload = snapshot.upload(backup, self.uploads.namespace());
        let upload = upload.map_err(Self::refuse)?;
        let created = self.uploads.create(&upload).await;
        created.map_err(|error| Self::failed("creating a DataUpload", &error))?;
        self.volumes.moved(volume, &upload.name_any());
        Ok(moved(snapshot.claim, &upload, content, backup))
    }

    pub(super) async fn upload_progress(
        &self,
        operation: &str,
    ) -> Result<OperationProgress, ActionError> {
        check(operation)?;
        let found = self.uploads.get(operation).await;
        let found = found.map_err(|error| Self::failed("reading the DataUpload", &error))?;
        Ok(found.map_or_else(
            || OperationProgress {
                completed: true,
                error: format!("DataUpload {operation} is gone"),
                updated: Some(Timestamp::now()),
                ..OperationProgress::default()
            },
            |upload| progress(&upload),
        ))
    }

    pub(super) async fn cancel_upload(&self, operation: &str) -> Result<(), ActionError> {
        check(operation)?;
        let cancelled = self.uploads.cancel(operation).await;
        cancelled.map_err(|error| Self::failed("cancelling the DataUpload", &error))
    }
}

/// An operation's id is the name of its DataUpload.
fn check(operation: &str) -> Result<(), ActionError> {
    if names::is_object_name(operation) {
        Ok(())
    } else {
        Err(ClaimAction::refuse(format!(
            "{operation:?} is none of its operations"
        )))
    }
}

/// The storage class of the volume into which the data mover provisions the snapshot. Errors: it
/// has none.
pub(super) fn storage_class<'a>(claim: &'a Value, volume: &'a Value) -> Result<&'a str, String> {
    [claim, volume]
        .into_iter()
        .find_map(|object| text(object, "/spec/storageClassName"))
        .ok_or_else(|| {
            "its data can't be moved, as it has no storage class, which is needed to make a volume of its snapshot; \
             set spec.snapshotMoveData to false, or leave it out by a resource policy"
                .to_owned()
        })
}

impl ClaimSnapshot<'_> {
    /// The DataUpload of the claim, in the namespace of the installation.
    fn upload(&self, backup: &Backup, namespace: &str) -> Result<DataUpload, String> {
        let claim = self.claim;
        let Some(claim_name) = text(claim, "/metadata/name") else {
            return Err("it has no name".to_owned());
        };
        let Some(claim_uid) = text(claim, "/metadata/uid") else {
            return Err("it has no uid".to_owned());
        };
        let Some(owner) = backup.controller_owner_ref(&()) else {
            return Err("the Backup has no name or uid".to_owned());
        };
        let name = upload_name(claim_name, &owner.uid, claim_uid);
        let mut upload = DataUpload::new(&name, self.spec(claim_name, backup));
        let metadata = &mut upload.metadata;
        metadata.namespace = Some(namespace.to_owned());
        let labels = [
            (labels::BACKUP_NAME, labels::valid_value(&backup.name_any())),
            (labels::BACKUP_UID, owner.uid.clone()),
            (CLAIM_UID_LABEL, claim_uid.to_owned()),
            (OPERATION_LABEL, name),
        ];
        let schedule = backup.schedule();
        let schedule = schedule.map(|schedule| (labels::SCHEDULE_NAME, schedule.to_owned()));
        metadata.labels = Some(
            labels
                .into_iter()
                .chain(schedule)
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        );
        let mode = text(claim, "/spec/volumeMode").filter(|mode| *mode == BLOCK);
        let user = claim["metadata"]["annotations"][MOVER_USER_ANNOTATION].as_str();
        let annotations = [
            (CLAIM_UID_ANNOTATION, Some(claim_uid)),
            (VOLUME_MODE_ANNOTATION, mode),
            (MOVER_USER_ANNOTATION, user),
        ];
        metadata.annotations = Some(
            annotations
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
                .collect(),
        );
        metadata.owner_references = Some(vec![owner]);
        Ok(upload)
    }

    fn spec(&self, claim: &str, backup: &Backup) -> DataUploadSpec {
        let class = self
            .snapshot
            .data
            .pointer("/spec/volumeSnapshotClassName")
            .and_then(Value::as_str);
        DataUploadSpec {
            snapshot_type: "CSI".to_owned(),
            csi_snapshot: Some(CsiSnapshotSpec {
                volume_snapshot: self.snapshot.name_any(),
                storage_class: self.storage_class.to_owned(),
                snapshot_class: class.unwrap_or_default().to_owned(),
                driver: Some(self.driver.to_owned()),
                ..CsiSnapshotSpec::default()
            }),
            source_pvc: claim.to_owned(),
            backup_storage_location: backup.spec.storage_location.clone().unwrap_or_default(),
            source_namespace: self.snapshot.namespace().unwrap_or_default(),
            mover: DataMover {
                datamover: Some(DATA_MOVER.to_owned()),
                operation_timeout: timeout(backup),
                ..DataMover::default()
            },
            ..DataUploadSpec::default()
        }
    }
}

/// The claim as it is stored. It names its DataUpload, and no snapshot.
fn moved(
    claim: &Value,
    upload: &DataUpload,
    content: &DynamicObject,
    backup: &Backup,
) -> BackupActionOutput {
    let mut claim = claim.clone();
    let name = upload.name_any();
    let namespace = upload.namespace().unwrap_or_default();
    for kind in ["annotations", "labels"] {
        if let Some(entries) = object(&mut claim, &format!("/metadata/{kind}")) {
            entries.remove(csi::VOLUME_SNAPSHOT_NAME);
        }
    }
    let reference = format!("{namespace}/{name}");
    entries(
        &mut claim,
        "annotations",
        [(DATA_UPLOAD_NAME, reference.as_str())],
    );
    let backup_name = labels::valid_value(&backup.name_any());
    entries(
        &mut claim,
        "labels",
        [(labels::BACKUP_NAME, backup_name.as_str())],
    );
    enlarge(&mut claim, content);
    BackupActionOutput {
        item: Some(claim),
        additional: Vec::new(),
        after_operation: vec![ItemId::new(DATA_UPLOADS, Some(&namespace), &name)],
        operation: Some(name),
    }
}

/// The state of the operation. It ends when the data mover has ended the DataUpload.
fn progress(upload: &DataUpload) -> OperationProgress {
    let object = format!("DataUpload {}", upload.name_any());
    operation_progress(&object, &upload.status.transfer)
}

#[cfg(test)]
mod tests;
