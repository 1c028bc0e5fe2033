//! A schedule and the backups that it promises. Pure.

use backup_core::{api::Schedule, cron::Cron, restorability::Places};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::Scope;
use crate::view::schedule::{Obstacle, next, reading};

/// How far back past runs of a schedule are searched.
const MAX_LOOKBACK: SignedDuration = SignedDuration::from_hours(24 * 400);

pub(super) struct Promise {
    pub(super) name: String,
    pub(super) scope: Scope,
    /// Why the schedule makes no backups, or none that last: then it promises nothing.
    pub(super) obstacle: Option<Obstacle>,
    pub(super) next: Option<Timestamp>,
    /// Earliest acceptable start of the last good backup: the last run but one, because the last
    /// one may not have ended.
    pub(super) since: Option<Timestamp>,
    /// Time between two runs.
    pub(super) every: Option<SignedDuration>,
}

impl Promise {
    /// The command that shows the schedule, or starts it if it is paused.
    pub(super) fn command(&self) -> String {
        let verb = if self.obstacle == Some(Obstacle::Paused) {
            "unpause"
        } else {
            "describe"
        };
        format!("kubectl backup schedules {verb} {}", self.name)
    }

    pub(super) fn of(schedule: &Schedule, places: Option<&Places>, now: Timestamp) -> Self {
        let obstacle = Obstacle::of(schedule, places, now);
        let runs = if obstacle.is_none() {
            next(schedule, now)
        } else {
            Vec::new()
        };
        let cron = reading(schedule)
            .unwrap_or_default()
            .cron(&schedule.spec.schedule)
            .ok();
        let is_running = !runs.is_empty();
        let last = cron
            .as_ref()
            .and_then(|cron| previous_run(cron, now))
            .filter(|_| is_running);
        let since = cron
            .as_ref()
            .zip(last)
            .and_then(|(cron, last)| previous_run(cron, last));
        let created = schedule.metadata.creation_timestamp.as_ref().map(|at| at.0);
        Self {
            name: schedule.name_any(),
            scope: Scope::of(&schedule.spec.template),
            obstacle,
            next: runs.first().copied(),
            // A schedule promises nothing for the time before its creation.
            since: since.filter(|since| created.is_none_or(|created| created <= *since)),
            every: last
                .zip(since)
                .map(|(last, since)| last.duration_since(since)),
        }
    }
}

/// The last run before this time.
fn previous_run(cron: &Cron, at: Timestamp) -> Option<Timestamp> {
    let since = at.checked_sub(MAX_LOOKBACK).ok()?;
    cron.latest(since, at.checked_sub(SignedDuration::from_secs(1)).ok()?)
}
