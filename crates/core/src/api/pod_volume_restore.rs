//! PodVolumeRestore: the file-system restore of one volume of a pod.
//!
//! Velero: `pkg/apis/velero/v1/pod_volume_restore_type.go`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    common::{MovePhase, MoveProgress, UploaderType},
    kind::{api_struct, column, velero_kind},
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

api_struct! {
    /// Which volume, and where its data comes from.
    PodVolumeRestoreSpec {
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
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        snapshot_id: String,
        /// Namespace that the volume was backed up from.
        source_namespace: String,
        /// Settings of the uploader.
        uploader_settings?: BTreeMap<String, String>,
        /// Whether the work is to be stopped.
        cancel?: bool,
        /// Bytes of the snapshot.
        snapshot_size?: i64,
    }
}

api_struct! {
    /// How far the transfer is.
    PodVolumeRestoreStatus {
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
        /// Node that does the work.
        node?: Option<String>,
    }
}
