//! Counters and gauges with Velero's names and labels (`pkg/metrics/metrics.go`, v1.18), so that dashboards and alerts
//! keep working. A transition is counted once, after it is published, by the process that has published it. Gauges about
//! stored objects are computed from them ([`stored`]), so that they are right after a restart.

pub(crate) mod stored;

use std::{fmt::Debug, hash::Hash, sync::Arc};

use axum::{Router, extract::State, routing::get};
use backup_core::{api::Backup, sync::Summary};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};

/// Upper bounds of durations (seconds), Velero's.
const DURATIONS: [f64; 9] = [60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 14400.0];

/// The schedule that a backup or restore comes from, empty if none.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Schedule {
    schedule: String,
}

/// The labels `schedule` and `backupName`.
type ScheduleAndBackup = [(&'static str, String); 2];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LocationName {
    backup_location_name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProfileName {
    profile: String,
}

type PerSchedule = Family<Schedule, Counter>;

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

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    backups: Outcomes,
    restores: Outcomes,
    deletions: Attempts<Schedule>,
    warnings: PerSchedule,
    tarball_size: Family<Schedule, Gauge>,
    items: Family<Schedule, Gauge>,
    item_errors: Family<Schedule, Gauge>,
    last_success: Family<Schedule, Gauge>,
    last_status: Family<Schedule, Gauge>,
    durations: Family<Schedule, Histogram, fn() -> Histogram>,
    /// Snapshots of volumes that plugins take.
    native_snapshots: Attempts<Schedule>,
    csi_snapshots: Attempts<ScheduleAndBackup>,
    backup_total: Gauge,
    restore_total: Gauge,
    schedule_intervals: Family<Schedule, Gauge>,
    schedule_skips: PerSchedule,
    locations: Family<LocationName, Gauge>,
    syncs: Syncs,
    lock_conflicts: Family<ProfileName, Gauge>,
    lock_unknown: Family<ProfileName, Gauge>,
}

#[derive(Debug)]
struct Outcomes {
    attempts: PerSchedule,
    successes: PerSchedule,
    partial_failures: PerSchedule,
    failures: PerSchedule,
    validation_failures: PerSchedule,
}

impl Outcomes {
    fn of(&self, outcome: Outcome) -> &PerSchedule {
        match outcome {
            Outcome::Attempt => &self.attempts,
            Outcome::Success => &self.successes,
            Outcome::PartialFailure => &self.partial_failures,
            Outcome::Failure => &self.failures,
            Outcome::ValidationFailure => &self.validation_failures,
        }
    }
}

#[derive(Debug)]
struct Attempts<L> {
    begun: Family<L, Counter>,
    successes: Family<L, Counter>,
    failures: Family<L, Counter>,
}

impl<L: Clone + Hash + Eq> Attempts<L> {
    /// Adds `attempted`, of which `completed` have succeeded.
    fn add(&self, labels: &L, attempted: i64, completed: i64) {
        let attempted = u64::try_from(attempted).unwrap_or(0);
        if attempted > 0 {
            let completed = u64::try_from(completed).unwrap_or(0).min(attempted);
            self.begun.get_or_create(labels).inc_by(attempted);
            self.successes.get_or_create(labels).inc_by(completed);
            self.failures.get_or_create(labels).inc_by(attempted - completed);
        }
    }
}

/// Comparisons of locations with the cluster.
#[derive(Debug)]
struct Syncs {
    passes: Family<LocationName, Counter>,
    failures: Family<LocationName, Counter>,
    created: Family<LocationName, Counter>,
    removed: Family<LocationName, Counter>,
    pruned: Family<LocationName, Counter>,
    refused: Family<LocationName, Gauge>,
    skipped: Family<LocationName, Gauge>,
    incomplete: Family<LocationName, Gauge>,
    last: Family<LocationName, Gauge>,
}

/// Creates a metric that the registry shows.
fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("velero");
        let r = &mut registry;
        let durations = Family::new_with_constructor((|| Histogram::new(DURATIONS)) as fn() -> Histogram);
        r.register("backup_duration_seconds", "From the start of a backup to its end", durations.clone());
        // Counters get the suffix `_total` when they are encoded.
        Self {
            backups: Outcomes {
                attempts: register(r, "backup_attempt", "Backups that began"),
                successes: register(r, "backup_success", "Backups that completed"),
                partial_failures: register(r, "backup_partial_failure", "Backups that miss some items"),
                failures: register(r, "backup_failure", "Backups that failed"),
                validation_failures: register(r, "backup_validation_failure", "Backups that were refused"),
            },
            restores: Outcomes {
                attempts: register(r, "restore_attempt", "Restores that began"),
                successes: register(r, "restore_success", "Restores that completed"),
                partial_failures: register(r, "restore_partial_failure", "Restores that miss some items"),
                failures: register(r, "restore_failed", "Restores that failed"),
                validation_failures: register(r, "restore_validation_failed", "Restores that were refused"),
            },
            deletions: Attempts {
                begun: register(r, "backup_deletion_attempt", "Deletions of backups that began"),
                successes: register(r, "backup_deletion_success", "Backups that were deleted"),
                failures: register(r, "backup_deletion_failure", "Deletions of backups that failed"),
            },
            warnings: register(r, "backup_warning", "Warnings of backups"),
            tarball_size: register(r, "backup_tarball_size_bytes", "Size of the last backup"),
            items: register(r, "backup_items_total", "Items of the last backup"),
            item_errors: register(r, "backup_items_errors", "Errors of the last backup"),
            last_success: register(
                r,
                "backup_last_successful_timestamp",
                "End of the last completed backup, Unix time",
            ),
            last_status: register(r, "backup_last_status", "1 if the last backup completed, else 0"),
            durations,
            native_snapshots: Attempts {
                begun: register(
                    r,
                    "volume_snapshot_attempt",
                    "Snapshots of volumes that plugins were asked for",
                ),
                successes: register(
                    r,
                    "volume_snapshot_success",
                    "Snapshots of volumes that plugins have taken",
                ),
                failures: register(r, "volume_snapshot_failure", "Snapshots of volumes that failed"),
            },
            csi_snapshots: Attempts {
                begun: register(r, "csi_snapshot_attempt", "Snapshots of CSI volumes that were begun"),
                successes: register(r, "csi_snapshot_success", "Snapshots of CSI volumes that can be used"),
                failures: register(r, "csi_snapshot_failure", "Snapshots of CSI volumes that failed"),
            },
            backup_total: register(r, "backup_total", "Backups that exist"),
            restore_total: register(r, "restore_total", "Restores that exist"),
            schedule_intervals: register(
                r,
                "schedule_expected_interval_seconds",
                "Between the next two backups of a schedule",
            ),
            schedule_skips: register(r, "schedule_skipped", "Scheduled backups that were left out"),
            locations: register(
                r,
                "backup_location_status_gauge",
                "1 if the location was available when it was last validated, else 0",
            ),
            syncs: Syncs {
                passes: register(r, "backup_sync", "Comparisons of a location with the cluster"),
                failures: register(r, "backup_sync_failure", "Comparisons that did not end"),
                created: register(r, "backup_sync_created", "Backups that were imported into the cluster"),
                removed: register(
                    r,
                    "backup_sync_removed",
                    "Backups that were removed as they are gone from the bucket",
                ),
                pruned: register(
                    r,
                    "backup_sync_pruned",
                    "Folders without a backup that were removed from the bucket",
                ),
                refused: register(
                    r,
                    "backup_sync_refused",
                    "Backups that were not removed as too many are gone at once",
                ),
                skipped: register(r, "backup_sync_skipped", "Folders that were not imported"),
                incomplete: register(
                    r,
                    "backup_sync_stray",
                    "Folders of incomplete backups that nothing writes to",
                ),
                last: register(
                    r,
                    "backup_sync_last_timestamp",
                    "Begin of the last comparison that ended, Unix time",
                ),
            },
            lock_conflicts: register(
                r,
                "lock_unclaimed",
                "Objects that run without a place in the lock, beside others",
            ),
            lock_unknown: register(
                r,
                "lock_unknown_phase",
                "Objects in a phase that this version does not know",
            ),
            registry,
        }
    }
}

