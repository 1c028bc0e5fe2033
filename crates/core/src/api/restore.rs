//! Restore: a request to bring resources of a backup back, and its result.
//!
//! Velero: `pkg/apis/velero/v1/restore_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};

use super::{
    common::{HookErrorMode, HookStatus, LocalReference},
    drill::DrillSpec,
    duration::GoDuration,
    go_json::null_default,
    kind::{api_struct, column, string_enum, velero_kind},
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
    /// The phase; New if the status has none.
    pub fn phase(&self) -> RestorePhase {
        self.status.phase.clone().unwrap_or(RestorePhase::New)
    }

    /// Whether somebody has asked by annotation for an early end.
    pub fn is_cancelled(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(crate::labels::CANCEL_ANNOTATION))
    }
}

api_struct! {
    /// What to restore, from where, and to where.
    RestoreSpec {
        /// Backup to restore from. Exclusive with scheduleName.
        backup_name?: Option<String>,
        /// Schedule whose newest Completed backup is restored.
        schedule_name?: Option<String>,
        /// Namespaces of the backup to restore; globs allowed, empty or `*` is all.
        included_namespaces?: Vec<String>,
        /// Namespaces of the backup to leave out; globs allowed.
        excluded_namespaces?: Vec<String>,
        /// Resources to restore; empty or `*` is all.
        included_resources?: Vec<String>,
        /// Resources to leave out.
        excluded_resources?: Vec<String>,
        /// The only objects to restore, each as NAMESPACE/TYPE/NAME, or TYPE/NAME where there is no
        /// namespace; empty is all. Velero does not have this field.
        included_objects?: Vec<String>,
        /// Namespace of the backup to the namespace to restore it into.
        namespace_mapping?: BTreeMap<String, String>,
        /// Labels that items must have. Exclusive with orLabelSelectors.
        label_selector?: Option<LabelSelector>,
        /// Items must match one of these. Exclusive with labelSelector.
        or_label_selectors?: Option<Vec<LabelSelector>>,
        /// Whether volumes are restored from snapshots; unset is true.
        #[serde(rename = "restorePVs")]
        restore_pvs?: Option<bool>,
        /// Resources whose status is restored; unset: none.
        restore_status?: Option<RestoreStatusSpec>,
        /// Whether services keep their node ports.
        preserve_node_ports?: Option<bool>,
        /// Whether cluster-scoped resources are restored; unset: as fits the namespaces.
        include_cluster_resources?: Option<bool>,
        /// Commands to run in restored pods.
        hooks?: Option<RestoreHooks>,
        /// What to do with objects that exist and differ: `none` or `update`.
        existing_resource_policy?: Option<String>,
        /// Whether objects in the restored namespaces that the backup does not have are removed,
        /// after everything is restored. Velero does not have this field.
        prune?: Option<bool>,
        /// What to do with the data of volumes whose claims exist: `none` leaves it, `full`
        /// overwrites it, and `incremental` overwrites what differs (Velero after 1.18).
        existing_volume_data_policy?: Option<String>,
        /// Deadline of every asynchronous operation, from its creation.
        item_operation_timeout?: Option<GoDuration>,
        /// ConfigMap with modifications of restored items.
        resource_modifier?: Option<LocalReference>,
        /// ConfigMap with filter policies (Velero after 1.18).
        resource_policy?: Option<LocalReference>,
        /// Whether the modifier that the server has for all restores is left out (Velero after
        /// 1.18).
        skip_default_resource_modifier?: Option<bool>,
        /// Settings of the uploader.
        uploader_config?: Option<UploaderConfigForRestore>,
        /// Makes it a drill: what it restores has no effects outside of its scratch namespaces, is
        /// checked, and is removed again. Velero does not have this field.
        drill?: Option<DrillSpec>,
    }
}

api_struct! {
    /// Settings of the uploader.
    UploaderConfigForRestore {
        /// Whether files are written sparsely.
        write_sparse_files?: Option<bool>,
        /// Files downloaded at a time.
        parallel_files_download?: i64,
        /// Whether files that the backup does not have are deleted (Velero after 1.18).
        delete_extra_files?: Option<bool>,
    }
}

