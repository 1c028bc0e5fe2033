//! Transfers of volume data: DataUpload and DataDownload move that of a snapshot, PodVolumeBackup
//! and PodVolumeRestore the files of one volume of a pod.
//!
//! Velero: `pkg/apis/velero/v2alpha1/data_{upload,download}_types.go`,
//! `pkg/apis/velero/v1/pod_volume_{backup_types,restore_type}.go`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    duration::GoDuration,
    kind::{api_part, api_struct, column, string_enum, velero_kind, wide},
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
        wide("Incremental Bytes", "integer", ".status.incrementalBytes"),
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
        /// BackupStorageLocation that the data goes to.
        backup_storage_location: String,
        /// Namespace of the claim.
        source_namespace: String,
        #[serde(flatten)]
        mover: DataMover,
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

api_struct! {
    /// How far the transfer is.
    DataUploadStatus {
        #[serde(flatten)]
        transfer: TransferStatus,
        #[serde(flatten)]
        stored: StoredSnapshot,
        #[serde(flatten)]
        node: NodeStatus,
        /// What the data mover wants to have back on restore.
        data_mover_result?: Option<BTreeMap<String, String>>,
        /// Operating system of that node.
        #[serde(rename = "nodeOS")]
        node_os?: Option<NodeOs>,
    }
}

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
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        snapshot_id: String,
        /// Namespace that the volume was backed up from.
        source_namespace: String,
        #[serde(flatten)]
        mover: DataMover,
        /// Operating system that the data needs.
        #[serde(rename = "nodeOS")]
        node_os?: Option<NodeOs>,
        /// Bytes of the snapshot.
        snapshot_size?: i64,
        /// Whether a volume that exists is overwritten in full, or where it differs (Velero after
        /// 1.18).
        restore_type?: Option<String>,
        /// Snapshot of the volume that exists, which the data is compared with (Velero after 1.18).
        csi_snapshot?: Option<CsiSnapshotSpec>,
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
        #[serde(flatten)]
        transfer: TransferStatus,
        #[serde(flatten)]
        node: NodeStatus,
    }
}

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
        wide("Incremental Bytes", "integer", ".status.incrementalBytes"),
        column("Storage Location", "string", ".spec.backupStorageLocation"),
        column("Age", "date", ".metadata.creationTimestamp"),
        // Velero points it to a field that is not there.
        column("Node", "string", ".spec.node"),
        column("Uploader", "string", ".spec.uploaderType"),
    ]
}

api_struct! {
    /// Which volume, and where its data goes.
    PodVolumeBackupSpec {
        #[serde(flatten)]
        volume: PodVolume,
        /// Node that the pod runs on.
        node: String,
        /// Tags of the snapshot in the repository.
        tags?: BTreeMap<String, String>,
        /// Snapshot that this one is compared with (Velero after 1.18).
        parent_snapshot?: Option<String>,
    }
}

api_struct! {
    /// How far the transfer is.
    PodVolumeBackupStatus {
        #[serde(flatten)]
        transfer: TransferStatus,
        #[serde(flatten)]
        stored: StoredSnapshot,
    }
}

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

api_struct! {
    /// Which volume, and where its data comes from.
    PodVolumeRestoreSpec {
        #[serde(flatten)]
        volume: PodVolume,
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        snapshot_id: String,
        /// Namespace that the volume was backed up from.
        source_namespace: String,
        /// Bytes of the snapshot.
        snapshot_size?: i64,
        /// Whether a volume that exists is overwritten in full, or where it differs (Velero after
        /// 1.18).
        restore_type?: Option<String>,
    }
}

api_struct! {
    /// How far the transfer is.
    PodVolumeRestoreStatus {
        #[serde(flatten)]
        transfer: TransferStatus,
        /// Node that does the work.
        node?: Option<String>,
    }
}

api_part! {
    /// Who moves the data of a snapshot, and how.
    DataMover {
        /// Data mover to use; unset: the built-in one.
        datamover?: Option<String>,
        /// Settings of the data mover.
        data_mover_config?: BTreeMap<String, String>,
        /// Whether the work is to be stopped.
        cancel?: bool,
        /// How long each inner step may take.
        operation_timeout: GoDuration,
    }
}

api_part! {
    /// A volume of a pod, and the repository of its files.
    PodVolume {
        /// The pod.
        pod: ObjectReference,
        /// Name of the volume in the pod.
        volume: String,
        /// BackupStorageLocation that holds the repository.
        backup_storage_location: String,
        /// The repository, as the uploader names it.
        repo_identifier: String,
        /// Program that moves the data.
        #[serde(default)]
        uploader_type: UploaderType,
        /// Settings of the uploader.
        uploader_settings?: BTreeMap<String, String>,
        /// Whether the work is to be stopped.
        cancel?: bool,
    }
}

api_part! {
    /// How far any transfer is.
    TransferStatus {
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
        /// When a node took the work.
        accepted_timestamp?: Option<Time>,
    }
}

api_part! {
    /// What a transfer has stored.
    StoredSnapshot {
        /// Path of the volume on the node.
        path?: Option<String>,
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        snapshot_id?: Option<String>,
        /// Bytes that were new.
        incremental_bytes?: i64,
    }
}

api_part! {
    /// Which nodes a transfer was given to.
    NodeStatus {
        /// Node that does the work.
        node?: Option<String>,
        /// Node that took the work.
        accepted_by_node?: Option<String>,
    }
}

string_enum! {
    /// Where a transfer is in its life.
    MovePhase {
        New = "New",
        Accepted = "Accepted",
        /// The volume is ready to be read or written.
        Prepared = "Prepared",
        InProgress = "InProgress",
        Canceling = "Canceling",
        Canceled = "Canceled",
        Completed = "Completed",
        Failed = "Failed",
    }
}

impl MovePhase {
    /// Whether the transfer has ended, well or not.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled)
    }
}

api_struct! {
    /// Bytes of a transfer.
    MoveProgress {
        /// Bytes to move; grows while they are counted.
        total_bytes?: i64,
        /// Bytes moved.
        bytes_done?: i64,
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

string_enum! {
    #[derive(Default)]
    /// Program and repository format of volume data.
    UploaderType {
        Kopia = "kopia",
        Restic = "restic",
        #[default]
        Unset = "",
    }
}
