//! DeleteBackupRequest: a request to delete a backup, in the cluster and in the bucket.
//!
//! Velero: `pkg/apis/velero/v1/delete_backup_request_types.go`.

use super::kind::{api_struct, column, string_enum, velero_kind};

velero_kind! {
    /// A request to delete a backup and everything that belongs to it.
    DeleteBackupRequest, "v1", "deletebackuprequests",
    spec: DeleteBackupRequestSpec, status: DeleteBackupRequestStatus,
    short: ["dbr"],
    columns: [
        column("BackupName", "string", ".spec.backupName"),
        column("Status", "string", ".status.phase"),
    ]
}

api_struct! {
    /// Which backup to delete.
    DeleteBackupRequestSpec {
        /// Name of the backup.
        backup_name: String,
    }
}

string_enum! {
    /// Where a DeleteBackupRequest is in its life.
    DeleteBackupRequestPhase {
        New = "New",
        InProgress = "InProgress",
        /// Done, with or without errors.
        Processed = "Processed",
    }
}

api_struct! {
    /// What has been done.
    DeleteBackupRequestStatus {
        /// Where the request is in its life; unset is New.
        phase?: Option<DeleteBackupRequestPhase>,
        /// What went wrong.
        errors?: Vec<String>,
    }
}
