//! The end of a restore: results stored first, then the terminal phase, then what counts it, then the claim.

use std::{sync::Arc, time::Duration};

use backup_core::api::{Restore, RestorePhase, RestoreStatus};
use backup_runtime::{
    queue::{Action, Key},
    retry::{self, PatchOutcome},
};
use backup_store::{CommittedRestore, FoundRestore, Location, RestoreFiles, Scope, StoreError, crash};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    claim::{give_back, release},
    decide, operating,
    reconcile::{Desk, StepError, schedule_label},
    report::Report,
    runner::claimant,
    status::{self, Counts},
};
use crate::{context::Context, metrics};

/// Between tries of storing the results: while the cause may pass, and when it will not by itself.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(1));
/// How long the deletion of files may hold a Restore that is being deleted.
const DELETE_BUDGET: Duration = Duration::from_secs(30);

/// Results that are not stored yet.
#[derive(Debug)]
pub struct Pending {
    /// None once they are committed: the record holds them.
    files: Option<RestoreFiles>,
    /// The status at the end. Made once: a commit whose answer was lost is repeated with the same bytes.
    outcome: RestoreStatus,
    store: Location,
}

impl Pending {
    /// The results of work that has come to its end, and where they go.
    pub fn new(restore: &Restore, report: Report, store: Location) -> Self {
        let (warnings, errors) = report.counts();
        let counts = Counts { warnings, errors, progress: report.progress(), ..Counts::default() };
        Self::of_files(restore, report.into_files(), &counts, store)
    }

    /// Results that were completed after the operations had ended.
    pub fn of_files(restore: &Restore, files: RestoreFiles, counts: &Counts, store: Location) -> Self {
        let outcome = status::outcome(restore, decide::ended(counts.errors), counts, Timestamp::now());
        Self { files: Some(files), outcome, store }
    }

    /// An end that an earlier process has committed.
    pub fn committed(plan: &CommittedRestore, store: Location) -> Self {
        Self { files: None, outcome: plan.outcome().clone(), store }
    }
}

/// Commits the end, publishes the files, then the status. When that is not possible now, the Restore says why, and it is tried
/// again.
pub async fn finish(
    ctx: &Context,
    desk: &Desk,
    restore: &Restore,
    pending: &Arc<Pending>,
) -> Result<Action, StepError> {
    let outcome = &pending.outcome;
    let between = decide::finalizing(outcome.errors);
    let restore =
        match retry::status_patch(&ctx.cluster, restore, |now| status::finalizing(now, &between, outcome))
            .await?
        {
            PatchOutcome::Written(restore) => restore,
            // Already there.
            PatchOutcome::Stale => restore.clone(),
            PatchOutcome::Gone => {
                desk.forget(&Key::of(restore));
                release(ctx, restore).await;
                return Ok(Action::AwaitChange);
            }
        };
    crash::point("after-finalizing-patch");
    ctx.cluster.leadership.check()?;
    let plan = match Box::pin(publish(ctx, &restore, pending)).await {
        Ok(plan) => plan,
        // Another replica has committed another end: that one counts.
        Err(StoreError::Exists { url, detail }) if pending.files.is_some() => {
            desk.forget(&Key::of(&restore));
            let why =
                format!("the results of the restore could not be stored: {url} exists already: {detail}");
            return block(ctx, &restore, &why, true).await;
        }
        Err(error) => {
            let why = format!("the results of the restore could not be stored: {error}");
            return block(ctx, &restore, &why, error.is_transient()).await;
        }
    };
    let outcome = plan.outcome();
    crash::point("before-terminal-patch");
    let written = retry::status_patch(&ctx.cluster, &restore, |now| status::published(now, outcome)).await?;
    crash::point("after-terminal-patch");
    if let PatchOutcome::Written(restore) = &written {
        tell_end(ctx, restore);
    }
    if written != PatchOutcome::Stale {
        desk.forget(&Key::of(&restore));
        remove_private(&restore, &plan).await;
    }
    Ok(give_back(ctx, &restore, &written).await)
}

