//! How long to wait before the next try.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Doubles from `first` up to `cap`, then takes off up to a quarter by chance, so that many clients don't come at once.
pub fn pause(tries: u32, first: Duration, cap: Duration) -> Duration {
    let full = first.saturating_mul(1 << tries.min(16)).min(cap);
    // The hasher's keys are random in every process and differ at every call: chance enough for this.
    let part = u32::try_from(RandomState::new().hash_one(tries) % 256).unwrap_or_default();
    full.saturating_sub(full / 4 * part / 256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_cap_and_lose_at_most_a_quarter() {
        let (first, cap) = (Duration::from_millis(100), Duration::from_secs(2));
        for tries in 0..40 {
            let full = first.saturating_mul(1 << tries.min(16)).min(cap);
            let taken = pause(tries, first, cap);
            assert!(taken <= full && taken >= full * 3 / 4, "{tries}: {taken:?}");
        }
    }
}
