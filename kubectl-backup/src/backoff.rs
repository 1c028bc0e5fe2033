//! Pauses between retries.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};

/// Longest pause between two polls.
pub(crate) const MAX_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// An endless series of pauses that double up to `cap`. Each is shortened by a random part of up to
/// half, so that many clients do not retry at the same moment.
pub(crate) fn backoff(first: Duration, cap: Duration) -> impl Iterator<Item = Duration> {
    // The library adds its jitter to a pause; the jitter is at most as long as the pause.
    let pauses = ExponentialBuilder::new()
        .with_min_delay(first / 2)
        .with_max_delay(cap / 2);
    pauses.with_jitter().without_max_times().build()
}

/// Pauses between two polls of an object that the user waits for.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> {
    backoff(Duration::from_millis(200), MAX_POLL_INTERVAL)
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
