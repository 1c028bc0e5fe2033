//! Updates the metrics, which `backup-metrics` declares. A transition is counted once, after it was
//! published, by the process that has published it; those of volume data by the process that
//! watches them ([`stored::volume_data`]). Gauges about stored objects are computed from these
//! ([`stored`]), so that they are right after a restart.

pub(crate) mod stored;

use backup_core::sync::NoteKind;
use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use backup_core::{api::Backup, drill::LastDrill, labels::valid_value, sync::Summary};
use backup_metrics::{CONTENT_TYPE, ControllerMetrics, Counter, LabelValues, Series};
use backup_runtime::leader::Leadership;
use jiff::Timestamp;

/// The end of a backup or restore, or its start.
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

/// The metrics of the process, with their updates.
#[derive(Debug)]
pub(crate) struct Metrics {
    series: ControllerMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let series = ControllerMetrics::default();
        series.build_info.set([env!("CARGO_PKG_VERSION")], Some(1));
        Self { series }
    }
}

/// Counts `attempted` snapshots, of which `completed` have succeeded.
fn count_snapshots<const N: usize>(
    [attempts, successes, failures]: [&Series<Counter, N>; 3],
    labels: LabelValues<'_, N>,
    attempted: i64,
    completed: i64,
) {
    let attempted = u64::try_from(attempted).unwrap_or(0);
    if attempted > 0 {
        let completed = u64::try_from(completed).unwrap_or(0).min(attempted);
        attempts.of(labels).inc_by(attempted);
        successes.of(labels).inc_by(completed);
        failures.of(labels).inc_by(attempted - completed);
    }
}

/// Counters of the backups of a schedule, by their outcomes.
fn by_outcome(series: &ControllerMetrics) -> [&Series<Counter, 1>; 5] {
    [
        &series.backup_attempt,
        &series.backup_success,
        &series.backup_partial_failure,
        &series.backup_failure,
        &series.backup_validation_failure,
    ]
}

/// Counters of the scheduled verifications: whole, and not whole.
fn by_verdict(series: &ControllerMetrics) -> [&Series<Counter, 1>; 2] {
    [
        &series.schedule_verification_success,
        &series.schedule_verification_failure,
    ]
}

/// Counters of the scheduled drills: succeeded, and failed.
fn by_drill(series: &ControllerMetrics) -> [&Series<Counter, 1>; 2] {
    [
        &series.schedule_drill_success,
        &series.schedule_drill_failure,
    ]
}

fn csi_snapshots(series: &ControllerMetrics) -> [&Series<Counter, 2>; 3] {
    [
        &series.csi_snapshot_attempt,
        &series.csi_snapshot_success,
        &series.csi_snapshot_failure,
    ]
}

fn native_snapshots(series: &ControllerMetrics) -> [&Series<Counter, 1>; 3] {
    [
        &series.volume_snapshot_attempt,
        &series.volume_snapshot_success,
        &series.volume_snapshot_failure,
    ]
}

