//! In which order plugins see items, and of how many items the journal may leave it open whether they were seen.
//!
//! Plugins see one item of a restore at a time. A write of the journal takes longer than most calls, so that many items wait for
//! it side by side. After a crash an item that is noted and has no end is an error and not tried again, whether or not its call had
//! begun. So there is one such item at first, and one more for each hundred calls.

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Semaphore};

use super::WITH_JOURNAL;
use crate::job::action_journal::Place;

/// Calls after which one more item may be noted at the same time.
const CALLS: usize = 100;

/// One plugin is at work at a time.
#[derive(Debug)]
pub(in crate::restore) struct PluginTurns {
    /// One place for each item that may be noted without an end.
    free: Semaphore,
    places: Mutex<Places>,
    calls: tokio::sync::Mutex<usize>,
}

#[derive(Debug)]
struct Places {
    all: usize,
    /// They become free together once half of all are given back, so that the items which take them are noted together.
    given_back: usize,
}

/// The place of an item, until it is dropped.
pub(super) struct PluginPlace<'a>(&'a PluginTurns);

/// The turn of an item, until it is dropped.
pub(super) struct PluginTurn<'a>(MutexGuard<'a, usize>, &'a PluginTurns);

impl Default for PluginTurns {
    fn default() -> Self {
        let places = Mutex::new(Places { all: 1, given_back: 0 });
        Self { free: Semaphore::new(1), places, calls: tokio::sync::Mutex::default() }
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
    pub(super) async fn place(&self) -> Option<PluginPlace<'_>> {
        self.free.acquire().await.ok()?.forget();
        Some(PluginPlace(self))
    }

    /// The turn of one item.
    pub(super) async fn turn(&self) -> PluginTurn<'_> {
        PluginTurn(self.calls.lock().await, self)
    }
}
impl Place for Option<PluginPlace<'_>> {
    /// Others that are noted come to their ends, too, and give their places to the next.
    fn has_company(&self) -> bool {
        self.as_ref().is_some_and(|PluginPlace(turns)| {
            let places = turns.places.lock();
            places.all - places.given_back - turns.free.available_permits() > 1
        })
    }
}

impl Drop for PluginPlace<'_> {
    fn drop(&mut self) {
        let mut places = self.0.places.lock();
        places.given_back += 1;
        if 2 * places.given_back >= places.all {
            self.0.free.add_permits(std::mem::take(&mut places.given_back));
        }
    }
}

impl Drop for PluginTurn<'_> {
    fn drop(&mut self) {
        let Self(calls, turns) = self;
        **calls += 1;
        if calls.is_multiple_of(CALLS) && **calls / CALLS < WITH_JOURNAL {
            turns.places.lock().all += 1;
            turns.free.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn more_items_are_noted_at_a_time_the_more_were_called() {
        for (calls, places) in [(0, 1), (99, 1), (100, 2), (200, 3), (10_000, WITH_JOURNAL)] {
            assert_eq!(PluginTurns::after(calls).await.free.available_permits(), places);
        }
    }

    #[tokio::test]
    async fn places_become_free_together() {
        let turns = PluginTurns::after(300).await;
        let mut taken = Vec::new();
        for _ in 0..4 {
            taken.push(turns.place().await);
        }
        assert!(taken.pop().is_some_and(|place| place.has_company()));
        assert_eq!(turns.free.available_permits(), 0, "one of four");
        taken.pop();
        assert_eq!(turns.free.available_permits(), 2);
        taken.pop();
        assert!(taken.pop().is_some_and(|place| !place.has_company()), "it is the last");
        assert_eq!(turns.free.available_permits(), 4);
    }
}