/// `schedule` is the value of the label `velero.io/schedule-name` of the backup, or empty.
impl Metrics {
    pub(crate) fn backup(&self, outcome: Outcome, schedule: &str) {
        self.backups.of(outcome).get_or_create(&labels(schedule)).inc();
    }

    /// Sets the size of a finished backup's contents.
    pub(crate) fn backup_size(&self, schedule: &str, bytes: u64) {
        self.tarball_size.get_or_create(&labels(schedule)).set(gauge(bytes));
    }

    /// Counts what the status of a backup that has ended says: warnings, snapshots, how long it took.
    pub(crate) fn backup_ended(&self, schedule: &str, name: &str, backup: &Backup) {
        let (status, labels) = (&backup.status, labels(schedule));
        self.warnings.get_or_create(&labels).inc_by(u64::try_from(status.warnings).unwrap_or(0));
        if let (Some(start), Some(end)) = (&status.start_timestamp, &status.completion_timestamp) {
            let seconds = end.0.duration_since(start.0).as_secs_f64();
            self.durations.get_or_create(&labels).observe(seconds.max(0.0));
        }
        let (attempted, completed) = (status.volume_snapshots_attempted, status.volume_snapshots_completed);
        self.native_snapshots.add(&labels, attempted, completed);
        let labels = [("schedule", schedule.to_owned()), ("backupName", name.to_owned())];
        let attempted = status.csi_volume_snapshots_attempted;
        self.csi_snapshots.add(&labels, attempted, status.csi_volume_snapshots_completed);
    }

