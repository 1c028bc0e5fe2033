//! Which backups this process has begun to delete: told to whoever brings backups from a bucket into the cluster, and has
//! perhaps read one before it was deleted.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backup_runtime::clock::Clock;

/// For how long it is known; whoever has read something acts on it sooner.
const KEPT: Duration = Duration::from_hours(24);

/// Names, and when their deletion was last at work. Cheap to clone; memory is that of a day's deletions.
#[derive(Clone, Debug, Default)]
pub struct Begun(Arc<Mutex<HashMap<String, Duration>>>);

impl Begun {
    /// Says that the files or the Backup of this name are about to be deleted.
    pub fn note(&self, name: &str) {
        self.note_at(name, Clock::Boot.now());
    }

    fn note_at(&self, name: &str, now: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, at| now.saturating_sub(*at) < KEPT);
        all.insert(name.to_owned(), now);
    }

    /// Whether a backup of this name has been deleted, or begun to be, at this time of the monotonic clock or later.
    pub fn since(&self, name: &str, time: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).is_some_and(|at| *at >= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_is_known_to_whoever_has_looked_before_it() {
        let begun = Begun::default();
        let seconds = Duration::from_secs;
        begun.note_at("b", seconds(100));
        assert!(begun.since("b", seconds(99)) && begun.since("b", seconds(100)));
        assert!(!begun.since("b", seconds(101)) && !begun.since("c", seconds(0)));
        begun.note_at("c", seconds(100) + KEPT);
        assert!(!begun.since("b", seconds(0)), "kept for ever");
    }
}
