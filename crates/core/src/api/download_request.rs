//! DownloadRequest: a request for a signed URL of one file of a backup or restore.
//!
//! Velero: `pkg/apis/velero/v1/download_request_types.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::kind::{api_struct, column, string_enum, velero_kind};

velero_kind! {
    /// A request for the URL of a file in the object store.
    DownloadRequest, "v1", "downloadrequests",
    spec: DownloadRequestSpec, status: DownloadRequestStatus,
    short: ["dreq"],
    columns: [
        column("Target Kind", "string", ".spec.target.kind"),
        column("Target Name", "string", ".spec.target.name"),
        column("Status", "string", ".status.phase"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]
}

api_struct! {
    /// Which file is wanted.
    DownloadRequestSpec {
        /// The file.
        target: DownloadTarget,
    }
}

api_struct! {
    /// A file of a backup or restore.
    DownloadTarget {
        /// Which of its files.
        kind: DownloadTargetKind,
        /// Name of the backup or restore.
        name: String,
    }
}

string_enum! {
    /// Which file of a backup or restore.
    DownloadTargetKind {
        /// Log of a backup.
        BackupLog = "BackupLog",
        /// Tarball of a backup.
        BackupContents = "BackupContents",
        /// Native snapshots of a backup.
        BackupVolumeSnapshots = "BackupVolumeSnapshots",
        /// Asynchronous operations of a backup.
        BackupItemOperations = "BackupItemOperations",
        /// Names of the items in a backup.
        BackupResourceList = "BackupResourceList",
        /// Warnings and errors of a backup.
        BackupResults = "BackupResults",
        /// Log of a restore.
        RestoreLog = "RestoreLog",
        /// Warnings and errors of a restore.
        RestoreResults = "RestoreResults",
        /// Names of the items of a restore.
        RestoreResourceList = "RestoreResourceList",
        /// Asynchronous operations of a restore.
        RestoreItemOperations = "RestoreItemOperations",
        /// CSI snapshots of a backup (old backups only).
        CsiBackupVolumeSnapshots = "CSIBackupVolumeSnapshots",
        /// CSI snapshot contents of a backup (old backups only).
        CsiBackupVolumeSnapshotContents = "CSIBackupVolumeSnapshotContents",
        /// How each volume was backed up.
        BackupVolumeInfos = "BackupVolumeInfos",
        /// How each volume was restored.
        RestoreVolumeInfo = "RestoreVolumeInfo",
    }
}

impl Default for DownloadTargetKind {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

string_enum! {
    /// Where a DownloadRequest is in its life.
    DownloadRequestPhase {
        /// Not looked at yet.
        New = "New",
        /// The URL is there.
        Processed = "Processed",
        /// There is no such file; see the message (Velero after 1.18).
        Failed = "Failed",
    }
}

api_struct! {
    /// The URL, or why there is none.
    DownloadRequestStatus {
        /// Where the request is in its life; unset is New.
        phase?: Option<DownloadRequestPhase>,
        /// The signed URL. It opens the file to everyone who has it.
        #[serde(rename = "downloadURL")]
        download_url?: Option<String>,
        /// When the request is removed and the URL stops working.
        expiration?: Option<Time>,
        /// Why there is no URL (Velero after 1.18).
        message?: Option<String>,
    }
}
