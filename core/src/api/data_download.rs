//! DataDownload: moves the data of a volume from the object store into a volume.
//!
//! Velero: `pkg/apis/velero/v2alpha1/data_download_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, MovePhase, MoveProgress, is_false, is_zero, null_default},
    data_upload::NodeOs,
    duration::GoDuration,
    kind::{column, velero_kind},
};

velero_kind! {
    /// A transfer of volume data from the object store.
    DataDownload, "v2alpha1", "datadownloads",
    spec: DataDownloadSpec, status: DataDownloadStatus,
    short: ["dd"],
    columns: [
        column("Status", "string", ".status.phase"),
        column("Started", "date", ".status.startTimestamp"),
        column("Bytes Done", "integer", ".status.progress.bytesDone"),
        column("Total Bytes", "integer", ".status.progress.totalBytes"),
        column("Storage Location", "string", ".spec.backupStorageLocation"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Node", "string", ".status.node"),
    ]
}

/// Which data, and which volume it goes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataDownloadSpec {
    /// Volume that the data goes to.
    pub target_volume: TargetVolumeSpec,
    /// BackupStorageLocation that holds the data.
    pub backup_storage_location: String,
    /// Data mover to use; unset: the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datamover: Option<String>,
    /// Snapshot in the repository.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: String,
    /// Namespace that the volume was backed up from.
    pub source_namespace: String,
    /// Settings of the data mover.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub data_mover_config: BTreeMap<String, String>,
    /// Whether the work is to be stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancel: bool,
    /// How long each inner step may take.
    pub operation_timeout: GoDuration,
    /// Operating system that the data needs.
    #[serde(rename = "nodeOS", default, skip_serializing_if = "Option::is_none")]
    pub node_os: Option<NodeOs>,
    /// Bytes of the snapshot.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snapshot_size: i64,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A volume to write into.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetVolumeSpec {
    /// Name of the claim.
    pub pvc: String,
    /// Name of the volume.
    pub pv: String,
    /// Namespace of the claim.
    pub namespace: String,
    /// File system of the volume (Velero after 1.18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// How far the transfer is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataDownloadStatus {
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
    /// Node that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Node that took the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_by_node: Option<String>,
    /// When a node took the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_timestamp: Option<Time>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
