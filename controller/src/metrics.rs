//! Counters and gauges with Velero's names and labels (`pkg/metrics/metrics.go`, v1.18), so that dashboards and alerts
//! keep working. A transition is counted once, after it is published, by whoever has published it. What is a matter of
//! stored objects is computed from them ([`stored`]), so that it is right after a restart, too.

pub mod stored;
mod synced;

use std::sync::Arc;

use axum::{Router, extract::State, routing::get};
use backup_core::api::Backup;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use synced::Syncs;

/// Upper bounds of durations (seconds), Velero's.
const DURATIONS: [f64; 9] = [60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 14400.0];

/// The label of counters of backups and restores: the schedule they come from, empty if none.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Schedule {
    schedule: String,
}

/// The labels of what is counted for each backup: `schedule` and `backupName`.
type OfBackup = [(&'static str, String); 2];

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
pub enum Outcome {
    /// Work began.
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

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    backups: Outcomes,
    restores: Outcomes,
    deletion_attempts: PerSchedule,
    deletion_successes: PerSchedule,
    deletion_failures: PerSchedule,
    warnings: PerSchedule,
    tarball_size: Family<Schedule, Gauge>,
    items: Family<Schedule, Gauge>,
    item_errors: Family<Schedule, Gauge>,
    last_success: Family<Schedule, Gauge>,
    last_status: Family<Schedule, Gauge>,
    durations: Family<Schedule, Histogram, fn() -> Histogram>,
    native_snapshots: NativeSnapshots,
    snapshots: Snapshots,
    backup_total: Gauge,
    restore_total: Gauge,
    schedule_intervals: Family<Schedule, Gauge>,
    schedule_skips: PerSchedule,
    locations: Family<LocationName, Gauge>,
    syncs: Syncs,
    lock_conflicts: Family<ProfileName, Gauge>,
    lock_unknown: Family<ProfileName, Gauge>,
}

#[derive(Debug, Default)]
struct Outcomes {
    attempts: PerSchedule,
    successes: PerSchedule,
    partial_failures: PerSchedule,
    failures: PerSchedule,
    validation_failures: PerSchedule,
}

/// Snapshots of volumes that plugins take.
#[derive(Debug, Default)]
struct NativeSnapshots {
    attempts: PerSchedule,
    successes: PerSchedule,
    failures: PerSchedule,
}

/// Snapshots of CSI volumes.
#[derive(Debug, Default)]
struct Snapshots {
    attempts: Family<OfBackup, Counter>,
    successes: Family<OfBackup, Counter>,
    failures: Family<OfBackup, Counter>,
}

impl Outcomes {
    fn count(&self, outcome: Outcome, schedule: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.attempts,
            Outcome::Success => &self.successes,
            Outcome::PartialFailure => &self.partial_failures,
            Outcome::Failure => &self.failures,
            Outcome::ValidationFailure => &self.validation_failures,
        };
        family.get_or_create(&labels(schedule)).inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("velero"),
            backups: Outcomes::default(),
            restores: Outcomes::default(),
            deletion_attempts: Family::default(),
            deletion_successes: Family::default(),
            deletion_failures: Family::default(),
            warnings: Family::default(),
            tarball_size: Family::default(),
            items: Family::default(),
            item_errors: Family::default(),
            last_success: Family::default(),
            last_status: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
            native_snapshots: NativeSnapshots::default(),
            snapshots: Snapshots::default(),
            backup_total: Gauge::default(),
            restore_total: Gauge::default(),
            schedule_intervals: Family::default(),
            schedule_skips: Family::default(),
            locations: Family::default(),
            syncs: Syncs::default(),
            lock_conflicts: Family::default(),
            lock_unknown: Family::default(),
        };
        // Counters get the suffix `_total` when they are encoded.
        let r = &mut metrics.registry;
        let (b, s) = (&metrics.backups, &metrics.restores);
        for (name, help, family) in [
            ("backup_attempt", "Backups that began", &b.attempts),
            ("backup_success", "Backups that completed", &b.successes),
            ("backup_partial_failure", "Backups that miss some items", &b.partial_failures),
            ("backup_failure", "Backups that failed", &b.failures),
            ("backup_validation_failure", "Backups that were refused", &b.validation_failures),
            ("backup_warning", "Warnings of backups", &metrics.warnings),
            ("backup_deletion_attempt", "Deletions of backups that began", &metrics.deletion_attempts),
            ("backup_deletion_success", "Backups that were deleted", &metrics.deletion_successes),
            ("backup_deletion_failure", "Deletions of backups that failed", &metrics.deletion_failures),
            ("schedule_skipped", "Scheduled backups that were left out", &metrics.schedule_skips),
            ("restore_attempt", "Restores that began", &s.attempts),
            ("restore_success", "Restores that completed", &s.successes),
            ("restore_partial_failure", "Restores that miss some items", &s.partial_failures),
            ("restore_failed", "Restores that failed", &s.failures),
            ("restore_validation_failed", "Restores that were refused", &s.validation_failures),
        ] {
            r.register(name, help, family.clone());
        }
        for (name, help, family) in [
            ("backup_tarball_size_bytes", "Size of the last backup", &metrics.tarball_size),
            (
                "schedule_expected_interval_seconds",
                "Between the next two backups of a schedule",
                &metrics.schedule_intervals,
            ),
            ("backup_items_total", "Items of the last backup", &metrics.items),
            ("backup_items_errors", "Errors of the last backup", &metrics.item_errors),
            (
                "backup_last_successful_timestamp",
                "End of the last completed backup, Unix time",
                &metrics.last_success,
            ),
            ("backup_last_status", "1 if the last backup completed, else 0", &metrics.last_status),
        ] {
            r.register(name, help, family.clone());
        }
        r.register("backup_total", "Backups that are there", metrics.backup_total.clone());
        r.register("restore_total", "Restores that are there", metrics.restore_total.clone());
        let durations = metrics.durations.clone();
        r.register("backup_duration_seconds", "From the start of a backup to its end", durations);
        let snapshots = &metrics.native_snapshots;
        for (name, help, family) in [
            (
                "volume_snapshot_attempt",
                "Snapshots of volumes that plugins were asked for",
                &snapshots.attempts,
            ),
            ("volume_snapshot_success", "Snapshots of volumes that plugins have taken", &snapshots.successes),
            ("volume_snapshot_failure", "Snapshots of volumes that came to nothing", &snapshots.failures),
        ] {
            r.register(name, help, family.clone());
        }
        let snapshots = &metrics.snapshots;
        for (name, help, family) in [
            ("csi_snapshot_attempt", "Snapshots of CSI volumes that were begun", &snapshots.attempts),
            ("csi_snapshot_success", "Snapshots of CSI volumes that can be used", &snapshots.successes),
            ("csi_snapshot_failure", "Snapshots of CSI volumes that came to nothing", &snapshots.failures),
        ] {
            r.register(name, help, family.clone());
        }
        r.register(
            "backup_location_status_gauge",
            "1 if the location was available when it was last validated, else 0",
            metrics.locations.clone(),
        );
        metrics.syncs.register(r);
        r.register(
            "lock_unclaimed",
            "Objects that run without a place in the lock, beside others",
            metrics.lock_conflicts.clone(),
        );
        r.register(
            "lock_unknown_phase",
            "Objects in a phase that this version does not know",
            metrics.lock_unknown.clone(),
        );
        metrics
    }
}

