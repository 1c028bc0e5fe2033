//! One look at one Restore: read it, decide, do the next step.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backup_core::api::{Backup, Restore, RestorePhase};
use backup_lock::{ActivateError, LedgerError, ObjectKey};
use backup_runtime::{
    leader::NotLeader,
    queue::{Action, Key},
    retry::{self, PatchOutcome, WriteError},
};
use backup_store::{FoundRestore, Location};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::json;
use tokio::sync::Semaphore;

use super::{
    claim::{Right, claim, give_back, release, release_key, still_granted},
    decide::{self, Seen, Step},
    finish::{self, Pending},
    observe::{self, Found, ObserveError},
    operating::{self, Operating},
    runner::{self, Job},
    status::{self, VELERO_FINALIZER, WORK_FINALIZER},
    validate,
};
use crate::job::cancellation::{Cancellation, StopReason};
use crate::{context::Context, metrics};

/// Restores that are worked on at the same time. The lock keeps those apart that overlap.
const AT_WORK: usize = 2;
/// Look again at once, through the queue.
pub(super) const AT_ONCE: Action = Action::RequeueAfter(Duration::from_millis(100));

/// Why a restore fails that a person has cancelled in time.
pub(super) const CANCELLED_BEFORE: &str = "it was cancelled by a person before anything was restored";

/// Why a step did not succeed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Something could not be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// Something could not be written.
    #[error("{0}")]
    Write(#[source] Box<WriteError>),
    /// The right to work could not be asked for.
    #[error(transparent)]
    Activate(ActivateError),
    /// The ledger could not be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// This replica must not work.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The work was cut off by something that may pass.
    #[error("{0}; the restore is resumed")]
    Cut(String),
}

impl From<WriteError> for StepError {
    fn from(error: WriteError) -> Self {
        Self::Write(Box::new(error))
    }
}

impl StepError {
    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Observe(_) => "observe",
            Self::Write(error) => error.category(),
            Self::Activate(error) => error.category(),
            Self::Ledger(error) => error.category(),
            Self::NotLeader(_) => "not_leader",
            Self::Cut(_) => "cut",
        }
    }
}

/// What comes of a step.
pub enum Next {
    /// It is over.
    Done(Action),
    /// Items are done; operations go on, which takes no place among those at work.
    Operate(Box<Operating>),
}

/// What this process knows of the Restores that it works on. All of it can be lost: the work is then done again.
pub struct Desk {
    /// One for each Restore that is worked on.
    places: Semaphore,
    /// Cancelled to stop the worker of a name, and to have it stop operations.
    workers: Mutex<HashMap<Key, Cancellation>>,
    /// Results that could not be stored yet, with the uid that they are of.
    pending: Mutex<HashMap<Key, (String, Arc<Pending>)>>,
}

impl Default for Desk {
    fn default() -> Self {
        Self { places: Semaphore::new(AT_WORK), workers: Mutex::default(), pending: Mutex::default() }
    }
}

impl Desk {
    /// Asks the worker of a name, if there is one, to stop.
    pub fn stop(&self, key: &Key) {
        if let Some(worker) = self.workers.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            worker.delete();
        }
    }

    /// Tells the worker of a name, if there is one, that a person wants an early end. What is under way comes to its own.
    pub fn cancel(&self, key: &Key) {
        if let Some(worker) = self.workers.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            worker.cancel();
        }
    }

    fn hire(&self, key: &Key, cancellation: &Cancellation) -> Hired<'_> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), cancellation.clone());
        Hired { desk: self, key: key.clone() }
    }

    fn pending(&self, restore: &Restore) -> Option<Arc<Pending>> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let (uid, pending) = pending.get(&Key::of(restore))?;
        (Some(uid) == restore.metadata.uid.as_ref()).then(|| Arc::clone(pending))
    }

    pub(super) fn keep(&self, restore: &Restore, pending: Arc<Pending>) {
        let uid = restore.uid().unwrap_or_default();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(Key::of(restore), (uid, pending));
    }

    pub(super) fn forget(&self, key: &Key) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// A worker that can be asked to stop, until this is dropped.
