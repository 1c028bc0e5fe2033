//! DeleteBackupRequest: a request to delete a backup, in the cluster and in the bucket.
//!
//! Velero: `pkg/apis/velero/v1/delete_backup_request_types.go`.

use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, null_default},
    kind::{column, string_enum, velero_kind},
};

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

/// Which backup to delete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteBackupRequestSpec {
    /// Name of the backup.
    pub backup_name: String,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Where a DeleteBackupRequest is in its life.
    DeleteBackupRequestPhase {
        /// Not looked at yet.
        New = "New",
        /// Being worked on.
        InProgress = "InProgress",
        /// Done, with or without errors.
        Processed = "Processed",
    }
}

/// What has been done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteBackupRequestStatus {
    /// Where the request is in its life; unset is New.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<DeleteBackupRequestPhase>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub errors: Vec<String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