impl Metrics {
    /// Counts a step of a backup. `schedule` is the value of the label `velero.io/schedule-name`, or empty.
    pub fn backup(&self, outcome: Outcome, schedule: &str) {
        self.backups.count(outcome, schedule);
    }

    /// Notes the size of a finished backup's contents.
    pub fn backup_size(&self, schedule: &str, bytes: u64) {
        self.tarball_size.get_or_create(&labels(schedule)).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts what a backup that has ended says of itself: warnings, snapshots, how long it took.
    pub fn backup_ended(&self, schedule: &str, name: &str, backup: &Backup) {
        let status = &backup.status;
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        self.warnings.get_or_create(&labels(schedule)).inc_by(number(status.warnings));
        if let (Some(start), Some(end)) = (&status.start_timestamp, &status.completion_timestamp) {
            let seconds = end.0.duration_since(start.0).as_secs_f64();
            self.durations.get_or_create(&labels(schedule)).observe(seconds.max(0.0));
        }
        let attempted = number(status.volume_snapshots_attempted);
        if attempted > 0 {
            let completed = number(status.volume_snapshots_completed).min(attempted);
            let snapshots = &self.native_snapshots;
            snapshots.attempts.get_or_create(&labels(schedule)).inc_by(attempted);
            snapshots.successes.get_or_create(&labels(schedule)).inc_by(completed);
            snapshots.failures.get_or_create(&labels(schedule)).inc_by(attempted - completed);
        }
        let attempted = number(status.csi_volume_snapshots_attempted);
        if attempted > 0 {
            let labels = [("schedule", schedule.to_owned()), ("backupName", name.to_owned())];
            let completed = number(status.csi_volume_snapshots_completed).min(attempted);
            self.snapshots.attempts.get_or_create(&labels).inc_by(attempted);
            self.snapshots.successes.get_or_create(&labels).inc_by(completed);
            self.snapshots.failures.get_or_create(&labels).inc_by(attempted - completed);
        }
    }

    /// Counts a step of a restore. `schedule` is that of its backup, or empty.
    pub fn restore(&self, outcome: Outcome, schedule: &str) {
        self.restores.count(outcome, schedule);
    }

    /// Counts a step of the deletion of a backup; a partial failure is a failure.
    pub fn deletion(&self, outcome: Outcome, schedule: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.deletion_attempts,
            Outcome::Success => &self.deletion_successes,
            Outcome::PartialFailure | Outcome::Failure | Outcome::ValidationFailure => {
                &self.deletion_failures
            }
        };
        family.get_or_create(&labels(schedule)).inc();
    }

