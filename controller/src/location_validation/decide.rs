//! Decides whether a location is validated now. Pure.

use std::time::Duration;

use backup_core::api::{
    BackupStorageLocation, GoDuration, backup_storage_location::BackupStorageLocationSpec,
};
use backup_runtime::queue::Action;

use crate::location::{DEFAULT_PERIOD, UsedSecret, period};

/// Interval between probes of an unchanged location. Probes write to the bucket; the next backup
/// reports a lost permission.
const PROBE_PERIOD: Duration = Duration::from_hours(6);

/// Minimum interval between validations, whatever a location says.
pub(super) const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The last validation of a location by this process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Validation {
    pub(super) uid: Option<String>,
    pub(super) spec: BackupStorageLocationSpec,
    /// Its time (monotonic clock).
    pub(super) at: Duration,
    pub(super) available: bool,
    /// Time of the last probe (monotonic clock).
    pub(super) probed: Duration,
    pub(super) secrets: Vec<UsedSecret>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// With a listing; a probe also finds out what may be written and removed, unless the location
    /// is read-only.
    Validate {
        probe: bool,
    },
    Wait(Action),
}

/// A location is validated when this process has not seen it yet, when its spec or one of its
/// Secrets has changed (`secrets_changed`), and at its frequency. A frequency of zero means once:
/// at the default frequency until it succeeds.
pub(super) fn decide(
    location: &BackupStorageLocation,
    last: Option<&Validation>,
    secrets_changed: bool,
    default_frequency: GoDuration,
    now: Duration,
) -> Plan {
    let Some(last) = last else {
        return Plan::Validate { probe: true };
    };
    if secrets_changed || last.uid != location.metadata.uid || last.spec != location.spec {
        return Plan::Validate { probe: true };
    }
    let mut frequency = period(location.spec.validation_frequency, default_frequency);
    if frequency.is_zero() {
        if last.available {
            return Plan::Wait(Action::AwaitChange);
        }
        frequency = DEFAULT_PERIOD.as_std();
    }
    let left = (last.at + frequency.max(MIN_INTERVAL)).saturating_sub(now);
    if left.is_zero() {
        Plan::Validate {
            probe: !last.available || now >= last.probed + PROBE_PERIOD,
        }
    } else {
        Plan::Wait(Action::RequeueAfter(left))
    }
}

