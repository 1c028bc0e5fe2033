//! Decides whether a location is compared with the cluster now. Pure.

use std::time::Duration;

use backup_core::{
    api::{BackupStorageLocation, GoDuration},
    labels::SYNC_REQUEST_ANNOTATION,
};
use backup_runtime::queue::Action;
use kube::ResourceExt as _;

use crate::location::{is_available, period};

/// Minimum interval between comparisons, whatever a location says.
pub(super) const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Sync,
    Wait(Action),
}

/// A location is compared when this process has not done it yet, at its period, and at a user's
/// request. `passed` is the time of the last comparison with its current spec.
pub(super) fn decide(
    location: &BackupStorageLocation,
    passed: Option<Duration>,
    default_period: GoDuration,
    now: Duration,
) -> Plan {
    if location.metadata.deletion_timestamp.is_some() {
        return Plan::Wait(Action::AwaitChange);
    }
    if location.annotations().contains_key(SYNC_REQUEST_ANNOTATION) {
        return Plan::Sync;
    }
    let period = period(location.spec.backup_sync_period, default_period);
    if period.is_zero() || !is_available(location) {
        return Plan::Wait(Action::AwaitChange);
    }
    let left = passed.map_or(Duration::ZERO, |passed| {
        (passed + period.max(MIN_INTERVAL)).saturating_sub(now)
    });
    if left.is_zero() {
        Plan::Sync
    } else {
        Plan::Wait(Action::RequeueAfter(left))
    }
}

/// Interval between comparisons of the location; `None` if only a user's request starts one.
pub(super) fn every(
    location: &BackupStorageLocation,
    default_period: GoDuration,
) -> Option<Duration> {
    let period = period(location.spec.backup_sync_period, default_period);
    (!period.is_zero()).then(|| period.max(MIN_INTERVAL))
}

#[cfg(test)]
mod tests {
    use backup_core::api::{BackupStorageLocationSpec, LocationPhase};

    use super::*;

    const NOW: Duration = Duration::from_secs(10_000);

    fn location(period: Option<&str>) -> BackupStorageLocation {
        let mut location =
            BackupStorageLocation::new("default", BackupStorageLocationSpec::default());
        location.spec.backup_sync_period = period.map(|text| text.parse().unwrap());
        location.status.phase = Some(LocationPhase::Available);
        location
    }

    #[test]
    fn table_of_periods() {
        let wait = |seconds| Plan::Wait(Action::RequeueAfter(Duration::from_secs(seconds)));
        for (own, flag, seconds_ago, expected) in [
            (None, "1m", None, Plan::Sync),
            (None, "1m", Some(59), wait(1)),
            (None, "1m", Some(60), Plan::Sync),
            (Some("5m"), "1m", Some(60), wait(240)),
            (Some("1ns"), "1m", Some(0), wait(1)),
            (Some("0"), "1m", None, Plan::Wait(Action::AwaitChange)),
            (None, "0", None, Plan::Wait(Action::AwaitChange)),
            (Some("30s"), "0", Some(30), Plan::Sync),
            (Some("-5s"), "2m", Some(60), wait(60)),
            (None, "-1s", Some(30), wait(30)),
        ] {
            let passed = seconds_ago.map(|ago| NOW.saturating_sub(Duration::from_secs(ago)));
            let plan = decide(&location(own), passed, flag.parse().unwrap(), NOW);
            assert_eq!(
                plan, expected,
                "own {own:?}, flag {flag}, {seconds_ago:?} s ago"
            );
        }
    }

    #[test]
    fn a_location_is_compared_once_a_second_at_most_and_never_if_its_period_is_zero() {
        let every = |own, flag: &str| every(&location(own), flag.parse().unwrap());
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(
            [every(None, "1m"), every(Some("5m"), "1m")],
            [seconds(60), seconds(300)]
        );
        assert_eq!(
            [every(Some("1ns"), "1m"), every(Some("0"), "1m")],
            [seconds(1), None]
        );
    }

    #[test]
    fn only_an_available_location_is_compared_but_a_person_gets_an_answer() {
        let minute = "1m".parse().unwrap();
        let mut unavailable = location(Some("0"));
        for phase in [None, Some(LocationPhase::Unavailable)] {
            unavailable.status.phase = phase;
            unavailable.spec.backup_sync_period = None;
            assert_eq!(
                decide(&unavailable, None, minute, NOW),
                Plan::Wait(Action::AwaitChange)
            );
        }
        let request = [(SYNC_REQUEST_ANNOTATION.to_owned(), "{}".to_owned())];
        unavailable.metadata.annotations = Some(request.clone().into());
        assert_eq!(decide(&unavailable, Some(NOW), minute, NOW), Plan::Sync);
        let mut off = location(Some("0"));
        off.metadata.annotations = Some(request.into());
        assert_eq!(decide(&off, Some(NOW), minute, NOW), Plan::Sync);
    }
}
