//! Backup: a request to store the resources of some or all namespaces, and its result.
//!
//! Velero: `pkg/apis/velero/v1/backup_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};

use super::{
    common::{HookErrorMode, HookStatus, LocalReference, TemplateMetadata},
    duration::GoDuration,
    kind::{api_struct, column, string_enum, velero_kind},
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

impl BackupSpec {
    /// Whether a label selector chooses among the items.
    pub fn selects_by_labels(&self) -> bool {
        self.label_selector.is_some()
            || self
                .or_label_selectors
                .as_ref()
                .is_some_and(|all| !all.is_empty())
    }
}

impl Backup {
    /// The phase; New if the status has none.
    pub fn phase(&self) -> BackupPhase {
        self.status.phase.clone().unwrap_or(BackupPhase::New)
    }

    /// The schedule that created it, by its label; `None` if a user did.
    pub fn schedule(&self) -> Option<&str> {
        self.metadata
            .labels
            .as_ref()?
            .get(crate::labels::SCHEDULE_NAME)
            .map(String::as_str)
    }

    /// Whether somebody has asked for it to be cancelled, by annotation.
    pub fn is_cancelled(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(crate::labels::CANCEL_ANNOTATION))
    }
}

api_struct! {
    /// What to back up, where to, and for how long.
    BackupSpec {
        /// Labels and annotations, used in the template of a Schedule only.
        metadata?: Option<TemplateMetadata>,
        /// Namespaces to include; globs allowed, empty or `*` is all.
        included_namespaces?: Vec<String>,
        /// Namespaces to leave out; globs allowed.
        excluded_namespaces?: Vec<String>,
        /// Resources to include, of any scope; empty or `*` is all.
        included_resources?: Vec<String>,
        /// Resources to leave out, of any scope.
        excluded_resources?: Vec<String>,
        /// Cluster-scoped resources to include.
        included_cluster_scoped_resources?: Vec<String>,
        /// Cluster-scoped resources to leave out.
        excluded_cluster_scoped_resources?: Vec<String>,
        /// Namespaced resources to include.
        included_namespace_scoped_resources?: Vec<String>,
        /// Namespaced resources to leave out.
        excluded_namespace_scoped_resources?: Vec<String>,
        /// Labels that items must have. Exclusive with orLabelSelectors.
        label_selector?: Option<LabelSelector>,
        /// Items must match one of these. Exclusive with labelSelector.
        or_label_selectors?: Option<Vec<LabelSelector>>,
        /// Whether to snapshot volumes natively.
        snapshot_volumes?: Option<bool>,
        /// How long the backup is kept, from its start.
        ttl?: Option<GoDuration>,
        /// Label of claims whose volumes are snapshotted together.
        volume_group_snapshot_label_key?: Option<String>,
        /// Whether to include cluster-scoped resources; unset: as fits the namespaces.
        include_cluster_resources?: Option<bool>,
        /// Commands to run in pods around their backup.
        hooks?: Option<BackupHooks>,
        /// Name of the BackupStorageLocation; unset: the default one.
        storage_location?: Option<String>,
        /// Names of VolumeSnapshotLocations.
        volume_snapshot_locations?: Vec<String>,
        /// Deprecated twin of defaultVolumesToFsBackup.
        default_volumes_to_restic?: Option<bool>,
        /// Whether pod volumes are backed up from the file system by default.
        default_volumes_to_fs_backup?: Option<bool>,
        /// Order in which items of a resource are backed up: resource to comma-separated names.
        ordered_resources?: BTreeMap<String, String>,
        /// How long to wait for a CSI snapshot to be made.
        csi_snapshot_timeout?: Option<GoDuration>,
        /// Deadline of every asynchronous operation, from its creation.
        item_operation_timeout?: Option<GoDuration>,
        /// ConfigMap with resource policies.
        resource_policy?: Option<LocalReference>,
        /// Whether snapshot data is moved to the object store.
        snapshot_move_data?: Option<bool>,
        /// Data mover to use.
        datamover?: Option<String>,
        /// Settings of the uploader.
        uploader_config?: Option<UploaderConfigForBackup>,
        /// Full or incremental (Velero after 1.18).
        backup_type?: Option<BackupType>,
        /// Copies in other locations, made once the backup has ended. Not of Velero.
        copies?: Vec<BackupCopy>,
    }
}

api_struct! {
    /// A copy of a backup in another location.
    BackupCopy {
        /// Name of the BackupStorageLocation.
        location: String,
        /// How long the copy is kept, from the start of the backup; unset: as long as the backup.
        ttl?: Option<GoDuration>,
    }
}

api_struct! {
    /// Settings of the uploader.
    UploaderConfigForBackup {
        /// Files uploaded at a time.
        parallel_files_upload?: i64,
    }
}

api_struct! {
    /// Commands to run in pods around their backup.
    BackupHooks {
        /// Hooks, each for some resources.
        resources?: Vec<BackupResourceHookSpec>,
    }
}

