//! Why a worker leaves off: checked between pages, and before everything that is written.

use backup_runtime::leader::{Leadership, NotLeader};
use tokio_util::sync::CancellationToken;

use crate::context::Context;

/// Why work must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// Another replica continues.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The process ends; the backup is taken up again by the next one.
    #[error("the controller is shutting down; the backup is taken up again when it is back")]
    Ending,
    /// The Backup is gone, or its deletion was asked for.
    #[error("the Backup was deleted while it ran")]
    Deleted,
    /// Somebody has asked for an early end; what there is is brought to one.
    #[error("the backup was cancelled")]
    Cancelled,
}

/// Tells a worker whether it may go on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reins {
    leadership: Leadership,
    ending: CancellationToken,
    deleted: CancellationToken,
    cancelled: CancellationToken,
}

impl Reins {
    /// For a worker of this process.
    pub fn new(ctx: &Context) -> Self {
        Self::of(ctx.cluster.leadership.clone(), ctx.stop.clone())
    }

    /// From its parts.
    pub fn of(leadership: Leadership, ending: CancellationToken) -> Self {
        Self { leadership, ending, deleted: CancellationToken::new(), cancelled: CancellationToken::new() }
    }

    /// Tells the worker that its object is going or gone.
    pub fn delete(&self) {
        self.deleted.cancel();
    }

    /// Tells the worker that a person wants an early end: nothing more is collected, operations are told to stop, and what
    /// there is is stored.
    pub fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Resolves when a person wants an early end.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// To be asked before each step.
    pub fn check(&self) -> Result<(), Halt> {
        if self.deleted.is_cancelled() {
            return Err(Halt::Deleted);
        }
        if self.ending.is_cancelled() {
            return Err(Halt::Ending);
        }
        Ok(self.leadership.check()?)
    }

    /// To be asked before each step of what an early end leaves out.
    pub fn check_collecting(&self) -> Result<(), Halt> {
        self.check()?;
        if self.cancelled.is_cancelled() { Err(Halt::Cancelled) } else { Ok(()) }
    }

    /// Resolves when work must not go on.
    pub async fn pulled(&self) {
        tokio::select! {
            () = self.deleted.cancelled() => {}
            () = self.ending.cancelled() => {}
        }
    }
}

/// What `wait` brings, unless a cancellation comes first. Only for what may be dropped half way.
pub async fn unless_cancelled<T>(reins: Option<&Reins>, wait: impl Future<Output = T>) -> Result<T, Halt> {
    let Some(reins) = reins else { return Ok(wait.await) };
    tokio::select! {
        result = wait => Ok(result),
        () = reins.cancelled() => Err(Halt::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_on_until_the_reins_are_pulled() {
        let ending = CancellationToken::new();
        let reins = Reins::of(Leadership::always(), ending.clone());
        assert_eq!(reins.check(), Ok(()));
        reins.cancel();
        assert_eq!((reins.check(), reins.check_collecting()), (Ok(()), Err(Halt::Cancelled)));
        ending.cancel();
        assert_eq!(reins.check(), Err(Halt::Ending));
        reins.clone().delete();
        assert_eq!(reins.check(), Err(Halt::Deleted));
    }
}
