//! Requests that a user makes by an annotation of a BackupStorageLocation: a comparison with the
//! cluster, or the removal of what has expired. Both may carry consent to removals
//! ([`backup_core::brake`]).

use std::time::Duration;

use backup_core::{api::BackupStorageLocation, labels, sync::Request};
use backup_runtime::{
    Cluster,
    retry::{PatchOutcome, WriteError, status_patch_in},
};
use serde_json::json;

/// Time limit for a write; the next pass writes again.
pub(crate) const WRITE_BUDGET: Duration = Duration::from_secs(30);

/// Removes a request from the location and returns it. The write is conditional, so each request is
/// taken once, even if a later step fails: it may allow removals.
pub(crate) async fn take(
    cluster: &Cluster,
    location: &BackupStorageLocation,
    name: &'static str,
) -> Result<Option<Request>, WriteError> {
    let Some(text) = labels::annotation(location, name) else {
        return Ok(None);
    };
    let outcome = status_patch_in(
        &cluster.api(),
        &cluster.leadership,
        WRITE_BUDGET,
        location,
        |current: &BackupStorageLocation| {
            (labels::annotation(current, name) == Some(text))
                .then(|| json!({ "metadata": { "annotations": { name: null } } }))
        },
    )
    .await?;
    if !matches!(outcome, PatchOutcome::Written(_)) {
        return Ok(None);
    }
    // A request that cannot be decoded carries no consent.
    Ok(Some(serde_json::from_str(text).unwrap_or_default()))
}