/// One record says what each file will hold; then the files are written.
async fn publish(
    ctx: &Context,
    restore: &Restore,
    pending: &Pending,
) -> Result<CommittedRestore, StoreError> {
    let (name, uid) = (restore.name_any(), restore.uid().unwrap_or_default());
    let mut plan = match &pending.files {
        Some(files) => {
            let opened = pending.store.open_restore(&name, &claimant(ctx, restore)).await?;
            opened.commit(files, &pending.outcome).await?
        }
        None => match pending.store.find_job::<Restore>(&name, &uid).await? {
            FoundRestore::Committed(plan) => *plan,
            _ => {
                return Err(StoreError::Io {
                    action: format!("finish restore {name}"),
                    detail: "its record is not in the store any more".to_owned(),
                });
            }
        },
    };
    plan.publish().await?;
    Ok(plan)
}

/// Counts an end once, and tells it.
fn tell_end(ctx: &Context, restore: &Restore) {
    let (status, phase) = (&restore.status, restore.phase());
    let progress = status.progress.clone().unwrap_or_default();
    let note = status.failure_reason.clone().unwrap_or_else(|| {
        format!(
            "{} of {} items, {} warnings, {} errors",
            progress.items_restored, progress.total_items, status.warnings, status.errors
        )
    });
    let outcome = match phase {
        RestorePhase::Completed => metrics::Outcome::Success,
        RestorePhase::PartiallyFailed => metrics::Outcome::PartialFailure,
        _ => metrics::Outcome::Failure,
    };
    ctx.metrics.restore(outcome, schedule_label(restore));
    if outcome == metrics::Outcome::Success {
        ctx.cluster.events.normal(restore, phase.as_str(), &note);
    } else {
        ctx.cluster.events.warning(restore, phase.as_str(), &note);
    }
}

/// What was only noted for the work goes. Best effort: what stays goes with the restore.
async fn remove_private(restore: &Restore, plan: &CommittedRestore) {
    let removed = tokio::time::timeout(DELETE_BUDGET, plan.remove_private()).await;
    if !matches!(removed, Ok(Ok(()))) {
        tracing::debug!(restore = restore.name_any(), ?removed, "private files of a restore stay");
    }
}

/// Something is in the way: told where people look, and tried again later.
pub async fn block(ctx: &Context, restore: &Restore, why: &str, passing: bool) -> Result<Action, StepError> {
    Ok(Action::RequeueAfter(tell(ctx, restore, why, passing).await?))
}

/// As [`block`], for who goes on meanwhile; how long to wait before the next try.
pub async fn tell(ctx: &Context, restore: &Restore, why: &str, passing: bool) -> Result<Duration, StepError> {
    tracing::warn!(restore = restore.name_any(), error = why, "a restore waits for its store");
    if let PatchOutcome::Written(now) =
        retry::status_patch(&ctx.cluster, restore, |now| status::blocked(now, why)).await?
    {
        ctx.cluster.events.warning(&now, "Blocked", why);
    }
    Ok(if passing { AGAIN.0 } else { AGAIN.1 })
}

