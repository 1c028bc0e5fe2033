//! Decides what to do with a request. Pure.

use std::time::Duration;

use backup_core::api::{DownloadRequest, download_request::DownloadRequestPhase as Phase};
use jiff::{SignedDuration, Timestamp};

/// Lifetime of a URL and of a request (Velero `DownloadURLTTL` in
/// `pkg/persistence/object_store.go`, v1.18).
pub(super) const TTL: Duration = Duration::from_mins(10);

/// Retry time; Velero's command line waits for a minute at most.
const RETRY_BUDGET: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Not answered yet.
    Answer,
    /// It was answered; check again after this time.
    Keep(Duration),
    /// It has expired, answered or not.
    Remove,
}

/// A request with an expiration ends then, any other ten minutes after its creation.
pub(super) fn decide(request: &DownloadRequest, now: Timestamp) -> Plan {
    let given = request.status.expiration.as_ref().map(|time| time.0);
    let created = request
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| expiration(time.0));
    let left = given.or(created).map(|end| end.duration_since(now));
    if left.is_some_and(|left| left <= SignedDuration::ZERO) {
        return Plan::Remove;
    }
    match &request.status.phase {
        None | Some(Phase::New) => Plan::Answer,
        Some(_) => Plan::Keep(
            left.and_then(|left| Duration::try_from(left).ok())
                .unwrap_or(TTL),
        ),
    }
}

/// Whether a temporary error is retried: the client is probably still waiting.
pub(super) fn is_young(request: &DownloadRequest, now: Timestamp) -> bool {
    let created = request.metadata.creation_timestamp.as_ref();
    created.is_none_or(|created| now.duration_since(created.0) < RETRY_BUDGET)
}

/// Expiration of a request that is answered now.
pub(super) fn expiration(now: Timestamp) -> Timestamp {
    now.checked_add(TTL).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use backup_core::api::download_request::DownloadRequestSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_request_is_answered_once_kept_as_long_as_its_url_and_removed() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let at = |seconds: i64| {
            Some(Time(
                now.checked_add(SignedDuration::from_secs(seconds)).unwrap(),
            ))
        };
        let keep = |seconds| Plan::Keep(Duration::from_secs(seconds));
        for (phase, created, expiration, expected) in [
            (None, Some(0), None, Plan::Answer),
            (Some("New"), Some(-599), None, Plan::Answer),
            (None, Some(-600), None, Plan::Remove),
            // Another program has set a time.
            (None, Some(-5000), Some(1), Plan::Answer),
            (None, Some(0), Some(-1), Plan::Remove),
            (Some("Processed"), Some(-300), Some(301), keep(301)),
            (Some("Processed"), Some(-700), Some(0), Plan::Remove),
            (Some("Failed"), Some(-10), Some(590), keep(590)),
            (Some("Tomorrow"), Some(-10), None, keep(590)),
            (Some("Processed"), None, None, keep(600)),
            (None, None, None, Plan::Answer),
        ] {
            let mut request = DownloadRequest::new("r", DownloadRequestSpec::default());
            request.metadata.creation_timestamp = created.and_then(at);
            request.status.phase = phase.map(Phase::from);
            request.status.expiration = expiration.and_then(at);
            assert_eq!(
                decide(&request, now),
                expected,
                "{phase:?} {created:?} {expiration:?}"
            );
        }
    }

    #[test]
    fn what_may_pass_by_itself_is_waited_for_while_the_request_is_young() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        for (age, young) in [
            (Some(0), true),
            (Some(29), true),
            (Some(30), false),
            (Some(600), false),
            (None, true),
        ] {
            let mut request = DownloadRequest::new("r", DownloadRequestSpec::default());
            request.metadata.creation_timestamp =
                age.map(|age| Time(now - SignedDuration::from_secs(age)));
            assert_eq!(is_young(&request, now), young, "{age:?}");
        }
    }
}
