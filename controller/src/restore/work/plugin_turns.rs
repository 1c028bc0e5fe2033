//! Orders plugin calls, and bounds how many items are in doubt after a crash.
//!
//! Plugins see one item of a restore at a time. A write of the journal takes longer than most
//! calls, so several items wait for it concurrently. After a crash an item that is noted without an
//! end is an error and is not retried, whether or not its call had begun. So there is one such item
//! at a time, or one for each hundred of the types that such plugins select.

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Semaphore};

use super::MAX_OPEN_ITEMS;
use crate::job::action_journal::Place;

/// One in `ITEMS_PER_PLACE` items may be noted without an end.
const ITEMS_PER_PLACE: usize = 100;

/// One plugin call runs at a time.
#[derive(Debug)]
pub(super) struct PluginTurns {
    /// One permit for each item that may be noted without an end.
    free: Semaphore,
    places: Mutex<Places>,
    calls: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Places {
    all: usize,
    /// Returned places become free together once they are half of all, so that the next items are
    /// noted together.
    given_back: usize,
}

/// The place of an item, until it is dropped.
pub(super) struct PluginPlace<'a>(&'a PluginTurns);

/// The turn of an item, until it is dropped.
pub(super) type PluginTurn<'a> = MutexGuard<'a, ()>;

impl Default for PluginTurns {
    fn default() -> Self {
        let places = Mutex::new(Places {
            all: 1,
            given_back: 0,
        });
        Self {
            free: Semaphore::new(1),
            places,
            calls: tokio::sync::Mutex::default(),
        }
    }
}

impl PluginTurns {
    /// Adds places for a restore with `items` items of the types that plugins select.
    pub(super) fn expect(&self, items: usize) {
        let mut places = self.places.lock();
        let more = (items / ITEMS_PER_PLACE)
            .min(MAX_OPEN_ITEMS)
            .saturating_sub(places.all);
        places.all += more;
        self.free.add_permits(more);
    }

    /// Waits for the [`Place`] of an item, in the order of arrival; the queue of the journal is
    /// written in order. Never `None`: the semaphore is not closed.
    pub(super) async fn place(&self) -> Option<PluginPlace<'_>> {
        self.free.acquire().await.ok()?.forget();
        Some(PluginPlace(self))
    }

    /// Waits for the turn of one item.
    pub(super) async fn turn(&self) -> PluginTurn<'_> {
        self.calls.lock().await
    }
}

impl Place for Option<PluginPlace<'_>> {
    /// The other items with places: they end, too, and free their places.
    fn others(&self) -> u32 {
        let Some(PluginPlace(turns)) = self else {
            return 0;
        };
        let places = turns.places.lock();
        let taken = places.all - places.given_back - turns.free.available_permits();
        u32::try_from(taken.saturating_sub(1)).unwrap_or_default()
    }
}

impl Drop for PluginPlace<'_> {
    fn drop(&mut self) {
        let mut places = self.0.places.lock();
        places.given_back += 1;
        if 2 * places.given_back >= places.all {
            self.0
                .free
                .add_permits(std::mem::take(&mut places.given_back));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expecting(items: usize) -> PluginTurns {
        let turns = PluginTurns::default();
        turns.expect(items);
        turns
    }

    #[test]
    fn a_hundredth_of_the_items_may_be_noted_at_a_time() {
        for (items, places) in [
            (0, 1),
            (199, 1),
            (200, 2),
            (1_000, 10),
            (100_000, MAX_OPEN_ITEMS),
        ] {
            let turns = expecting(items);
            assert_eq!(turns.free.available_permits(), places);
            turns.expect(items);
            assert_eq!(turns.free.available_permits(), places, "said again");
        }
    }

    #[tokio::test]
    async fn places_become_free_together() {
        let turns = expecting(400);
        let mut taken = Vec::new();
        for _ in 0..4 {
            taken.push(turns.place().await);
        }
        assert_eq!(taken.pop().map(|place| place.others()), Some(3));
        assert_eq!(turns.free.available_permits(), 0, "one of four");
        taken.pop();
        assert_eq!(turns.free.available_permits(), 2);
        taken.pop();
        assert_eq!(taken.pop().map(|place| place.others()), Some(0));
        assert_eq!(turns.free.available_permits(), 4);
    }
}
