//! Delays after failures.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// Delays that double from `first` to `cap`. Each is spread over the upper half of its step, so
/// that many failures at one moment are not retried at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Maximum delay after the first failure.
    pub first: Duration,
    pub cap: Duration,
}

impl Backoff {
    /// The same delays for a library that begins them again after each success.
    pub fn builder(self) -> ExponentialBuilder {
        // The jitter adds up to the same amount.
        ExponentialBuilder::default()
            .with_min_delay(self.first / 2)
            .with_max_delay(self.cap / 2)
            .without_max_times()
            .with_jitter()
    }

    /// The delays in order, without an end.
    pub fn delays(self) -> ExponentialBackoff {
        self.builder().build()
    }

    /// The delay after this many failures (1 or more).
    pub fn delay(self, failures: u32) -> Duration {
        // After 64 doublings every cap is reached.
        let before = usize::try_from(failures.clamp(1, 64)).unwrap_or(1) - 1;
        self.delays().nth(before).unwrap_or(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_never_pass_it() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            cap: Duration::from_mins(1),
        };
        for (failures, seconds) in [
            (1, 1),
            (2, 2),
            (3, 4),
            (6, 32),
            (7, 60),
            (40, 60),
            (u32::MAX, 60),
        ] {
            let step = Duration::from_secs(seconds);
            let delays: Vec<_> = (0..1000).map(|_| backoff.delay(failures)).collect();
            assert!(
                delays.iter().all(|delay| (step / 2..=step).contains(delay)),
                "{failures}"
            );
            let (shortest, longest) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
            assert!(
                *shortest < step * 6 / 10 && *longest > step * 9 / 10,
                "{failures}: they are spread"
            );
        }
    }

    #[test]
    fn pauses_grow_to_a_cap_and_lose_at_most_a_half() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            cap: Duration::from_secs(2),
        };
        for (tries, taken) in backoff.delays().take(40).enumerate() {
            let full = backoff
                .first
                .saturating_mul(1 << tries.min(16))
                .min(backoff.cap);
            assert!(taken <= full && taken >= full / 2, "{tries}: {taken:?}");
        }
    }
}