struct Hired<'a> {
    desk: &'a Desk,
    key: Key,
}

impl Drop for Hired<'_> {
    fn drop(&mut self) {
        self.desk.workers.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Does the next step for the Restore of this key. The queue never calls it twice at once for one key.
pub async fn reconcile(ctx: Context, desk: Arc<Desk>, key: Key) -> Result<Action, StepError> {
    ctx.cluster.leadership.check()?;
    // Before the read: a deletion that comes later than what is read finds somebody to stop.
    let cancellation = Cancellation::new(ctx.cluster.leadership.clone(), ctx.stop.clone());
    let _hired = desk.hire(&key, &cancellation);
    match step(&ctx, &desk, &cancellation, &key).await? {
        Next::Done(action) => Ok(action),
        Next::Operate(operating) => {
            Box::pin(operating::operate(&ctx, &desk, &cancellation, *operating)).await
        }
    }
}

/// One look, one decision, one step. Items are only worked on in one of the places; all else never waits for one.
async fn step(ctx: &Context, desk: &Desk, cancellation: &Cancellation, key: &Key) -> Result<Next, StepError> {
    let mut place = None;
    loop {
        let restore = match observe::restore(ctx, &key.name).await? {
            Found::Gone => {
                desk.forget(key);
                return Ok(Next::Done(Action::AwaitChange));
            }
            Found::Undecodable(object, findings) => {
                let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
                return refuse_raw(ctx, &object, &findings).await.map(Next::Done);
            }
            Found::Restore(restore) => *restore,
        };
        let phase = restore.phase();
        let deleting = restore.metadata.deletion_timestamp.is_some();
        let holds = |name: &str| status::finalizers(&restore).any(|own| own == name);
        let seen = Seen {
            phase: &phase,
            deleting,
            guarded: holds(WORK_FINALIZER) || (deleting && holds(VELERO_FINALIZER)),
        };
        let next = decide::next(seen);
        if restore.is_cancelled() {
            cancellation.cancel();
        }
        // Who is cancelled does not wait for a place to come to an end.
        let works = matches!(next, Step::Start | Step::Resume)
            && !decide::waits(&phase)
            && !cancellation.is_cancelled();
        if works && place.is_none() {
            place = desk.places.try_acquire().ok();
            if place.is_none() {
                place = tokio::select! {
                    place = desk.places.acquire() => place.ok(),
                    _ = cancellation.stopped() => return Ok(Next::Done(AT_ONCE)),
                    () = cancellation.cancelled() => None,
                };
                // It may have changed meanwhile.
                continue;
            }
        }
        return match next {
            Step::Start => Box::pin(start(ctx, desk, cancellation, restore)).await,
            Step::Resume => Box::pin(resume(ctx, desk, cancellation, restore)).await,
            Step::Free => free(ctx, desk, &restore).await.map(Next::Done),
            Step::Rest => {
                desk.forget(key);
                Ok(Next::Done(Action::AwaitChange))
            }
        };
    }
}

async fn start(
    ctx: &Context,
    desk: &Desk,
    cancellation: &Cancellation,
    restore: Restore,
) -> Result<Next, StepError> {
    if restore.is_cancelled() {
        return finish::fail(ctx, desk, &restore, CANCELLED_BEFORE, None).await.map(Next::Done);
    }
    let claimed = match claim(ctx, &restore).await? {
        Right::Granted(claimed) => claimed,
        Right::Refused(action) => return Ok(Next::Done(action)),
    };
    // Read once the claim stands: a deletion of the backup that begins later finds this Restore, and waits for it.
    let facts = observe::facts(ctx, &restore).await?;
    let findings: Vec<String> =
        validate::findings(&restore.spec, &facts).iter().map(ToString::to_string).collect();
    let Some(backup) = facts.backup.filter(|_| findings.is_empty()) else {
        let written =
            retry::status_patch(&ctx.cluster, &restore, |now| status::refused(now, &findings)).await?;
        if matches!(written, PatchOutcome::Written(_)) {
            ctx.metrics.restore(metrics::Outcome::ValidationFailure, schedule_label(&restore));
            ctx.cluster.events.warning(&restore, "FailedValidation", &findings.join("; "));
        }
        return Ok(Next::Done(give_back(ctx, &restore, &written).await));
    };
    let mut spec = validate::prepared(&restore, &backup);
    // Velero's command sends 0s where a person gives none.
    spec.item_operation_timeout = spec
        .item_operation_timeout
        .filter(|timeout| !timeout.is_zero())
        .or(Some(ctx.args.default_item_operation_timeout));
    let at = Timestamp::now();
    // A spec that was edited since is neither the one that was claimed nor the one that was checked.
    let unedited = |now: &Restore| now.spec == restore.spec;
    let patch = |now: &Restore| if unedited(now) { status::start(now, &spec, at) } else { None };
    match retry::status_patch(&ctx.cluster, &restore, patch).await? {
        PatchOutcome::Written(started) => {
            ctx.metrics.restore(metrics::Outcome::Attempt, schedule_label(&started));
            ctx.cluster.events.normal(
                &started,
                "Started",
                &format!("restoring from backup {}", backup.name_any()),
            );
            if !still_granted(ctx, &started, &claimed).await? {
                return Ok(Next::Done(AT_ONCE));
            }
            let claimed = claimed.footprint;
            let job = Job { restore: started, backup: &backup, claimed, resumed: false };
            Box::pin(runner::run(ctx, desk, cancellation, job)).await
        }
        PatchOutcome::Gone => {
            release(ctx, &restore).await;
            Ok(Next::Done(Action::AwaitChange))
        }
        PatchOutcome::Stale => Ok(Next::Done(AT_ONCE)),
    }
}

async fn resume(
    ctx: &Context,
    desk: &Desk,
    cancellation: &Cancellation,
    mut restore: Restore,
) -> Result<Next, StepError> {
    if let Some(pending) = desk.pending(&restore) {
        return finish::finish(ctx, desk, &restore, &pending).await.map(Next::Done);
    }
    let claimed = match claim(ctx, &restore).await? {
        Right::Granted(claimed) => claimed,
        Right::Refused(action) => return Ok(Next::Done(action)),
    };
    if status::guarded(&restore).is_some() {
        restore = match retry::status_patch(&ctx.cluster, &restore, status::guarded).await? {
            PatchOutcome::Written(restore) => restore,
            PatchOutcome::Gone | PatchOutcome::Stale => return Ok(Next::Done(AT_ONCE)),
        };
    }
    let facts = observe::facts(ctx, &restore).await?;
    let waits = decide::waits(&restore.phase());
    let Some(backup) = facts.backup else {
        let name = restore.spec.backup_name.as_deref().unwrap_or_default();
        if waits {
            let why = format!(
                "backup {name:?} is not there, so nobody knows where the operations of this restore are recorded; it goes \
                 on once the backup is there again"
            );
            return finish::block(ctx, &restore, &why, false).await.map(Next::Done);
        }
        let why = format!(
            "backup {name:?} was deleted while it was being restored; what was restored so far remains"
        );
        return finish::fail(ctx, desk, &restore, &why, None).await.map(Next::Done);
    };
    if !still_granted(ctx, &restore, &claimed).await? {
        return Ok(Next::Done(AT_ONCE));
    }
    match recorded(ctx, &restore, &backup).await {
        Ok((store, FoundRestore::Awaiting(waiting))) => {
            return Ok(Next::Operate(Box::new(Operating { restore, store, waiting: *waiting })));
        }
        Ok((store, FoundRestore::Committed(plan))) => {
            let pending = Arc::new(Pending::committed(&plan, store));
            desk.keep(&restore, Arc::clone(&pending));
            return finish::finish(ctx, desk, &restore, &pending).await.map(Next::Done);
        }
        Ok(_) if waits => {
            let why = "the record of its operations is not in the store, where it should be; it goes on once it is there \
                       again";
            return finish::block(ctx, &restore, why, false).await.map(Next::Done);
        }
        Ok(_) => {}
        // The location may be gone for good: the work finds that out, and says so.
        Err((_, false)) if !waits => {}
        Err((why, passing)) => return finish::block(ctx, &restore, &why, passing).await.map(Next::Done),
    }
    let claimed = claimed.footprint;
    tracing::info!(restore = restore.name_any(), phase = %restore.phase(), "resuming a restore");
    let job = Job { restore, backup: &backup, claimed, resumed: true };
    Box::pin(runner::run(ctx, desk, cancellation, job)).await
}

/// Where a restore is stored, and what of it; the error says whether it may pass.
async fn recorded(
    ctx: &Context,
    restore: &Restore,
    backup: &Backup,
) -> Result<(Location, FoundRestore), (String, bool)> {
    let location = backup.spec.storage_location.as_deref().unwrap_or_default();
    let opened = ctx.locations.open(location).await;
    let (_, store) = opened.map_err(|error| (error.to_string(), error.is_transient()))?;
    let found = store.find_job::<Restore>(&restore.name_any(), &restore.uid().unwrap_or_default()).await;
    // What is there and can't be read has to be mended: it says what was started.
    let found = found.map_err(|error| (error.to_string(), true))?;
    Ok((store, found))
}

/// The work is over: files of a deleted Restore go, then the claim, then the finalizer.
async fn free(ctx: &Context, desk: &Desk, restore: &Restore) -> Result<Action, StepError> {
    desk.forget(&Key::of(restore));
    ctx.cluster.leadership.check()?;
    let deleting = restore.metadata.deletion_timestamp.is_some();
    if deleting {
        if !restore.phase().is_terminal() {
            finish::abandon(ctx, restore).await;
        }
        finish::delete_files(ctx, restore).await;
    }
    release(ctx, restore).await;
    let written = retry::status_patch(&ctx.cluster, restore, |now| status::freed(now, deleting)).await?;
    let works = status::finalizers(restore).any(|name| name == WORK_FINALIZER);
    if works && restore.phase().is_terminal() && matches!(written, PatchOutcome::Written(_)) {
        ctx.cluster.events.forced_end(restore, restore.phase().as_str());
    }
    Ok(Action::AwaitChange)
}

/// Ends a Restore that can not be decoded. Its raw object is patched.
async fn refuse_raw(ctx: &Context, object: &DynamicObject, findings: &[String]) -> Result<Action, StepError> {
    let kind = kube::api::ApiResource::erase::<Restore>(&());
    let api = kube::Api::<DynamicObject>::namespaced_with(
        ctx.cluster.client.clone(),
        &ctx.cluster.namespace,
        &kind,
    );
    let budget = ctx.args.resource_timeout.as_std();
    let written = retry::status_patch_in(&api, &ctx.cluster.leadership, budget, object, |now| {
        let phase = now.data.pointer("/status/phase").and_then(serde_json::Value::as_str).unwrap_or_default();
        let phase = if phase.is_empty() { RestorePhase::New } else { RestorePhase::from(phase) };
        match phase {
            RestorePhase::New => Some(json!({
                "status": {"phase": RestorePhase::FailedValidation, "validationErrors": findings},
            })),
            // Someone broke the spec of a running restore: it can not be resumed.
            other if other.can_become(&RestorePhase::Failed) => Some(json!({
                "metadata": {"finalizers": status::without_ours(now)},
                "status": {"phase": RestorePhase::Failed, "failureReason": findings.join("; ")},
            })),
            _ => None,
        }
    })
    .await?;
    // What is left alone keeps its place: it may be at work.
    if !matches!(written, PatchOutcome::Stale) {
        let key = ObjectKey::restore(&ctx.cluster.namespace, &object.name_any());
        release_key(ctx, &key, &object.uid().unwrap_or_default()).await;
    }
    Ok(Action::AwaitChange)
}

/// The schedule of a restore, for metrics.
pub(super) fn schedule_label(restore: &Restore) -> &str {
    restore.spec.schedule_name.as_deref().unwrap_or_default()
}

/// What to do when work had to stop.
pub(super) fn stopped(reason: StopReason) -> Result<Action, StepError> {
    match reason {
        // Asked to: a deletion goes on in the next step.
        StopReason::Deleted | StopReason::ShuttingDown | StopReason::Cancelled => Ok(AT_ONCE),
        StopReason::NotLeader(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