/// A fatal error. The log that says so is stored if the store takes it; the phase says it in any case.
pub async fn fail(
    ctx: &Context,
    desk: &Desk,
    restore: &Restore,
    why: &str,
    store: Option<Location>,
) -> Result<Action, StepError> {
    let report =
        Report::new().map_err(|error| StepError::Cut(format!("no temporary file for the log: {error}")))?;
    report.error(Scope::Velero, why.to_owned());
    if !restore.phase().can_become(&RestorePhase::Failed) {
        // It was already being finalized by an earlier process; the phase only moves forward.
        return match store {
            Some(store) => {
                let pending = Arc::new(Pending::new(restore, report, store));
                Box::pin(finish(ctx, desk, restore, &pending)).await
            }
            None => end_without_files(ctx, restore, why).await,
        };
    }
    let progress = restore.status.progress.clone().unwrap_or_default();
    let counts = Counts { errors: 1, progress, ..Counts::default() };
    let mut outcome = status::outcome(restore, RestorePhase::Failed, &counts, Timestamp::now());
    outcome.failure_reason = Some(why.to_owned());
    let mut stored = None;
    if let Some(store) = store {
        ctx.cluster.leadership.check()?;
        Box::pin(operating::stop(ctx, restore, &store)).await;
        let pending = Pending { files: Some(report.into_files()), outcome: outcome.clone(), store };
        match Box::pin(publish(ctx, restore, &pending)).await {
            Ok(plan) => stored = Some(plan),
            Err(error) => {
                tracing::warn!(restore = restore.name_any(), %error, "the log of a failed restore was not stored");
            }
        }
    }
    crash::point("before-failure-patch");
    let written = retry::status_patch(&ctx.cluster, restore, |now| status::published(now, &outcome)).await?;
    if let PatchOutcome::Written(restore) = &written {
        tell_end(ctx, restore);
    }
    if let (Some(plan), true) = (&stored, written != PatchOutcome::Stale) {
        remove_private(restore, plan).await;
    }
    Ok(give_back(ctx, restore, &written).await)
}

/// The backup or its location is gone, so the results have no place to go.
async fn end_without_files(ctx: &Context, restore: &Restore, why: &str) -> Result<Action, StepError> {
    let counts = Counts {
        warnings: restore.status.warnings,
        errors: restore.status.errors.max(1),
        progress: restore.status.progress.clone().unwrap_or_default(),
        ..Counts::default()
    };
    let mut outcome = status::outcome(restore, RestorePhase::PartiallyFailed, &counts, Timestamp::now());
    outcome.failure_reason = Some(why.to_owned());
    let written = retry::status_patch(&ctx.cluster, restore, |now| status::published(now, &outcome)).await?;
    if let PatchOutcome::Written(restore) = &written {
        tell_end(ctx, restore);
    }
    Ok(give_back(ctx, restore, &written).await)
}

/// A Restore that is being deleted comes to nothing: what it has started is told to stop. Best effort and bounded.
pub async fn abandon(ctx: &Context, restore: &Restore) {
    match tokio::time::timeout(DELETE_BUDGET, store_of(ctx, restore)).await {
        Ok(Ok(Some(store))) => operating::stop(ctx, restore, &store).await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) => {
            tracing::warn!(restore = restore.name_any(), error, "its operations are not known");
        }
        Err(_) => tracing::warn!(restore = restore.name_any(), "its operations are not known: no answer"),
    }
}

/// Where the files of a Restore are; none if that is gone.
async fn store_of(ctx: &Context, restore: &Restore) -> Result<Option<Location>, String> {
    let facts = super::observe::facts(ctx, restore).await.map_err(|error| error.to_string())?;
    let Some(location) = facts.location else { return Ok(None) };
    let store = ctx.locations.store(&location).await.map_err(|error| error.to_string())?;
    Ok(Some(store))
}

/// Deletes the files of a Restore that is being deleted. Best effort and bounded: a store that is away must not keep the
/// object from going.
pub async fn delete_files(ctx: &Context, restore: &Restore) {
    let deletion = async {
        let Some(store) = store_of(ctx, restore).await? else { return Ok(0) };
        store
            .delete_restore(&restore.name_any(), &restore.uid().unwrap_or_default())
            .await
            .map_err(|error| error.to_string())
    };
    let result = tokio::time::timeout(DELETE_BUDGET, deletion).await;
    if let Err(error) = result.unwrap_or_else(|_| Err(format!("no answer within {DELETE_BUDGET:?}"))) {
        let note = format!("its files in the object store were left behind: {error}");
        tracing::warn!(restore = restore.name_any(), error = note, "a restore is deleted");
        ctx.cluster.events.warning(restore, "FilesLeft", &note);
    }
}
