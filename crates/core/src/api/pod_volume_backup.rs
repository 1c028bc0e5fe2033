//! PodVolumeBackup: the file-system backup of one volume of a pod.
//!
//! Velero: `pkg/apis/velero/v1/pod_volume_backup_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    common::{MovePhase, MoveProgress, UploaderType},
    kind::{api_struct, column, velero_kind},
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

api_struct! {
    /// Which volume, and where its data goes.
    PodVolumeBackupSpec {
        /// Node that the pod runs on.
        node: String,
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
        /// Tags of the snapshot in the repository.
        tags?: BTreeMap<String, String>,
        /// Settings of the uploader.
        uploader_settings?: BTreeMap<String, String>,
        /// Whether the work is to be stopped.
        cancel?: bool,
        /// Snapshot that this one is compared with (Velero after 1.18).
        parent_snapshot?: Option<String>,
    }
}

api_struct! {
    /// How far the transfer is.
    PodVolumeBackupStatus {
        /// Where the work is; unset is New.
        phase?: Option<MovePhase>,
        /// Path of the volume on the node.
        path?: Option<String>,
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        snapshot_id?: Option<String>,
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
        /// When a node took the work.
        accepted_timestamp?: Option<Time>,
    }
}
