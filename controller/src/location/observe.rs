//! What is known before a decision.

use std::time::Duration;

use backup_core::api::BackupStorageLocation;
use backup_runtime::{clock::Clock, errors::found};
use kube::{Api, api::ListParams, core::DeserializeGuard};

use crate::context::Context;

/// The location as it is now; none if it is gone.
pub(super) async fn location(
    ctx: &Context,
    name: &str,
) -> Result<Option<BackupStorageLocation>, kube::Error> {
    let api: Api<BackupStorageLocation> = ctx.cluster.api();
    found(api.get(name).await, name)
}

/// All locations that can be read.
pub(super) async fn locations(ctx: &Context) -> Result<Vec<BackupStorageLocation>, kube::Error> {
    let api: Api<DeserializeGuard<BackupStorageLocation>> = ctx.cluster.api();
    let list = api.list(&ListParams::default()).await?; // a cluster has a handful
    Ok(list.items.into_iter().filter_map(|guard| guard.0.ok()).collect())
}

/// Monotonic time.
pub(super) fn now() -> Duration {
    Clock::Boot.now()
}
