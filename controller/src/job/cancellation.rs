//! Whether work may continue: checked between pages, and before each write.

use std::time::Duration;

use backup_core::labels::CANCELLED;
use backup_runtime::{
    clock::Clock,
    leader::{Leadership, NotLeader},
};
use tokio_util::sync::CancellationToken;

use super::{
    fence::{ClaimLost, Fence},
    waits::Waits,
};

/// Time that a running action or command has to answer when work has to stop, so that its outcome
/// is known.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why work must stop. Nothing is published then; the next worker resumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StopReason {
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    #[error("the controller is shutting down; the work is taken up again when it is back")]
    ShuttingDown,
    /// The object is gone, or its deletion was requested.
    #[error("the object was deleted while it was worked on")]
    Deleted,
    /// Another object may have been admitted.
    #[error("the claim of the work is gone")]
    ClaimLost,
    /// The user cancelled it: nothing new is started, and running steps are completed.
    #[error("{}", CANCELLED)]
    Cancelled,
}

impl From<ClaimLost> for StopReason {
    fn from(_: ClaimLost) -> Self {
        Self::ClaimLost
    }
}

/// Why a write was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotSent {
    #[error(transparent)]
    Stopped(#[from] StopReason),
    #[error(
        "whether the claim of this work is still valid could not be read in time, so nothing was written"
    )]
    Unconfirmed,
}

/// Tells work whether it may continue, and collects what it waits for. Cheap to clone; all clones
/// belong to the same work.
#[derive(Clone, Debug)]
pub(crate) struct Cancellation {
    leadership: Leadership,
    shutdown: CancellationToken,
    deleted: CancellationToken,
    cancelled: CancellationToken,
    fence: Fence,
    waits: Waits,
}

impl Cancellation {
    /// For work that continues until leadership is lost or `shutdown` is cancelled.
    pub(crate) fn new(leadership: Leadership, shutdown: CancellationToken) -> Self {
        Self {
            leadership,
            shutdown,
            deleted: CancellationToken::new(),
            cancelled: CancellationToken::new(),
            fence: Fence::new(Clock::Boot),
            waits: Waits::default(),
        }
    }

    /// The waits of the work.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Changes with each renewal of the lease ([`Leadership::renewal`]).
    pub(crate) fn lease_renewal(&self) -> u64 {
        self.leadership.renewal()
    }

    /// The fence of the claim that the work needs.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    pub(crate) fn delete(&self) {
        self.deleted.cancel();
    }

    /// For the steps that remain after the deletion has stopped the work.
    pub(crate) fn after_deletion(&self) -> Self {
        Self {
            deleted: CancellationToken::new(),
            fence: Fence::new(Clock::Boot),
            ..self.clone()
        }
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.cancel();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Resolves when the user cancels the object.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// To be called before each step. Before each write that needs the claim, use
    /// [`Self::may_write`].
    pub(crate) fn check(&self) -> Result<(), StopReason> {
        if self.deleted.is_cancelled() {
            return Err(StopReason::Deleted);
        }
        if self.shutdown.is_cancelled() {
            return Err(StopReason::ShuttingDown);
        }
        self.fence.check()?;
        Ok(self.leadership.check()?)
    }

    /// To be called before each write that needs the claim. Waits at most `patience` for a read
    /// that confirms the claim.
    pub(crate) async fn may_write(&self, patience: Duration) -> Result<(), NotSent> {
        self.check()?;
        let confirmed = async {
            tokio::select! {
                biased;
                reason = self.stopped() => Err(reason),
                confirmed = self.fence.confirmed() => Ok(confirmed?),
            }
        };
        tokio::time::timeout(patience, confirmed)
            .await
            .map_err(|_| NotSent::Unconfirmed)??;
        Ok(self.check()?)
    }

    /// To be called before each step that is skipped after a cancellation.
    pub(crate) fn check_new_work(&self) -> Result<(), StopReason> {
        self.check()?;
        if self.is_cancelled() {
            Err(StopReason::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Timeout for a request that is sent now.
    pub(crate) fn request_timeout(&self, wanted: Duration) -> Duration {
        self.leadership.request_timeout(wanted)
    }

    /// Resolves when work must stop. A loss of leadership is only found by [`Self::check`].
    pub(crate) async fn stopped(&self) -> StopReason {
        tokio::select! {
            biased;
            () = self.deleted.cancelled() => StopReason::Deleted,
            () = self.shutdown.cancelled() => StopReason::ShuttingDown,
            () = self.fence.lost() => StopReason::ClaimLost,
        }
    }

    /// Returns the result of `wait`, unless the user cancels before. Only for futures that may be
    /// dropped half way.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        wait: impl Future<Output = T>,
    ) -> Result<T, StopReason> {
        tokio::select! {
            // A result that is ready is returned.
            biased;
            result = wait => Ok(result),
            () = self.cancelled() => Err(StopReason::Cancelled),
        }
    }

    /// Sleeps until the time is over or work must stop. A cancellation does not end it: for steps
    /// that complete by themselves.
    pub(crate) async fn sleep(&self, time: Duration) -> Result<(), StopReason> {
        tokio::select! {
            reason = self.stopped() => Err(reason),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// Like [`Self::sleep`], and also ends when the user cancels.
    pub(crate) async fn wait(&self, time: Duration) -> Result<(), StopReason> {
        self.unless_cancelled(self.sleep(time)).await?
    }
}

/// Like [`Cancellation::unless_cancelled`], where `cancellation` may be missing.
pub(crate) async fn unless_cancelled<T>(
    cancellation: Option<&Cancellation>,
    wait: impl Future<Output = T>,
) -> Result<T, StopReason> {
    match cancellation {
        Some(cancellation) => cancellation.unless_cancelled(wait).await,
        None => Ok(wait.await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_until_it_is_stopped_and_a_cancellation_lets_what_is_under_way_pass() {
        let shutdown = CancellationToken::new();
        let cancellation = Cancellation::new(Leadership::always(), shutdown.clone());
        assert_eq!(cancellation.check_new_work(), Ok(()));
        cancellation.cancel();
        let second = Duration::from_secs(1);
        assert_eq!(
            (cancellation.check(), cancellation.check_new_work()),
            (Ok(()), Err(StopReason::Cancelled))
        );
        let waits = (
            cancellation.sleep(second).await,
            cancellation.wait(second).await,
        );
        assert_eq!(waits, (Ok(()), Err(StopReason::Cancelled)));
        assert_eq!(
            cancellation.unless_cancelled(std::future::ready(1)).await,
            Ok(1),
            "what is there is taken"
        );
        shutdown.cancel();
        let stopped = Err(StopReason::ShuttingDown);
        assert_eq!(
            (
                cancellation.check_new_work(),
                cancellation.sleep(second).await
            ),
            (stopped, stopped)
        );
        cancellation.clone().delete();
        assert_eq!(
            (cancellation.check(), cancellation.stopped().await),
            (Err(StopReason::Deleted), StopReason::Deleted)
        );
    }
}
