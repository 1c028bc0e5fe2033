//! What a pass tells, and what a person asks for: both are annotations of the location.

use std::time::Duration;

use backup_core::{
    api::BackupStorageLocation,
    labels::{SYNC_ANNOTATION, SYNC_REQUEST_ANNOTATION},
    sync::{Request, Summary},
};
use backup_runtime::retry::{self, PatchOutcome};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::json;

use super::{error::Error, stray::STRAY};
use crate::context::Context;

/// How long a write is tried; the next pass writes again.
const BUDGET: Duration = Duration::from_secs(30);

/// Takes the request of a person off the location. Conditional on the resourceVersion, so each is taken once.
pub(super) async fn take_request(
    ctx: &Context,
    location: &BackupStorageLocation,
) -> Result<Option<Request>, Error> {
    let Some(text) = location.annotations().get(SYNC_REQUEST_ANNOTATION) else { return Ok(None) };
    let taken =
        retry::status_patch_in(&ctx.cluster.api(), &ctx.cluster.leadership, BUDGET, location, |current| {
            (current.annotations().get(SYNC_REQUEST_ANNOTATION) == Some(text))
                .then(|| json!({ "metadata": { "annotations": { SYNC_REQUEST_ANNOTATION: null } } }))
        })
        .await?;
    // One that can't be read asks for a pass and nothing else.
    let request = || serde_json::from_str(text).unwrap_or_default();
    Ok(matches!(taken, PatchOutcome::Written(_)).then(request))
}

/// Writes the summary, and when the bucket was last compared to the end, in one conditional write. A location that points
/// elsewhere by now is left alone.
pub(super) async fn summary(
    ctx: &Context,
    location: &BackupStorageLocation,
    summary: &Summary,
) -> Result<(), Error> {
    let before = location.annotations().get(SYNC_ANNOTATION);
    let before: Summary = before.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    tell(ctx, location, &before, summary);
    ctx.metrics.synced(&location.name_any(), summary);
    let mut patch = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: summary.annotation() } } });
    if summary.error.is_none() {
        patch["status"]["lastSyncedTime"] = json!(Time(summary.started));
    }
    retry::status_patch_in(&ctx.cluster.api(), &ctx.cluster.leadership, BUDGET, location, |current| {
        (current.spec == location.spec).then(|| patch.clone())
    })
    .await?;
    Ok(())
}

/// Events: what is new since the last pass.
fn tell(ctx: &Context, location: &BackupStorageLocation, before: &Summary, now: &Summary) {
    if let Some(error) = now.error.as_ref().filter(|error| before.error.as_ref() != Some(error)) {
        ctx.cluster.events.warning(location, "NotSynced", error);
    }
    if now.refused > 0 && now.refused != before.refused {
        let why =
            now.notes.iter().find(|note| note.what == "refused").map_or("", |note| note.reason.as_str());
        let note = format!(
            "{} Backups were not removed from the cluster: {why}. If they are to go, run `kubectl backup sync {} --force`",
            now.refused,
            location.name_any()
        );
        ctx.cluster.events.warning(location, "RemovalRefused", &note);
    }
    if now.created > 0 || now.removed > 0 {
        let note = format!("{} Backups were created and {} removed", now.created, now.removed);
        ctx.cluster.events.normal(location, "Synced", &note);
    }
    if now.pruned > 0 {
        let note = format!("{} folders of backups that never ended were removed from the bucket", now.pruned);
        ctx.cluster.events.normal(location, "FoldersPruned", &note);
    }
    let strays = |summary: &Summary| summary.skipped_as(STRAY);
    if strays(now) > strays(before) {
        let note = format!(
            "{} folders in the bucket hold no finished backup, and nobody writes to them: `kubectl backup sync {}` shows them",
            strays(now),
            location.name_any()
        );
        ctx.cluster.events.warning(location, "StrayFolders", &note);
    }
    let conflicts = |summary: &Summary| summary.skipped_as("conflict");
    if conflicts(now) > conflicts(before) {
        let first = now.notes.iter().find(|note| note.what == "conflict");
        let first = first.map(|note| format!("; {}: {}", note.name, note.reason)).unwrap_or_default();
        let note = format!("{} backups have names that another location uses{first}", conflicts(now));
        ctx.cluster.events.warning(location, "NamesConflict", &note);
    }
}
