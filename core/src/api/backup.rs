//! Backup: a request to store the resources of some or all namespaces, and its result.
//!
//! Velero: `pkg/apis/velero/v1/backup_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, HookErrorMode, HookStatus, LocalReference, TemplateMetadata, is_zero, null_default},
    duration::GoDuration,
    kind::{column, string_enum, velero_kind},
};

velero_kind! {
    /// A backup of Kubernetes resources.
    Backup, "v1", "backups", spec: BackupSpec, status: BackupStatus,
    short: ["bak"],
    columns: [
        column("Status", "string", ".status.phase"),
        column("Errors", "integer", ".status.errors"),
        column("Warnings", "integer", ".status.warnings"),
        column("Started", "date", ".status.startTimestamp"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]
}

impl Backup {
    /// The phase; an object that nobody has touched yet is New.
    pub fn phase(&self) -> BackupPhase {
        self.status.phase.clone().unwrap_or(BackupPhase::New)
    }

    /// The schedule that made it, as its label has it; none if a person did.
    pub fn schedule(&self) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(crate::labels::SCHEDULE_NAME).map(String::as_str)
    }

    /// Whether somebody has asked for it to be cancelled, by annotation.
    pub fn is_cancelled(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(crate::labels::CANCEL_ANNOTATION))
    }
}

/// What to back up, where to, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupSpec {
    /// Labels and annotations, used in the template of a Schedule only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Namespaces to include; globs allowed, empty or `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub included_namespaces: Vec<String>,
    /// Namespaces to leave out; globs allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub excluded_namespaces: Vec<String>,
    /// Resources to include, of any scope; empty or `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub included_resources: Vec<String>,
    /// Resources to leave out, of any scope.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub excluded_resources: Vec<String>,
    /// Cluster-scoped resources to include.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub included_cluster_scoped_resources: Vec<String>,
    /// Cluster-scoped resources to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub excluded_cluster_scoped_resources: Vec<String>,
    /// Namespaced resources to include.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub included_namespace_scoped_resources: Vec<String>,
    /// Namespaced resources to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub excluded_namespace_scoped_resources: Vec<String>,
    /// Labels that items must have. Exclusive with orLabelSelectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Items must match one of these. Exclusive with labelSelector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub or_label_selectors: Option<Vec<LabelSelector>>,
    /// Whether to snapshot volumes natively.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_volumes: Option<bool>,
    /// How long the backup is kept, from its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<GoDuration>,
    /// Label of claims whose volumes are snapshotted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_label_key: Option<String>,
    /// Whether to include cluster-scoped resources; unset: as fits the namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_cluster_resources: Option<bool>,
    /// Commands to run in pods around their backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<BackupHooks>,
    /// Name of the BackupStorageLocation; unset: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_location: Option<String>,
    /// Names of VolumeSnapshotLocations.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub volume_snapshot_locations: Vec<String>,
    /// Deprecated twin of defaultVolumesToFsBackup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_volumes_to_restic: Option<bool>,
    /// Whether pod volumes are backed up from the file system by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_volumes_to_fs_backup: Option<bool>,
    /// Order in which items of a resource are backed up: resource to comma-separated names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub ordered_resources: BTreeMap<String, String>,
    /// How long to wait for a CSI snapshot to be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csi_snapshot_timeout: Option<GoDuration>,
    /// Deadline of every asynchronous operation, from its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_operation_timeout: Option<GoDuration>,
    /// ConfigMap with resource policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_policy: Option<LocalReference>,
    /// Whether snapshot data is moved to the object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_move_data: Option<bool>,
    /// Data mover to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datamover: Option<String>,
    /// Settings of the uploader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uploader_config: Option<UploaderConfigForBackup>,
    /// Full or incremental (Velero after 1.18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_type: Option<BackupType>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Settings of the uploader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UploaderConfigForBackup {
    /// Files uploaded at a time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parallel_files_upload: i64,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Commands to run in pods around their backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupHooks {
    /// Hooks, each for some resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub resources: Vec<BackupResourceHookSpec>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Hooks and the items they apply to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupResourceHookSpec {
    /// Name of the hook.
    pub name: String,
    /// Namespaces the hook applies to; empty is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub included_namespaces: Vec<String>,
    /// Namespaces the hook does not apply to.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub excluded_namespaces: Vec<String>,
    /// Resources the hook applies to; empty is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub included_resources: Vec<String>,
    /// Resources the hook does not apply to.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub excluded_resources: Vec<String>,
    /// Labels of the items the hook applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Run before the item.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub pre: Vec<BackupResourceHook>,
    /// Run after the item and its additional items.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub post: Vec<BackupResourceHook>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// One hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupResourceHook {
    /// The command.
    pub exec: ExecHook,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A command in a container of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecHook {
    /// Container; unset: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Command and arguments.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// What a failure does; unset: Fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<HookErrorMode>,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Kind of a backup's volume data.
    BackupType {
        /// Everything.
        Full = "Full",
        /// What has changed.
        Incremental = "Incremental",
    }
}

string_enum! {
    /// Where a Backup is in its life.
    BackupPhase {
        /// Not looked at yet.
        New = "New",
        /// Waiting for its turn.
        Queued = "Queued",
        /// Its turn has come.
        ReadyToStart = "ReadyToStart",
        /// Refused; it never ran.
        FailedValidation = "FailedValidation",
        /// Collecting items.
        InProgress = "InProgress",
        /// Collected without errors; plugin operations still run.
        WaitingForPluginOperations = "WaitingForPluginOperations",
        /// Collected with errors; plugin operations still run.
        WaitingForPluginOperationsPartiallyFailed = "WaitingForPluginOperationsPartiallyFailed",
        /// Being stored, without errors so far.
        Finalizing = "Finalizing",
        /// Being stored, with errors.
        FinalizingPartiallyFailed = "FinalizingPartiallyFailed",
        /// Stored, without errors.
        Completed = "Completed",
        /// Stored, but some items are missing.
        PartiallyFailed = "PartiallyFailed",
        /// Not usable.
        Failed = "Failed",
        /// Its deletion has begun.
        Deleting = "Deleting",
    }
}

/// What has been seen and done for a Backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// Always 1; deprecated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: i64,
    /// Version of the tarball layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format_version: Option<String>,
    /// When the backup may be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration: Option<Time>,
    /// Where the backup is in its life; unset is New.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<BackupPhase>,
    /// Place in the queue, from 1, while Queued.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub queue_position: i64,
    /// Why the backup was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub validation_errors: Vec<String>,
    /// When collection began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// When everything was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_timestamp: Option<Time>,
    /// Native snapshots that were started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub volume_snapshots_attempted: i64,
    /// Native snapshots that succeeded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub volume_snapshots_completed: i64,
    /// Why the backup failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Number of warnings in the results.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warnings: i64,
    /// Number of errors in the results.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub errors: i64,
    /// Items so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<BackupProgress>,
    /// CSI snapshots that were started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub csi_volume_snapshots_attempted: i64,
    /// CSI snapshots that succeeded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub csi_volume_snapshots_completed: i64,
    /// Asynchronous operations that were started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub backup_item_operations_attempted: i64,
    /// Asynchronous operations that succeeded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub backup_item_operations_completed: i64,
    /// Asynchronous operations that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub backup_item_operations_failed: i64,
    /// Hooks that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_status: Option<HookStatus>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Items so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupProgress {
    /// Items to back up; grows while collecting.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total_items: i64,
    /// Items written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_backed_up: i64,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