api_struct! {
    /// Resources whose status is restored.
    RestoreStatusSpec {
        /// Resources to restore the status of.
        included_resources?: Vec<String>,
        /// Resources not to restore the status of.
        excluded_resources?: Vec<String>,
    }
}

api_struct! {
    /// Commands to run in restored pods.
    RestoreHooks {
        /// Hooks, each for some resources.
        resources?: Vec<RestoreResourceHookSpec>,
    }
}

api_struct! {
    /// Hooks and the items they apply to.
    RestoreResourceHookSpec {
        /// Name of the hook.
        name: String,
        /// Namespaces the hook applies to; empty is all.
        included_namespaces?: Vec<String>,
        /// Namespaces the hook does not apply to.
        excluded_namespaces?: Vec<String>,
        /// Resources the hook applies to; empty is all.
        included_resources?: Vec<String>,
        /// Resources the hook does not apply to.
        excluded_resources?: Vec<String>,
        /// Labels of the items the hook applies to.
        label_selector?: Option<LabelSelector>,
        /// Run once the item is restored.
        post_hooks?: Vec<RestoreResourceHook>,
    }
}

api_struct! {
    /// One hook: a command or init containers.
    RestoreResourceHook {
        /// A command.
        exec?: Option<ExecRestoreHook>,
        /// Init containers.
        init?: Option<InitRestoreHook>,
    }
}

api_struct! {
    /// A command in a container of the restored pod.
    ExecRestoreHook {
        /// Container; unset: the first.
        container?: Option<String>,
        /// Command and arguments.
        #[schemars(length(min = 1))]
        command: Vec<String>,
        /// What a failure does; unset: Continue.
        on_error?: Option<HookErrorMode>,
        /// How long the command may take.
        exec_timeout?: Option<GoDuration>,
        /// How long to wait for the container to run.
        wait_timeout?: Option<GoDuration>,
        /// Whether to wait for readiness, not only for running.
        wait_for_ready?: Option<bool>,
    }
}

api_struct! {
    /// Init containers added to the restored pod.
    InitRestoreHook {
        /// The containers, as in a pod.
        #[serde(default, deserialize_with = "null_default")]
        #[schemars(schema_with = "super::crd::any_objects")]
        init_containers: Vec<serde_json::Value>,
        /// Limits nothing, as with Velero.
        timeout?: Option<GoDuration>,
    }
}

string_enum! {
    /// Where a Restore is in its life.
    RestorePhase {
        New = "New",
        /// Refused; it never ran.
        FailedValidation = "FailedValidation",
        InProgress = "InProgress",
        /// Restored without errors; plugin operations still run.
        WaitingForPluginOperations = "WaitingForPluginOperations",
        /// Restored with errors; plugin operations still run.
        WaitingForPluginOperationsPartiallyFailed = "WaitingForPluginOperationsPartiallyFailed",
        Completed = "Completed",
        /// Done, but some items are missing.
        PartiallyFailed = "PartiallyFailed",
        Failed = "Failed",
        Finalizing = "Finalizing",
        FinalizingPartiallyFailed = "FinalizingPartiallyFailed",
    }
}

api_struct! {
    /// What has been seen and done for a Restore.
    RestoreStatus {
        /// Where the restore is in its life; unset is New.
        phase?: Option<RestorePhase>,
        /// Why the restore was refused.
        validation_errors?: Vec<String>,
        /// Number of warnings in the results.
        warnings?: i64,
        /// Number of errors in the results.
        errors?: i64,
        /// Why the restore failed.
        failure_reason?: Option<String>,
        /// When work began.
        start_timestamp?: Option<Time>,
        /// When everything was done.
        completion_timestamp?: Option<Time>,
        /// Items so far.
        progress?: Option<RestoreProgress>,
        /// Asynchronous operations that were started.
        restore_item_operations_attempted?: i64,
        /// Asynchronous operations that succeeded.
        restore_item_operations_completed?: i64,
        /// Asynchronous operations that failed.
        restore_item_operations_failed?: i64,
        /// Hooks that ran.
        hook_status?: Option<HookStatus>,
    }
}

api_struct! {
    /// Items so far.
    RestoreProgress {
        /// Items to restore.
        total_items?: i64,
        /// Items done.
        items_restored?: i64,
    }
}
