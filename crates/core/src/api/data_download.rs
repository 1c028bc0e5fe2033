//! DataDownload: moves the data of a volume from the object store into a volume.
//!
//! Velero: `pkg/apis/velero/v2alpha1/data_download_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    common::{MovePhase, MoveProgress},
    data_upload::NodeOs,
    duration::GoDuration,
    kind::{api_struct, column, velero_kind},
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

api_struct! {
    /// Which data, and which volume it goes to.
    DataDownloadSpec {
        /// Volume that the data goes to.
        target_volume: TargetVolumeSpec,
        /// BackupStorageLocation that holds the data.
        backup_storage_location: String,
        /// Data mover to use; unset: the built-in one.
        datamover?: Option<String>,
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        snapshot_id: String,
        /// Namespace that the volume was backed up from.
        source_namespace: String,
        /// Settings of the data mover.
        data_mover_config?: BTreeMap<String, String>,
        /// Whether the work is to be stopped.
        cancel?: bool,
        /// How long each inner step may take.
        operation_timeout: GoDuration,
        /// Operating system that the data needs.
        #[serde(rename = "nodeOS")]
        node_os?: Option<NodeOs>,
        /// Bytes of the snapshot.
        snapshot_size?: i64,
    }
}

api_struct! {
    /// A volume to write into.
    TargetVolumeSpec {
        /// Name of the claim.
        pvc: String,
        /// Name of the volume.
        pv: String,
        /// Namespace of the claim.
        namespace: String,
        /// File system of the volume (Velero after 1.18).
        fs_type?: Option<String>,
    }
}

api_struct! {
    /// How far the transfer is.
    DataDownloadStatus {
        /// Where the work is; unset is New.
        phase?: Option<MovePhase>,
        /// Why it failed, or what is to be known.
        message?: Option<String>,
        /// When the transfer began.
        start_timestamp?: Option<Time>,
        /// When it ended, well or not.
        completion_timestamp?: Option<Time>,
        /// Bytes so far.
        progress?: Option<MoveProgress>,
        /// Node that does the work.
        node?: Option<String>,
        /// Node that took the work.
        accepted_by_node?: Option<String>,
        /// When a node took the work.
        accepted_timestamp?: Option<Time>,
    }
}