    /// A schedule is there: its counters are shown from 0 on, so that the first of something is a change.
    pub fn know_schedule(&self, name: &str) {
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
    pub fn forget_schedule(&self, name: &str) {
        self.schedule_skips.remove(&of_schedule(name));
        self.forget_schedule_interval(name);
    }

    /// Seconds between the next two backups of a schedule; none if there is no such thing.
    pub fn schedule_interval(&self, name: &str, seconds: Option<i64>) {
        match seconds {
            Some(seconds) => {
                self.schedule_intervals.get_or_create(&of_schedule(name)).set(seconds);
            }
            None => self.forget_schedule_interval(name),
        }
    }

    /// Nobody can say any more when a schedule is due.
    pub fn forget_schedule_interval(&self, name: &str) {
        self.schedule_intervals.remove(&of_schedule(name));
    }

    /// A backup of a schedule was left out.
    pub fn schedule_skipped(&self, name: &str) {
        self.schedule_skips.get_or_create(&of_schedule(name)).inc();
    }

    /// Whether a location was available when it was last validated.
    pub fn location(&self, name: &str, available: bool) {
        let labels = LocationName { backup_location_name: name.to_owned() };
        self.locations.get_or_create(&labels).set(i64::from(available));
    }

    /// Forgets a location that is gone.
    pub fn forget_location(&self, name: &str) {
        self.locations.remove(&LocationName { backup_location_name: name.to_owned() });
    }

    /// How many objects of a profile run without a place in the lock, and how many are in an unknown phase.
    pub fn lock(&self, profile: &str, conflicting: usize, unknown: usize) {
        let labels = ProfileName { profile: profile.to_owned() };
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
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

/// As the label of its backups names it.
fn of_schedule(name: &str) -> Schedule {
    labels(&backup_core::labels::valid_value(name))
}

fn labels(schedule: &str) -> Schedule {
    Schedule { schedule: schedule.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A Backup with a bit of everything.
    fn ended() -> Backup {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "spec": {},
            "metadata": { "name": "b" },
            "status": { "phase": "Completed", "warnings": 2, "startTimestamp": "2026-01-01T00:00:00Z",
                "completionTimestamp": "2026-01-01T00:01:30Z",
                "volumeSnapshotsAttempted": 2, "volumeSnapshotsCompleted": 1,
                "csiVolumeSnapshotsAttempted": 3, "csiVolumeSnapshotsCompleted": 2 } });
        serde_json::from_value(object).unwrap()
    }

    fn has(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.encode();
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line} not in\n{text}");
        }
    }

