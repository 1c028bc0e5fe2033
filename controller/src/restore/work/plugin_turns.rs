//! In which order plugins see items, and of how many items the journal may leave it open whether they were seen.
//!
//! Plugins see one item of a restore at a time. A write of the journal takes longer than most calls, so that many items wait for
//! it side by side. After a crash an item that is noted and has no end is an error and not tried again, whether or not its call had
//! begun. So there is one such item at first, and one more for each hundred calls.

use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};

use super::WITH_JOURNAL;

/// Calls after which one more item may be noted at the same time.
const CALLS: usize = 100;

/// One plugin is at work at a time.
#[derive(Debug)]
pub(in crate::restore) struct PluginTurns {
    /// One place for each item that may be noted without an end.
    noted: Semaphore,
    calls: Mutex<usize>,
}

/// The turn of an item, until it is dropped.
pub(super) struct PluginTurn<'a>(MutexGuard<'a, usize>, &'a Semaphore);

impl Default for PluginTurns {
    fn default() -> Self {
        Self { noted: Semaphore::new(1), calls: Mutex::default() }
    }
}

impl PluginTurns {
    /// As after so many calls.
    #[cfg(test)]
    pub(super) async fn after(calls: usize) -> Self {
        let turns = Self::default();
        for _ in 0..calls {
            drop(turns.turn().await);
        }
        turns
    }

    /// The place of an item, in the order in which they come: from before it is noted until its end is in the queue of the journal,
    /// which is written in order. `None` is never the answer: places are not taken away.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.noted.acquire().await.ok()
    }

    /// The turn of one item.
    pub(super) async fn turn(&self) -> PluginTurn<'_> {
        PluginTurn(self.calls.lock().await, &self.noted)
    }
}

impl Drop for PluginTurn<'_> {
    fn drop(&mut self) {
        let Self(calls, noted) = self;
        **calls += 1;
        if calls.is_multiple_of(CALLS) && **calls / CALLS < WITH_JOURNAL {
            noted.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn more_items_are_noted_at_a_time_the_more_were_called() {
        for (calls, places) in [(0, 1), (99, 1), (100, 2), (200, 3), (10_000, WITH_JOURNAL)] {
            assert_eq!(PluginTurns::after(calls).await.noted.available_permits(), places);
        }
    }
}
