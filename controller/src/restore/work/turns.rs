//! Each item is restored once, although several others may ask for it, and at the same time.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use backup_store::ItemRef;
use tokio::sync::watch;

/// What has become of items so far.
#[derive(Debug)]
pub(super) struct Turns {
    items: Mutex<HashMap<ItemRef, Turn>>,
    /// Changes whenever an item is done.
    done: watch::Sender<()>,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    /// It is worked on, and perhaps waits for another one.
    Working(Option<ItemRef>),
    /// It is done; whether it is in the cluster.
    Done(bool),
}

/// The answer to who wants to restore an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It is theirs.
    Mine,
    /// Somebody else does, or has done: whether it is in the cluster. Not known of one that waits for whoever asks.
    Others(bool),
}

impl Default for Turns {
    fn default() -> Self {
        Self { items: Mutex::default(), done: watch::Sender::new(()) }
    }
}

impl Turns {
    /// An item comes up by itself. What somebody else restores is not waited for.
    pub fn begin(&self, item: ItemRef) -> Begun {
        let mut items = self.lock();
        match items.get(&item) {
            None => {
                items.insert(item, Turn::Working(None));
                Begun::Mine
            }
            Some(Turn::Done(there)) => Begun::Others(*there),
            Some(Turn::Working(_)) => Begun::Others(false),
        }
    }

    /// An item is wanted before `by`, which is worked on. If somebody else restores it, that is waited for, unless they wait
    /// for `by` in turn.
    pub async fn begin_for(&self, item: ItemRef, by: ItemRef) -> Begun {
        let mut done = self.done.subscribe();
        loop {
            {
                let mut items = self.lock();
                match items.get(&item).copied() {
                    None => {
                        items.insert(item, Turn::Working(None));
                        items.insert(by, Turn::Working(Some(item)));
                        return Begun::Mine;
                    }
                    Some(Turn::Done(there)) => {
                        items.insert(by, Turn::Working(None));
                        return Begun::Others(there);
                    }
                    Some(Turn::Working(_)) if waits_for(&items, item, by) => return Begun::Others(false),
                    Some(Turn::Working(_)) => {
                        items.insert(by, Turn::Working(Some(item)));
                    }
                }
                done.mark_unchanged();
            }
            // The sender is here as long as this is.
            let _ = done.changed().await;
        }
    }

    /// An item is done, and whether it is in the cluster. Whoever wanted it goes on.
    pub fn end(&self, item: ItemRef, there: bool, by: Option<ItemRef>) {
        let mut items = self.lock();
        items.insert(item, Turn::Done(there));
        if let Some(by) = by {
            items.insert(by, Turn::Working(None));
        }
        drop(items);
        self.done.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ItemRef, Turn>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an item waits for another, or for one that does. No circle is ever made, so this ends.
fn waits_for(items: &HashMap<ItemRef, Turn>, item: ItemRef, other: ItemRef) -> bool {
    let mut at = item;
    loop {
        if at == other {
            return true;
        }
        match items.get(&at) {
            Some(Turn::Working(Some(next))) => at = *next,
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
        let (_folder, location, _) = crate::restore::fake::backup::stored(&stored).await;
        location.read_contents("b").await.unwrap().items("configmaps").try_into().unwrap()
    }

    #[tokio::test]
    async fn whoever_wants_what_another_restores_waits_unless_that_waits_for_them() {
        let [a, b, c] = items().await;
        let turns = std::sync::Arc::new(Turns::default());
        assert_eq!(
            (turns.begin(a), turns.begin(b), turns.begin(b)),
            (Begun::Mine, Begun::Mine, Begun::Others(false))
        );
        // `b` brings `c`, and `a` wants that, too.
        assert_eq!(turns.begin_for(c, b).await, Begun::Mine);
        let waits = tokio::spawn({
            let turns = turns.clone();
            async move { turns.begin_for(c, a).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        // `c` wants `b`, which has it brought along; and `b` wants `a`, which waits for `c`.
        assert_eq!(turns.begin_for(b, c).await, Begun::Others(false));
        turns.end(c, true, Some(b));
        assert_eq!(waits.await.unwrap(), Begun::Others(true));
        turns.end(a, false, None);
        assert_eq!(turns.begin_for(a, b).await, Begun::Others(false));
        assert_eq!(turns.begin(c), Begun::Others(true));
    }
}
