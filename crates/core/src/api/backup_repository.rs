//! BackupRepository: the repository that holds the volume data of one namespace.
//!
//! Velero: `pkg/apis/velero/v1/backup_repository_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    duration::GoDuration,
    kind::{api_struct, column, string_enum, velero_kind},
    transfer::UploaderType,
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

api_struct! {
    /// Which repository, and how it is kept.
    BackupRepositorySpec {
        /// Namespace whose volumes it holds.
        volume_namespace: String,
        /// BackupStorageLocation that it lies in.
        backup_storage_location: String,
        /// Format of the repository.
        #[serde(default)]
        repository_type: UploaderType,
        /// The repository as restic names it.
        restic_identifier?: Option<String>,
        /// How often it is maintained.
        maintenance_frequency: GoDuration,
        /// Settings of the repository.
        repository_config?: BTreeMap<String, String>,
    }
}

string_enum! {
    /// Whether a repository can be used.
    BackupRepositoryPhase {
        New = "New",
        Ready = "Ready",
        NotReady = "NotReady",
    }
}

string_enum! {
    /// How a maintenance ended.
    MaintenanceResult {
        Succeeded = "Succeeded",
        Failed = "Failed",
    }
}

api_struct! {
    /// What is known of the repository.
    BackupRepositoryStatus {
        /// Whether the repository can be used; unset is New.
        phase?: Option<BackupRepositoryPhase>,
        /// Why it can not be used.
        message?: Option<String>,
        /// When it was last maintained.
        last_maintenance_time?: Option<Time>,
        /// The latest maintenances.
        recent_maintenance?: Vec<Maintenance>,
    }
}

api_struct! {
    /// One maintenance.
    Maintenance {
        /// How it ended.
        result?: Option<MaintenanceResult>,
        /// When it began.
        start_timestamp?: Option<Time>,
        /// When it ended.
        complete_timestamp?: Option<Time>,
        /// Why it failed.
        message?: Option<String>,
    }
}
