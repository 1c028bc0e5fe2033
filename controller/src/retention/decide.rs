//! Decides whether a backup has expired, and what to do then. Pure.

use std::time::Duration;

use backup_core::api::{Backup, DeleteBackupRequest, DeleteBackupRequestPhase as Phase};
use backup_runtime::queue::Action;
use jiff::{SignedDuration, Timestamp};

/// Maximum time between checks of an expiration: the clock may have been wrong.
const MAX_WAIT: Duration = Duration::from_hours(24);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Not deleted in its current state: it has no expiration, has not ended, or is being deleted.
    Never,
    /// It expires after this time.
    In(Duration),
    Expired,
}

impl Expiry {
    /// The action until then; `None` if it has expired.
    pub(super) fn wait(self) -> Option<Action> {
        match self {
            Self::Never => Some(Action::AwaitChange),
            Self::In(left) => Some(Action::RequeueAfter(left.min(MAX_WAIT))),
            Self::Expired => None,
        }
    }
}

/// A Backup that is `Deleting` counts as ended, as the request to delete it may have failed. An
/// unknown phase does not.
pub(super) fn expiry(backup: &Backup, now: Timestamp) -> Expiry {
    let Some(expiration) = backup.status.expiration.as_ref() else {
        return Expiry::Never;
    };
    if backup.metadata.deletion_timestamp.is_some() || !backup.phase().is_terminal() {
        return Expiry::Never;
    }
    let left = expiration.0.duration_since(now);
    if left <= SignedDuration::ZERO {
        Expiry::Expired
    } else {
        Expiry::In(Duration::try_from(left).unwrap_or_default())
    }
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

#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) failure: Option<Failure>,
    /// Requests to delete this very backup.
    pub(super) requests: Vec<DeleteBackupRequest>,
    /// The name of the request that this controller makes.
    pub(super) own_request: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// Its deletion was requested already, or was refused recently.
    Nothing,
    Label(Failure),
    Request,
    /// Request it again: this earlier request of ours failed.
    Renew(Box<DeleteBackupRequest>),
}

/// One request at a time. A failed one is repeated after `period`.
pub(super) fn decide(facts: &Facts, now: Timestamp, period: Duration) -> Plan {
    if facts.requests.iter().any(is_open) {
        return Plan::Nothing;
    }
    if let Some(failure) = facts.failure {
        return Plan::Label(failure);
    }
    let ours = facts
        .requests
        .iter()
        .find(|request| request.metadata.name.as_ref() == Some(&facts.own_request));
    let Some(ours) = ours else {
        return Plan::Request;
    };
    let created = ours.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let age = created.map_or(SignedDuration::MAX, |created| now.duration_since(created));
    if SignedDuration::try_from(period).is_ok_and(|period| age >= period) {
        Plan::Renew(Box::new(ours.clone()))
    } else {
        Plan::Nothing
    }
}

/// Whether a request is not answered yet.
fn is_open(request: &DeleteBackupRequest) -> bool {
    !matches!(
        request.status.phase,
        Some(Phase::Processed | Phase::Unknown(_))
    )
}

#[cfg(test)]
mod tests {
    use backup_core::api::{
        BackupPhase, BackupSpec, delete_backup_request::DeleteBackupRequestSpec,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn ago(seconds: i64) -> Time {
        Time(
            now()
                .checked_sub(SignedDuration::from_secs(seconds))
                .unwrap(),
        )
    }

    #[test]
    fn only_what_has_ended_and_expired_is_deleted() {
        let left = |seconds| Expiry::In(Duration::from_secs(seconds));
        for (phase, expired, deleted, expected) in [
            ("Completed", Some(1), false, Expiry::Expired),
            ("Completed", Some(0), false, Expiry::Expired),
            ("Completed", Some(-7), false, left(7)),
            ("Completed", None, false, Expiry::Never),
            ("Completed", Some(1), true, Expiry::Never),
            ("PartiallyFailed", Some(1), false, Expiry::Expired),
            ("Failed", Some(1), false, Expiry::Expired),
            ("FailedValidation", Some(1), false, Expiry::Expired),
            // A deletion that failed.
            ("Deleting", Some(1), false, Expiry::Expired),
            ("New", Some(1), false, Expiry::Never),
            ("Queued", Some(1), false, Expiry::Never),
            ("ReadyToStart", Some(1), false, Expiry::Never),
            ("InProgress", Some(1), false, Expiry::Never),
            ("WaitingForPluginOperations", Some(1), false, Expiry::Never),
            (
                "WaitingForPluginOperationsPartiallyFailed",
                Some(1),
                false,
                Expiry::Never,
            ),
            ("Finalizing", Some(1), false, Expiry::Never),
            ("FinalizingPartiallyFailed", Some(1), false, Expiry::Never),
            ("Tomorrow", Some(1), false, Expiry::Never),
        ] {
            let mut backup = Backup::new("b", BackupSpec::default());
            backup.status.phase = Some(phase.into());
            backup.status.expiration = expired.map(ago);
            backup.metadata.deletion_timestamp = deleted.then(|| ago(0));
            assert_eq!(
                expiry(&backup, now()),
                expected,
                "{phase} {expired:?} {deleted}"
            );
        }
        assert_eq!(
            BackupPhase::KNOWN.len(),
            13,
            "a phase that is not in the table"
        );
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
            (vec![], None, "Request"),
            (vec![], Some(Failure::ReadOnly), "Label"),
            (vec![request("b-x", None, 9999)], None, "Nothing"),
            (
                vec![request("b-x", None, 9999)],
                Some(Failure::ReadOnly),
                "Nothing",
            ),
            (vec![request("b-x", Some("New"), 1)], None, "Nothing"),
            (
                vec![request(ours, Some("InProgress"), 9999)],
                None,
                "Nothing",
            ),
            // A failed request of another client.
            (vec![request("b-x", processed, 1)], None, "Request"),
            (vec![request(ours, processed, 3599)], None, "Nothing"),
            (vec![request(ours, processed, 3600)], None, "Renew"),
            (
                vec![request(ours, processed, 3600)],
                Some(Failure::Unavailable),
                "Label",
            ),
            (
                vec![request(ours, processed, 3600), request("b-x", None, 1)],
                None,
                "Nothing",
            ),
        ] {
            let facts = Facts {
                failure,
                requests,
                own_request: ours.to_owned(),
            };
            let plan = format!("{:?}", decide(&facts, now(), Duration::from_hours(1)));
            assert!(plan.starts_with(expected), "{facts:?}: {plan}");
        }
    }

    #[test]
    fn what_expires_later_is_looked_at_then() {
        let left = Duration::from_secs(7);
        assert_eq!(Expiry::In(left).wait(), Some(Action::RequeueAfter(left)));
        let year = Duration::from_hours(365 * 24);
        assert_eq!(
            Expiry::In(year).wait(),
            Some(Action::RequeueAfter(MAX_WAIT))
        );
        assert_eq!(Expiry::Never.wait(), Some(Action::AwaitChange));
        assert_eq!(Expiry::Expired.wait(), None);
    }

    /// The values are part of the API: users select backups by Velero's label.
    #[test]
    fn the_label_has_the_values_that_velero_gives_it() {
        let all = [
            Failure::NotFound,
            Failure::CannotGet,
            Failure::ReadOnly,
            Failure::Unavailable,
        ];
        let values = [
            "BSLNotFound",
            "BSLCannotGet",
            "BSLReadOnly",
            "BSLUnavailable",
        ];
        assert_eq!(all.map(Failure::as_str), values);
    }
}
