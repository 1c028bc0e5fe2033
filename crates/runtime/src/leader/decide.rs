//! Decides on the next step for the lease, from what is known about it. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;

use super::leadership::LEASE_DURATION;

/// Lease duration that a holder writes when it releases the lease (seconds), as client-go does.
pub(super) const RELEASED_SECONDS: u64 = 1;

/// The lease as last read, and the time (on our own clock) since when it is unchanged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeaseObservation {
    /// `None`: there is no Lease.
    pub(super) spec: Option<LeaseSpec>,
    pub(super) since: Duration,
}

impl LeaseObservation {
    /// Records a reading. Only a change of the record counts as a sign of life; times in it come
    /// from another machine's clock and are ignored.
    pub(super) fn again(before: Option<Self>, spec: Option<LeaseSpec>, now: Duration) -> Self {
        match before {
            Some(before) if before.spec == spec => before,
            _ => Self { spec, since: now },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The lease has been missing long enough that no replica can lead by it: create it, held by
    /// us.
    Create,
    /// Its holder released it, or has let it expire: take it over, with one more transition.
    Take { transitions: i32 },
    /// We hold the lease: renew it.
    Renew,
    /// Another replica leads, or may lead: the lease may be taken after this time, unless it is
    /// renewed.
    Wait {
        holder: Option<String>,
        time: Duration,
    },
}

/// A lease that was deleted, or has no holder without having been released, was not changed by its
/// holder, which works until it finds out. So it is waited for as if it were held.
pub(super) fn decide(me: &str, observed: &LeaseObservation, now: Duration) -> Step {
    let LeaseObservation { spec, since } = observed;
    let Some(spec) = spec else {
        return match (*since + LEASE_DURATION).saturating_sub(now) {
            Duration::ZERO => Step::Create,
            time => Step::Wait { holder: None, time },
        };
    };
    let asked = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .unwrap_or(0);
    let take = Step::Take {
        transitions: spec.lease_transitions.unwrap_or(0).saturating_add(1),
    };
    match spec.holder_identity.as_deref().unwrap_or_default() {
        holder if holder == me => Step::Renew,
        "" if asked == RELEASED_SECONDS => take,
        holder => {
            // A holder's longer duration is respected; a shorter or invalid one counts as ours.
            let ends = *since + LEASE_DURATION.max(Duration::from_secs(asked));
            match ends.saturating_sub(now) {
                Duration::ZERO => take,
                time => Step::Wait {
                    holder: Some(holder.to_owned()),
                    time,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            lease_transitions: Some(4),
            ..Default::default()
        }
    }

    #[test]
    fn table_of_decisions() {
        const TAKE: Step = Step::Take { transitions: 5 };
        let wait_for = |holder: &str, millis| {
            let holder = Some(holder.to_owned());
            Step::Wait {
                holder,
                time: Duration::from_millis(millis),
            }
        };
        let wait = |millis| wait_for("other", millis);
        for (what, spec, age_ms, expected) in [
            ("given back", held_by("", 1), 0, TAKE),
            ("emptied", held_by("", 15), 0, wait_for("", 15_000)),
            (
                "emptied, and its holder has stopped",
                held_by("", 15),
                15_000,
                TAKE,
            ),
            (
                "released",
                LeaseSpec {
                    holder_identity: None,
                    ..held_by("", 1)
                },
                0,
                TAKE,
            ),
            ("ours", held_by("me", 15), 0, Step::Renew),
            (
                "ours, long not renewed",
                held_by("me", 15),
                60_000,
                Step::Renew,
            ),
            ("alive", held_by("other", 15), 0, wait(15_000)),
            ("about to end", held_by("other", 15), 14_500, wait(500)),
            ("just over", held_by("other", 15), 15_000, TAKE),
            (
                "asks for a minute",
                held_by("other", 60),
                15_000,
                wait(45_000),
            ),
            ("a minute is over", held_by("other", 60), 60_000, TAKE),
            ("asks for nonsense", held_by("other", -3), 14_999, wait(1)),
        ] {
            let now = Duration::from_secs(1000);
            let observed = LeaseObservation {
                spec: Some(spec),
                since: now.saturating_sub(Duration::from_millis(age_ms)),
            };
            assert_eq!(decide("me", &observed, now), expected, "{what}");
        }
        let gone = LeaseObservation {
            spec: None,
            since: Duration::from_secs(1000),
        };
        for (seconds, expected) in [
            (
                1000,
                Step::Wait {
                    holder: None,
                    time: LEASE_DURATION,
                },
            ),
            (1015, Step::Create),
        ] {
            assert_eq!(decide("me", &gone, Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn expiry_counts_from_our_own_first_sight_of_the_record_whatever_times_it_carries() {
        let first =
            LeaseObservation::again(None, Some(held_by("other", 15)), Duration::from_secs(100));
        let same = LeaseObservation::again(
            Some(first),
            Some(held_by("other", 15)),
            Duration::from_secs(110),
        );
        assert_eq!(same.since, Duration::from_secs(100));
        let renewed = LeaseSpec {
            lease_transitions: Some(5),
            ..held_by("other", 15)
        };
        assert_eq!(
            LeaseObservation::again(Some(same), Some(renewed), Duration::from_secs(111)).since,
            Duration::from_secs(111)
        );
    }
}
