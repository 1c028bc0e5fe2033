//! The steps of a worker, from start to end: reads the current state, asks `decide`, does that step,
//! and reads again. Waiting for a store or an API server that is down happens here, outside of the
//! slots.

use std::{ops::ControlFlow, time::Duration};

use backup_client::backoff::Backoff;
use backup_core::phase::Stage;
use backup_lock::Token;
use backup_runtime::retry::{PatchOutcome, WriteError, status_patch_in};
use backup_store::{AwaitingOperations, CommittedPlan, FoundJob, Location, StoredJob};
use tokio::time::Instant;

use super::{
    cancellation::StopReason,
    decide::{self, ImmediatePlan, JobState, Plan},
    finalizers,
    kind::{JobKind, Outcome},
    lifecycle::{JobPreparation, Lifecycle, Record, Work},
    object::JobObject as _,
    pending_end::PendingEnd,
    worker::{Worker, WorkerError},
};
use crate::metrics;

mod claim;
mod ending;
mod operations;
mod work;

use claim::Claim;

/// Backoff between attempts to write that the work begins.
const BEGIN_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(200),
    cap: Duration::from_secs(2),
};
/// Delay before an object that waits for its turn in the ledger asks again.
const TURN_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) enum Next<O> {
    /// Reconcile again, from this object if it is known.
    Again(Option<Box<O>>),
    Done,
}

/// What the store holds under the name of an object.
type Stored<L> = decide::Stored<
    WorkStart<<L as JobKind>::Object>,
    Box<CommittedPlan<<L as JobKind>::Object>>,
    (Location, Box<AwaitingOperations<<L as JobKind>::Object>>),
    (Location, Box<Outcome<L>>),
>;

/// What a look at the store has found for work that has to be done.
struct WorkStart<O: StoredJob> {
    location: Location,
    /// A record of an earlier run that can no longer be published.
    lost: Option<Record<O>>,
}

