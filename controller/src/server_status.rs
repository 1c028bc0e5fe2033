//! ServerStatusRequests: somebody wants to know which version runs here, and with which plugins. Answered once, and removed a
//! minute later.

mod act;
mod decide;
mod plugins;

use backup_core::api::ServerStatusRequest;
use backup_runtime::{
    ReconcileError,
    errors::found,
    queue::{Action, Key, run_queue},
    watch,
};
use kube::Api;

use crate::context::Context;
use decide::Plan;

/// Requests that are answered at the same time.
const CONCURRENCY: usize = 4;

/// Runs until the process is asked to end.
///
/// # Errors
/// None at present; the signature is that of all controllers.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let keys = watch::keys::<ServerStatusRequest>(&ctx.cluster, &ctx.health, "server status requests");
    let stop = ctx.stop.clone();
    run_queue("server status", keys, CONCURRENCY, stop, move |key| reconcile(ctx.clone(), key)).await;
    Ok(())
}

async fn reconcile(ctx: Context, key: Key) -> Result<Action, ReconcileError> {
    let api: Api<ServerStatusRequest> = ctx.cluster.api();
    let Some(request) = found(api.get(&key.name).await, &key.name)? else { return Ok(Action::AwaitChange) };
    match decide::decide(&request, jiff::Timestamp::now()) {
        Plan::Answer => act::answer(&ctx, &request).await,
        Plan::Keep(time) => Ok(Action::RequeueAfter(time)),
        // Freshly read; by uid and resourceVersion, so one that changes now is looked at again.
        Plan::Remove => act::remove(&ctx, &request).await,
    }
}
