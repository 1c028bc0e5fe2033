//! Restore: a request to bring resources of a backup back, and its result.
//!
//! Velero: `pkg/apis/velero/v1/restore_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, HookErrorMode, HookStatus, LocalReference, is_zero, null_default},
    duration::GoDuration,
    kind::{column, string_enum, velero_kind},
};

velero_kind! {
    /// A restore of Kubernetes resources from a backup.
    Restore, "v1", "restores", spec: RestoreSpec, status: RestoreStatus,
    short: ["rst"],
    columns: [
        column("Backup", "string", ".spec.backupName"),
        column("Status", "string", ".status.phase"),
        column("Errors", "integer", ".status.errors"),
        column("Warnings", "integer", ".status.warnings"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]
}

impl Restore {
    /// The phase; an object that nobody has touched yet is New.
    pub fn phase(&self) -> RestorePhase {
        self.status.phase.clone().unwrap_or(RestorePhase::New)
    }

    /// Whether somebody has asked by annotation for an early end.
    pub fn is_cancelled(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(crate::labels::CANCEL_ANNOTATION))
    }
}

/// What to restore, from where, and to where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSpec {
    /// Backup to restore from. Exclusive with scheduleName.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_name: Option<String>,
    /// Schedule whose newest Completed backup is restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_name: Option<String>,
    /// Namespaces of the backup to restore; globs allowed, empty or `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub included_namespaces: Vec<String>,
    /// Namespaces of the backup to leave out; globs allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub excluded_namespaces: Vec<String>,
    /// Resources to restore; empty or `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub included_resources: Vec<String>,
    /// Resources to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub excluded_resources: Vec<String>,
    /// Namespace of the backup to the namespace to restore it into.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub namespace_mapping: BTreeMap<String, String>,
    /// Labels that items must have. Exclusive with orLabelSelectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Items must match one of these. Exclusive with labelSelector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub or_label_selectors: Option<Vec<LabelSelector>>,
    /// Whether volumes are restored from snapshots; unset is true.
    #[serde(rename = "restorePVs", default, skip_serializing_if = "Option::is_none")]
    pub restore_pvs: Option<bool>,
    /// Resources whose status is restored; unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_status: Option<RestoreStatusSpec>,
    /// Whether services keep their node ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_node_ports: Option<bool>,
    /// Whether cluster-scoped resources are restored; unset: as fits the namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_cluster_resources: Option<bool>,
    /// Commands to run in restored pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<RestoreHooks>,
    /// What to do with objects that exist and differ: `none` or `update`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing_resource_policy: Option<String>,
    /// Deadline of every asynchronous operation, from its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_operation_timeout: Option<GoDuration>,
    /// ConfigMap with modifications of restored items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_modifier: Option<LocalReference>,
    /// ConfigMap with filter policies (Velero after 1.18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_policy: Option<LocalReference>,
    /// Whether the server-wide modifier is left out (Velero after 1.18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_default_resource_modifier: Option<bool>,
    /// Settings of the uploader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uploader_config: Option<UploaderConfigForRestore>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Settings of the uploader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UploaderConfigForRestore {
    /// Whether files are written sparsely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_sparse_files: Option<bool>,
    /// Files downloaded at a time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parallel_files_download: i64,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Resources whose status is restored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreStatusSpec {
    /// Resources to restore the status of.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub included_resources: Vec<String>,
    /// Resources not to restore the status of.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub excluded_resources: Vec<String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Commands to run in restored pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreHooks {
    /// Hooks, each for some resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub resources: Vec<RestoreResourceHookSpec>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Hooks and the items they apply to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreResourceHookSpec {
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
    /// Run once the item is restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub post_hooks: Vec<RestoreResourceHook>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// One hook: a command or init containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreResourceHook {
    /// A command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecRestoreHook>,
    /// Init containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitRestoreHook>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A command in a container of the restored pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecRestoreHook {
    /// Container; unset: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Command and arguments.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// What a failure does; unset: Continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<HookErrorMode>,
    /// How long the command may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_timeout: Option<GoDuration>,
    /// How long to wait for the container to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_timeout: Option<GoDuration>,
    /// Whether to wait for readiness, not only for running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for_ready: Option<bool>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Init containers added to the restored pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitRestoreHook {
    /// The containers, as in a pod.
    #[serde(default, deserialize_with = "null_default")]
    #[schemars(schema_with = "super::crd::any_objects")]
    pub init_containers: Vec<serde_json::Value>,
    /// How long they may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Where a Restore is in its life.
    RestorePhase {
        /// Not looked at yet.
        New = "New",
        /// Refused; it never ran.
        FailedValidation = "FailedValidation",
        /// Restoring items.
        InProgress = "InProgress",
        /// Restored without errors; plugin operations still run.
        WaitingForPluginOperations = "WaitingForPluginOperations",
        /// Restored with errors; plugin operations still run.
        WaitingForPluginOperationsPartiallyFailed = "WaitingForPluginOperationsPartiallyFailed",
        /// Done without errors.
        Completed = "Completed",
        /// Done, but some items are missing.
        PartiallyFailed = "PartiallyFailed",
        /// Ended by a fatal error.
        Failed = "Failed",
        /// Results are being stored, without errors so far.
        Finalizing = "Finalizing",
        /// Results are being stored, with errors.
        FinalizingPartiallyFailed = "FinalizingPartiallyFailed",
    }
}

/// What has been seen and done for a Restore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreStatus {
    /// Where the restore is in its life; unset is New.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RestorePhase>,
    /// Why the restore was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub validation_errors: Vec<String>,
    /// Number of warnings in the results.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warnings: i64,
    /// Number of errors in the results.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub errors: i64,
    /// Why the restore failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// When work began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// When everything was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_timestamp: Option<Time>,
    /// Items so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RestoreProgress>,
    /// Asynchronous operations that were started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restore_item_operations_attempted: i64,
    /// Asynchronous operations that succeeded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restore_item_operations_completed: i64,
    /// Asynchronous operations that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restore_item_operations_failed: i64,
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
pub struct RestoreProgress {
    /// Items to restore.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total_items: i64,
    /// Items done.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_restored: i64,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
