//! Why work stops in the middle without an outcome, and the check that finds out.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::runtime::leader::{Leadership, NotLeader};

/// The work has to stop at once; nothing is published. Whoever comes next resumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// The Restore is being deleted, or the process is asked to end.
    #[error("the work was asked to stop")]
    Stopped,
    /// Another replica may be working by now.
    #[error(transparent)]
    NotLeading(#[from] NotLeader),
}

/// Asked before every write. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate {
    stop: CancellationToken,
    leadership: Leadership,
}

impl Gate {
    /// Open until `stop` is cancelled or leadership is lost.
    pub fn new(leadership: Leadership, stop: CancellationToken) -> Self {
        Self { stop, leadership }
    }

    /// Whether the next write may be made.
    pub fn check(&self) -> Result<(), Halt> {
        if self.stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        Ok(self.leadership.check()?)
    }

    /// How long a request that is sent now may take.
    pub fn request_timeout(&self, wanted: Duration) -> Duration {
        self.leadership.request_timeout(wanted)
    }

    /// Resolves when the work is asked to stop.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Waits, but not longer than until the work has to stop.
    pub async fn sleep(&self, time: Duration) -> Result<(), Halt> {
        tokio::select! {
            () = self.stop.cancelled() => Err(Halt::Stopped),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }
}
