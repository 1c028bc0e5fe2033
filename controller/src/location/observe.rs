//! What is known before a decision.

use std::time::Duration;

use backup_core::api::BackupStorageLocation;
use kube::Api;

use crate::{
    context::Context,
    runtime::{clock::Clock, retry::is_gone},
};

/// The location as it is now; none if it is gone.
pub(super) async fn location(
    ctx: &Context,
    name: &str,
) -> Result<Option<BackupStorageLocation>, kube::Error> {
    let api: Api<BackupStorageLocation> = ctx.api();
    match api.get(name).await {
        Ok(location) => Ok(Some(location)),
        Err(error) if is_gone(&error, name) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Monotonic time.
pub(super) fn now() -> Duration {
    Clock::Boot.now()
}
