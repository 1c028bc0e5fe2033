//! PodVolumeRestore: the file-system restore of one volume of a pod.
//!
//! Velero: `pkg/apis/velero/v1/pod_volume_restore_type.go`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, MovePhase, MoveProgress, UploaderType, is_false, is_zero, null_default},
    kind::{column, velero_kind},
};

velero_kind! {
    /// The restore of a pod volume, file by file.
    PodVolumeRestore, "v1", "podvolumerestores",
    spec: PodVolumeRestoreSpec, status: PodVolumeRestoreStatus,
    short: ["pvr"],
    columns: [
        column("Status", "string", ".status.phase"),
        column("Started", "date", ".status.startTimestamp"),
        column("Bytes Done", "integer", ".status.progress.bytesDone"),
        column("Total Bytes", "integer", ".status.progress.totalBytes"),
        column("Storage Location", "string", ".spec.backupStorageLocation"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Node", "string", ".status.node"),
        column("Uploader Type", "string", ".spec.uploaderType"),
    ]
}

/// Which volume, and where its data comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodVolumeRestoreSpec {
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
    /// Snapshot in the repository.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: String,
    /// Namespace that the volume was backed up from.
    pub source_namespace: String,
    /// Settings of the uploader.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub uploader_settings: BTreeMap<String, String>,
    /// Whether the work is to be stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancel: bool,
    /// Bytes of the snapshot.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snapshot_size: i64,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// How far the transfer is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodVolumeRestoreStatus {
    /// Where the work is; unset is New.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MovePhase>,
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
    /// When a node took the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_timestamp: Option<Time>,
    /// Node that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
