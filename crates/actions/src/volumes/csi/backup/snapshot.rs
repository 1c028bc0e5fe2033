//! `velero.io/csi-volumesnapshot-backupper`: a snapshot that the backup has taken is an operation
//! until it is ready to use (Velero `pkg/backup/actions/csi/volumesnapshot_action.go`, v1.18).
//!
//! Velero removes a snapshot from the cluster when it stores its final form. We do that once the
//! whole backup is stored (`tidy`), as the snapshot may have to be read again after a crash. A
//! cancelled snapshot is removed in the storage system, too: it would be unusable.

use std::sync::Arc;

use async_trait::async_trait;
use backup_core::{
    api::Backup,
    labels::{self, csi},
    quantity,
    volume_info::CsiSnapshotInfo,
};
use jiff::Timestamp;
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::{Map, Value, json};

use crate::{
    ActionError, ItemId, OperationProgress,
    action::BuiltInAction,
    backup::{BackupActionOutput, BackupItemAction},
    csi::api::{
        CLASSES, CONTENTS, ContentSpec, ContentStatus, SNAPSHOTS, SnapshotApi, SnapshotStatus,
        is_finalizing, snapshot_info, spec, status,
    },
    json::entries,
    volumes::backup_volumes::BackupVolumes,
};

pub(crate) struct SnapshotAction {
    pub(super) api: SnapshotApi,
    pub(super) volumes: Arc<BackupVolumes>,
}

impl BuiltInAction for SnapshotAction {
    const NAME: &'static str = "velero.io/csi-volumesnapshot-backupper";
    const RESOURCE: &'static str = SNAPSHOTS;
}

#[async_trait]
impl BackupItemAction for SnapshotAction {
    async fn execute(
        &self,
        item: &Value,
        backup: &Backup,
    ) -> Result<BackupActionOutput, ActionError> {
        let snapshot: DynamicObject = serde_json::from_value(item.clone())
            .map_err(|error| Self::refuse(format!("it can not be read: {error}")))?;
        // Not ours: it is stored unchanged, and nothing else is done with it.
        if snapshot.labels().get(labels::BACKUP_UID) != backup.uid().as_ref() {
            return Ok(BackupActionOutput::default());
        }
        if is_finalizing(backup) {
            return Ok(BackupActionOutput::default());
        }
        let Some(bound) = status::<SnapshotStatus>(&snapshot).bound_volume_snapshot_content_name
        else {
            return Err(Self::refuse("it has no content"));
        };
        let uid = backup.uid().unwrap_or_default();
        let labels = json!({ "metadata": { "labels": {
            labels::BACKUP_NAME: labels::valid_value(&backup.name_any()), labels::BACKUP_UID: uid,
        } } });
        let content = self.api.patch_content(&bound, &labels).await;
        let content = content
            .map_err(|error| Self::failed(&format!("labelling its content {bound}"), &error))?;
        let content =
            content.ok_or_else(|| Self::refuse(format!("its content {bound} is gone")))?;
        let namespace = snapshot.namespace().unwrap_or_default();
        let name = snapshot.name_any();
        let annotations = annotations(&content);
        // The cluster must have them, because the final form is read from the cluster.
        let patch = json!({ "metadata": { "annotations": annotations } });
        let patched = self.api.patch(&namespace, &name, &patch).await;
        let patched =
            patched.map_err(|error| Self::failed("annotating the VolumeSnapshot", &error))?;
        let operation = operation_id(&patched);
        let own: SnapshotStatus = status(&patched);
        let info = CsiSnapshotInfo {
            operation_id: Some(operation.clone()),
            ready_to_use: own.ready_to_use,
            ..snapshot_info(&content)
        };
        self.volumes
            .describe(&namespace, &name, info, own.creation_time);
        let mut stored = serde_json::to_value(&patched).unwrap_or_else(|_| item.clone());
        entries(
            &mut stored,
            "annotations",
            [(labels::MUST_INCLUDE_ADDITIONAL_ITEMS, "true")],
        );
        let content = ItemId {
            group_resource: CONTENTS.to_owned(),
            namespace: None,
            name: bound,
        };
        let class = patched
            .data
            .pointer("/spec/volumeSnapshotClassName")
            .and_then(Value::as_str);
        let class = class.map(|name| ItemId::new(CLASSES, None, name));
        let own = ItemId {
            group_resource: SNAPSHOTS.to_owned(),
            namespace: Some(namespace),
            name,
        };
        Ok(BackupActionOutput {
            item: Some(stored),
            additional: class.into_iter().chain([content.clone()]).collect(),
            operation: Some(operation),
            after_operation: vec![own, content],
        })
    }

