//! Copies that this process makes now. A deletion stops the copy of its backup, and removes files
//! only after that.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// By name of the backup. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningCopies(Arc<Mutex<HashMap<String, CancellationToken>>>);

/// The copies of one backup are running as long as this exists.
#[derive(Debug)]
pub(super) struct RunningCopy {
    all: RunningCopies,
    backup: String,
    stop: CancellationToken,
}

impl RunningCopies {
    /// Called before the Backup is read: a deletion that is published after that finds the copy.
    /// There is at most one for a backup.
    pub(super) fn begin(&self, backup: &str) -> RunningCopy {
        let stop = CancellationToken::new();
        self.0.lock().insert(backup.to_owned(), stop.clone());
        RunningCopy {
            all: self.clone(),
            backup: backup.to_owned(),
            stop,
        }
    }

    /// Stops the copy of a backup. Returns whether it still runs. Called after the deletion of the
    /// backup was published.
    pub(crate) fn stop(&self, backup: &str) -> bool {
        let all = self.0.lock();
        let running = all.get(backup);
        running.inspect(|stop| stop.cancel()).is_some()
    }
}

impl RunningCopy {
    /// Returns when the copy must end.
    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }
}

impl Drop for RunningCopy {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.backup);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_copy_is_stopped_and_is_gone_once_it_has_ended() {
        let running = RunningCopies::default();
        assert!(!running.stop("b"));
        let copy = running.begin("b");
        assert!(!running.stop("c"));
        assert!(running.stop("b") && running.stop("b"));
        copy.stopped().await;
        drop(copy);
        assert!(!running.stop("b"));
    }
}
