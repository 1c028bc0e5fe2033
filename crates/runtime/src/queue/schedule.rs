//! Chooses the next key: the state of the queue, without tasks or streams.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use backup_client::backoff::Backoff;
use tokio::time::Instant;

use super::Key;

const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

#[derive(Debug, Default)]
struct Entry {
    /// In `ready`.
    queued: bool,
    /// Handed out by `start` and not returned yet.
    running: bool,
    again: bool,
    /// In `delayed`.
    due: Option<Instant>,
    failures: u32,
}

/// Keys that are ready, delayed or running. A key is in each at most once.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: HashMap<Key, Entry>,
    ready: VecDeque<Key>,
    delayed: BTreeSet<(Instant, Key)>,
}

impl Schedule {
    /// The object has changed: it is reconciled as soon as a worker is free, also if it was waiting
    /// after a failure (its failure count stays).
    pub(super) fn touch(&mut self, key: Key) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running {
            entry.again = true;
        } else {
            self.make_ready(key);
        }
    }

    /// The next key to work on, first come first served.
    pub(super) fn start(&mut self, now: Instant) -> Option<Key> {
        while let Some((due, key)) = self.delayed.first().cloned()
            && due <= now
        {
            self.make_ready(key);
        }
        let key = self.ready.pop_front()?;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.queued = false;
        entry.running = true;
        Some(key)
    }

    /// The work on a key succeeded; reconcile again at `due`, if given.
    pub(super) fn succeeded(&mut self, key: &Key, due: Option<Instant>) {
        self.stopped(key, due, 0);
    }

    /// The work on a key failed. Returns the delay until the retry.
    pub(super) fn failed(&mut self, key: &Key, now: Instant) -> Duration {
        let failures = self
            .entries
            .get(key)
            .map_or(0, |entry| entry.failures)
            .saturating_add(1);
        let delay = BACKOFF.delay(failures);
        self.stopped(key, Some(now + delay), failures);
        delay
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(due, _)| *due)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn stopped(&mut self, key: &Key, due: Option<Instant>, failures: u32) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.running = false;
        entry.failures = failures;
        let again = std::mem::take(&mut entry.again);
        // The delay after a failure is kept even if the object has changed meanwhile: the change is
        // often our own write.
        if again && failures == 0 {
            self.make_ready(key.clone());
        } else if let Some(due) = due {
            entry.due = Some(due);
            self.delayed.insert((due, key.clone()));
        } else {
            self.entries.remove(key);
        }
    }

    fn make_ready(&mut self, key: Key) {
        let entry = self.entries.entry(key.clone()).or_default();
        if let Some(due) = entry.due.take() {
            self.delayed.remove(&(due, key.clone()));
        }
        if !std::mem::replace(&mut entry.queued, true) {
            self.ready.push_back(key);
        }
    }
}
