//! Progress of a collection, for users.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use backup_core::api::{backup::BackupProgress, common::HookStatus};

/// Counts of one collection. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    expected: AtomicU64,
    hooks_attempted: AtomicI64,
    hooks_failed: AtomicI64,
}

impl Progress {
    /// Progress of a collection that has written `written` items.
    pub(crate) fn of(written: u64) -> Self {
        let progress = Self::default();
        progress.counts.written.store(written, Ordering::Relaxed);
        progress
    }

    pub(crate) fn wrote(&self) {
        self.counts.written.fetch_add(1, Ordering::Relaxed);
    }

    /// At least `more` further items are expected.
    pub(crate) fn expect(&self, more: u64) {
        let total = self.written().saturating_add(more);
        self.counts.expected.fetch_max(total, Ordering::Relaxed);
    }

    pub(crate) fn attempts_hook(&self) {
        self.counts.hooks_attempted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hook_failed(&self) {
        self.counts.hooks_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts of commands in pods for the status; `None` if there were none.
    pub(crate) fn hooks(&self) -> Option<HookStatus> {
        let hooks_attempted = self.counts.hooks_attempted.load(Ordering::Relaxed);
        let hooks_failed = self.counts.hooks_failed.load(Ordering::Relaxed);
        (hooks_attempted > 0).then(|| HookStatus {
            hooks_attempted,
            hooks_failed,
            ..HookStatus::default()
        })
    }

    pub(crate) fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// The progress for the status. The total grows while lists are read; at the end it is the
    /// number of written items.
    pub(crate) fn status(&self, ended: bool) -> BackupProgress {
        let written = self.written();
        let total = if ended {
            written
        } else {
            written.max(self.counts.expected.load(Ordering::Relaxed))
        };
        BackupProgress {
            total_items: signed_count(total),
            items_backed_up: signed_count(written),
            ..BackupProgress::default()
        }
    }
}

fn signed_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_never_below_what_is_written() {
        let progress = Progress::default();
        progress.expect(3);
        progress.wrote();
        let status = progress.status(false);
        assert_eq!((status.total_items, status.items_backed_up), (3, 1));
        for _ in 0..4 {
            progress.wrote();
        }
        assert_eq!(progress.status(false).total_items, 5);
        progress.expect(10);
        assert_eq!(progress.status(true).total_items, 5);
    }
}
