//! An object whose items are done and whose operations still run: they are polled to their end,
//! then the object is completed with their outcomes.
//!
//! What is learned is first stored, then published, so a lost patch loses nothing: counts, phase
//! and errors are derived from the stored state each time.

use std::{ops::ControlFlow, time::Duration};

use backup_core::operation::Counts;
use backup_lock::Token;
use backup_store::{AwaitingOperations, Location, StoreError, crash};

use super::{Next, Worker, WorkerError};
use crate::job::{
    kind::Operation,
    lifecycle::{Lifecycle, WorkError},
    object::JobObject as _,
    operations::{
        poll_until_complete::{StateStore, StoreResult, poll_until_complete},
        poller::OperationPoller,
        records,
    },
    pending_end::PendingEnd,
};

/// Operation timeout of an object without one (it always has one once it has begun).
const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_hours(4);

impl<L: Lifecycle> Worker<L> {
    /// Like [`Worker::operations`], while the claim is held, if the operations need one.
    pub(super) async fn fenced_operations(
        &mut self,
        object: &L::Object,
        location: &Location,
        awaiting: AwaitingOperations<L::Object>,
        token: Option<Token>,
    ) -> Result<Next<L::Object>, WorkerError> {
        let Some(token) = token else {
            return Box::pin(self.operations(object, location, awaiting)).await;
        };
        let fence = self.cancellation.fence().clone();
        let ledger = self.ctx.ledger.clone();
        let key = self.key.clone();
        let uid = self.uid.clone();
        fence
            .around(
                ledger,
                key,
                uid,
                token,
                Box::pin(self.operations(object, location, awaiting)),
            )
            .await
    }

    /// Polls operations to their end, then completes the results; then the object is Finalizing.
    pub(super) async fn operations(
        &mut self,
        object: &L::Object,
        location: &Location,
        mut awaiting: AwaitingOperations<L::Object>,
    ) -> Result<Next<L::Object>, WorkerError> {
        self.cancellation.check()?;
        let operations: Vec<Operation<L>> = records::decode(&awaiting.take_operations())?;
        let mut shown = object.clone();
        if L::worked_patch(&shown, awaiting.status()).is_some() {
            shown = self
                .publish(&shown, |now| L::worked_patch(now, awaiting.status()))
                .await?;
        }
        shown = self.show(&shown, &awaiting, &operations).await?;
        let timeout = shown
            .operation_timeout()
            .unwrap_or(DEFAULT_OPERATION_TIMEOUT);
        let poller = OperationPoller::new(self.ctx.polling.clone(), &shown, operations, timeout);
        if !poller.all_ended() {
            return self.poll(shown, &mut awaiting, poller).await;
        }
        crash::point("after-operations");
        L::may_write(self, &shown).await?;
        let operations = poller.operations();
        if !L::KIND.reads_after_operations() {
            return self
                .complete(&shown, location, awaiting, &operations, None)
                .await;
        }
        let claim = match self.claim(&mut shown).await? {
            ControlFlow::Continue(claim) => claim,
            ControlFlow::Break(next) => return Ok(next),
        };
        let fence = self.cancellation.fence().clone();
        let ledger = self.ctx.ledger.clone();
        let key = self.key.clone();
        let uid = self.uid.clone();
        let completed =
            Box::pin(self.complete(&shown, location, awaiting, &operations, Some(&claim.token)));
        fence
            .around(ledger, key, uid, claim.token.clone(), completed)
            .await
    }

    /// Publishes counts and phase, unless they are published already.
    async fn show(
        &self,
        object: &L::Object,
        awaiting: &AwaitingOperations<L::Object>,
        operations: &[Operation<L>],
    ) -> Result<L::Object, WorkerError> {
        let errors = awaiting.files().results.errors();
        let next = records::phase(Counts::of_all(operations), errors, &object.phase());
        let files = awaiting.files();
        if L::operations_patch(object, &next, operations, files).is_none() {
            return Ok(object.clone());
        }
        self.publish(object, |now| {
            L::operations_patch(now, &next, operations, files)
        })
        .await
    }

