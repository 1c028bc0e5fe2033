//! The right to work: taken before each run of the work, and checked again during it.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use backup_client::backoff::Backoff;
use backup_core::{event_reason::EventReason, phase::Stage};
use backup_lock::{ActivateError, Token};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{Next, Worker, WorkerError};
use crate::job::{lifecycle::Lifecycle, object::JobObject as _};

/// Backoff between reads of the ledger while it cannot be read.
const LEDGER_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    cap: Duration::from_secs(5),
};

/// The right to work.
pub(super) struct Claim {
    pub(super) token: Token,
    /// A slot; operations, and the end of a cancelled object, need none.
    _permit: Option<OwnedSemaphorePermit>,
}

impl<L: Lifecycle> Worker<L> {
    /// Takes a slot and the right to work (`backup_lock::activate`: a fresh read, then a
    /// compare-and-swap on the ledger), before each run of the work: a claim may have been released
    /// by force during a long wait, and one that was given back is requested again. `Break`: the
    /// claim was refused.
    pub(super) async fn claim(
        &mut self,
        object: &mut L::Object,
    ) -> Result<ControlFlow<Next<L::Object>, Claim>, WorkerError> {
        let stage = object.stage();
        let mut permit = None;
        if !matches!(stage, Stage::WaitingForOperations { .. }) && !self.cancellation.is_cancelled()
        {
            permit = tokio::select! {
                permit = Arc::clone(&self.permits).acquire_owned() => permit.ok(),
                () = self.cancellation.cancelled() => return Err(WorkerError::Conflict),
                reason = self.cancellation.stopped() => return Err(reason.into()),
            };
        }
        self.cancellation.check()?;
        if L::claims_again_patch(object).is_some() {
            *object = self.publish(object, L::claims_again_patch).await?;
        }
        let activated = backup_lock::activate(&self.ctx.ledger, &self.key, &self.uid).await;
        self.yields.store(
            matches!(activated, Err(ActivateError::Waiting(_))),
            Ordering::Relaxed,
        );
        let error = match activated {
            Ok(token) => {
                tracing::debug!(name = self.name, epoch = token.epoch, "claim is active");
                return Ok(ControlFlow::Continue(Claim {
                    token,
                    _permit: permit,
                }));
            }
            Err(error) => error,
        };
        match error {
            ActivateError::Gone { .. } | ActivateError::Over { .. } => Err(WorkerError::Conflict),
            error @ ActivateError::Waiting(_) if !L::KIND.has_queue() => {
                self.ctx
                    .cluster
                    .events
                    .normal(object, EventReason::Waiting, &error.to_string());
                Err(WorkerError::Waiting)
            }
            // An earlier worker may have written for a while: the end says so, too.
            error @ ActivateError::Released { .. } => {
                if !L::KIND.may_end(stage) {
                    let reason = format!("{error}; delete the {}", L::KIND.noun());
                    return Err(WorkerError::Blocked {
                        reason,
                        retryable: false,
                    });
                }
                let begun = stage != L::KIND.start();
                let stays = if begun {
                    "; nothing more was written, and what was written stays"
                } else {
                    ""
                };
                let reason = if begun {
                    "could not go on"
                } else {
                    L::KIND.refused()
                };
                self.fail(object, &format!("{reason}: {error}{stays}"), None)
                    .await
                    .map(ControlFlow::Break)
            }

            // Only a refusal ends the object; a ledger that cannot be read or written now is no
            // refusal.
            error @ (ActivateError::Conflict(_) | ActivateError::Full(_))
                if L::KIND.may_fail(stage) =>
            {
                let reason = if stage == L::KIND.start() {
                    L::KIND.refused()
                } else {
                    "could not go on"
                };
                self.fail(object, &format!("{reason}: {error}"), None)
                    .await
                    .map(ControlFlow::Break)
            }
            error => {
                // Waiting for a turn does not count against a store that may fail later.
                if matches!(error, ActivateError::Waiting(_)) {
                    self.blocked.count_anew();
                }
                *object = self.rest(object.clone()).await?;
                Err(WorkerError::Blocked {
                    reason: error.to_string(),
                    retryable: true,
                })
            }
        }
    }

    /// Checks that the claim is held. After a release by force others were admitted: the work done
    /// under the claim is dropped, and the next step has to claim again.
    pub(super) async fn still_claimed(&self, token: &Token) -> Result<(), WorkerError> {
        let started = Instant::now();
        let mut tries = 0;
        loop {
            self.cancellation.check()?;
            let holds =
                backup_lock::activate::holds(&self.ctx.ledger, &self.key, &self.uid, token).await;
            let error = match holds {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    tracing::warn!(
                        name = self.name,
                        "the claim was lost during the work, which is dropped"
                    );
                    return Err(WorkerError::Conflict);
                }
                Err(error) => error,
            };
            if !error.is_transient() || started.elapsed() >= self.ctx.resource_timeout {
                return Err(error.into());
            }
            tries += 1;
            tokio::time::sleep(LEDGER_BACKOFF.delay(tries)).await;
        }
    }
}
