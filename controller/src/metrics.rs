//! Counters and gauges with Velero's names and labels (`pkg/metrics/metrics.go`, v1.18), so that dashboards and alerts
//! keep working. A transition is counted once, after it is published.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// The label of counters of backups and restores: the schedule they come from, empty if none.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Schedule {
    schedule: String,
}

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
    locations: Family<LocationName, Gauge>,
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
            locations: Family::default(),
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
        r.register(
            "backup_location_status_gauge",
            "1 if the location was available when it was last validated, else 0",
            metrics.locations.clone(),
        );
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
        let ended = match outcome {
            Outcome::Success => 1,
            Outcome::PartialFailure | Outcome::Failure => 0,
            Outcome::Attempt | Outcome::ValidationFailure => return,
        };
        self.last_status.get_or_create(&labels(schedule)).set(ended);
    }

    /// Notes what a finished backup contains; `completed` is its end in seconds of Unix time if it completed.
    pub fn backup_contents(
        &self,
        schedule: &str,
        bytes: u64,
        items: i64,
        errors: i64,
        completed: Option<i64>,
    ) {
        let labels = labels(schedule);
        self.tarball_size.get_or_create(&labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.items.get_or_create(&labels).set(items);
        self.item_errors.get_or_create(&labels).set(errors);
        if let Some(completed) = completed {
            self.last_success.get_or_create(&labels).set(completed);
        }
    }

    /// Counts the warnings of a backup.
    pub fn backup_warnings(&self, schedule: &str, warnings: i64) {
        self.warnings.get_or_create(&labels(schedule)).inc_by(u64::try_from(warnings).unwrap_or(0));
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
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String fails only if an encoder does, of which the part before is still useful.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn labels(schedule: &str) -> Schedule {
    Schedule { schedule: schedule.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_that_dashboards_know() {
        let metrics = Metrics::default();
        metrics.backup(Outcome::Attempt, "nightly");
        metrics.backup(Outcome::Success, "nightly");
        metrics.restore(Outcome::Failure, "");
        metrics.deletion(Outcome::Success, "");
        metrics.location("default", true);
        let text = metrics.encode();
        for line in [
            "velero_backup_attempt_total{schedule=\"nightly\"} 1",
            "velero_backup_success_total{schedule=\"nightly\"} 1",
            "velero_backup_last_status{schedule=\"nightly\"} 1",
            "velero_restore_failed_total{schedule=\"\"} 1",
            "velero_backup_deletion_success_total{schedule=\"\"} 1",
            "velero_backup_location_status_gauge{backup_location_name=\"default\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} not in\n{text}");
        }
    }
}
