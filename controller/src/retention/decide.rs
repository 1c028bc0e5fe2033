//! Decides when the backups of a location are looked at, and what to do about one that has expired.
//! Pure.

use std::time::Duration;

use backup_core::{
    api::{DeleteBackupRequest, DeleteBackupRequestPhase as Phase},
    retention::{RetentionFacts, RetentionLoad, RetentionVerdict},
};
use backup_runtime::queue::Action;
use jiff::{SignedDuration, Timestamp};

/// Maximum time between checks of an expiration: the clock may have been wrong.
const MAX_WAIT: Duration = Duration::from_hours(24);

/// The expiration of a backup that has ended, as the watch has shown it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchedExpiry {
    pub(super) at: Timestamp,
    /// Whether a pass has seen that it has expired, and the backup stayed.
    pub(super) was_checked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Look at the backups of the location now.
    Pass,
    Wait(Action),
}

/// A pass is made when a backup expires, at a user's request, and at each `period` while expired
/// backups stay.
pub(super) fn next(
    expiries: impl Iterator<Item = WatchedExpiry>,
    is_requested: bool,
    last_pass: Option<Timestamp>,
    now: Timestamp,
    period: Duration,
) -> Next {
    if is_requested {
        return Next::Pass;
    }
    let since = last_pass.map_or(period, |last| between(last, now));
    let until_next_pass = period.saturating_sub(since);
    let mut wait: Option<Duration> = None;
    for expiry in expiries {
        let left = if expiry.at > now {
            between(now, expiry.at).min(MAX_WAIT)
        } else if expiry.was_checked {
            until_next_pass
        } else {
            Duration::ZERO
        };
        wait = Some(wait.map_or(left, |wait| wait.min(left)));
    }
    match wait {
        None => Next::Wait(Action::AwaitChange),
        Some(Duration::ZERO) => Next::Pass,
        Some(left) => Next::Wait(Action::RequeueAfter(left)),
    }
}

/// The time from one moment to a later one; zero if it is not later.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// Why an expired backup cannot be deleted now: the values of Velero's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Its location is gone.
    NotFound,
    /// Its location cannot be read.
    CannotGet,
    /// Nothing may be deleted there.
    ReadOnly,
    /// The store could not be used when it was last validated.
    Unavailable,
}

impl Failure {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "BSLNotFound",
            Self::CannotGet => "BSLCannotGet",
            Self::ReadOnly => "BSLReadOnly",
            Self::Unavailable => "BSLUnavailable",
        }
    }
}

/// An expired backup.
#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    pub(super) verdict: RetentionVerdict,
    pub(super) failure: Option<Failure>,
    /// Requests to delete this very backup.
    pub(super) requests: Vec<DeleteBackupRequest>,
    /// The name of the request that this controller makes.
    pub(super) own_request: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Its deletion was requested already, or was refused recently.
    Nothing,
    /// It is kept beyond its time.
    Keep,
    Label(Failure),
    Request,
    /// Request it again: this earlier request of ours failed.
    Renew(Box<DeleteBackupRequest>),
}

/// One request at a time. A failed one is repeated after `period`.
///
/// Whether a backup is the last good one depends on the state of locations, so that comes last.
pub(super) fn decide(case: &Case, now: Timestamp, period: Duration) -> Step {
    if case.requests.iter().any(is_open) {
        return Step::Nothing;
    }
    if case.verdict.is_kept_by_schedule() {
        return Step::Keep;
    }
    if let Some(failure) = case.failure {
        return Step::Label(failure);
    }
    if case.verdict.is_last_good {
        return Step::Keep;
    }
    let ours = case
        .requests
        .iter()
        .find(|request| request.metadata.name.as_ref() == Some(&case.own_request));
    let Some(ours) = ours else {
        return Step::Request;
    };
    let created = ours.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let age = created.map_or(SignedDuration::MAX, |created| now.duration_since(created));
    if SignedDuration::try_from(period).is_ok_and(|period| age >= period) {
        Step::Renew(Box::new(ours.clone()))
    } else {
        Step::Nothing
    }
}

/// Whether a request is not answered yet.
pub(super) fn is_open(request: &DeleteBackupRequest) -> bool {
    !matches!(
        request.status.phase,
        Some(Phase::Processed | Phase::Unknown(_))
    )
}

/// The backups of a location, without those that are being deleted, and the part that is removed.
/// Requests that are repeated were counted when they were first made.
pub(super) fn load(
    staying: &[&RetentionFacts],
    steps: &[(&RetentionFacts, Step)],
) -> RetentionLoad {
    let held = staying.iter().filter(|facts| facts.is_stored());
    let due = steps
        .iter()
        .filter(|(facts, step)| *step == Step::Request && facts.is_stored());
    RetentionLoad {
        held: held.map(|facts| facts.began).collect(),
        due: due.map(|(facts, _)| facts.began).collect(),
        removals: steps
            .iter()
            .filter(|(_, step)| *step == Step::Request)
            .count() as u64,
    }
}

#[cfg(test)]
mod tests;
