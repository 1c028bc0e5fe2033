//! Counters and gauges with Velero's names and labels (`pkg/metrics/metrics.go`, v1.18), so that dashboards and alerts
//! keep working. A transition is counted once, after it is published, by the process that has published it. Gauges about
//! stored objects are computed from them ([`stored`]), so that they are right after a restart.

pub(crate) mod stored;

use std::sync::Arc;

use axum::{Router, extract::State, routing::get};
use backup_core::{api::Backup, sync::Summary};
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Upper bounds of durations (seconds), Velero's.
const DURATIONS: [f64; 9] = [60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 14400.0];

/// The names of labels, and their values.
type Labels<const N: usize> = [(&'static str, String); N];

/// By `schedule`, which is empty if a backup or restore comes from none; by the name of a location; or by that of a profile.
type Counters = Family<Labels<1>, Counter>;
type Gauges = Family<Labels<1>, Gauge>;

/// By `schedule` and `backupName`.
type PerBackup = Family<Labels<2>, Counter>;

/// How a backup or restore ended, or that it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Attempt,
    /// Ended as Completed.
    Success,
    /// Ended as PartiallyFailed.
    PartialFailure,
    /// Ended as Failed.
    Failure,
    /// Ended as FailedValidation.
    ValidationFailure,
}

/// Declares the metrics of the process: each is a field, and registered under the name of this field with its help. Counters
/// get the suffix `_total` when they are encoded.
macro_rules! metrics {
    ($($name:ident: $type:ty, $help:literal;)*) => {
        #[derive(Debug)]
        pub(crate) struct Metrics {
            registry: Registry,
            backup_duration_seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
            $($name: $type,)*
        }

        impl Default for Metrics {
            fn default() -> Self {
                let mut registry = Registry::with_prefix("velero");
                let durations: fn() -> Histogram = || Histogram::new(DURATIONS);
                let backup_duration_seconds = Family::new_with_constructor(durations);
                let help = "From the start of a backup to its end";
                registry.register("backup_duration_seconds", help, backup_duration_seconds.clone());
                $(
                    let $name = <$type>::default();
                    registry.register(stringify!($name), $help, $name.clone());
                )*
                Self { registry, backup_duration_seconds, $($name,)* }
            }
        }
    };
}

metrics! {
    backup_attempt: Counters, "Backups that began";
    backup_success: Counters, "Backups that completed";
    backup_partial_failure: Counters, "Backups that miss some items";
    backup_failure: Counters, "Backups that failed";
    backup_validation_failure: Counters, "Backups that were refused";
    restore_attempt: Counters, "Restores that began";
    restore_success: Counters, "Restores that completed";
    restore_partial_failure: Counters, "Restores that miss some items";
    restore_failed: Counters, "Restores that failed";
    restore_validation_failed: Counters, "Restores that were refused";
    backup_deletion_attempt: Counters, "Deletions of backups that began";
    backup_deletion_success: Counters, "Backups that were deleted";
    backup_deletion_failure: Counters, "Deletions of backups that failed";
    backup_warning: Counters, "Warnings of backups";
    backup_tarball_size_bytes: Gauges, "Size of the last backup";
    backup_items_total: Gauges, "Items of the last backup";
    backup_items_errors: Gauges, "Errors of the last backup";
    backup_last_successful_timestamp: Gauges, "End of the last completed backup, Unix time";
    backup_last_status: Gauges, "1 if the last backup completed, else 0";
    volume_snapshot_attempt: Counters, "Snapshots of volumes that plugins were asked for";
    volume_snapshot_success: Counters, "Snapshots of volumes that plugins have taken";
    volume_snapshot_failure: Counters, "Snapshots of volumes that failed";
    csi_snapshot_attempt: PerBackup, "Snapshots of CSI volumes that were begun";
    csi_snapshot_success: PerBackup, "Snapshots of CSI volumes that can be used";
    csi_snapshot_failure: PerBackup, "Snapshots of CSI volumes that failed";
    backup_total: Gauge, "Backups that exist";
    restore_total: Gauge, "Restores that exist";
    schedule_expected_interval_seconds: Gauges, "Between the next two backups of a schedule";
    schedule_skipped: Counters, "Scheduled backups that were left out";
    backup_location_status_gauge: Gauges,
        "1 if the location was available when it was last validated, else 0";
    backup_sync: Counters, "Comparisons of a location with the cluster";
    backup_sync_failure: Counters, "Comparisons that did not end";
    backup_sync_created: Counters, "Backups that were imported into the cluster";
    backup_sync_removed: Counters, "Backups that were removed as they are gone from the bucket";
    backup_sync_pruned: Counters, "Folders without a backup that were removed from the bucket";
    backup_sync_refused: Gauges, "Backups that were not removed as too many are gone at once";
    backup_sync_skipped: Gauges, "Folders that were not imported";
    backup_sync_stray: Gauges, "Folders of incomplete backups that nothing writes to";
    backup_sync_last_timestamp: Gauges, "Begin of the last comparison that ended, Unix time";
    lock_unclaimed: Gauges, "Objects that run without a place in the lock, beside others";
    lock_unknown_phase: Gauges, "Objects in a phase that this version does not know";
    profiles_unusable: Gauges, "1 for each profile that cannot be used, so that its kinds are refused";
}

/// Counts `attempted` snapshots, of which `completed` have succeeded.
fn count_snapshots<const N: usize>(
    [attempts, successes, failures]: [&Family<Labels<N>, Counter>; 3],
    labels: &Labels<N>,
    attempted: i64,
    completed: i64,
) {
    let attempted = u64::try_from(attempted).unwrap_or(0);
    if attempted > 0 {
        let completed = u64::try_from(completed).unwrap_or(0).min(attempted);
        attempts.get_or_create(labels).inc_by(attempted);
        successes.get_or_create(labels).inc_by(completed);
        failures.get_or_create(labels).inc_by(attempted - completed);
    }
}

/// `schedule` is the value of the label `velero.io/schedule-name` of the backup, or empty.
impl Metrics {
    pub(crate) fn backup(&self, outcome: Outcome, schedule: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.backup_attempt,
            Outcome::Success => &self.backup_success,
            Outcome::PartialFailure => &self.backup_partial_failure,
            Outcome::Failure => &self.backup_failure,
            Outcome::ValidationFailure => &self.backup_validation_failure,
        };
        family.get_or_create(&labels(schedule)).inc();
    }

    /// Sets the size of a finished backup's contents.
    pub(crate) fn backup_size(&self, schedule: &str, bytes: u64) {
        self.backup_tarball_size_bytes.get_or_create(&labels(schedule)).set(gauge(bytes));
    }

    /// Counts what the status of a backup that has ended says: warnings, snapshots, how long it took.
    pub(crate) fn backup_ended(&self, schedule: &str, name: &str, backup: &Backup) {
        let (status, labels) = (&backup.status, labels(schedule));
        self.backup_warning.get_or_create(&labels).inc_by(u64::try_from(status.warnings).unwrap_or(0));
        if let (Some(start), Some(end)) = (&status.start_timestamp, &status.completion_timestamp) {
            let seconds = end.0.duration_since(start.0).as_secs_f64();
            self.backup_duration_seconds.get_or_create(&labels).observe(seconds.max(0.0));
        }
        let native =
            [&self.volume_snapshot_attempt, &self.volume_snapshot_success, &self.volume_snapshot_failure];
        let (attempted, completed) = (status.volume_snapshots_attempted, status.volume_snapshots_completed);
        count_snapshots(native, &labels, attempted, completed);
        let csi = [&self.csi_snapshot_attempt, &self.csi_snapshot_success, &self.csi_snapshot_failure];
        let labels = of_backup(schedule, name);
        let attempted = status.csi_volume_snapshots_attempted;
        count_snapshots(csi, &labels, attempted, status.csi_volume_snapshots_completed);
    }

    pub(crate) fn restore(&self, outcome: Outcome, schedule: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.restore_attempt,
            Outcome::Success => &self.restore_success,
            Outcome::PartialFailure => &self.restore_partial_failure,
            Outcome::Failure => &self.restore_failed,
            Outcome::ValidationFailure => &self.restore_validation_failed,
        };
        family.get_or_create(&labels(schedule)).inc();
    }

    /// Counts a step of the deletion of a backup; a partial failure is a failure.
    pub(crate) fn deletion(&self, outcome: Outcome, schedule: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.backup_deletion_attempt,
            Outcome::Success => &self.backup_deletion_success,
            Outcome::PartialFailure | Outcome::Failure | Outcome::ValidationFailure => {
                &self.backup_deletion_failure
            }
        };
        family.get_or_create(&labels(schedule)).inc();
    }

    /// Shows the counters of a schedule from 0 on, so that its first backup is a change.
    pub(crate) fn show_schedule(&self, name: &str) {
        let labels = of_schedule(name);
        for family in [
            &self.backup_attempt,
            &self.backup_success,
            &self.backup_partial_failure,
            &self.backup_failure,
            &self.backup_validation_failure,
            &self.schedule_skipped,
        ] {
            let _ = family.get_or_create(&labels);
        }
    }

    /// Forgets what was counted of a schedule that is gone. What of it still ends or is deleted counts from 0 on.
    pub(crate) fn forget_schedule(&self, name: &str) {
        let labels = of_schedule(name);
        for family in [
            &self.backup_attempt,
            &self.backup_success,
            &self.backup_partial_failure,
            &self.backup_failure,
            &self.backup_validation_failure,
            &self.restore_attempt,
            &self.restore_success,
            &self.restore_partial_failure,
            &self.restore_failed,
            &self.restore_validation_failed,
            &self.backup_deletion_attempt,
            &self.backup_deletion_success,
            &self.backup_deletion_failure,
            &self.backup_warning,
            &self.volume_snapshot_attempt,
            &self.volume_snapshot_success,
            &self.volume_snapshot_failure,
            &self.schedule_skipped,
        ] {
            family.remove(&labels);
        }
        self.backup_tarball_size_bytes.remove(&labels);
        self.backup_duration_seconds.remove(&labels);
        self.schedule_interval(name, None);
    }

    /// Forgets what was counted of a backup that is gone: Velero's series about CSI snapshots name the backup.
    fn forget_backup(&self, schedule: &str, name: &str) {
        let labels = of_backup(schedule, name);
        for family in [&self.csi_snapshot_attempt, &self.csi_snapshot_success, &self.csi_snapshot_failure] {
            family.remove(&labels);
        }
    }

    /// Seconds between the next two backups of a schedule; `None` if there are no two, or the schedule is not valid.
    pub(crate) fn schedule_interval(&self, name: &str, seconds: Option<i64>) {
        set_or_remove(&self.schedule_expected_interval_seconds, &of_schedule(name), seconds);
    }

    pub(crate) fn schedule_skipped(&self, name: &str) {
        self.schedule_skipped.get_or_create(&of_schedule(name)).inc();
    }

    /// Whether a location was available when it was last validated.
    pub(crate) fn location(&self, name: &str, available: bool) {
        self.backup_location_status_gauge.get_or_create(&of_location(name)).set(i64::from(available));
    }

    /// Forgets the gauge of a location that is gone.
    pub(crate) fn forget_location(&self, name: &str) {
        self.backup_location_status_gauge.remove(&of_location(name));
    }

    /// Counts a comparison of a location with the cluster.
    pub(crate) fn synced(&self, name: &str, summary: &Summary) {
        let labels = of_location(name);
        self.backup_sync.get_or_create(&labels).inc();
        self.backup_sync_created.get_or_create(&labels).inc_by(summary.created);
        self.backup_sync_removed.get_or_create(&labels).inc_by(summary.removed);
        self.backup_sync_pruned.get_or_create(&labels).inc_by(summary.pruned);
        if summary.error.is_some() {
            self.backup_sync_failure.get_or_create(&labels).inc();
            return;
        }
        self.backup_sync_refused.get_or_create(&labels).set(gauge(summary.refused));
        self.backup_sync_skipped.get_or_create(&labels).set(gauge(summary.skips()));
        self.backup_sync_stray.get_or_create(&labels).set(gauge(summary.skipped_as("stray")));
        self.backup_sync_last_timestamp.get_or_create(&labels).set(summary.started.as_second());
    }

    /// Forgets what was counted of a location that is gone.
    pub(crate) fn forget_sync(&self, name: &str) {
        let labels = of_location(name);
        for family in [
            &self.backup_sync_refused,
            &self.backup_sync_skipped,
            &self.backup_sync_stray,
            &self.backup_sync_last_timestamp,
        ] {
            family.remove(&labels);
        }
        for family in [
            &self.backup_sync,
            &self.backup_sync_failure,
            &self.backup_sync_created,
            &self.backup_sync_removed,
            &self.backup_sync_pruned,
        ] {
            family.remove(&labels);
        }
    }

    /// How many objects of a profile run without a place in the lock, and how many are in an unknown phase.
    pub(crate) fn lock(&self, profile: &str, conflicting: u64, unknown: u64) {
        let labels = [("profile", profile.to_owned())];
        self.lock_unclaimed.get_or_create(&labels).set(gauge(conflicting));
        self.lock_unknown_phase.get_or_create(&labels).set(gauge(unknown));
    }

    pub(crate) fn profile_unusable(&self, name: &str) {
        self.profiles_unusable.get_or_create(&[("profile", name.to_owned())]).set(1);
    }

    /// All of it in the OpenMetrics text format.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String fails only if an encoder does, of which the part before is still useful.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// The route `/metrics`.
pub(crate) fn router(metrics: Arc<Metrics>) -> Router {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let scrape =
        async |State(metrics): State<Arc<Metrics>>| ([(http::header::CONTENT_TYPE, TYPE)], metrics.encode());
    Router::new().route("/metrics", get(scrape)).with_state(metrics)
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn set_or_remove(family: &Gauges, labels: &Labels<1>, value: Option<i64>) {
    match value {
        Some(value) => {
            family.get_or_create(labels).set(value);
        }
        None => {
            family.remove(labels);
        }
    }
}

/// As the label of its backups names it.
fn of_schedule(name: &str) -> Labels<1> {
    labels(&backup_core::labels::valid_value(name))
}

fn of_backup(schedule: &str, name: &str) -> Labels<2> {
    [("schedule", schedule.to_owned()), ("backupName", name.to_owned())]
}

fn of_location(name: &str) -> Labels<1> {
    [("backup_location_name", name.to_owned())]
}

fn labels(schedule: &str) -> Labels<1> {
    [("schedule", schedule.to_owned())]
}

#[cfg(test)]
mod tests;
