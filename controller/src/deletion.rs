//! DeleteBackupRequests: a backup is deleted with its files, its restores and their files.
//!
//! Everything is checked before anything is destroyed, and what was begun is continued after a restart: the request stays
//! InProgress and the Backup Deleting until the last step, and every step can be done again. What a store locks is hidden, and
//! waited for (`locked`).

mod act;
mod decide;
mod items;
mod locked;
mod observe;
mod snapshots;

use std::time::Duration;

use backup_core::api::DeleteBackupRequest;
use backup_runtime::{
    queue::{Action, Key, run_queue},
    watch,
};

use crate::context::Context;
use decide::Plan;

/// Backups that are deleted at the same time.
const CONCURRENCY: usize = 2;
/// Until what a deletion waits for is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Runs until the process is asked to end.
///
/// # Errors
/// None at present; the signature is that of all controllers.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let keys = watch::keys::<DeleteBackupRequest>(&ctx.cluster, &ctx.health, "delete backup requests");
    let stop = ctx.stop.clone();
    run_queue("deletion", keys, CONCURRENCY, stop, move |key| reconcile(ctx.clone(), key)).await;
    Ok(())
}

async fn reconcile(ctx: Context, key: Key) -> Result<Action, act::Error> {
    let Some(request) = observe::request(&ctx, &key.name).await? else { return Ok(Action::AwaitChange) };
    let facts = observe::facts(&ctx, &request).await?;
    match decide::decide(&request, &facts) {
        Plan::Nothing => Ok(Action::AwaitChange),
        Plan::Wait(reason) => {
            tracing::info!(backup = request.spec.backup_name, reason, "the deletion waits");
            ctx.cluster.events.normal(&request, "Waiting", &reason);
            Ok(Action::RequeueAfter(LOOK_AGAIN))
        }
        Plan::Sleep(left) => {
            // Whoever has begun to wait may have been killed before.
            locked::rest(&ctx, &request).await?;
            Ok(Action::RequeueAfter(left))
        }
        Plan::Refuse(errors) => act::end(&ctx, &request, facts.backup.as_ref(), errors).await,
        Plan::Begin(backup) => act::begin(&ctx, &request, backup).await,
        Plan::Continue(backup) => act::delete(&ctx, &request, backup).await,
        Plan::Finish => act::end(&ctx, &request, None, Vec::new()).await,
        Plan::Sweep => act::sweep(&ctx, &request).await,
    }
}
