//! The worker of one Backup, from its start to its end: reads what is true now, asks `decide`, does that, and looks again.
//!
//! Nothing but an unfinished upload is kept in memory, so a successor continues from what is stored. Waiting for a
//! store or an API server that is down happens here, outside of the slots.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use backup_core::api::{Backup, BackupPhase};
use backup_lock::{ActivateError, ObjectKey, Token};
use backup_runtime::{
    backoff::Backoff,
    retry::{self, PatchOutcome},
};
use backup_store::{AwaitingBackup, CommittedBackup, FoundBackup, Location};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    decide::{self, Plan, Seen, Stored},
    finish::Unfinished,
    observe, patches,
    prepare::{Facts, Settings, prepare},
};
use crate::job::cancellation::{Cancellation, StopReason};
use crate::{context::Context, job::operations::poller::PollConfig};

mod blocked;
mod collecting;
mod ending;
mod operating;
mod owing;
mod tidying;
mod trouble;

use blocked::Waiting;
use trouble::{Next, Trouble};

/// Between looks at the ledger while it can't be read.
const LEDGER_STEPS: Backoff = Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(5) };

/// Works on one Backup.
pub struct Worker {
    ctx: Context,
    name: String,
    uid: String,
    key: ObjectKey,
    cancellation: Cancellation,
    /// Bounds collections at a time; one that begins again while Finalizing waits here, too.
    permits: Arc<Semaphore>,
    /// What operations are followed with.
    config: PollConfig,
    unfinished: Option<Unfinished>,
    /// Number of the record that was found to be gone from the store.
    lost: Option<u64>,
    waiting: Waiting,
}

impl Worker {
    /// A worker for the Backup of this name and uid.
    pub fn new(
        ctx: Context,
        name: &str,
        uid: &str,
        cancellation: Cancellation,
        permits: Arc<Semaphore>,
        config: PollConfig,
    ) -> Self {
        let key = ObjectKey::backup(&ctx.cluster.namespace, name);
        Self {
            ctx,
            name: name.to_owned(),
            uid: uid.to_owned(),
            key,
            cancellation,
            permits,
            config,
            unfinished: None,
            lost: None,
            waiting: Waiting::default(),
        }
    }