    async fn progress(
        &self,
        operation: &str,
        _: &Backup,
    ) -> Result<OperationProgress, ActionError> {
        let (namespace, name, started) = parse(operation)?;
        let mut progress = OperationProgress {
            started: Some(started),
            ..OperationProgress::default()
        };
        let found = self.api.snapshot(namespace, name).await;
        let found = found.map_err(|error| Self::failed("reading the VolumeSnapshot", &error))?;
        let Some(snapshot) = found else {
            return Ok(ended(
                progress,
                format!("VolumeSnapshot {namespace}/{name} is gone"),
            ));
        };
        let seen: SnapshotStatus = status(&snapshot);
        // The snapshot's controller retries after the snapshot's own error; only the content's
        // error counts.
        if let Some(error) = &seen.error {
            progress.description = error.to_string();
        }
        let Some(bound) = seen.bound_volume_snapshot_content_name else {
            return Ok(progress);
        };
        let found = self.api.content(&bound).await;
        let found =
            found.map_err(|error| Self::failed("reading the VolumeSnapshotContent", &error))?;
        let Some(content) = found else {
            return Ok(ended(
                progress,
                format!("VolumeSnapshotContent {bound} is gone"),
            ));
        };
        let content: ContentStatus = status(&content);
        if content.ready_to_use == Some(true) {
            // The snapshot follows its content.
            return Ok(if seen.ready_to_use == Some(true) {
                ended(progress, String::new())
            } else {
                progress
            });
        }
        Ok(match content.error {
            Some(error) => ended(progress, error.to_string()),
            None => progress,
        })
    }

    async fn cancel(&self, operation: &str, _: &Backup) -> Result<(), ActionError> {
        let (namespace, name, _) = parse(operation)?;
        let found = self.api.snapshot(namespace, name).await;
        let found = found.map_err(|error| Self::failed("reading the VolumeSnapshot", &error))?;
        let Some(snapshot) = found else { return Ok(()) };
        let destroyed = self.api.destroy(&snapshot).await;
        destroyed.map_err(|error| Self::failed("removing the VolumeSnapshot", &error))
    }
}

fn ended(progress: OperationProgress, error: String) -> OperationProgress {
    OperationProgress {
        completed: true,
        error,
        updated: Some(Timestamp::now()),
        ..progress
    }
}

/// The annotations that a restore needs to create a content by hand.
fn annotations(content: &DynamicObject) -> Map<String, Value> {
    let (made_of, seen): (ContentSpec, ContentStatus) = (spec(content), status(content));
    let mut annotations = Map::new();
    annotations.insert(
        csi::DELETION_POLICY.to_owned(),
        json!(made_of.deletion_policy),
    );
    if let Some(handle) = seen.snapshot_handle {
        annotations.insert(csi::SNAPSHOT_HANDLE.to_owned(), json!(handle));
        annotations.insert(csi::DRIVER_NAME.to_owned(), json!(made_of.driver));
    }
    if let Some(size) = seen.restore_size {
        annotations.insert(csi::RESTORE_SIZE.to_owned(), json!(quantity::binary(size)));
    }
    annotations
}

/// `<namespace>/<name>/<creation time>`: always the same for a snapshot.
fn operation_id(snapshot: &DynamicObject) -> String {
    let created = snapshot
        .creation_timestamp()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    format!(
        "{}/{}/{created}",
        snapshot.namespace().unwrap_or_default(),
        snapshot.name_any()
    )
}

fn parse(operation: &str) -> Result<(&str, &str, Timestamp), ActionError> {
    let mut parts = operation.splitn(3, '/');
    match (
        parts.next(),
        parts.next(),
        parts.next().and_then(|time| time.parse().ok()),
    ) {
        (Some(namespace), Some(name), Some(started))
            if !namespace.is_empty() && !name.is_empty() =>
        {
            Ok((namespace, name, started))
        }
        _ => Err(SnapshotAction::refuse(format!(
            "{operation:?} is none of its operations"
        ))),
    }
}

#[cfg(test)]
mod tests;