    /// Polls until all operations have ended, or work must stop.
    async fn poll(
        &mut self,
        shown: L::Object,
        awaiting: &mut AwaitingOperations<L::Object>,
        mut poller: OperationPoller<L::Object>,
    ) -> Result<Next<L::Object>, WorkerError> {
        let cancellation = self.cancellation.clone();
        if shown.is_cancelled() {
            poller.stop();
        }
        let mut states = States {
            worker: self,
            awaiting,
            shown,
        };
        poll_until_complete(&mut poller, &mut states, &cancellation).await?;
        Ok(Next::Again(Some(Box::new(states.shown))))
    }

    /// Repeated after a crash: the record still holds the earlier results.
    async fn complete(
        &mut self,
        object: &L::Object,
        location: &Location,
        awaiting: AwaitingOperations<L::Object>,
        operations: &[Operation<L>],
        token: Option<&Token>,
    ) -> Result<Next<L::Object>, WorkerError> {
        let record = awaiting.number();
        let cancellation = self.cancellation.clone();
        let completed = tokio::select! {
            completed = L::complete(self, object, location, awaiting, operations) => completed,
            reason = cancellation.stopped() => return Err(reason.into()),
        };
        let done = match completed {
            Ok(done) => done,
            Err(WorkError::Worker(error)) => return Err(error),
            Err(WorkError::Fatal(reason)) => {
                return Err(WorkerError::Blocked {
                    reason,
                    retryable: false,
                });
            }
            Err(WorkError::Store(error)) => {
                // Collected data that is gone is collected again.
                if matches!(error, StoreError::Lost { .. }) {
                    self.lost = Some(record);
                }
                return Err(error.into());
            }
        };
        if let Some(token) = token {
            self.still_claimed(token).await?;
        }
        let errors = done.files.results.errors();
        let next = records::phase(Counts::of_all(operations), errors, &object.phase());
        // In the same phase the counts are published already; the files of a restore now list each
        // failure a second time.
        let finalizing = if next == object.phase() {
            object.clone()
        } else {
            self.publish(object, |now| {
                L::operations_patch(now, &next, operations, &done.files)
            })
            .await?
        };
        let finalizing = self.rest(finalizing).await?;
        crash::point("after-renewal");
        self.pending = Some(PendingEnd::new(done, None));
        Ok(Next::Again(Some(Box::new(finalizing))))
    }
}

/// Writes the states of operations to the store, and what follows from them to the object.
struct States<'a, L: Lifecycle> {
    worker: &'a mut Worker<L>,
    awaiting: &'a mut AwaitingOperations<L::Object>,
    /// As last published.
    shown: L::Object,
}

impl<L: Lifecycle> States<'_, L> {
    async fn try_store(&mut self, operations: &[Operation<L>]) -> Result<(), WorkerError> {
        L::may_write(self.worker, &self.shown).await?;
        let encoded = records::encode(operations)?;
        match self.awaiting.store_operations(&encoded).await {
            // Another replica has stored another state.
            Err(StoreError::Exists { .. }) => Err(WorkerError::Conflict),
            stored => Ok(stored?),
        }
    }
}

impl<L: Lifecycle> StateStore<Operation<L>> for States<'_, L> {
    type Error = WorkerError;

    async fn store(&mut self, operations: &[Operation<L>]) -> Result<StoreResult, WorkerError> {
        match self.try_store(operations).await {
            Ok(()) => {
                self.worker.unblocked();
                crash::point("after-operations-kept");
                Ok(StoreResult::Yes)
            }
            Err(WorkerError::Blocked { reason, retryable }) => Ok(StoreResult::NotYet(
                self.worker.report_blocked(&reason, retryable).await,
            )),
            Err(error) => Err(error),
        }
    }

    async fn publish(&mut self, operations: &[Operation<L>]) -> Result<(), WorkerError> {
        self.shown = self
            .worker
            .show(&self.shown, self.awaiting, operations)
            .await?;
        Ok(())
    }
}
