//! DataUpload: moves the data of a volume snapshot into the object store.
//!
//! Velero: `pkg/apis/velero/v2alpha1/data_upload_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    common::{MovePhase, MoveProgress},
    duration::GoDuration,
    kind::{api_struct, column, string_enum, velero_kind},
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

api_struct! {
    /// Which snapshot, and where its data goes.
    DataUploadSpec {
        /// Kind of the snapshot; `CSI` is the only one there is.
        snapshot_type: String,
        /// The snapshot, if it is a CSI one.
        csi_snapshot?: Option<CsiSnapshotSpec>,
        /// Claim that the snapshot was taken of.
        #[serde(rename = "sourcePVC")]
        source_pvc: String,
        /// Data mover to use; unset: the built-in one.
        datamover?: Option<String>,
        /// BackupStorageLocation that the data goes to.
        backup_storage_location: String,
        /// Namespace of the claim.
        source_namespace: String,
        /// Settings of the data mover.
        data_mover_config?: BTreeMap<String, String>,
        /// Whether the work is to be stopped.
        cancel?: bool,
        /// How long each inner step may take.
        operation_timeout: GoDuration,
        /// File system of the volume (Velero after 1.18).
        #[serde(rename = "sourceFSType")]
        source_fs_type?: Option<String>,
        /// Snapshot that this one is compared with (Velero after 1.18).
        parent_snapshot?: Option<String>,
    }
}

api_struct! {
    /// A CSI snapshot.
    CsiSnapshotSpec {
        /// Name of the VolumeSnapshot.
        volume_snapshot: String,
        /// Storage class of the claim.
        storage_class: String,
        /// Class of the snapshot.
        #[serde(default)]
        snapshot_class: String,
        /// Driver that made it.
        driver?: Option<String>,
    }
}

string_enum! {
    /// Operating system of a node.
    NodeOs {
        Auto = "auto",
        Linux = "linux",
        Windows = "windows",
    }
}

api_struct! {
    /// How far the transfer is.
    DataUploadStatus {
        /// Where the work is; unset is New.
        phase?: Option<MovePhase>,
        /// Path of the volume on the node.
        path?: Option<String>,
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        snapshot_id?: Option<String>,
        /// What the data mover wants to have back on restore.
        data_mover_result?: Option<BTreeMap<String, String>>,
        /// Why it failed, or what is to be known.
        message?: Option<String>,
        /// When the transfer began.
        start_timestamp?: Option<Time>,
        /// When it ended, well or not.
        completion_timestamp?: Option<Time>,
        /// Bytes so far.
        progress?: Option<MoveProgress>,
        /// Bytes that were new.
        incremental_bytes?: i64,
        /// Node that does the work.
        node?: Option<String>,
        /// Operating system of that node.
        #[serde(rename = "nodeOS")]
        node_os?: Option<NodeOs>,
        /// Node that took the work.
        accepted_by_node?: Option<String>,
        /// When a node took the work.
        accepted_timestamp?: Option<Time>,
    }
}
