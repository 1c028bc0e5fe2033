//! Why work stops in the middle without an outcome, and the check that finds out.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use backup_runtime::leader::{Leadership, NotLeader};

/// The work has to stop at once; nothing is published. Whoever comes next resumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// The Restore is being deleted, or the process is asked to end.
    #[error("the work was asked to stop")]
    Stopped,
    /// A person wants an early end: nothing more is restored, operations are told to stop, and what there is is told.
    #[error("the restore was cancelled")]
    Cancelled,
    /// Another replica may be working by now.
    #[error(transparent)]
    NotLeading(#[from] NotLeader),
}

/// Asked before every write. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate {
    stop: CancellationToken,
    cancelled: CancellationToken,
    leadership: Leadership,
}

impl Gate {
    /// Open until `stop` is cancelled or leadership is lost.
    pub fn new(leadership: Leadership, stop: CancellationToken) -> Self {
        Self { stop, cancelled: CancellationToken::new(), leadership }
    }

    /// The same for work that `cancel` brings to an early end: waits end at once, and nothing new is begun.
    #[must_use]
    pub fn cancelled_by(self, cancel: CancellationToken) -> Self {
        Self { cancelled: cancel, ..self }
    }

    /// Whether the next write may be made.
    pub fn check(&self) -> Result<(), Halt> {
        if self.stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        Ok(self.leadership.check()?)
    }

    /// Whether something new may be begun.
    pub fn check_going_on(&self) -> Result<(), Halt> {
        self.check()?;
        if self.cancelled.is_cancelled() { Err(Halt::Cancelled) } else { Ok(()) }
    }

    /// How long a request that is sent now may take.
    pub fn request_timeout(&self, wanted: Duration) -> Duration {
        self.leadership.request_timeout(wanted)
    }

    /// Resolves when the work is asked to stop.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// What `wait` brings, unless a person wants an early end before. Only for what may be dropped half way.
    pub async fn unless_cancelled<T>(&self, wait: impl Future<Output = T>) -> Result<T, Halt> {
        tokio::select! {
            // What is there is taken.
            biased;
            result = wait => Ok(result),
            () = self.cancelled.cancelled() => Err(Halt::Cancelled),
        }
    }

    /// Waits, but not longer than until the work has to stop. For what is under way, and comes to its own end.
    pub async fn sleep(&self, time: Duration) -> Result<(), Halt> {
        tokio::select! {
            () = self.stop.cancelled() => Err(Halt::Stopped),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// The same for what nothing is lost of when a person wants an early end.
    pub async fn wait(&self, time: Duration) -> Result<(), Halt> {
        self.unless_cancelled(self.sleep(time)).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_gate_lets_what_is_under_way_pass_and_nothing_new() {
        let (stop, cancel) = (CancellationToken::new(), CancellationToken::new());
        let gate = Gate::new(Leadership::always(), stop.clone()).cancelled_by(cancel.clone());
        assert_eq!(gate.check_going_on(), Ok(()));
        cancel.cancel();
        let second = Duration::from_secs(1);
        assert_eq!((gate.check(), gate.check_going_on()), (Ok(()), Err(Halt::Cancelled)));
        assert_eq!((gate.sleep(second).await, gate.wait(second).await), (Ok(()), Err(Halt::Cancelled)));
        assert_eq!(gate.unless_cancelled(std::future::ready(1)).await, Ok(1), "what is there is taken");
        stop.cancel();
        assert_eq!(
            (gate.check_going_on(), gate.sleep(second).await),
            (Err(Halt::Stopped), Err(Halt::Stopped))
        );
    }
}
