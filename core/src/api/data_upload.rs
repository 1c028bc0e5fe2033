//! DataUpload: moves the data of a volume snapshot into the object store.
//!
//! Velero: `pkg/apis/velero/v2alpha1/data_upload_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, MovePhase, MoveProgress, is_false, is_zero, null_default},
    duration::GoDuration,
    kind::{column, string_enum, velero_kind},
};

velero_kind! {
    /// A transfer of snapshot data to the object store.
    DataUpload, "v2alpha1", "datauploads",
    spec: DataUploadSpec, status: DataUploadStatus,
    short: ["du"],
    columns: [
        column("Status", "string", ".status.phase"),
        column("Started", "date", ".status.startTimestamp"),
        column("Bytes Done", "integer", ".status.progress.bytesDone"),
        column("Total Bytes", "integer", ".status.progress.totalBytes"),
        column("Incremental Bytes", "integer", ".status.incrementalBytes").wide(),
        column("Storage Location", "string", ".spec.backupStorageLocation"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Node", "string", ".status.node"),
    ]
}

/// Which snapshot, and where its data goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataUploadSpec {
    /// Kind of the snapshot; `CSI` is the only one there is.
    pub snapshot_type: String,
    /// The snapshot, if it is a CSI one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csi_snapshot: Option<CsiSnapshotSpec>,
    /// Claim that the snapshot was taken of.
    #[serde(rename = "sourcePVC")]
    pub source_pvc: String,
    /// Data mover to use; unset: the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datamover: Option<String>,
    /// BackupStorageLocation that the data goes to.
    pub backup_storage_location: String,
    /// Namespace of the claim.
    pub source_namespace: String,
    /// Settings of the data mover.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub data_mover_config: BTreeMap<String, String>,
    /// Whether the work is to be stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancel: bool,
    /// How long each inner step may take.
    pub operation_timeout: GoDuration,
    /// File system of the volume (Velero after 1.18).
    #[serde(rename = "sourceFSType", default, skip_serializing_if = "Option::is_none")]
    pub source_fs_type: Option<String>,
    /// Snapshot that this one is compared with (Velero after 1.18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_snapshot: Option<String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A CSI snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsiSnapshotSpec {
    /// Name of the VolumeSnapshot.
    pub volume_snapshot: String,
    /// Storage class of the claim.
    pub storage_class: String,
    /// Class of the snapshot.
    #[serde(default)]
    pub snapshot_class: String,
    /// Driver that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Operating system of a node.
    NodeOs {
        /// Whichever fits.
        Auto = "auto",
        /// Linux.
        Linux = "linux",
        /// Windows.
        Windows = "windows",
    }
}

/// How far the transfer is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataUploadStatus {
    /// Where the work is; unset is New.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MovePhase>,
    /// Path of the volume on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Snapshot in the repository.
    #[serde(rename = "snapshotID", default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// What the data mover wants to have back on restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_mover_result: Option<BTreeMap<String, String>>,
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
    /// Node that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Operating system of that node.
    #[serde(rename = "nodeOS", default, skip_serializing_if = "Option::is_none")]
    pub node_os: Option<NodeOs>,
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