    #[test]
    fn names_and_labels_are_those_that_dashboards_know() {
        let metrics = Metrics::default();
        metrics.backup(Outcome::Attempt, "nightly");
        metrics.backup(Outcome::Success, "nightly");
        metrics.backup_size("nightly", 1024);
        metrics.restore(Outcome::Failure, "");
        metrics.deletion(Outcome::Success, "");
        metrics.location("default", true);
        let lines = [
            "velero_backup_attempt_total{schedule=\"nightly\"} 1",
            "velero_backup_success_total{schedule=\"nightly\"} 1",
            "velero_backup_tarball_size_bytes{schedule=\"nightly\"} 1024",
            "velero_restore_failed_total{schedule=\"\"} 1",
            "velero_backup_deletion_success_total{schedule=\"\"} 1",
            "velero_backup_location_status_gauge{backup_location_name=\"default\"} 1",
            "velero_backup_total 0",
            "velero_restore_total 0",
        ];
        has(&metrics, &lines);
    }

    /// All that Velero has and we can tell something about.
    #[test]
    fn every_name_is_there_once_it_has_happened() {
        let metrics = Metrics::default();
        for outcome in [
            Outcome::Attempt,
            Outcome::Success,
            Outcome::PartialFailure,
            Outcome::Failure,
            Outcome::ValidationFailure,
        ] {
            metrics.backup(outcome, "");
            metrics.restore(outcome, "");
            metrics.deletion(outcome, "");
        }
        metrics.backup_size("", 1);
        metrics.location("default", true);
        let mut stored = stored::StoredBackups::default();
        metrics.backup_ended("", "b", &ended());
        stored.applied(&ended(), &metrics);
        stored.listed(&metrics);
        let text = metrics.encode();
        for name in [
            "backup_tarball_size_bytes",
            "backup_total",
            "backup_last_successful_timestamp",
            "backup_items_total",
            "backup_items_errors",
            "backup_last_status",
            "backup_attempt",
            "backup_success",
            "backup_partial_failure",
            "backup_failure",
            "backup_validation_failure",
            "backup_warning",
            "backup_deletion_attempt",
            "backup_deletion_success",
            "backup_deletion_failure",
            "backup_duration_seconds",
            "backup_location_status_gauge",
            "restore_total",
            "restore_attempt",
            "restore_validation_failed",
            "restore_success",
            "restore_partial_failure",
            "restore_failed",
            "csi_snapshot_attempt",
            "csi_snapshot_success",
            "csi_snapshot_failure",
            "volume_snapshot_attempt",
            "volume_snapshot_success",
            "volume_snapshot_failure",
        ] {
            assert!(text.contains(&format!("# TYPE velero_{name} ")), "{name} not in\n{text}");
        }
    }

    #[test]
    fn a_backup_that_has_ended_tells_its_duration_its_warnings_and_its_snapshots() {
        let metrics = Metrics::default();
        metrics.backup_ended("nightly", "b", &ended());
        metrics.backup_ended("", "without", &Backup::default());
        let lines = [
            "velero_backup_warning_total{schedule=\"nightly\"} 2",
            "velero_backup_duration_seconds_sum{schedule=\"nightly\"} 90.0",
            "velero_backup_duration_seconds_bucket{le=\"60.0\",schedule=\"nightly\"} 0",
            "velero_backup_duration_seconds_bucket{le=\"300.0\",schedule=\"nightly\"} 1",
            "velero_volume_snapshot_attempt_total{schedule=\"nightly\"} 2",
            "velero_volume_snapshot_success_total{schedule=\"nightly\"} 1",
            "velero_volume_snapshot_failure_total{schedule=\"nightly\"} 1",
            "velero_csi_snapshot_attempt_total{schedule=\"nightly\",backupName=\"b\"} 3",
            "velero_csi_snapshot_success_total{schedule=\"nightly\",backupName=\"b\"} 2",
            "velero_csi_snapshot_failure_total{schedule=\"nightly\",backupName=\"b\"} 1",
        ];
        has(&metrics, &lines);
        assert!(!metrics.encode().contains("without"));
    }
}
