//! A limit of bandwidth.

use std::{num::NonZeroU64, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum time that a transfer may be early, for those before it that timers have delayed.
const MAX_CREDIT: Duration = Duration::from_millis(100);

/// Spreads transfers so that they stay below a rate on average.
#[derive(Debug)]
pub struct Throttle {
    /// Bytes per second; `None` is no limit.
    rate: Option<NonZeroU64>,
    /// When the next transfer may begin.
    next: Mutex<Instant>,
}

impl Throttle {
    pub fn new(rate: Option<NonZeroU64>) -> Self {
        Self {
            rate,
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits until a transfer of this size may begin. Its time is taken from those that follow.
    pub async fn pass(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
        let duration = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        let begin = {
            let mut next = self.next.lock();
            let now = Instant::now();
            let begin = (*next).max(now.checked_sub(MAX_CREDIT).unwrap_or(now));
            *next = begin + duration;
            begin
        };
        tokio::time::sleep_until(begin).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn transfers_side_by_side_share_the_rate() {
        let begun = Instant::now();
        let throttle = Throttle::new(NonZeroU64::new(1 << 20));
        futures::future::join_all((0..5).map(|_| throttle.pass(2 << 20))).await;
        assert_eq!(
            begun.elapsed().as_secs(),
            8,
            "four before the last, 2 s each"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn small_transfers_reach_the_rate_although_timers_round_up() {
        let begun = Instant::now();
        let throttle = Throttle::new(NonZeroU64::new(10 << 20));
        for _ in 0..10 << 10 {
            throttle.pass(1 << 10).await;
        }
        let milliseconds = begun.elapsed().as_millis();
        assert!((900..1010).contains(&milliseconds), "{milliseconds}");
    }
}
