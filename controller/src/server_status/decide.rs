//! What becomes of a request. Pure.

use std::time::Duration;

use backup_core::api::{ServerStatusRequest, server_status_request::ServerStatusRequestPhase as Phase};
use jiff::Timestamp;

/// How long a request stays after its answer (Velero `pkg/controller/server_status_request_controller.go`, v1.18).
pub(super) const TTL: Duration = Duration::from_mins(1);

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nobody has answered yet.
    Answer,
    /// It is answered; look again after this time.
    Keep(Duration),
    /// It was answered a while ago.
    Remove,
}

pub(super) fn decide(request: &ServerStatusRequest, now: Timestamp) -> Plan {
    if matches!(request.status.phase, None | Some(Phase::New)) {
        return Plan::Answer;
    }
    let processed = request.status.processed_timestamp.as_ref();
    let since = processed.or(request.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    // From the future: a clock that went wrong.
    let age = since
        .map_or(Duration::ZERO, |since| Duration::try_from(now.duration_since(since)).unwrap_or_default());
    match TTL.checked_sub(age) {
        Some(left) if !left.is_zero() => Plan::Keep(left),
        _ => Plan::Remove,
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::server_status_request::ServerStatusRequestSpec;
    use jiff::SignedDuration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_request_is_answered_once_and_goes_a_minute_later() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let ago = |seconds: i64| Some(Time(now.checked_sub(SignedDuration::from_secs(seconds)).unwrap()));
        let keep = |seconds| Plan::Keep(Duration::from_secs(seconds));
        for (phase, created, processed, expected) in [
            (None, Some(5000), None, Plan::Answer),
            (Some("New"), Some(0), None, Plan::Answer),
            (Some("Processed"), Some(100), Some(0), keep(60)),
            (Some("Processed"), Some(100), Some(59), keep(1)),
            (Some("Processed"), Some(100), Some(60), Plan::Remove),
            (Some("Processed"), Some(100), Some(-1000), keep(60)),
            (Some("Processed"), Some(100), None, Plan::Remove),
            (Some("Tomorrow"), Some(10), None, keep(50)),
        ] {
            let mut request = ServerStatusRequest::new("r", ServerStatusRequestSpec::default());
            request.metadata.creation_timestamp = created.and_then(ago);
            request.status.phase = phase.map(Phase::from);
            request.status.processed_timestamp = processed.and_then(ago);
            assert_eq!(decide(&request, now), expected, "{phase:?} {created:?} {processed:?}");
        }
    }
}
