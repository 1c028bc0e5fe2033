//! How long to wait before the next try.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};

/// The longest pause between two looks.
pub(crate) const SLOWEST: Duration = Duration::from_secs(2);

/// Pauses that double up to `cap`, without end. Up to half of each is taken off by chance, so that many clients do not come at
/// once.
pub(crate) fn backoff(first: Duration, cap: Duration) -> impl Iterator<Item = Duration> {
    // The jitter of the library comes on top of a pause, and is as long at most.
    let pauses = ExponentialBuilder::new().with_min_delay(first / 2).with_max_delay(cap / 2);
    pauses.with_jitter().without_max_times().build()
}

/// Those between two looks at what a person waits for.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> {
    backoff(Duration::from_millis(200), SLOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_cap_and_lose_at_most_a_half() {
        let (first, cap) = (Duration::from_millis(100), Duration::from_secs(2));
        for (tries, taken) in backoff(first, cap).take(40).enumerate() {
            let full = first.saturating_mul(1 << tries.min(16)).min(cap);
            assert!(taken <= full && taken >= full / 2, "{tries}: {taken:?}");
        }
    }
}
