//! Whether a backup's time is over, and what is done about it. Pure.

use std::time::Duration;

use backup_core::api::{Backup, BackupPhase, DeleteBackupRequest, DeleteBackupRequestPhase as Phase};
use jiff::{SignedDuration, Timestamp};

/// How a backup stands to its expiration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It is never deleted as it is now: it says no time, has not ended, or is going already.
    Stays,
    /// So much time is left.
    Left(Duration),
    /// It may be deleted.
    Over,
}

/// A phase that is not known has not ended.
pub(super) fn age(backup: &Backup, now: Timestamp) -> Age {
    let Some(expiration) = backup.status.expiration.as_ref() else { return Age::Stays };
    if backup.metadata.deletion_timestamp.is_some() || !has_ended(&backup.phase()) {
        return Age::Stays;
    }
    let left = expiration.0.duration_since(now);
    if left <= SignedDuration::ZERO {
        Age::Over
    } else {
        Age::Left(Duration::try_from(left).unwrap_or_default())
    }
}

/// One whose deletion has not come to its end counts: its request may have failed.
fn has_ended(phase: &BackupPhase) -> bool {
    phase.is_terminal()
}

/// Why an expired backup can not be deleted now: the values of Velero's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Its location is gone.
    NotFound,
    /// Its location can't be read.
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

/// What is known about an expired backup.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// What is in the way.
    pub(super) failure: Option<Failure>,
    /// Requests to delete this very backup.
    pub(super) requests: Vec<DeleteBackupRequest>,
    /// The name of the request that is made here.
    pub(super) ours: String,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// Somebody has asked for its deletion already, or has been refused a short while ago.
    Nothing,
    /// Say why it stays.
    Label(Failure),
    /// Ask for its deletion.
    Ask,
    /// The same once more, as this request of ours came to nothing.
    Renew(Box<DeleteBackupRequest>),
}

/// One request at a time. One that failed is made again at the given pace.
pub(super) fn decide(facts: &Facts, now: Timestamp, pace: Duration) -> Plan {
    let is_open = |request: &&DeleteBackupRequest| {
        !matches!(request.status.phase, Some(Phase::Processed | Phase::Unknown(_)))
    };
    if facts.requests.iter().any(|request| is_open(&request)) {
        return Plan::Nothing;
    }
    if let Some(failure) = facts.failure {
        return Plan::Label(failure);
    }
    let ours = facts.requests.iter().find(|request| request.metadata.name.as_deref() == Some(&facts.ours));
    let Some(ours) = ours else { return Plan::Ask };
    let created = ours.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let age = created.map_or(SignedDuration::MAX, |created| now.duration_since(created));
    if SignedDuration::try_from(pace).is_ok_and(|pace| age >= pace) {
        Plan::Renew(Box::new(ours.clone()))
    } else {
        Plan::Nothing
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::{BackupSpec, delete_backup_request::DeleteBackupRequestSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn ago(seconds: i64) -> Time {
        Time(now().checked_sub(SignedDuration::from_secs(seconds)).unwrap())
    }

    #[test]
    fn only_what_has_ended_and_expired_is_over() {
        let left = |seconds| Age::Left(Duration::from_secs(seconds));
        for (phase, expired, deleted, expected) in [
            ("Completed", Some(1), false, Age::Over),
            ("Completed", Some(0), false, Age::Over),
            ("Completed", Some(-7), false, left(7)),
            ("Completed", None, false, Age::Stays),
            ("Completed", Some(1), true, Age::Stays),
            ("PartiallyFailed", Some(1), false, Age::Over),
            ("Failed", Some(1), false, Age::Over),
            ("FailedValidation", Some(1), false, Age::Over),
            // A deletion that came to nothing.
            ("Deleting", Some(1), false, Age::Over),
            ("New", Some(1), false, Age::Stays),
            ("Queued", Some(1), false, Age::Stays),
            ("ReadyToStart", Some(1), false, Age::Stays),
            ("InProgress", Some(1), false, Age::Stays),
            ("WaitingForPluginOperations", Some(1), false, Age::Stays),
            ("WaitingForPluginOperationsPartiallyFailed", Some(1), false, Age::Stays),
            ("Finalizing", Some(1), false, Age::Stays),
            ("FinalizingPartiallyFailed", Some(1), false, Age::Stays),
            ("Tomorrow", Some(1), false, Age::Stays),
        ] {
            let mut backup = Backup::new("b", BackupSpec::default());
            backup.status.phase = Some(phase.into());
            backup.status.expiration = expired.map(ago);
            backup.metadata.deletion_timestamp = deleted.then(|| ago(0));
            assert_eq!(age(&backup, now()), expected, "{phase} {expired:?} {deleted}");
        }
        assert_eq!(BackupPhase::KNOWN.len(), 13, "a phase that is not in the table");
    }

    #[test]
    fn there_is_one_request_at_a_time_and_one_that_failed_is_made_again_later() {
        let request = |name: &str, phase: Option<&str>, age: i64| {
            let mut request = DeleteBackupRequest::new(name, DeleteBackupRequestSpec::default());
            request.status.phase = phase.map(Phase::from);
            request.metadata.creation_timestamp = Some(ago(age));
            request
        };
        let ours = "expired-b";
        let processed = Some("Processed");
        for (requests, failure, expected) in [
            (vec![], None, "Ask"),
            (vec![], Some(Failure::ReadOnly), "Label"),
            (vec![request("b-x", None, 9999)], None, "Nothing"),
            (vec![request("b-x", None, 9999)], Some(Failure::ReadOnly), "Nothing"),
            (vec![request("b-x", Some("New"), 1)], None, "Nothing"),
            (vec![request(ours, Some("InProgress"), 9999)], None, "Nothing"),
            // Somebody else's that failed.
            (vec![request("b-x", processed, 1)], None, "Ask"),
            (vec![request(ours, processed, 3599)], None, "Nothing"),
            (vec![request(ours, processed, 3600)], None, "Renew"),
            (vec![request(ours, processed, 3600)], Some(Failure::Unavailable), "Label"),
            (vec![request(ours, processed, 3600), request("b-x", None, 1)], None, "Nothing"),
        ] {
            let facts = Facts { failure, requests, ours: ours.to_owned() };
            let plan = format!("{:?}", decide(&facts, now(), Duration::from_hours(1)));
            assert!(plan.starts_with(expected), "{facts:?}: {plan}");
        }
    }
}
