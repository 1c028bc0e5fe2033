//! What stops the hooks of a restore.

use backup_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::job::cancellation::{Cancellation, STOP_TIMEOUT, StopReason};

/// Why hooks stop.
#[derive(Debug)]
pub(super) enum HookStop {
    /// The work has to stop.
    Work(StopReason),
    /// This attempt has failed; the next one continues.
    Attempt,
    /// The journal cannot be written.
    Journal(StoreError),
}

impl From<StopReason> for HookStop {
    fn from(reason: StopReason) -> Self {
        Self::Work(reason)
    }
}

/// The signals that stop the hooks of an attempt.
pub(super) struct HookStops<'a> {
    cancellation: &'a Cancellation,
    /// Cancelled once the attempt has failed.
    failed: CancellationToken,
}

impl<'a> HookStops<'a> {
    pub(super) fn new(cancellation: &'a Cancellation) -> Self {
        Self {
            cancellation,
            failed: CancellationToken::new(),
        }
    }

    /// Stops new work of hooks, because this attempt has failed.
    pub(super) fn fail(&self) {
        self.failed.cancel();
    }

    /// Must be called before each step.
    pub(super) fn check(&self) -> Result<(), HookStop> {
        if self.failed.is_cancelled() {
            return Err(HookStop::Attempt);
        }
        Ok(self.cancellation.check_new_work()?)
    }

    /// Awaits `wait`, unless new work is forbidden before it ends.
    pub(super) async fn unless_stopped<T>(
        &self,
        wait: impl Future<Output = T>,
    ) -> Result<T, HookStop> {
        tokio::select! {
            biased;
            result = wait => Ok(result),
            stop = self.stopped() => Err(stop),
        }
    }

    /// Resolves when no new work may begin.
    async fn stopped(&self) -> HookStop {
        tokio::select! {
            () = self.failed.cancelled() => HookStop::Attempt,
            reason = self.cancellation.stopped() => HookStop::Work(reason),
            () = self.cancellation.cancelled() => HookStop::Work(StopReason::Cancelled),
        }
    }

    /// Resolves when a running command is no longer waited for. After a stop it has `STOP_TIMEOUT`
    /// to end, so that its outcome is known, unless the claim is lost.
    pub(super) async fn cut_off(&self) -> HookStop {
        let stop = self.stopped().await;
        tokio::select! {
            () = tokio::time::sleep(STOP_TIMEOUT) => stop,
            () = self.cancellation.fence().lost() => HookStop::Work(StopReason::ClaimLost),
        }
    }
}
