//! Ensures that each item is restored once, although several others may ask for it concurrently.

use std::collections::HashMap;

use backup_store::ItemRef;
use parking_lot::Mutex;
use tokio::sync::watch;

#[derive(Debug)]
pub(super) struct ItemCoordinator {
    items: Mutex<HashMap<ItemRef, ItemProgress>>,
    /// Changes whenever an item is done.
    done: watch::Sender<()>,
}

#[derive(Clone, Copy, Debug)]
enum ItemProgress {
    Working { waits_for: Option<ItemRef> },
    Done { restored: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BeginResult {
    Begun,
    /// Another task restores it, or has done so; whether it is known to be in the cluster.
    Other {
        restored: bool,
    },
}

const WORKING: ItemProgress = ItemProgress::Working { waits_for: None };

impl Default for ItemCoordinator {
    fn default() -> Self {
        Self {
            items: Mutex::default(),
            done: watch::Sender::new(()),
        }
    }
}

impl ItemCoordinator {
    /// Begins a selected item. Does not wait if another task restores it.
    pub(super) fn begin(&self, item: ItemRef) -> BeginResult {
        let mut items = self.items.lock();
        match items.get(&item) {
            None => {
                items.insert(item, WORKING);
                BeginResult::Begun
            }
            Some(ItemProgress::Done { restored }) => BeginResult::Other {
                restored: *restored,
            },
            Some(ItemProgress::Working { .. }) => BeginResult::Other { restored: false },
        }
    }

    /// Begins an item that is needed before `by`, which is in progress. If another task restores
    /// it, this waits for that task, unless it waits for `by` in turn.
    pub(super) async fn begin_for(&self, item: ItemRef, by: ItemRef) -> BeginResult {
        let mut done = self.done.subscribe();
        loop {
            {
                let mut items = self.items.lock();
                match items.get(&item).copied() {
                    None => {
                        items.insert(item, WORKING);
                        items.insert(
                            by,
                            ItemProgress::Working {
                                waits_for: Some(item),
                            },
                        );
                        return BeginResult::Begun;
                    }
                    Some(ItemProgress::Done { restored }) => {
                        items.insert(by, WORKING);
                        return BeginResult::Other { restored };
                    }
                    Some(ItemProgress::Working { .. }) => {
                        if waits_for(&items, item, by) {
                            return BeginResult::Other { restored: false };
                        }
                        items.insert(
                            by,
                            ItemProgress::Working {
                                waits_for: Some(item),
                            },
                        );
                    }
                }
                done.mark_unchanged();
            }
            // Cannot fail: `self` holds the sender.
            let _ = done.changed().await;
        }
    }

    /// Ends an item, and wakes tasks that wait for it.
    pub(super) fn end(&self, item: ItemRef, restored: bool, by: Option<ItemRef>) {
        let mut items = self.items.lock();
        items.insert(item, ItemProgress::Done { restored });
        if let Some(by) = by {
            items.insert(by, WORKING);
        }
        drop(items);
        self.done.send_replace(());
    }
}

/// Whether an item waits for another, directly or indirectly. There are no cycles, so this
/// terminates.
fn waits_for(items: &HashMap<ItemRef, ItemProgress>, item: ItemRef, other: ItemRef) -> bool {
    let mut at = item;
    loop {
        if at == other {
            return true;
        }
        match items.get(&at) {
            Some(ItemProgress::Working {
                waits_for: Some(next),
            }) => at = *next,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn items() -> [ItemRef; 3] {
        let map = |name: &str| serde_json::json!({"metadata": {"name": name}});
        let stored = ["a", "b", "c"].map(|name| ("configmaps", Some("n"), map(name)));
        let (_folder, location, _) = crate::restore::tests::fake::backup::stored(&stored).await;
        location
            .read_contents("b", backup_store::Limits::DEFAULT)
            .await
            .unwrap()
            .items("configmaps")
            .try_into()
            .unwrap()
    }

    #[tokio::test]
    async fn an_item_waits_for_another_unless_that_waits_for_it() {
        let [a, b, c] = items().await;
        let coordinator = std::sync::Arc::new(ItemCoordinator::default());
        assert_eq!(
            (
                coordinator.begin(a),
                coordinator.begin(b),
                coordinator.begin(b)
            ),
            (
                BeginResult::Begun,
                BeginResult::Begun,
                BeginResult::Other { restored: false }
            )
        );
        // `b` asks for `c`, and so does `a`.
        assert_eq!(coordinator.begin_for(c, b).await, BeginResult::Begun);
        let waits = tokio::spawn({
            let coordinator = coordinator.clone();
            async move { coordinator.begin_for(c, a).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        // `c` asks for `b`, which has asked for `c`; and `b` asks for `a`, which waits for `c`.
        assert_eq!(
            coordinator.begin_for(b, c).await,
            BeginResult::Other { restored: false }
        );
        coordinator.end(c, true, Some(b));
        assert_eq!(waits.await.unwrap(), BeginResult::Other { restored: true });
        coordinator.end(a, false, None);
        assert_eq!(
            coordinator.begin_for(a, b).await,
            BeginResult::Other { restored: false }
        );
        assert_eq!(coordinator.begin(c), BeginResult::Other { restored: true });
    }
}