/// `schedule` is the value of the label `velero.io/schedule-name` of the backup, or empty.
impl Metrics {
    pub(crate) fn backup(&self, outcome: Outcome, schedule: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.series.backup_attempt,
            Outcome::Success => &self.series.backup_success,
            Outcome::PartialFailure => &self.series.backup_partial_failure,
            Outcome::Failure => &self.series.backup_failure,
            Outcome::ValidationFailure => &self.series.backup_validation_failure,
        };
        family.of([schedule]).inc();
    }

    /// Sets the size of a finished backup's contents.
    pub(crate) fn backup_size(&self, schedule: &str, bytes: u64) {
        self.series
            .backup_tarball_size_bytes
            .of([schedule])
            .set(gauge(bytes));
    }

    /// Counts from the status of an ended backup: warnings, snapshots, duration.
    pub(crate) fn backup_ended(&self, schedule: &str, name: &str, backup: &Backup) {
        let status = &backup.status;
        let series = &self.series;
        series
            .backup_warning
            .of([schedule])
            .inc_by(u64::try_from(status.warnings).unwrap_or(0));
        if let (Some(start), Some(end)) = (&status.start_timestamp, &status.completion_timestamp) {
            let seconds = end.0.duration_since(start.0).as_secs_f64();
            series
                .backup_duration_seconds
                .of([schedule])
                .observe(seconds.max(0.0));
        }
        let attempted = status.volume_snapshots_attempted;
        let completed = status.volume_snapshots_completed;
        count_snapshots(native_snapshots(series), [schedule], attempted, completed);
        let attempted = status.csi_volume_snapshots_attempted;
        let completed = status.csi_volume_snapshots_completed;
        count_snapshots(
            csi_snapshots(series),
            [schedule, name],
            attempted,
            completed,
        );
    }

    /// Counts an attempt to copy a backup into a location, or its end.
    pub(crate) fn copy(&self, outcome: Outcome, location: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.series.backup_copy_attempt,
            Outcome::Success => &self.series.backup_copy_success,
            Outcome::PartialFailure | Outcome::Failure | Outcome::ValidationFailure => {
                &self.series.backup_copy_failure
            }
        };
        family.of([location]).inc();
    }

    pub(crate) fn restore(&self, outcome: Outcome, schedule: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.series.restore_attempt,
            Outcome::Success => &self.series.restore_success,
            Outcome::PartialFailure => &self.series.restore_partial_failure,
            Outcome::Failure => &self.series.restore_failed,
            Outcome::ValidationFailure => &self.series.restore_validation_failed,
        };
        family.of([schedule]).inc();
    }

    /// Counts a step of the deletion of a backup; a partial failure is a failure.
    pub(crate) fn deletion(&self, outcome: Outcome, schedule: &str) {
        let family = match outcome {
            Outcome::Attempt => &self.series.backup_deletion_attempt,
            Outcome::Success => &self.series.backup_deletion_success,
            Outcome::PartialFailure | Outcome::Failure | Outcome::ValidationFailure => {
                &self.series.backup_deletion_failure
            }
        };
        family.of([schedule]).inc();
    }

    /// Exports the counters of a schedule from 0, so that its first backup is a change.
    pub(crate) fn show_schedule(&self, name: &str) {
        let schedule = valid_value(name);
        let series = &self.series;
        for counters in by_outcome(series)
            .into_iter()
            .chain([&series.schedule_skipped])
        {
            counters.of([&schedule]);
        }
    }

    /// Removes the series of a deleted schedule. Backups of it that end or are deleted later start
    /// a new series at 0.
    pub(crate) fn forget_schedule(&self, name: &str) {
        let schedule = valid_value(name);
        let series = &self.series;
        let others = [
            &series.restore_attempt,
            &series.restore_success,
            &series.restore_partial_failure,
            &series.restore_failed,
            &series.restore_validation_failed,
            &series.backup_deletion_attempt,
            &series.backup_deletion_success,
            &series.backup_deletion_failure,
            &series.backup_warning,
            &series.schedule_skipped,
        ];
        for counters in by_outcome(series)
            .into_iter()
            .chain(native_snapshots(series))
            .chain(others)
        {
            counters.remove([&schedule]);
        }
        series.backup_tarball_size_bytes.remove([&schedule]);
        series.backup_duration_seconds.remove([&schedule]);
        self.schedule_due(name, None, None);
        self.forget_verification(name);
        self.forget_drill(name);
        series.schedule_usable.remove([&schedule]);
        series.schedule_paused.remove([&schedule]);
    }

    /// Removes the series of a deleted backup: Velero's series about CSI snapshots name the backup.
    fn forget_backup(&self, schedule: &str, name: &str) {
        for counters in csi_snapshots(&self.series) {
            counters.remove([schedule, name]);
        }
    }

    /// Sets the seconds between the next two backups of a schedule, and the time when one was last
    /// due. `None` if there are no two, or none was due yet; both are `None` if the schedule is
    /// paused, or its expression is invalid.
    pub(crate) fn schedule_due(&self, name: &str, interval: Option<i64>, last: Option<Timestamp>) {
        let schedule = valid_value(name);
        let last = last.map(Timestamp::as_second);
        self.series
            .schedule_expected_interval_seconds
            .set([&schedule], interval);
        self.series
            .schedule_last_due_timestamp_seconds
            .set([&schedule], last);
    }

    /// Whether a schedule can make backups, and whether it is paused.
    pub(crate) fn schedule_state(&self, name: &str, usable: bool, paused: bool) {
        let schedule = valid_value(name);
        self.series
            .schedule_usable
            .of([&schedule])
            .set(i64::from(usable));
        self.series
            .schedule_paused
            .of([&schedule])
            .set(i64::from(paused));
    }

    /// Sets when a backup of a schedule is to be verified, and when one was last found whole. Exports
    /// the counters from 0.
    pub(crate) fn verification_due(
        &self,
        name: &str,
        due: Option<Timestamp>,
        whole: Option<Timestamp>,
    ) {
        let schedule = valid_value(name);
        let series = &self.series;
        series
            .schedule_verification_due_timestamp_seconds
            .set([&schedule], due.map(Timestamp::as_second));
        series
            .schedule_verification_last_success_timestamp_seconds
            .set([&schedule], whole.map(Timestamp::as_second));
        for counters in by_verdict(series) {
            counters.of([&schedule]);
        }
    }

    /// Counts a scheduled verification.
    pub(crate) fn verified(&self, name: &str, is_whole: bool) {
        let [success, failure] = by_verdict(&self.series);
        let counters = if is_whole { success } else { failure };
        counters.of([&valid_value(name)]).inc();
    }

    /// Removes the series about verifications of a schedule that asks for none.
    pub(crate) fn forget_verification(&self, name: &str) {
        let schedule = valid_value(name);
        let series = &self.series;
        for gauges in [
            &series.schedule_verification_due_timestamp_seconds,
            &series.schedule_verification_last_success_timestamp_seconds,
        ] {
            gauges.remove([&schedule]);
        }
        for counters in by_verdict(series) {
            counters.remove([&schedule]);
        }
    }

    /// Sets when a backup of a schedule is to be restored on trial, and what its last drill has come
    /// to. Exports the counters from 0.
    pub(crate) fn drill_due(&self, name: &str, due: Option<Timestamp>, last: Option<&LastDrill>) {
        let schedule = valid_value(name);
        let series = &self.series;
        let success = last.and_then(|last| last.success);
        let seconds = last
            .filter(|last| !last.result.has_failed())
            .map(|last| last.result.seconds);
        let status = last.map(|last| i64::from(!last.result.has_failed()));
        for (gauges, value) in [
            (
                &series.schedule_drill_due_timestamp_seconds,
                due.map(Timestamp::as_second),
            ),
            (
                &series.schedule_drill_last_success_timestamp_seconds,
                success.map(Timestamp::as_second),
            ),
            (&series.schedule_drill_last_duration_seconds, seconds),
            (&series.schedule_drill_last_status, status),
        ] {
            gauges.set([&schedule], value);
        }
        for counters in by_drill(series) {
            counters.of([&schedule]);
        }
    }

    /// Counts a scheduled drill.
    pub(crate) fn drilled(&self, name: &str, has_failed: bool) {
        let [success, failure] = by_drill(&self.series);
        let counters = if has_failed { failure } else { success };
        counters.of([&valid_value(name)]).inc();
    }

    /// Removes the series about drills of a schedule that asks for none.
    pub(crate) fn forget_drill(&self, name: &str) {
        let schedule = valid_value(name);
        self.drill_due(name, None, None);
        for counters in by_drill(&self.series) {
            counters.remove([&schedule]);
        }
    }

    pub(crate) fn notification_sent(&self) {
        self.series.notifications_sent.inc();
    }

    pub(crate) fn notification_failed(&self) {
        self.series.notifications_failed.inc();
    }

    pub(crate) fn notification_dropped(&self) {
        self.series.notifications_dropped.inc();
    }

    pub(crate) fn schedule_skipped(&self, name: &str) {
        self.series.schedule_skipped.of([&valid_value(name)]).inc();
    }

    /// Whether a location was available when it was last validated, and whether its spec allows
    /// writes.
    pub(crate) fn location(&self, name: &str, available: bool, read_only: bool) {
        self.series
            .backup_location_status_gauge
            .of([name])
            .set(i64::from(available));
        self.series
            .backup_location_writable
            .of([name])
            .set(i64::from(available && !read_only));
    }

    /// Removes the gauges of a deleted location.
    pub(crate) fn forget_location(&self, name: &str) {
        self.series.backup_location_status_gauge.remove([name]);
        self.series.backup_location_writable.remove([name]);
    }

    /// Counts a comparison of a location with the cluster.
    pub(crate) fn synced(&self, name: &str, summary: &Summary) {
        let series = &self.series;
        series.backup_sync.of([name]).inc();
        series
            .backup_sync_created
            .of([name])
            .inc_by(summary.created);
        series
            .backup_sync_removed
            .of([name])
            .inc_by(summary.removed);
        series.backup_sync_pruned.of([name]).inc_by(summary.pruned);
        if summary.error.is_some() {
            series.backup_sync_failure.of([name]).inc();
            return;
        }
        series
            .backup_sync_refused
            .of([name])
            .set(gauge(summary.refused));
        series
            .backup_sync_skipped
            .of([name])
            .set(gauge(summary.skips()));
        series
            .backup_sync_stray
            .of([name])
            .set(gauge(summary.skipped_as(&NoteKind::Stray)));
        series
            .backup_sync_last_timestamp
            .of([name])
            .set(summary.started.as_second());
    }

    /// Sets the seconds between two comparisons of a location, `None` if there are none, and the
    /// start of the last completed one from its status: this process may not have done one yet.
    pub(crate) fn sync_expected(
        &self,
        name: &str,
        period: Option<Duration>,
        last: Option<Timestamp>,
    ) {
        let seconds = period.map(|period| gauge(period.as_secs()));
        self.series.backup_sync_period_seconds.set([name], seconds);
        if let Some(last) = last {
            self.series
                .backup_sync_last_timestamp
                .of([name])
                .set(last.as_second());
        }
    }

    /// Sets the number of expired backups that stay because they are too many at once; `None` if the
    /// location is gone.
    pub(crate) fn retention_refused(&self, name: &str, refused: Option<u64>) {
        let refused = refused.map(gauge);
        self.series.backup_retention_refused.set([name], refused);
    }

    /// Removes the series about the sync of a deleted location.
    pub(crate) fn forget_sync(&self, name: &str) {
        let series = &self.series;
        for gauges in [
            &series.backup_sync_refused,
            &series.backup_sync_skipped,
            &series.backup_sync_stray,
            &series.backup_sync_last_timestamp,
            &series.backup_sync_period_seconds,
        ] {
            gauges.remove([name]);
        }
        for counters in [
            &series.backup_sync,
            &series.backup_sync_failure,
            &series.backup_sync_created,
            &series.backup_sync_removed,
            &series.backup_sync_pruned,
        ] {
            counters.remove([name]);
        }
    }

    /// Sets the number of objects of a profile that run without a place in the lock, and of those
    /// in an unknown phase.
    pub(crate) fn lock(&self, profile: &str, conflicting: u64, unknown: u64) {
        self.series
            .lock_unclaimed
            .of([profile])
            .set(gauge(conflicting));
        self.series
            .lock_unknown_phase
            .of([profile])
            .set(gauge(unknown));
    }

    pub(crate) fn profile_unusable(&self, name: &str) {
        self.series.profiles_unusable.of([name]).set(1);
    }

    /// Sets the number of objects of a kind that have not begun, and the creation time of the
    /// oldest.
    fn queue(&self, kind: &str, length: usize, oldest: Option<Timestamp>) {
        self.series
            .queue_length
            .of([kind])
            .set(gauge(length as u64));
        self.series
            .queue_oldest_timestamp_seconds
            .set([kind], oldest.map(Timestamp::as_second));
    }

    /// All series, in the format of [`CONTENT_TYPE`].
    pub(crate) fn encode(&self) -> String {
        self.series.encode()
    }
}

/// The route `/metrics`.
pub(crate) fn router(metrics: Arc<Metrics>, leadership: Leadership) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .with_state((metrics, leadership))
}

async fn scrape(
    State((metrics, leadership)): State<(Arc<Metrics>, Leadership)>,
) -> impl IntoResponse {
    metrics.series.leader.set(i64::from(leadership.is_leader()));
    (
        [(http::header::CONTENT_TYPE, CONTENT_TYPE)],
        metrics.encode(),
    )
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
