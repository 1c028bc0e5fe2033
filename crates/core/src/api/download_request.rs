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
        BackupLog = "BackupLog",
        BackupContents = "BackupContents",
        BackupVolumeSnapshots = "BackupVolumeSnapshots",
        BackupItemOperations = "BackupItemOperations",
        BackupResourceList = "BackupResourceList",
        BackupResults = "BackupResults",
        RestoreLog = "RestoreLog",
        RestoreResults = "RestoreResults",
        RestoreResourceList = "RestoreResourceList",
        RestoreItemOperations = "RestoreItemOperations",
        /// CSI snapshots of a backup (old backups only).
        CsiBackupVolumeSnapshots = "CSIBackupVolumeSnapshots",
        /// CSI snapshot contents of a backup (old backups only).
        CsiBackupVolumeSnapshotContents = "CSIBackupVolumeSnapshotContents",
        BackupVolumeInfos = "BackupVolumeInfos",
        RestoreVolumeInfo = "RestoreVolumeInfo",
    }
}

impl DownloadTargetKind {
    /// Whether it is a file of a restore, and not of a backup; `None` if this version does not know
    /// the kind.
    pub fn is_of_restore(&self) -> Option<bool> {
        match self {
            Self::Unknown(_) => None,
            known => Some(known.as_str().starts_with("Restore")),
        }
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
        New = "New",
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
