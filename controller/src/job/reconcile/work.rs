//! From the work to the record of its results.

use backup_core::phase::{Phase as _, Stage};
use backup_store::{Location, StoreError, crash};

use super::{Next, Worker, WorkerError};
use crate::job::{
    decide,
    kind::PhaseOf,
    lifecycle::{Lifecycle, Work, WorkError, WorkResult},
    object::JobObject as _,
    pending_end::{CompletedWork, PendingEnd},
};

impl<L: Lifecycle> Worker<L> {
    /// Does all of the work; then the object is Finalizing, or waits for its operations, and
    /// nothing of it is visible in the store yet.
    pub(super) async fn work(&mut self, work: Work<'_, L>) -> Result<Next<L::Object>, WorkerError> {
        let object = work.object;
        let location = work.location;
        let token = work.token;
        let fence = self.cancellation.fence().clone();
        let ledger = self.ctx.ledger.clone();
        let key = self.key.clone();
        let uid = self.uid.clone();
        let worked = match fence
            .around(ledger, key, uid, token.clone(), L::work(self, work))
            .await
        {
            Ok(worked) => worked,
            Err(error) => return self.not_worked(object, location, error).await,
        };
        if L::KIND.results_need_claim()
            && let Err(error) = self.still_claimed(token).await
        {
            L::discard(worked.contents).await;
            return Err(error);
        }
        if !worked.files.item_operations.is_empty() {
            crash::point("before-operations");
            // The operations are in the store before the phase mentions them.
            if let Err(error) = L::await_operations(self, object, worked).await {
                return self.not_worked(object, location, error).await;
            }
            crash::point("after-operations-recorded");
            return Ok(Next::Again(None));
        }
        let WorkResult {
            contents,
            files,
            summary,
        } = worked;
        match L::upload(contents).await {
            Ok(upload) => {
                self.announce(
                    object,
                    CompletedWork {
                        upload,
                        files,
                        summary,
                    },
                )
                .await
            }
            Err(error) => {
                self.not_worked(object, location, WorkError::Store(error))
                    .await
            }
        }
    }

    /// Announces that everything is done.
    async fn announce(
        &mut self,
        object: &L::Object,
        done: CompletedWork<L>,
    ) -> Result<Next<L::Object>, WorkerError> {
        let failed = done.files.results.errors() > 0;
        let next = PhaseOf::<L>::finalizing(failed);
        let announced = if decide::announces(object.stage()) {
            self.publish(object, |now| {
                L::announce_patch(now, &next, &done.files, &done.summary)
            })
            .await
        } else {
            Ok(object.clone())
        };
        let rests = match announced {
            Ok(finalizing) => self.rest(finalizing).await,
            Err(error) => Err(error),
        };
        match rests {
            Ok(finalizing) => {
                crash::point("after-finalizing-patch");
                self.pending = Some(PendingEnd::new(done, None));
                Ok(Next::Again(Some(Box::new(finalizing))))
            }
            Err(error) => {
                L::discard_upload(done.upload).await;
                Err(error)
            }
        }
    }

    async fn not_worked(
        &mut self,
        object: &L::Object,
        location: &Location,
        error: WorkError,
    ) -> Result<Next<L::Object>, WorkerError> {
        let mut error = match error {
            WorkError::Worker(error) => return Err(error),
            WorkError::Fatal(reason) => return self.fail(object, &reason, Some(location)).await,
            WorkError::Store(error) => error,
        };
        if matches!(error, StoreError::Exists { .. }) && L::KIND.may_end(object.stage()) {
            use backup_store::FoundJob as Found;
            match location.find_job::<L::Object>(&self.name, &self.uid).await {
                // Another replica has progressed further with this very object: continue from
                // there.
                Ok(Found::Committed(_) | Found::Awaiting(_)) => return Err(WorkerError::Conflict),
                Ok(Found::Stored(end)) if L::stored_end(&end).0 == self.uid => {
                    return Err(WorkerError::Conflict);
                }
                Ok(Found::Nothing | Found::Stored(_)) => {
                    let reason = format!(
                        "{} already exists in object storage: {error}",
                        L::KIND.noun()
                    );
                    return self.fail(object, &reason, None).await;
                }
                Err(unread) => error = unread,
            }
        }
        self.leave_slot(object).await?;
        Err(error.into())
    }

    /// Releases slot and claim while the store cannot be used.
    pub(super) async fn leave_slot(&self, object: &L::Object) -> Result<(), WorkerError> {
        let left = L::leave_slot(self, object).await?;
        self.rest(left).await.map(|_| ())
    }

    /// Releases the claim once nothing of the cluster is needed. If that fails, the collector of
    /// claims releases it, because of the phase.
    pub(super) async fn rest(&self, object: L::Object) -> Result<L::Object, WorkerError> {
        if !L::KIND.rests_when_finalizing() || !matches!(object.stage(), Stage::Finalizing { .. }) {
            return Ok(object);
        }
        let rests = L::rests_patch(&object).is_some();
        let object = if rests {
            self.publish(&object, L::rests_patch).await?
        } else {
            object
        };
        crash::point("before-claim-returned");
        if let Err(error) = self.release().await {
            tracing::debug!(
                name = self.name,
                ?error,
                "a claim that is not needed is left to be collected"
            );
        }
        Ok(object)
    }
}
