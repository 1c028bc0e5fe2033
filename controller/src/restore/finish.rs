//! The end of a restore: results stored first, then the terminal phase, then what counts it, then the claim.

use std::{sync::Arc, time::Duration};

use backup_core::api::{Restore, RestorePhase};
use backup_runtime::{
    queue::{Action, Key},
    retry::{self, PatchOutcome},
};
use backup_store::{Location, RestoreFiles, Scope};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    claim::{give_back, release},
    decide, operating,
    reconcile::{Desk, StepError, schedule_label},
    report::Report,
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
    files: RestoreFiles,
    counts: Counts,
    store: Location,
}

impl Pending {
    /// The results of work that has come to its end, and where they go.
    pub fn new(report: Report, store: Location) -> Self {
        let (warnings, errors) = report.counts();
        let counts = Counts { warnings, errors, progress: report.progress(), ..Counts::default() };
        Self { files: report.into_files(), counts, store }
    }

    /// Results that were completed after the operations had ended.
    pub fn of_files(files: RestoreFiles, counts: Counts, store: Location) -> Self {
        Self { files, counts, store }
    }
}

/// Stores the results and publishes the end. When they can not be stored, the Restore says why, and it is tried again.
pub async fn finish(
    ctx: &Context,
    desk: &Desk,
    restore: &Restore,
    pending: &Arc<Pending>,
) -> Result<Action, StepError> {
    let (counts, name) = (&pending.counts, restore.name_any());
    let between = decide::finalizing(counts.errors);
    let restore =
        match retry::status_patch(&ctx.cluster, restore, |now| status::finalizing(now, &between, counts))
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
    ctx.cluster.leadership.check()?;
    if let Err(error) = pending.store.put_restore_files(&name, &pending.files).await {
        let why = format!("the results of the restore could not be stored: {error}");
        return block(ctx, &restore, &why, error.is_transient()).await;
    }
    let end = decide::ended(counts.errors);
    let at = Timestamp::now();
    let written =
        retry::status_patch(&ctx.cluster, &restore, |now| status::ended(now, &end, counts, at)).await?;
    if let PatchOutcome::Written(restore) = &written {
        let outcome =
            if counts.errors > 0 { metrics::Outcome::PartialFailure } else { metrics::Outcome::Success };
        ctx.metrics.restore(outcome, schedule_label(restore));
        let note = format!(
            "{} of {} items, {} warnings, {} errors",
            counts.progress.items_restored, counts.progress.total_items, counts.warnings, counts.errors
        );
        if counts.errors > 0 {
            ctx.cluster.events.warning(restore, end.as_str(), &note);
        } else {
            ctx.cluster.events.normal(restore, end.as_str(), &note);
        }
    }
    if written != PatchOutcome::Stale {
        desk.forget(&Key::of(&restore));
        forget_private(&restore, &pending.store).await;
    }
    Ok(give_back(ctx, &restore, &written).await)
}

/// What was only noted for the work goes. Best effort: what stays goes with the restore.
async fn forget_private(restore: &Restore, store: &Location) {
    let (name, uid) = (restore.name_any(), restore.uid().unwrap_or_default());
    let forgotten = tokio::time::timeout(DELETE_BUDGET, store.forget_restore(&name, &uid)).await;
    if !matches!(forgotten, Ok(Ok(()))) {
        tracing::debug!(restore = name, ?forgotten, "private files of a restore stay");
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
            Some(store) => finish(ctx, desk, restore, &Arc::new(Pending::new(report, store))).await,
            None => end_without_files(ctx, restore, why).await,
        };
    }
    let progress = restore.status.progress.clone().unwrap_or_default();
    let counts = Counts { errors: 1, progress, ..Counts::default() };
    if let Some(store) = &store {
        ctx.cluster.leadership.check()?;
        operating::stop(ctx, restore, store).await;
        if let Err(error) = store.put_restore_files(&restore.name_any(), &report.into_files()).await {
            tracing::warn!(restore = restore.name_any(), %error, "the log of a failed restore was not stored");
        }
    }
    let at = Timestamp::now();
    let written =
        retry::status_patch(&ctx.cluster, restore, |now| status::failed(now, why, &counts, at)).await?;
    if let PatchOutcome::Written(restore) = &written {
        ctx.metrics.restore(metrics::Outcome::Failure, schedule_label(restore));
        ctx.cluster.events.warning(restore, "Failed", why);
    }
    if let (Some(store), true) = (&store, written != PatchOutcome::Stale) {
        forget_private(restore, store).await;
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
    let at = Timestamp::now();
    let written = retry::status_patch(&ctx.cluster, restore, |now| {
        let mut patch = status::ended(now, &RestorePhase::PartiallyFailed, &counts, at)?;
        patch["status"]["failureReason"] = serde_json::Value::from(why);
        Some(patch)
    })
    .await?;
    if let PatchOutcome::Written(restore) = &written {
        ctx.metrics.restore(metrics::Outcome::PartialFailure, schedule_label(restore));
        ctx.cluster.events.warning(restore, "PartiallyFailed", why);
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
        store.delete_restore(&restore.name_any()).await.map_err(|error| error.to_string())
    };
    let result = tokio::time::timeout(DELETE_BUDGET, deletion).await;
    if let Err(error) = result.unwrap_or_else(|_| Err(format!("no answer within {DELETE_BUDGET:?}"))) {
        let note = format!("its files in the object store were left behind: {error}");
        tracing::warn!(restore = restore.name_any(), error = note, "a restore is deleted");
        ctx.cluster.events.warning(restore, "FilesLeft", &note);
    }
}