impl<L: Lifecycle> Worker<L> {
    /// Works until the object has ended or is gone, or work must stop.
    pub(crate) async fn run(mut self) {
        let mut known = None;
        loop {
            let error = match Box::pin(self.reconcile(known.take())).await {
                Ok(Next::Done) => return,
                Ok(Next::Again(object)) => {
                    known = object;
                    self.blocked.over();
                    continue;
                }
                Err(error) => error,
            };
            let delay = match error {
                WorkerError::Stopped(StopReason::Deleted) => {
                    if let Err(error) = Box::pin(self.after_deletion()).await {
                        tracing::warn!(
                            name = self.name,
                            ?error,
                            "a deleted {} keeps its claim",
                            L::KIND.noun()
                        );
                    }
                    return;
                }
                // The next step asks for the claim again.
                WorkerError::Conflict | WorkerError::Stopped(StopReason::ClaimLost) => {
                    self.blocked.briefly()
                }
                WorkerError::Stopped(reason) => {
                    tracing::info!(name = self.name, %reason, "work on a {} stopped", L::KIND.noun());
                    return;
                }
                WorkerError::Waiting => TURN_INTERVAL,
                WorkerError::Blocked { reason, retryable } => {
                    self.report_blocked(&reason, retryable).await
                }
            };
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = self.cancellation.stopped() => {}
            }
        }
    }

    pub(crate) async fn reconcile(
        &mut self,
        known: Option<Box<L::Object>>,
    ) -> Result<Next<L::Object>, WorkerError> {
        self.cancellation.check()?;
        let mut object = match known {
            Some(object) => *object,
            None => match self.read().await {
                Ok(Some(object)) => object,
                Ok(None) => return self.release().await,
                // It can no longer be decoded. The dispatcher sees that, too, and refuses it.
                Err(kube::Error::SerdeError(_)) => return Ok(Next::Done),
                Err(error) => return Err(error.into()),
            },
        };
        if object.is_cancelled() {
            self.cancellation.cancel();
        }
        let resumed = object.stage() != L::KIND.start();
        let mut claim: Option<Claim> = None;
        let mut prepared: Option<JobPreparation<L::Facts>> = None;
        let mut stored: Option<Stored<L>> = None;
        loop {
            let seen = JobState {
                kind: L::KIND,
                stage: object.stage(),
                deleting: object.is_deleting(),
                cancelled: object.is_cancelled(),
                in_hand: self.pending.is_some(),
            };
            if let Some(plan) = decide::immediate(seen) {
                return self.act_on_object(&object, plan).await;
            }
            let Some(JobPreparation {
                facts,
                location,
                findings,
            }) = &prepared
            else {
                // A backup deletion that begins after the claim is active finds this Restore,
                // and waits for it.
                if L::KIND.is_claimed_first() {
                    match self.claim(&mut object).await? {
                        ControlFlow::Continue(granted) => claim = Some(granted),
                        ControlFlow::Break(next) => return Ok(next),
                    }
                    if resumed {
                        object = self.with_finalizers(object).await?;
                    }
                }
                prepared = Some(self.kind.prepare(&self.ctx, &object).await?);
                continue;
            };
            match decide::next(seen, findings, stored.take()) {
                Plan::Look => match self.look(location).await {
                    Ok(found) => stored = Some(found),
                    // A deletion does not wait for a store.
                    Err(WorkerError::Blocked { .. }) if object.is_deleting() => {
                        return self.let_go(&object).await;
                    }
                    Err(error) => return self.store_error(&object, error).await,
                },
                Plan::Refuse { validation_errors } => {
                    return self.refuse(&object, &validation_errors, facts).await;
                }
                Plan::Begin(found) => {
                    let granted = match claim.take() {
                        Some(granted) => granted,
                        None => match self.claim(&mut object).await? {
                            ControlFlow::Continue(granted) => granted,
                            ControlFlow::Break(next) => return Ok(next),
                        },
                    };
                    object = self.begin(&object, facts, &granted.token).await?;
                    claim = Some(granted);
                    stored = found;
                }
                Plan::Work(start) => {
                    return self.start_work(object, facts, start, claim, resumed).await;
                }
                Plan::Finish(record) => {
                    if self.pending.is_none() {
                        self.pending = Some(PendingEnd::Committed(record));
                    }
                    return match self.finish(&object).await {
                        // The record stays; sync publishes it.
                        Err(WorkerError::Blocked { .. }) if object.is_deleting() => {
                            self.let_go(&object).await
                        }
                        finished => finished,
                    };
                }
                Plan::Operations((location, awaiting)) => {
                    // Drops the slot, which items need; operations that write need the claim.
                    let token = claim.map(|claim| claim.token);
                    return self
                        .fenced_operations(&object, &location, *awaiting, token)
                        .await;
                }
                Plan::Adopt((location, end)) => {
                    let next = self.adopt(&object, &end).await?;
                    L::after_adoption(self, &object, &location).await;
                    return Ok(next);
                }
                Plan::Fail { reason } => return self.fail(&object, &reason, None).await,
                Plan::Block { reason } => {
                    return Err(WorkerError::Blocked {
                        reason,
                        retryable: false,
                    });
                }
                Plan::LetGo => return self.let_go(&object).await,
            }
        }
    }

    async fn act_on_object(
        &mut self,
        object: &L::Object,
        plan: ImmediatePlan,
    ) -> Result<Next<L::Object>, WorkerError> {
        match plan {
            ImmediatePlan::Wait => Ok(Next::Done),
            ImmediatePlan::Fail { reason } => self.fail(object, &reason, None).await,
            ImmediatePlan::Finish => self.finish(object).await,
            ImmediatePlan::LetGo | ImmediatePlan::Free => self.let_go(object).await,
        }
    }

    /// Takes the claim unless it is taken, and works.
    async fn start_work(
        &mut self,
        mut object: L::Object,
        facts: &L::Facts,
        start: WorkStart<L::Object>,
        claim: Option<Claim>,
        resumed: bool,
    ) -> Result<Next<L::Object>, WorkerError> {
        if resumed && let Err(error) = L::may_write(self, &object).await {
            return self.store_error(&object, error).await;
        }
        let claim = match claim {
            Some(claim) => claim,
            None => match self.claim(&mut object).await? {
                ControlFlow::Continue(granted) => granted,
                ControlFlow::Break(next) => return Ok(next),
            },
        };
        // Writing the start may have taken longer than rebuilding a lost ledger.
        if L::KIND.is_claimed_first() {
            self.still_claimed(&claim.token).await?;
        }
        let work = Work {
            object: &object,
            facts,
            location: &start.location,
            lost: start.lost,
            token: &claim.token,
            resumed,
        };
        Box::pin(self.work(work)).await
    }

    /// Reads what the store holds under this name.
    async fn look(&self, location: &str) -> Result<Stored<L>, WorkerError> {
        let (_, location) = self.ctx.locations.open(location).await?;
        let found = location
            .find_job::<L::Object>(&self.name, &self.uid)
            .await?;
        Ok(match found {
            FoundJob::Nothing => Stored::<L>::Nothing(WorkStart {
                location,
                lost: None,
            }),
            FoundJob::Committed(plan) if self.lost == Some(plan.number()) => {
                Stored::<L>::Lost(WorkStart {
                    location,
                    lost: Some(Record::Committed(plan)),
                })
            }
            FoundJob::Committed(plan) => Stored::<L>::Recorded(plan),
            FoundJob::Awaiting(awaiting) if self.lost == Some(awaiting.number()) => {
                Stored::<L>::Lost(WorkStart {
                    location,
                    lost: Some(Record::Awaiting(awaiting)),
                })
            }
            FoundJob::Awaiting(awaiting) => Stored::<L>::Waiting((location, awaiting)),
            FoundJob::Stored(outcome) => {
                let (uid, stage) = L::stored_end(&outcome);
                if uid == self.uid {
                    Stored::<L>::Ours(stage, (location, outcome))
                } else {
                    Stored::<L>::Others { uid }
                }
            }
        })
    }

    /// Writes that the work begins; retried for `--resource-timeout`. Others may have been admitted
    /// while a write hung: the claim is checked before each retry.
    async fn begin(
        &self,
        object: &L::Object,
        facts: &L::Facts,
        token: &Token,
    ) -> Result<L::Object, WorkerError> {
        let cluster = &self.ctx.cluster;
        let api = cluster.api::<L::Object>();
        let started = Instant::now();
        let mut now = object.clone();
        let mut tries = 0;
        let begun = loop {
            let once = Duration::ZERO;
            let written =
                status_patch_in(&api, &cluster.leadership, once, &now, |now: &L::Object| {
                    // Only for the claimed spec: one that was edited since is read, and claimed,
                    // again. One that was cancelled since ends without having begun.
                    (now.has_spec_of(object) && !now.is_cancelled())
                        .then(|| self.kind.begin_patch(now, facts))
                        .flatten()
                });
            match written.await {
                Ok(PatchOutcome::Written(begun)) => break begun,
                Ok(PatchOutcome::Gone | PatchOutcome::Stale) => return Err(WorkerError::Conflict),
                Err(WriteError::Exhausted { .. }) if started.elapsed() < cluster.patch_budget => {}
                Err(error) => return Err(error.into()),
            }
            tries += 1;
            tokio::time::sleep(BEGIN_BACKOFF.delay(tries)).await;
            self.still_claimed(token).await?;
            now = self.read().await?.ok_or(WorkerError::Conflict)?;
            // The write succeeded, but its answer was lost.
            if now.stage() != object.stage() {
                break now;
            }
        };
        L::count(&self.ctx.metrics, Some(&begun), metrics::Outcome::Attempt);
        L::started(self, &begun, facts);
        Ok(begun)
    }

    /// Puts our finalizers on an object that runs without them because another engine began it.
    async fn with_finalizers(&self, object: L::Object) -> Result<L::Object, WorkerError> {
        if finalizers::added::<L>(&object).is_none() {
            Ok(object)
        } else {
            self.publish(&object, finalizers::added::<L>).await
        }
    }

    /// Handles a store that cannot be used before the work. A backup that has not begun waits for
    /// `--resource-timeout` and then fails: nothing is lost with it. One that has begun leaves its
    /// slot and waits. A restore whose location was deleted ends; its objects stay in the cluster.
    async fn store_error(
        &mut self,
        object: &L::Object,
        error: WorkerError,
    ) -> Result<Next<L::Object>, WorkerError> {
        let WorkerError::Blocked { reason, retryable } = error else {
            return Err(error);
        };
        let stage = object.stage();
        if stage == L::KIND.start() {
            let budget = self.ctx.resource_timeout;
            if !retryable || self.blocked.since(Instant::now()) >= budget {
                return self
                    .fail(object, &format!("{}: {reason}", L::KIND.refused()), None)
                    .await;
            }
        } else if L::KIND.ends_without_location()
            && !retryable
            && !matches!(stage, Stage::WaitingForOperations { .. })
        {
            return self.fail(object, &reason, None).await;
        } else {
            self.leave_slot(object).await?;
        }
        Err(WorkerError::Blocked { reason, retryable })
    }
}
