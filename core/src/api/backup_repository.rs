//! BackupRepository: the repository that holds the volume data of one namespace.
//!
//! Velero: `pkg/apis/velero/v1/backup_repository_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, UploaderType, null_default},
    duration::GoDuration,
    kind::{column, string_enum, velero_kind},
};

velero_kind! {
    /// A repository of volume data.
    BackupRepository, "v1", "backuprepositories",
    spec: BackupRepositorySpec, status: BackupRepositoryStatus,
    short: ["repo"],
    columns: [
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Repository Type", "string", ".spec.repositoryType"),
    ]
}

/// Which repository, and how it is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupRepositorySpec {
    /// Namespace whose volumes it holds.
    pub volume_namespace: String,
    /// BackupStorageLocation that it lies in.
    pub backup_storage_location: String,
    /// Format of the repository.
    #[serde(default)]
    pub repository_type: UploaderType,
    /// The repository as restic names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restic_identifier: Option<String>,
    /// How often it is maintained.
    pub maintenance_frequency: GoDuration,
    /// Settings of the repository.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub repository_config: BTreeMap<String, String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Whether a repository can be used.
    BackupRepositoryPhase {
        /// Not looked at yet.
        New = "New",
        /// It can.
        Ready = "Ready",
        /// It can not; see the message.
        NotReady = "NotReady",
    }
}

string_enum! {
    /// How a maintenance ended.
    MaintenanceResult {
        /// Well.
        Succeeded = "Succeeded",
        /// Not well; see the message.
        Failed = "Failed",
    }
}

/// What is known of the repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupRepositoryStatus {
    /// Whether the repository can be used; unset is New.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<BackupRepositoryPhase>,
    /// Why it can not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was last maintained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_maintenance_time: Option<Time>,
    /// The latest maintenances.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub recent_maintenance: Vec<Maintenance>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// One maintenance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<MaintenanceResult>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_timestamp: Option<Time>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
