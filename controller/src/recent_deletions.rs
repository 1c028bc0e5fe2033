//! Backups that this process has recently begun to delete. The sync checks them before it creates a
//! Backup: it may have read the backup from the bucket before the deletion.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_runtime::clock::Clock;
use parking_lot::Mutex;

/// Retention; data read from a bucket is used sooner.
const RETENTION_PERIOD: Duration = Duration::from_hours(24);

/// Names of backups, with the time of the last step of their deletion. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentDeletions(Arc<Mutex<HashMap<String, Duration>>>);

impl RecentDeletions {
    /// Called before the files or the Backup of this name are deleted.
    pub(crate) fn record(&self, name: &str) {
        self.record_at(name, Clock::Boot.now());
    }

    fn record_at(&self, name: &str, now: Duration) {
        let mut all = self.0.lock();
        all.retain(|_, at| now.saturating_sub(*at) < RETENTION_PERIOD);
        all.insert(name.to_owned(), now);
    }

    /// Whether a deletion did a step at this time of the monotonic clock or later.
    pub(crate) fn any_since(&self, name: &str, time: Duration) -> bool {
        self.0.lock().get(name).is_some_and(|at| *at >= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_is_known_to_what_was_read_before_it() {
        let deletions = RecentDeletions::default();
        let seconds = Duration::from_secs;
        deletions.record_at("b", seconds(100));
        assert!(deletions.any_since("b", seconds(99)) && deletions.any_since("b", seconds(100)));
        assert!(!deletions.any_since("b", seconds(101)) && !deletions.any_since("c", seconds(0)));
        deletions.record_at("c", seconds(100) + RETENTION_PERIOD);
        assert!(!deletions.any_since("b", seconds(0)), "kept for ever");
    }
}