    pub(crate) fn restore(&self, outcome: Outcome, schedule: &str) {
        self.restores.of(outcome).get_or_create(&labels(schedule)).inc();
    }

    /// Counts a step of the deletion of a backup; a partial failure is a failure.
    pub(crate) fn deletion(&self, outcome: Outcome, schedule: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.deletions.begun,
            Outcome::Success => &self.deletions.successes,
            Outcome::PartialFailure | Outcome::Failure | Outcome::ValidationFailure => {
                &self.deletions.failures
            }
        };
        family.get_or_create(&labels(schedule)).inc();
    }

    /// Shows the counters of a schedule from 0 on, so that its first backup is a change.
    pub(crate) fn show_schedule(&self, name: &str) {
        let (labels, backups) = (of_schedule(name), &self.backups);
        for family in [
            &backups.attempts,
            &backups.successes,
            &backups.partial_failures,
            &backups.failures,
            &backups.validation_failures,
            &self.schedule_skips,
        ] {
            let _ = family.get_or_create(&labels);
        }
    }

    /// Forgets a schedule that is gone. What was counted of its backups stays.
    pub(crate) fn forget_schedule(&self, name: &str) {
        self.schedule_skips.remove(&of_schedule(name));
        self.schedule_interval(name, None);
    }

    /// Seconds between the next two backups of a schedule; `None` if there are no two, or the schedule is not valid.
    pub(crate) fn schedule_interval(&self, name: &str, seconds: Option<i64>) {
        set_or_remove(&self.schedule_intervals, &of_schedule(name), seconds);
    }

    pub(crate) fn schedule_skipped(&self, name: &str) {
        self.schedule_skips.get_or_create(&of_schedule(name)).inc();
    }

    /// Whether a location was available when it was last validated.
    pub(crate) fn location(&self, name: &str, available: bool) {
        self.locations.get_or_create(&of_location(name)).set(i64::from(available));
    }

    /// Forgets the gauge of a location that is gone.
    pub(crate) fn forget_location(&self, name: &str) {
        self.locations.remove(&of_location(name));
    }

    /// Counts a comparison of a location with the cluster.
    pub(crate) fn synced(&self, name: &str, summary: &Summary) {
        let (syncs, labels) = (&self.syncs, of_location(name));
        syncs.passes.get_or_create(&labels).inc();
        syncs.created.get_or_create(&labels).inc_by(summary.created);
        syncs.removed.get_or_create(&labels).inc_by(summary.removed);
        syncs.pruned.get_or_create(&labels).inc_by(summary.pruned);
        if summary.error.is_some() {
            syncs.failures.get_or_create(&labels).inc();
            return;
        }
        syncs.refused.get_or_create(&labels).set(gauge(summary.refused));
        syncs.skipped.get_or_create(&labels).set(gauge(summary.skips()));
        syncs.incomplete.get_or_create(&labels).set(gauge(summary.skipped_as("stray")));
        syncs.last.get_or_create(&labels).set(summary.started.as_second());
    }

    /// Forgets the gauges of a location that is gone.
    pub(crate) fn forget_sync(&self, name: &str) {
        let (syncs, labels) = (&self.syncs, of_location(name));
        for family in [&syncs.refused, &syncs.skipped, &syncs.incomplete, &syncs.last] {
            family.remove(&labels);
        }
    }

    /// How many objects of a profile run without a place in the lock, and how many are in an unknown phase.
    pub(crate) fn lock(&self, profile: &str, conflicting: u64, unknown: u64) {
        let labels = ProfileName { profile: profile.to_owned() };
        self.lock_conflicts.get_or_create(&labels).set(gauge(conflicting));
        self.lock_unknown.get_or_create(&labels).set(gauge(unknown));
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

fn set_or_remove(family: &Family<Schedule, Gauge>, labels: &Schedule, value: Option<i64>) {
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
fn of_schedule(name: &str) -> Schedule {
    labels(&backup_core::labels::valid_value(name))
}

fn of_location(name: &str) -> LocationName {
    LocationName { backup_location_name: name.to_owned() }
}

fn labels(schedule: &str) -> Schedule {
    Schedule { schedule: schedule.to_owned() }
}

#[cfg(test)]
mod tests;