    /// Works until the Backup has ended, is gone, or work must not go on.
    pub async fn run(mut self) {
        let mut known = None;
        loop {
            let trouble = match Box::pin(self.round(known.take())).await {
                Ok(Next::Done) => return,
                Ok(Next::Again(backup)) => {
                    known = backup;
                    self.waiting.over();
                    continue;
                }
                Err(trouble) => trouble,
            };
            let delay = match trouble {
                Trouble::Stopped(StopReason::Deleted) => {
                    if let Err(trouble) = self.after_deletion().await {
                        tracing::warn!(
                            backup = self.name,
                            ?trouble,
                            "a deleted backup could not be let go yet"
                        );
                    }
                    return;
                }
                Trouble::Stopped(reason) => {
                    tracing::info!(backup = self.name, %reason, "work stopped");
                    return;
                }
                Trouble::Changed => self.waiting.briefly(),
                Trouble::Blocked { reason, passing } => self.block(&reason, passing).await,
            };
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = self.cancellation.stopped() => {}
            }
        }
    }

    /// One look, one decision, one step.
    async fn round(&mut self, known: Option<Box<Backup>>) -> Result<Next, Trouble> {
        self.cancellation.check()?;
        let backup = match known {
            Some(backup) => *backup,
            None => match observe::backup(&self.ctx, &self.name).await {
                Ok(Some(backup)) if backup.metadata.uid.as_deref() == Some(&self.uid) => backup,
                Ok(_) => return self.release().await,
                // It can't be decoded any more. Whoever dispatches sees that too, and refuses it, or gives it a worker
                // again once it can be read.
                Err(kube::Error::SerdeError(_)) => return Ok(Next::Done),
                Err(error) => return Err(error.into()),
            },
        };
        let start = (backup.phase() == BackupPhase::ReadyToStart)
            .then_some(Start { settings: Settings::of(&self.ctx.args), now: Timestamp::now() });
        let (facts, findings) = match &start {
            Some(start) => {
                let facts = observe::facts(&self.ctx, &backup.spec).await?;
                let findings = prepare(&backup, &facts, &start.settings, start.now).findings;
                (facts, findings)
            }
            None => (Facts::default(), Vec::new()),
        };
        let mut found: Option<Looked> = None;
        loop {
            let phase = backup.phase();
            let plan = decide::next(Seen {
                phase: &phase,
                deleting: backup.metadata.deletion_timestamp.is_some(),
                cancelled: backup.is_cancelled(),
                findings: &findings,
                stored: found.as_ref().map(|looked| &looked.stored),
                in_hand: self.unfinished.is_some(),
                lost: found.as_ref().is_some_and(|looked| {
                    looked.record.as_ref().is_some_and(|record| self.lost == Some(record.number()))
                }),
            });
            return match (plan, &start) {
                (Plan::Wait, _) => Ok(Next::Done),
                (Plan::Look, start) => {
                    let location = location_name(&backup, &facts, start.as_ref());
                    match self.look(&location).await {
                        Ok(looked) => {
                            found = Some(looked);
                            continue;
                        }
                        Err((reason, passing)) => self.store_trouble(&backup, reason, passing).await,
                    }
                }
                (Plan::Refuse { validation_errors }, Some(start)) => {
                    self.refuse(&backup, &validation_errors, &facts, start).await
                }
                (Plan::Fail { reason }, _) => self.fail(&backup, &reason).await,
                (Plan::Begin | Plan::Resume, start) => {
                    // Both are decided only after a look.
                    let Some(Looked { location, record, .. }) = found else { return Err(Trouble::Changed) };
                    if start.is_none()
                        && let Err(Trouble::Blocked { reason, passing }) = self.may_write(&backup).await
                    {
                        return self.store_trouble(&backup, reason, passing).await;
                    }
                    let token = match self.claim(&backup).await? {
                        ControlFlow::Continue(token) => token,
                        ControlFlow::Break(next) => return Ok(next),
                    };
                    let begun = match &start {
                        Some(start) => self.begin(&backup, &facts, start).await?,
                        None => backup,
                    };
                    Box::pin(self.collect(begun, &location, record, &token)).await
                }
                // Comes from ReadyToStart only.
                (Plan::Refuse { .. }, None) => Err(Trouble::Changed),
                (Plan::Finish, _) => {
                    if let Some(Looked { record: Some(Record::Committed(plan)), .. }) = found
                        && self.unfinished.is_none()
                    {
                        self.unfinished = Some(Unfinished::Committed(plan));
                    }
                    self.finish(&backup).await
                }
                (Plan::Operations, _) => match found {
                    Some(Looked { record: Some(Record::Waiting(waiting)), .. }) => {
                        Box::pin(self.operations(&backup, *waiting)).await
                    }
                    _ => Err(Trouble::Changed),
                },
                (Plan::Adopt { metadata }, _) => {
                    let next = self.adopt(&backup, &metadata).await?;
                    if let Some(looked) = found {
                        self.tidy_store(&backup, &looked.location).await;
                    }
                    Ok(next)
                }
                (Plan::Block { reason }, _) => Err(Trouble::Blocked { reason, passing: false }),
                (Plan::LetGo | Plan::Free, _) => self.let_go(&backup).await,
            };
        }
    }

    /// What the store holds under this name.
    async fn look(&self, location: &str) -> Result<Looked, (String, bool)> {
        let opened = self.ctx.locations.open(location).await;
        let (_, location) = opened.map_err(|error| (error.to_string(), error.is_transient()))?;
        let found = location.find_job::<Backup>(&self.name, &self.uid).await;
        let found = found.map_err(|error| (error.to_string(), error.is_transient()))?;
        let stored = Stored::of(&found, &self.uid);
        let record = match found {
            FoundBackup::Committed(plan) => Some(Record::Committed(plan)),
            FoundBackup::Awaiting(waiting) => Some(Record::Waiting(waiting)),
            FoundBackup::Nothing | FoundBackup::Stored(_) => None,
        };
        Ok(Looked { stored, location, record })
    }

    /// To InProgress.
    async fn begin(&self, backup: &Backup, facts: &Facts, start: &Start) -> Result<Backup, Trouble> {
        // Only what was claimed: a spec that was edited since is looked at, and claimed, anew.
        let patch = |now: &Backup| {
            (now.spec == backup.spec)
                .then(|| patches::begin(now, facts, &start.settings, start.now))
                .flatten()
        };
        let begun = self.publish(backup, patch).await?;
        self.ctx.metrics.backup(crate::metrics::Outcome::Attempt, begun.schedule().unwrap_or_default());
        self.ctx.cluster.events.normal(&begun, "Started", "the backup collects items");
        Ok(begun)
    }

    /// Takes the right to work (backup_lock::activate: a fresh read, then a compare-and-swap on the ledger), before every
    /// collection anew: a claim that was released by force during a long wait is not trusted. `Break` is the end of the
    /// round: it was refused.
    async fn claim(&mut self, backup: &Backup) -> Result<ControlFlow<Next, Token>, Trouble> {
        self.cancellation.check()?;
        let error = match backup_lock::activate(&self.ctx.ledger, &self.key, &self.uid).await {
            Ok(token) => {
                tracing::debug!(backup = self.name, epoch = token.epoch, "claim is active");
                return Ok(ControlFlow::Continue(token));
            }
            Err(error) => error,
        };
        match error {
            ActivateError::Gone { .. } | ActivateError::Over { .. } => Err(Trouble::Changed),
            // Only a refusal ends a backup; a ledger that can't be read or written now says nothing about it.
            error @ (ActivateError::Conflict(_) | ActivateError::Full(_))
                if decide::may_fail(&backup.phase()) =>
            {
                let begun = backup.phase() != BackupPhase::ReadyToStart;
                let reason = if begun { "could not go on" } else { "never started" };
                self.fail(backup, &format!("{reason}: {error}")).await.map(ControlFlow::Break)
            }
            error => Err(Trouble::Blocked { reason: error.to_string(), passing: true }),
        }
    }

    /// Asked when everything is collected. A claim that was released by force meanwhile let others change what was read:
    /// then it counts for nothing, and the next round has to claim again.
    async fn still_claimed(&self, token: &Token) -> Result<(), Trouble> {
        let (started, mut tries) = (Instant::now(), 0);
        loop {
            self.cancellation.check()?;
            let error =
                match backup_lock::activate::holds(&self.ctx.ledger, &self.key, &self.uid, token).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => {
                        tracing::warn!(
                            backup = self.name,
                            "the claim was lost while items were collected; they are dropped"
                        );
                        return Err(Trouble::Changed);
                    }
                    Err(error) => error,
                };
            if !error.is_transient() || started.elapsed() >= self.ctx.args.resource_timeout.as_std() {
                return Err(Trouble::Blocked { reason: error.to_string(), passing: error.is_transient() });
            }
            tries += 1;
            tokio::time::sleep(LEDGER_STEPS.delay(tries)).await;
        }
    }

    /// Writes a patch, tried for `--resource-timeout`, each time with the resourceVersion it was made from.
    async fn publish(
        &self,
        backup: &Backup,
        patch: impl Fn(&Backup) -> Option<Value> + Send + Sync,
    ) -> Result<Backup, Trouble> {
        match retry::status_patch(&self.ctx.cluster, backup, patch).await? {
            PatchOutcome::Written(backup) => Ok(backup),
            PatchOutcome::Gone | PatchOutcome::Stale => Err(Trouble::Changed),
        }
    }

    /// A store that can't be used before anything was collected. A backup that has not begun waits for
    /// `--resource-timeout` and then fails: nothing is lost with it. One that has begun leaves its slot and waits on.
    async fn store_trouble(
        &mut self,
        backup: &Backup,
        reason: String,
        passing: bool,
    ) -> Result<Next, Trouble> {
        if backup.phase() == BackupPhase::ReadyToStart {
            let budget = self.ctx.args.resource_timeout.as_std();
            if !passing || self.waiting.since(Instant::now()) >= budget {
                return self.fail(backup, &format!("never started: {reason}")).await;
            }
        } else {
            self.leave_slot(backup).await?;
        }
        Err(Trouble::Blocked { reason, passing })
    }
}

/// What was found in the store.
struct Looked {
    stored: Stored,
    location: Location,
    record: Option<Record>,
}

/// A record of this Backup.
enum Record {
    /// What its end will be.
    Committed(Box<CommittedBackup>),
    /// What was collected before its operations.
    Waiting(Box<AwaitingBackup>),
}

impl Record {
    fn number(&self) -> u64 {
        match self {
            Self::Committed(plan) => plan.number(),
            Self::Waiting(waiting) => waiting.number(),
        }
    }
}

/// What a start is prepared with.
struct Start {
    settings: Settings,
    now: Timestamp,
}

/// The location that the Backup says, or that preparation chooses for it.
fn location_name(backup: &Backup, facts: &Facts, start: Option<&Start>) -> String {
    let chosen = start
        .and_then(|start| prepare(backup, facts, &start.settings, start.now).backup.spec.storage_location);
    chosen.or_else(|| backup.spec.storage_location.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
