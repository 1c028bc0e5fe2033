//! A deletion that the store does not let end yet: versions of the files are locked. All is hidden by then; the request stays
//! InProgress and the Backup Deleting, and an annotation of the Backup says until when, also to the next controller.

use std::time::Duration;

use backup_core::{
    api::{
        Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest, DeleteBackupRequestPhase as Phase,
    },
    deletion::Waits,
    labels::{DELETION_RESTS_ANNOTATION, DELETION_WAITS_ANNOTATION},
};
use backup_runtime::retry::{self, PatchOutcome};
use backup_store::RetainedVersions;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    act::{self, Error},
    decide,
};
use crate::context::Context;

/// Says what the deletion waits for; how long. None: the Backup is another one by now.
pub(super) async fn wait(
    ctx: &Context,
    request: &DeleteBackupRequest,
    backup: &Backup,
    before: Option<Waits>,
    rest: RetainedVersions,
    owner: String,
) -> Result<Option<Duration>, Error> {
    let now = Timestamp::now();
    let RetainedVersions { kept, until, held, refused } = rest;
    let since = before.as_ref().map_or(now, |before| before.since);
    let mut waits = Waits { since, again: now, kept, until, held, refused, owner };
    waits.plan(now);
    // Conditional on the resourceVersion.
    let outcome = retry::status_patch(&ctx.cluster, backup, |current| {
        (current.phase() == BackupPhase::Deleting)
            .then(|| json!({"metadata": {"annotations": {DELETION_WAITS_ANNOTATION: waits.annotation()}}}))
    })
    .await?;
    if !matches!(outcome, PatchOutcome::Written(_)) {
        return Ok(None);
    }
    tracing::info!(backup = backup.name_any(), again = %waits.again, "{waits}");
    if before.is_none_or(|before| before.to_string() != waits.to_string()) {
        let note = waits.to_string();
        ctx.cluster.events.normal(backup, "ObjectLock", &note);
        ctx.cluster.events.normal(request, "ObjectLock", &note);
    }
    Ok(Some(decide::left(&waits, now).unwrap_or_default()))
}

/// Gives the place of the request in the ledger back until [`wake`]: it may wait for years, and hundreds of others with it. Safe to
/// repeat.
pub(super) async fn rest(ctx: &Context, request: &DeleteBackupRequest) -> Result<(), Error> {
    // Conditional on the resourceVersion.
    let outcome = retry::status_patch(&ctx.cluster, request, |current| {
        (current.status.phase == Some(Phase::InProgress) && !rests(current))
            .then(|| json!({"metadata": {"annotations": {DELETION_RESTS_ANNOTATION: "true"}}}))
    })
    .await?;
    if let PatchOutcome::Written(request) = outcome {
        act::release(ctx, &request).await;
    }
    Ok(())
}

/// The request, which works again and needs its place; none if it has changed meanwhile.
pub(super) async fn wake(
    ctx: &Context,
    request: &DeleteBackupRequest,
) -> Result<Option<DeleteBackupRequest>, Error> {
    if !rests(request) {
        return Ok(Some(request.clone()));
    }
    // Conditional on the resourceVersion.
    let outcome = retry::status_patch(&ctx.cluster, request, |current| {
        rests(current).then(|| json!({"metadata": {"annotations": {DELETION_RESTS_ANNOTATION: null}}}))
    })
    .await?;
    Ok(if let PatchOutcome::Written(request) = outcome { Some(request) } else { None })
}

fn rests(request: &DeleteBackupRequest) -> bool {
    request.annotations().contains_key(DELETION_RESTS_ANNOTATION)
}

/// Says what stays for good after the deletion of a backup, where people look once it is gone: at the location.
pub(super) fn tell(ctx: &Context, backup: &Backup, location: &BackupStorageLocation, kept: u64, why: &str) {
    let name = backup.name_any();
    let versions = if kept == 0 { "versions".to_owned() } else { format!("{kept} versions") };
    let note =
        format!("{versions} of the files of backup {name}, which is deleted, stay in the bucket: {why}");
    tracing::warn!(backup = name, location = location.name_any(), "{note}");
    ctx.cluster.events.warning(location, "VersionsStay", &note);
    ctx.cluster.events.warning(backup, "VersionsStay", &note);
}
