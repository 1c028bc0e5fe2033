//! Answering a request, and removing it.

use backup_core::api::{ServerStatusRequest, server_status_request::ServerStatusRequestPhase as Phase};
use backup_runtime::{ReconcileError, delete, queue::Action, retry};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{decide::TTL, plugins};
use crate::context::Context;

/// What the version is called: nobody should take it for one of Velero's server.
const VERSION: &str = concat!("backup-controller v", env!("CARGO_PKG_VERSION"));

/// Writes version and plugins into the request.
pub(super) async fn answer(ctx: &Context, request: &ServerStatusRequest) -> Result<Action, ReconcileError> {
    let plugins = plugins::all(ctx).await;
    // Conditional on the resourceVersion, only for a request that nobody has answered.
    retry::status_patch(&ctx.cluster, request, |current| {
        matches!(current.status.phase, None | Some(Phase::New)).then(|| {
            json!({"status": {
                "phase": Phase::Processed,
                "processedTimestamp": Time(Timestamp::now()),
                "serverVersion": VERSION,
                "plugins": plugins,
            }})
        })
    })
    .await?;
    Ok(Action::RequeueAfter(TTL))
}

/// Removes a request that was answered a while ago.
pub(super) async fn remove(ctx: &Context, request: &ServerStatusRequest) -> Result<Action, ReconcileError> {
    ctx.cluster.leadership.check()?;
    delete::delete_unchanged(&ctx.cluster, request).await?;
    Ok(Action::AwaitChange)
}
