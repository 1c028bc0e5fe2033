//! What is known before a decision.

use std::time::Duration;

use backup_core::api::BackupStorageLocation;
use kube::Api;

use crate::{
    context::Context,
    runtime::{clock::Clock, errors::found},
};

/// The location as it is now; none if it is gone.
pub(super) async fn location(
    ctx: &Context,
    name: &str,
) -> Result<Option<BackupStorageLocation>, kube::Error> {
    let api: Api<BackupStorageLocation> = ctx.api();
    found(api.get(name).await, name)
}

/// Monotonic time.
pub(super) fn now() -> Duration {
    Clock::Boot.now()
}
