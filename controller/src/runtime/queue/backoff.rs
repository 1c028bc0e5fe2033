//! How long to wait after a number of failures. Also used for retries within a reconcile.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Steps that double from `first` to `cap`.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// After the first failure.
    pub first: Duration,
    /// Never more than this.
    pub cap: Duration,
}

impl Steps {
    /// The wait after `failures` (1 or more), spread by `jitter` (0 to 1) over the upper half of the step, so that many
    /// that failed together do not come back together.
    pub fn delay(self, failures: u32, jitter: f64) -> Duration {
        let doubled =
            2_u32.checked_pow(failures.saturating_sub(1)).and_then(|factor| self.first.checked_mul(factor));
        let step = doubled.unwrap_or(self.cap).min(self.cap);
        step.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// A number between 0 and 1, different each time. Good enough to spread load; not for secrets.
pub fn jitter() -> f64 {
    // A RandomState is keyed anew each time; 32 bits fit an f64 exactly.
    let bits = u32::try_from(RandomState::new().hash_one(0_u8) >> 32).unwrap_or(0);
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_up_to_the_cap_and_never_pass_it() {
        let steps = Steps { first: Duration::from_secs(1), cap: Duration::from_mins(1) };
        for (failures, seconds) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (40, 60), (u32::MAX, 60)] {
            assert_eq!(steps.delay(failures, 1.0), Duration::from_secs(seconds), "{failures}");
            assert_eq!(steps.delay(failures, 0.0), Duration::from_secs(seconds) / 2, "{failures}");
        }
    }

    #[test]
    fn jitter_stays_between_zero_and_one() {
        assert!((0..1000).map(|_| jitter()).all(|jitter| (0.0..=1.0).contains(&jitter)));
    }
}