api_struct! {
    /// Hooks and the items they apply to.
    BackupResourceHookSpec {
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
        /// Run before the item.
        pre?: Vec<BackupResourceHook>,
        /// Run after the item and its additional items.
        post?: Vec<BackupResourceHook>,
    }
}

api_struct! {
    /// One hook.
    BackupResourceHook {
        /// The command.
        exec: ExecHook,
    }
}

api_struct! {
    /// A command in a container of the pod.
    ExecHook {
        /// Container; unset: the first.
        container?: Option<String>,
        /// Command and arguments.
        #[schemars(length(min = 1))]
        command: Vec<String>,
        /// What a failure does; unset: Fail.
        on_error?: Option<HookErrorMode>,
        /// How long it may take.
        timeout?: Option<GoDuration>,
    }
}

string_enum! {
    /// Kind of a backup's volume data.
    BackupType {
        Full = "Full",
        Incremental = "Incremental",
    }
}

string_enum! {
    /// Where a Backup is in its life.
    BackupPhase {
        New = "New",
        Queued = "Queued",
        ReadyToStart = "ReadyToStart",
        /// Refused; it never ran.
        FailedValidation = "FailedValidation",
        InProgress = "InProgress",
        /// Collected without errors; plugin operations still run.
        WaitingForPluginOperations = "WaitingForPluginOperations",
        /// Collected with errors; plugin operations still run.
        WaitingForPluginOperationsPartiallyFailed = "WaitingForPluginOperationsPartiallyFailed",
        Finalizing = "Finalizing",
        FinalizingPartiallyFailed = "FinalizingPartiallyFailed",
        Completed = "Completed",
        /// Stored, but some items are missing.
        PartiallyFailed = "PartiallyFailed",
        Failed = "Failed",
        Deleting = "Deleting",
    }
}

api_struct! {
    /// What has been seen and done for a Backup.
    BackupStatus {
        /// Always 1; deprecated.
        version?: i64,
        /// Version of the tarball layout.
        format_version?: Option<String>,
        /// When the backup may be deleted.
        expiration?: Option<Time>,
        /// Where the backup is in its life; unset is New.
        phase?: Option<BackupPhase>,
        /// Place in the queue, from 1, while Queued.
        queue_position?: i64,
        /// Why the backup was refused.
        validation_errors?: Vec<String>,
        /// When collection began.
        start_timestamp?: Option<Time>,
        /// When everything was stored.
        completion_timestamp?: Option<Time>,
        /// Native snapshots that were started.
        volume_snapshots_attempted?: i64,
        /// Native snapshots that succeeded.
        volume_snapshots_completed?: i64,
        /// Why the backup failed.
        failure_reason?: Option<String>,
        /// Number of warnings in the results.
        warnings?: i64,
        /// Number of errors in the results.
        errors?: i64,
        /// Items so far.
        progress?: Option<BackupProgress>,
        /// CSI snapshots that were started.
        csi_volume_snapshots_attempted?: i64,
        /// CSI snapshots that succeeded.
        csi_volume_snapshots_completed?: i64,
        /// Asynchronous operations that were started.
        backup_item_operations_attempted?: i64,
        /// Asynchronous operations that succeeded.
        backup_item_operations_completed?: i64,
        /// Asynchronous operations that failed.
        backup_item_operations_failed?: i64,
        /// Hooks that ran.
        hook_status?: Option<HookStatus>,
        /// The copies in other locations. Not of Velero.
        copies?: Vec<BackupCopyStatus>,
    }
}

string_enum! {
    /// State of a copy of a backup.
    CopyPhase {
        /// Waits to be made.
        New = "New",
        InProgress = "InProgress",
        Completed = "Completed",
        /// Could not be made; the controller tries again.
        Failed = "Failed",
        /// Its time is over; its files are being removed.
        Deleting = "Deleting",
        /// Its time is over, and its files are gone.
        Expired = "Expired",
    }
}

api_struct! {
    /// What has been done for a copy of a backup.
    BackupCopyStatus {
        /// Name of the BackupStorageLocation.
        location: String,
        /// State of the copy; unset is New.
        phase?: Option<CopyPhase>,
        /// When the last attempt began.
        start_timestamp?: Option<Time>,
        /// When the copy was complete, or the last attempt failed.
        completion_timestamp?: Option<Time>,
        /// When the copy may be deleted.
        expiration?: Option<Time>,
        /// Uid of the backup in its stored metadata.
        uid?: String,
        /// Size of all files.
        bytes?: i64,
        /// Why the copy is not complete, or why it is still there.
        message?: String,
    }
}

api_struct! {
    /// Items so far.
    BackupProgress {
        /// Items to back up; grows while collecting.
        total_items?: i64,
        /// Items written.
        items_backed_up?: i64,
    }
}
