//! How an object ends: recorded, published, counted and reported; then its claim is released.

use backup_core::{event_reason::EventReason, phase::Phase as _};
use backup_store::{StoreError, crash};
use jiff::Timestamp;

use super::{Next, Worker, WorkerError};
use crate::{
    job::{
        cancellation::StopReason,
        finalizers,
        kind::Outcome,
        lifecycle::{Failure, Lifecycle},
        object::JobObject as _,
        pending_end::PendingEnd,
    },
    metrics::Outcome as Counted,
};
use backup_store::Location;

impl<L: Lifecycle> Worker<L> {
    /// Records the end, writes it, and publishes it.
    pub(super) async fn finish(
        &mut self,
        object: &L::Object,
    ) -> Result<Next<L::Object>, WorkerError> {
        self.cancellation.check()?;
        L::may_write(self, object).await?;
        let Some(pending) = &mut self.pending else {
            return Err(WorkerError::Conflict);
        };
        let stored = match pending.store(object, Timestamp::now()).await {
            Ok(stored) => stored,
            Err(error) => return Err(self.not_stored(&error)),
        };
        self.publish_end(object, &stored).await
    }

    /// Handles an end that could not be written. A record stays, and is retried.
    fn not_stored(&mut self, error: &StoreError) -> WorkerError {
        match error {
            // The data is gone before it became visible: the work is repeated. The next step finds
            // the record and begins after it.
            StoreError::Lost { .. } => {
                self.lost = self.pending.take().as_ref().and_then(PendingEnd::record);
                WorkerError::Blocked {
                    reason: format!("{error}; it is collected again"),
                    retryable: true,
                }
            }
            // Another replica was faster, before or after our record: the next step finds the end
            // that was stored, of this object or of another.
            StoreError::Exists { .. } => {
                let recorded = self
                    .pending
                    .take()
                    .is_some_and(|had| had.record().is_some());
                WorkerError::Blocked {
                    reason: error.to_string(),
                    retryable: !recorded,
                }
            }
            _ => WorkerError::Blocked {
                reason: error.to_string(),
                retryable: error.is_transient(),
            },
        }
    }

    /// Publishes the end that another process has stored.
    pub(super) async fn adopt(
        &mut self,
        object: &L::Object,
        stored: &Outcome<L>,
    ) -> Result<Next<L::Object>, WorkerError> {
        self.pending = None;
        self.publish_end(object, stored).await
    }

    async fn publish_end(
        &mut self,
        object: &L::Object,
        stored: &Outcome<L>,
    ) -> Result<Next<L::Object>, WorkerError> {
        L::before_end(self, stored).await?;
        crash::point("before-terminal-patch");
        let ended = self
            .publish(object, |now| L::terminal_patch(now, stored))
            .await?;
        crash::point("after-terminal-patch");
        L::count_end(&self.ctx.metrics, &ended, self.pending.as_ref());
        self.ended(&ended).await
    }

    pub(super) async fn refuse(
        &mut self,
        object: &L::Object,
        findings: &[String],
        facts: &L::Facts,
    ) -> Result<Next<L::Object>, WorkerError> {
        crash::point("before-refusal-patch");
        let ended = self
            .publish(object, |now| self.kind.refused_patch(now, facts, findings))
            .await?;
        self.ended(&ended).await
    }

    /// Ends the object as Failed; if the phase no longer allows that, with the kind's fallback.
    pub(super) async fn fail(
        &mut self,
        object: &L::Object,
        reason: &str,
        location: Option<&Location>,
    ) -> Result<Next<L::Object>, WorkerError> {
        L::abandon(self, object).await?;
        let patch = match L::fail(self, object, reason, location).await? {
            Failure::Publish(patch) => patch,
            Failure::Store => return self.finish(object).await,
        };
        crash::point("before-failure-patch");
        let ended = self.publish(object, patch).await?;
        self.ended(&ended).await
    }

    /// After the terminal patch: counts and reports the end once, and releases the claim.
    async fn ended(&mut self, object: &L::Object) -> Result<Next<L::Object>, WorkerError> {
        let phase = object.phase();
        let note = L::end_note(object);
        let reason = EventReason::of_end(phase.stage());
        let outcome = match reason {
            EventReason::Completed => Counted::Success,
            EventReason::PartiallyFailed => Counted::PartialFailure,
            EventReason::FailedValidation => Counted::ValidationFailure,
            _ => Counted::Failure,
        };
        L::count(&self.ctx.metrics, Some(object), outcome);
        let events = &self.ctx.cluster.events;
        if outcome == Counted::Success {
            events.normal(object, reason, &note);
        } else {
            events.warning(object, reason, &note);
        }
        tracing::info!(name = self.name, %phase, note, "a {} ended", L::KIND.noun());
        if let Some(PendingEnd::Committed(plan)) = self.pending.take() {
            L::after_end(self, &plan).await;
        }
        self.release().await
    }

    /// Releases the claim, then removes our finalizers so that the object can be deleted.
    pub(super) async fn let_go(
        &mut self,
        object: &L::Object,
    ) -> Result<Next<L::Object>, WorkerError> {
        self.pending = None;
        let ended = object.stage().is_terminal();
        if !ended {
            L::abandon(self, object).await?;
        }
        self.release().await?;
        crash::point("before-let-go");
        let work = finalizers::work::<L>();
        let mut now = object.clone();
        if finalizers::has(object, work) {
            now = self
                .publish(object, |now| finalizers::removed(now, &[work]))
                .await?;
            if ended {
                self.ctx
                    .cluster
                    .events
                    .forced_end(object, &object.phase().to_string());
            }
        }
        if finalizers::is_held::<L>(&now) {
            L::remove_files(self, &now).await?;
            match self
                .publish(&now, |now| finalizers::removed(now, L::FINALIZERS))
                .await
            {
                Ok(_) | Err(WorkerError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Next::Done)
    }

    /// After the object was deleted and its work has stopped: finishes what is committed, then
    /// releases the claim.
    pub(crate) async fn after_deletion(&mut self) -> Result<Next<L::Object>, WorkerError> {
        self.cancellation = self.cancellation.after_deletion();
        let mut known = None;
        loop {
            let next = match known.take() {
                Some(object) => Box::pin(self.reconcile(Some(object))).await,
                None => match self.read().await {
                    Ok(Some(object)) => {
                        // The dispatcher looks again.
                        if !object.is_deleting() {
                            return Ok(Next::Done);
                        }
                        Box::pin(self.reconcile(Some(Box::new(object)))).await
                    }
                    Ok(None) => self.release().await,
                    Err(error) => Err(error.into()),
                },
            };
            let error = match next {
                Ok(Next::Done) => return Ok(Next::Done),
                Ok(Next::Again(object)) => {
                    known = object;
                    continue;
                }
                Err(error) => error,
            };
            let delay = match error {
                WorkerError::Stopped(_) => return Err(error),
                WorkerError::Conflict | WorkerError::Waiting => continue,
                WorkerError::Blocked { reason, retryable } => {
                    self.report_blocked(&reason, retryable).await
                }
            };
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.ctx.stop.cancelled() => return Err(StopReason::ShuttingDown.into()),
            }
        }
    }

    /// Releases the claim. May be repeated; if it fails, the collector of claims releases it.
    pub(super) async fn release(&self) -> Result<Next<L::Object>, WorkerError> {
        self.ctx
            .cluster
            .leadership
            .check()
            .map_err(StopReason::from)?;
        backup_lock::release(&self.ctx.ledger, &self.key, &self.uid).await?;
        Ok(Next::Done)
    }
}
