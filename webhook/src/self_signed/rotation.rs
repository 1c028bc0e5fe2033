//! Decides when a certificate is replaced, and in which steps, so that no call fails meanwhile.
//! Pure.
//!
//! 1. A new one is made, and its authority announced: the registration names both.
//! 2. Once API servers have had time to see that, the new one is served.
//! 3. Once every replica serves it, the old authority is removed.
//!
//! Each step is one write of the Secret that carries its resourceVersion, taken after this replica
//! has seen no change for a while: only the first decision uses the time of day.

use std::time::Duration;

use jiff::Timestamp;

/// Maximum pause between two steps.
const MAX_PAUSE: Duration = Duration::from_mins(5);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Lifetime of certificates, and the intervals derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    lifetime: Duration,
}

impl Pace {
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self { lifetime }
    }

    pub(crate) fn lifetime(self) -> Duration {
        self.lifetime
    }

    /// Pause between two steps: API servers see a registration within seconds.
    pub(crate) fn pause(self) -> Duration {
        (self.lifetime / 10).min(MAX_PAUSE)
    }

    /// Interval between two looks at the Secret and the registration.
    pub(crate) fn poll(self) -> Duration {
        (self.pause() / 4).min(MAX_POLL_INTERVAL)
    }

    /// Whether a certificate with this expiry is to be replaced: after a third of its lifetime, or
    /// if it was made for longer.
    fn is_due(self, end: Timestamp, now: Timestamp) -> bool {
        let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
        left < self.lifetime * 2 / 3 || left > self.lifetime * 2
    }
}

/// The relevant state of the Secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecretState {
    /// Expiry of the served certificate.
    pub end: Timestamp,
    /// Whether the next one is made.
    pub has_next: bool,
    /// Number of authorities named.
    pub authorities: usize,
    /// Time for which Secret and registration have been seen in this state.
    pub settled: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Stay,
    /// Make the next certificate, and name its authority, too.
    Announce,
    /// Serve the next certificate.
    Switch,
    /// Name only its authority.
    Retire,
}

pub(crate) fn step(seen: SecretState, now: Timestamp, pace: Pace) -> Step {
    let is_settled = seen.settled >= pace.pause();
    let is_rotating = seen.has_next || seen.authorities > 1;
    if is_rotating && !is_settled {
        Step::Stay
    } else if seen.has_next {
        Step::Switch
    } else if is_rotating {
        Step::Retire
    } else if pace.is_due(seen.end, now) {
        Step::Announce
    } else {
        Step::Stay
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    #[test]
    fn a_certificate_is_announced_served_and_left_alone_in_this_order() {
        let pace = Pace::new(Duration::from_secs(90 * DAY));
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let seen = |days: i64, has_next, authorities, minutes| SecretState {
            end: now
                .checked_add(SignedDuration::from_hours(24 * days))
                .unwrap(),
            has_next,
            authorities,
            settled: Duration::from_mins(minutes),
        };
        for (seen, expected) in [
            (seen(89, false, 1, 60), Step::Stay),
            (seen(61, false, 1, 60), Step::Stay),
            (seen(59, false, 1, 0), Step::Announce),
            (seen(-1, false, 1, 0), Step::Announce),
            // A certificate that is valid for twenty years.
            (seen(7000, false, 1, 0), Step::Announce),
            (seen(59, true, 2, 4), Step::Stay),
            (seen(59, true, 2, 5), Step::Switch),
            (seen(90, false, 2, 4), Step::Stay),
            (seen(90, false, 2, 5), Step::Retire),
            (seen(90, false, 4, 5), Step::Retire),
            // One step after the other, however late.
            (seen(1, false, 2, 1), Step::Stay),
        ] {
            assert_eq!(step(seen, now, pace), expected, "{seen:?}");
        }
    }

    #[test]
    fn all_steps_fit_into_the_life_of_a_certificate() {
        for lifetime in [
            Duration::from_secs(15),
            Duration::from_secs(DAY),
            Duration::from_secs(900 * DAY),
        ] {
            let pace = Pace::new(lifetime);
            assert!(
                3 * pace.pause() < lifetime * 2 / 3 && 3 * pace.poll() <= pace.pause(),
                "{pace:?}"
            );
        }
    }
}
