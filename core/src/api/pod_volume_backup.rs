//! PodVolumeBackup: the file-system backup of one volume of a pod.
//!
//! Velero: `pkg/apis/velero/v1/pod_volume_backup_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, MovePhase, MoveProgress, UploaderType, is_false, is_zero, null_default},
    kind::{column, velero_kind},
};

velero_kind! {
    /// The backup of a pod volume, file by file.
    PodVolumeBackup, "v1", "podvolumebackups",
    spec: PodVolumeBackupSpec, status: PodVolumeBackupStatus,
    short: ["pvb"],
    columns: [
        column("Status", "string", ".status.phase"),
        column("Started", "date", ".status.startTimestamp"),
        column("Bytes Done", "integer", ".status.progress.bytesDone"),
        column("Total Bytes", "integer", ".status.progress.totalBytes"),
        column("Incremental Bytes", "integer", ".status.incrementalBytes").wide(),
        column("Storage Location", "string", ".spec.backupStorageLocation"),
        column("Age", "date", ".metadata.creationTimestamp"),
        // Velero points it to a field that is not there.
        column("Node", "string", ".spec.node"),
        column("Uploader", "string", ".spec.uploaderType"),
    ]
}

/// Which volume, and where its data goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodVolumeBackupSpec {
    /// Node that the pod runs on.
    pub node: String,
    /// The pod.
    pub pod: ObjectReference,
    /// Name of the volume in the pod.
    pub volume: String,
    /// BackupStorageLocation that holds the repository.
    pub backup_storage_location: String,
    /// The repository, as the uploader names it.
    pub repo_identifier: String,
    /// Program that moves the data.
    #[serde(default)]
    pub uploader_type: UploaderType,
    /// Tags of the snapshot in the repository.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub tags: BTreeMap<String, String>,
    /// Settings of the uploader.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub uploader_settings: BTreeMap<String, String>,
    /// Whether the work is to be stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancel: bool,
    /// Snapshot that this one is compared with (Velero after 1.18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_snapshot: Option<String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// How far the transfer is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodVolumeBackupStatus {
    /// Where the work is; unset is New.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MovePhase>,
    /// Path of the volume on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Snapshot in the repository.
    #[serde(rename = "snapshotID", default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Why it failed, or what is to be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the transfer began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// When it ended, well or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_timestamp: Option<Time>,
    /// Bytes so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<MoveProgress>,
    /// Bytes that were new.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incremental_bytes: i64,
    /// When a node took the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_timestamp: Option<Time>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