/// A sentence about fields in the spec of a usable location that are not followed as written.
pub(super) fn remark(spec: &BackupStorageLocationSpec) -> Option<String> {
    let periods = [
        ("backupSyncPeriod", spec.backup_sync_period),
        ("validationFrequency", spec.validation_frequency),
    ];
    let negative = periods.into_iter().filter_map(|(field, period)| {
        let period = period.filter(|period| *period < GoDuration::default())?;
        Some(format!("spec.{field} is negative ({period})"))
    });
    let negative: Vec<String> = negative.collect();
    (!negative.is_empty()).then(|| {
        format!(
            "{}, which counts as not set, so the controller's own period holds; set a span such as \"5m\", or \"0\" for never",
            negative.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_period_is_named() {
        for (sync, validation, expected) in [
            (None, None, None),
            (Some("0"), Some("1m"), None),
            (
                Some("-5s"),
                Some("1m"),
                Some("spec.backupSyncPeriod is negative (-5s), which counts as not set"),
            ),
            (
                None,
                Some("-1h"),
                Some("spec.validationFrequency is negative (-1h0m0s), which"),
            ),
            (
                Some("-5s"),
                Some("-1h"),
                Some("(-5s) and spec.validationFrequency is negative"),
            ),
        ] {
            let mut spec = location(validation).spec;
            spec.backup_sync_period = sync.map(|text| text.parse().unwrap());
            let found = remark(&spec);
            assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
            assert_says!(found.unwrap_or_default(), expected.unwrap_or_default());
        }
    }

    const NOW: Duration = Duration::from_hours(100);
    const PROBE: Plan = Plan::Validate { probe: true };
    const LIST: Plan = Plan::Validate { probe: false };

    fn location(frequency: Option<&str>) -> BackupStorageLocation {
        let mut location =
            BackupStorageLocation::new("default", BackupStorageLocationSpec::default());
        location.metadata.uid = Some("u1".to_owned());
        location.spec.validation_frequency = frequency.map(|text| text.parse().unwrap());
        location
    }

    fn last(location: &BackupStorageLocation, seconds_ago: u64, available: bool) -> Validation {
        Validation {
            uid: location.metadata.uid.clone(),
            spec: location.spec.clone(),
            at: NOW.saturating_sub(Duration::from_secs(seconds_ago)),
            available,
            probed: NOW.saturating_sub(Duration::from_secs(seconds_ago)),
            secrets: Vec::new(),
        }
    }

    #[test]
    fn table_of_frequencies() {
        let wait = |seconds| Plan::Wait(Action::RequeueAfter(Duration::from_secs(seconds)));
        for (own, flag, seconds_ago, available, expected) in [
            (None, "1m", 59, true, wait(1)),
            (None, "1m", 60, true, LIST),
            (None, "1m", 6 * 3600 - 1, true, LIST),
            (None, "1m", 6 * 3600, true, PROBE),
            (None, "1m", 500, true, LIST),
            (Some("5m"), "1m", 60, true, wait(240)),
            (Some("10s"), "1m", 10, false, PROBE),
            (Some("1ns"), "1m", 0, true, wait(1)),
            (
                Some("0"),
                "1m",
                10_000,
                true,
                Plan::Wait(Action::AwaitChange),
            ),
            (Some("0"), "1m", 20, false, wait(40)),
            (Some("0"), "1m", 60, false, PROBE),
            (None, "0", 10_000, true, Plan::Wait(Action::AwaitChange)),
            (Some("30s"), "0", 30, true, LIST),
            (Some("-5s"), "2m", 60, true, wait(60)),
            (None, "-1s", 30, true, wait(30)),
            (Some("-1s"), "-1s", 60, true, LIST),
        ] {
            let location = location(own);
            let last = last(&location, seconds_ago, available);
            let plan = decide(&location, Some(&last), false, flag.parse().unwrap(), NOW);
            assert_eq!(
                plan, expected,
                "own {own:?}, flag {flag}, {seconds_ago} s ago, available {available}"
            );
        }
    }

    #[test]
    fn a_new_location_a_changed_one_and_a_recreated_one_are_validated_at_once() {
        let before = location(Some("0"));
        assert_eq!(decide(&before, None, false, DEFAULT_PERIOD, NOW), PROBE);
        let mut changed = before.clone();
        changed.spec.object_storage.bucket = "other".to_owned();
        assert_eq!(
            decide(
                &changed,
                Some(&last(&before, 1, true)),
                false,
                DEFAULT_PERIOD,
                NOW
            ),
            PROBE
        );
        let mut recreated = before.clone();
        recreated.metadata.uid = Some("u2".to_owned());
        assert_eq!(
            decide(
                &recreated,
                Some(&last(&before, 1, true)),
                false,
                DEFAULT_PERIOD,
                NOW
            ),
            PROBE
        );
    }

    #[test]
    fn a_secret_that_has_changed_is_a_reason_at_once() {
        let location = location(Some("0"));
        let last = last(&location, 1, true);
        assert_eq!(
            decide(&location, Some(&last), true, DEFAULT_PERIOD, NOW),
            PROBE
        );
        assert_eq!(
            decide(&location, Some(&last), false, DEFAULT_PERIOD, NOW),
            Plan::Wait(Action::AwaitChange)
        );
    }

    #[test]
    fn our_own_status_write_is_no_reason_to_validate_again() {
        let before = location(None);
        let mut written = before.clone();
        written.status.message = Some("no such bucket".to_owned());
        let plan = decide(
            &written,
            Some(&last(&before, 1, false)),
            false,
            DEFAULT_PERIOD,
            NOW,
        );
        assert_eq!(
            plan,
            Plan::Wait(Action::RequeueAfter(Duration::from_secs(59)))
        );
    }
}
