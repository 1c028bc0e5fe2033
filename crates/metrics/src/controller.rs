//! The metrics of the controller.

use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};

use crate::Series;

/// Upper bounds of the duration of backups and transfers (seconds), the same as Velero's for backups.
const DURATIONS: [f64; 9] = [
    60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 14400.0,
];

metrics! {
    /// The controller's metrics. Where Velero has the metric, name and labels are Velero's
    /// (`pkg/metrics/metrics.go`, v1.18), so that dashboards and alerts keep working. The label
    /// `schedule` is empty without a schedule.
    ControllerMetrics, "velero";
    build_info: Series<Gauge, 1> [version], "1, with the version of the program";
    leader: Gauge [], "1 if this replica leads and so does the work, else 0";
    backup_attempt: Series<Counter, 1> [schedule], "Backups that began";
    backup_success: Series<Counter, 1> [schedule], "Backups that completed";
    backup_partial_failure: Series<Counter, 1> [schedule], "Backups that miss some items";
    backup_failure: Series<Counter, 1> [schedule], "Backups that failed";
    backup_validation_failure: Series<Counter, 1> [schedule], "Backups that were refused as not valid";
    backup_warning: Series<Counter, 1> [schedule], "Warnings of backups";
    backup_duration_seconds: Series<Histogram, 1> [schedule] in DURATIONS, "From the start of a backup to its end";
    backup_total: Gauge [], "Backups that exist";
    backup_tarball_size_bytes: Series<Gauge, 1> [schedule], "Size of the last backup";
    backup_items_total: Series<Gauge, 1> [schedule], "Items of the last backup";
    backup_items_errors: Series<Gauge, 1> [schedule], "Errors of the last backup";
    backup_last_status: Series<Gauge, 1> [schedule], "1 if all items of the last backup can be restored, as far as its object says, else 0; its location has a series of its own";
    backup_last_successful_timestamp: Series<Gauge, 1> [schedule], "End of the last backup whose items can all be restored, as far as its object says, Unix time";
    backup_deletion_attempt: Series<Counter, 1> [schedule], "Deletions of backups that began";
    backup_deletion_success: Series<Counter, 1> [schedule], "Backups that were deleted";
    backup_deletion_failure: Series<Counter, 1> [schedule], "Deletions of backups that failed";
    backup_copy_attempt: Series<Counter, 1> [backup_location_name], "Attempts to copy a backup into the location";
    backup_copy_success: Series<Counter, 1> [backup_location_name], "Backups that were copied into the location";
    backup_copy_failure: Series<Counter, 1> [backup_location_name],
        "Attempts to copy a backup into the location that failed; they are repeated after an hour";
    backup_copies_incomplete: Series<Gauge, 1> [backup_location_name],
        "Copies of ended backups in the location that are named and not complete";
    restore_attempt: Series<Counter, 1> [schedule], "Restores that began";
    restore_success: Series<Counter, 1> [schedule], "Restores that completed";
    restore_partial_failure: Series<Counter, 1> [schedule], "Restores that miss some items";
    restore_failed: Series<Counter, 1> [schedule], "Restores that failed";
    restore_validation_failed: Series<Counter, 1> [schedule], "Restores that were refused as not valid";
    restore_total: Gauge [], "Restores that exist";
    queue_length: Series<Gauge, 1> [kind], "Backups or Restores that have not begun";
    queue_oldest_timestamp_seconds: Series<Gauge, 1> [kind],
        "Creation of the oldest that has not begun, Unix time; there is none while nothing waits";
    schedule_expected_interval_seconds: Series<Gauge, 1> [schedule], "Between the next two backups of a schedule";
    schedule_last_due_timestamp_seconds: Series<Gauge, 1> [schedule],
        "When a backup of a schedule was last due, Unix time; there is none while it is paused";
    schedule_usable: Series<Gauge, 1> [schedule],
        "1 if the schedule makes backups, or would if it were not paused; 0 if it is not valid or never due";
    schedule_paused: Series<Gauge, 1> [schedule], "1 while the schedule is paused, else 0";
    schedule_skipped: Series<Counter, 1> [schedule], "Scheduled backups that were left out";
    schedule_verification_due_timestamp_seconds: Series<Gauge, 1> [schedule],
        "When a backup of the schedule is or was due to be verified, Unix time; there is none without spec.verify, or while no backup could be verified";
    schedule_verification_last_success_timestamp_seconds: Series<Gauge, 1> [schedule],
        "When a scheduled verification has last found a backup whole, Unix time";
    schedule_verification_success: Series<Counter, 1> [schedule], "Scheduled verifications that have found a backup whole";
    schedule_verification_failure: Series<Counter, 1> [schedule], "Scheduled verifications that have found faults in the files of a backup";
    schedule_drill_due_timestamp_seconds: Series<Gauge, 1> [schedule],
        "When a backup of the schedule is or was due to be restored on trial, Unix time; there is none without spec.drill, or while there is no backup";
    schedule_drill_last_success_timestamp_seconds: Series<Gauge, 1> [schedule],
        "When a drill of the schedule has last succeeded, Unix time";
    schedule_drill_last_duration_seconds: Series<Gauge, 1> [schedule],
        "From the start of the last drill's restore until its workloads were ready; there is none if it has failed";
    schedule_drill_last_status: Series<Gauge, 1> [schedule], "1 if the last drill of the schedule has succeeded, else 0";
    schedule_drill_success: Series<Counter, 1> [schedule], "Drills of the schedule that have succeeded";
    schedule_drill_failure: Series<Counter, 1> [schedule], "Drills of the schedule that have failed";
    backup_damaged: Series<Gauge, 1> [schedule], "Backups whose last verification has found faults in their files";
    volume_snapshot_attempt: Series<Counter, 1> [schedule], "Snapshots of volumes that plugins were asked for";
    volume_snapshot_success: Series<Counter, 1> [schedule], "Snapshots of volumes that plugins have taken";
    volume_snapshot_failure: Series<Counter, 1> [schedule], "Snapshots of volumes that failed";
    csi_snapshot_attempt: Series<Counter, 2> [schedule, backupName], "Snapshots of CSI volumes that were begun";
    csi_snapshot_success: Series<Counter, 2> [schedule, backupName], "Snapshots of CSI volumes that can be used";
    csi_snapshot_failure: Series<Counter, 2> [schedule, backupName], "Snapshots of CSI volumes that failed";
    data_upload_success: Series<Counter, 1> [node] as "podVolume_data_upload_success",
        "Volumes whose data was moved into the bucket, by the node of the pod";
    data_upload_failure: Series<Counter, 1> [node] as "podVolume_data_upload_failure",
        "Volumes whose data was not moved into the bucket, or not all of it; the node is empty if no pod ran";
    data_upload_cancel: Series<Counter, 1> [node] as "podVolume_data_upload_cancel",
        "Volumes whose move into the bucket was cancelled";
    data_download_success: Series<Counter, 1> [node] as "podVolume_data_download_success",
        "Volumes whose data was restored from the bucket, by the node of the pod";
    data_download_failure: Series<Counter, 1> [node] as "podVolume_data_download_failure",
        "Volumes whose data was not restored from the bucket, or not all of it; the node is empty if no pod ran";
    data_download_cancel: Series<Counter, 1> [node] as "podVolume_data_download_cancel",
        "Volumes whose restore from the bucket was cancelled";
    data_upload_read_bytes: Series<Counter, 1> [volume_namespace], "Size of the data that uploads have saved";
    data_upload_stored_bytes: Series<Counter, 1> [volume_namespace],
        "Bytes that uploads have added to the repository, compressed and without duplicates";
    data_download_restored_bytes: Series<Counter, 1> [volume_namespace],
        "Size of the data that downloads have restored, by the namespace that it was backed up from";
    data_transfer_duration_seconds: Series<Histogram, 1> [kind] in DURATIONS,
        "From the start of a DataUpload or DataDownload to its end, if it has moved data";
    data_transfers_running: Series<Gauge, 1> [kind],
        "DataUploads or DataDownloads that were accepted and have not ended";
    data_transfers_waiting: Series<Gauge, 1> [kind],
        "DataUploads or DataDownloads that were not accepted yet";
    data_upload_last_success_timestamp_seconds: Series<Gauge, 2> [schedule, volume_namespace],
        "End of the last successful upload of the volume of this namespace that is furthest behind, Unix time; of a volume that was never moved, the creation of its first upload. Volumes of the last backup of the schedule that has moved data";
    data_upload_failed_volumes: Series<Gauge, 2> [schedule, volume_namespace],
        "Volumes of this namespace whose upload has failed in the last backup of the schedule that has moved data";
    repositories: Series<Gauge, 1> [phase], "Repositories of volume data, by the phase of their BackupRepository";
    repository_ready: Series<Gauge, 2> [volume_namespace, backup_location_name],
        "1 if the repository can be used, else 0";
    repository_last_maintenance_timestamp_seconds: Series<Gauge, 2> [volume_namespace, backup_location_name],
        "End of the last successful maintenance of the repository, Unix time; its creation if there was none";
    repository_maintenance_period_seconds: Series<Gauge, 2> [volume_namespace, backup_location_name],
        "Between two maintenances of the repository";
    repository_last_check_timestamp_seconds: Series<Gauge, 2> [volume_namespace, backup_location_name],
        "End of the last completed check of the repository, Unix time";
    repository_check_failed: Series<Gauge, 2> [volume_namespace, backup_location_name],
        "1 if the last check of the repository was not completed, else 0";
    repository_damaged: Series<Gauge, 2> [volume_namespace, backup_location_name],
        "1 if the last completed check of the repository has found damage, else 0";
    repo_maintenance_success: Series<Counter, 1> [repository_name], "Maintenances of a BackupRepository that succeeded";
    repo_maintenance_failure: Series<Counter, 1> [repository_name], "Maintenances of a BackupRepository that failed";
    backup_location_status_gauge: Series<Gauge, 1> [backup_location_name],
        "1 if the location was available when it was last validated, else 0";
    backup_location_writable: Series<Gauge, 1> [backup_location_name],
        "1 if the location is available and its spec.accessMode is not ReadOnly, else 0";
    backup_sync: Series<Counter, 1> [backup_location_name], "Comparisons of a location with the cluster";
    backup_sync_failure: Series<Counter, 1> [backup_location_name], "Comparisons that did not end";
    backup_sync_created: Series<Counter, 1> [backup_location_name], "Backups that were imported into the cluster";
    backup_sync_removed: Series<Counter, 1> [backup_location_name],
        "Backups that were removed as they are gone from the bucket";
    backup_sync_pruned: Series<Counter, 1> [backup_location_name],
        "Folders without a backup that were removed from the bucket";
    backup_sync_refused: Series<Gauge, 1> [backup_location_name],
        "Backups that were not removed as too many are gone at once";
    backup_sync_skipped: Series<Gauge, 1> [backup_location_name], "Folders that were not imported";
    backup_sync_stray: Series<Gauge, 1> [backup_location_name],
        "Folders of incomplete backups that nothing writes to";
    backup_sync_last_timestamp: Series<Gauge, 1> [backup_location_name],
        "Begin of the last comparison that ended, Unix time";
    backup_sync_period_seconds: Series<Gauge, 1> [backup_location_name],
        "Between two comparisons of a location; there is none while its synchronisation is off";
    notifications_sent: Counter [], "Notifications that --notify-url has accepted";
    notifications_failed: Counter [], "Notifications that --notify-url has refused, or not accepted in time";
    notifications_dropped: Counter [], "Notifications that were dropped, as too many waited";
    backup_retention_refused: Series<Gauge, 1> [backup_location_name],
        "Expired backups that were not removed as too many have expired at once";
    lock_unclaimed: Series<Gauge, 1> [profile], "Objects that run without a place in the lock, beside others";
    lock_unknown_phase: Series<Gauge, 1> [profile], "Objects in a phase that this version does not know";
    profiles_unusable: Series<Gauge, 1> [profile],
        "1 for each profile that cannot be used, so that its kinds are refused";
}
