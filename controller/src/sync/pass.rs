//! Data and steps of a pass over one location.

use backup_core::sync::NoteKind;
use std::time::Duration;

use backup_actions::csi::SnapshotApi;
use backup_client::{
    errors::{found, is_conflict, is_gone, is_transient, plain},
    retry,
};
use backup_core::{
    api::{Backup, BackupStorageLocation},
    labels::FILES_MISSING_ANNOTATION,
    sync::Summary,
};
use backup_runtime::{
    Cluster,
    retry::{PatchOutcome, WRITE_TIMEOUT, status_patch_in},
};
use backup_store::{Location, StoreError};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Preconditions},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::comparison::is_stored;
use crate::{
    backup::Leftovers, copies, error::ReconcileError, location::Locations,
    recent_deletions::RecentDeletions,
};

/// Time limit for one request to the API server, with retries.
pub(super) const READ_BUDGET: Duration = Duration::from_secs(10);

pub(super) struct Pass<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) locations: &'a Locations,
    pub(super) deletions: &'a RecentDeletions,
    pub(super) leftovers: &'a Leftovers,
    pub(super) incomplete_ttl: Duration,
    pub(super) stop: &'a CancellationToken,
    /// As read at the start of the pass.
    pub(super) location: &'a BackupStorageLocation,
    pub(super) store: &'a Location,
    /// Start of the pass (monotonic clock).
    pub(super) began: Duration,
}

impl Pass<'_> {
    /// The current location; an error if it points elsewhere or is gone.
    pub(super) async fn current_location(&self) -> Result<BackupStorageLocation, ReconcileError> {
        let name = self.location.name_any();
        let now = retry::read(READ_BUDGET, || self.locations.find(&name)).await?;
        now.filter(|now| {
            now.metadata.uid == self.location.metadata.uid && now.spec == self.location.spec
        })
        .ok_or_else(location_changed)
    }

    pub(super) async fn backup(&self, name: &str) -> Result<Option<Backup>, kube::Error> {
        let api: Api<Backup> = self.cluster.api();
        found(retry::read(READ_BUDGET, || api.get(name)).await, name)
    }

    /// Whether a Backup of this name exists, even if it cannot be decoded.
    pub(super) async fn backup_exists(&self, name: &str) -> Result<bool, kube::Error> {
        let api: Api<Backup> = self.cluster.api();
        Ok(found(
            retry::read(READ_BUDGET, || api.get_metadata(name)).await,
            name,
        )?
        .is_some())
    }
}

pub(super) fn location_changed() -> ReconcileError {
    let why = "the location was changed meanwhile; the rest is compared in the next pass";
    ReconcileError::Changed(why.to_owned())
}

/// Removes a Backup from the cluster that is gone from its bucket, after location, bucket and
/// Backup were read again. Changes nothing in the bucket or in a storage system.
pub(super) async fn remove_orphan(
    pass: &Pass<'_>,
    name: &str,
    summary: &mut Summary,
) -> Result<(), ReconcileError> {
    pass.current_location().await?;
    // Two reads: a listing may be empty for other reasons.
    let exists = pass.store.inspect_folder(name).await?.has_anything
        || match pass.store.read_metadata(name).await {
            Ok(found) => found.is_some(),
            Err(StoreError::Corrupt { .. }) => true,
            Err(error) => return Err(error.into()),
        };
    if exists {
        return Ok(());
    }
    let Some(backup) = pass.backup(name).await? else {
        return Ok(());
    };
    let here = backup.spec.storage_location.as_deref() == Some(&pass.location.name_any());
    if !here || !is_stored(&backup.phase()) || backup.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    // Before the Backup, by whose uid they are found. They have the policy Retain: their snapshots
    // are kept.
    let api = SnapshotApi::new(&pass.cluster.client, &pass.cluster.leadership);
    for content in api.synced_for(&backup.uid().unwrap_or_default()).await? {
        api.remove_content(&content, "Retain").await?;
    }
    let leadership = &pass.cluster.leadership;
    leadership.check()?;
    // This very object, in the version read.
    let preconditions = Preconditions {
        uid: backup.uid(),
        resource_version: backup.resource_version(),
    };
    let params = DeleteParams::default().preconditions(preconditions);
    let api: Api<Backup> = pass.cluster.api();
    match leadership
        .write(WRITE_TIMEOUT, api.delete(name, &params))
        .await
    {
        Ok(_) => {
            tracing::info!(
                backup = name,
                uid = backup.uid(),
                "removed from the cluster: it is gone from the bucket"
            );
            summary.removed += 1;
            summary.note(name, NoteKind::Removed, "it is gone from the bucket");
        }
        Err(error) => {
            // It has changed since, or is gone.
            if is_gone(&error, name) || is_conflict(&error) {
                return Ok(());
            }
            if is_transient(&error) {
                return Err(error.into());
            }
            // A restore from it is running.
            summary.note(name, NoteKind::Kept, &plain(&error));
        }
    }
    Ok(())
}

/// Has a copy made again that is gone from the bucket, after location and bucket were read again.
pub(super) async fn renew_copy(
    pass: &Pass<'_>,
    name: &str,
    summary: &mut Summary,
) -> Result<(), ReconcileError> {
    pass.current_location().await?;
    if pass.store.inspect_folder(name).await?.has_anything {
        return Ok(());
    }
    let Some(backup) = pass.backup(name).await? else {
        return Ok(());
    };
    let location = pass.location.name_any();
    let Cluster { leadership, .. } = pass.cluster;
    let renewed = status_patch_in(
        &pass.cluster.api(),
        leadership,
        READ_BUDGET,
        &backup,
        |now: &Backup| copies::renewed(now, &location),
    )
    .await?;
    if matches!(renewed, PatchOutcome::Written(_)) {
        tracing::warn!(
            backup = name,
            location,
            "a copy is gone from the bucket; it is made again"
        );
        summary.note(
            name,
            NoteKind::CopyGone,
            "the copy is gone from the bucket; it is made again",
        );
    }
    Ok(())
}

/// Marks a Backup whose files are not in the bucket, with the time when that was seen; `None`
/// removes the mark.
pub(super) async fn mark_files(
    pass: &Pass<'_>,
    name: &str,
    missing_since: Option<Timestamp>,
) -> Result<(), ReconcileError> {
    let Some(backup) = pass.backup(name).await? else {
        return Ok(());
    };
    let location = pass.location.name_any();
    let since = missing_since.map(|at| at.to_string());
    let Cluster { leadership, .. } = pass.cluster;
    status_patch_in(
        &pass.cluster.api(),
        leadership,
        READ_BUDGET,
        &backup,
        |now: &Backup| {
            let is_here =
                now.spec.storage_location.as_deref() == Some(&location) && is_stored(&now.phase());
            let is_new =
                now.annotations().contains_key(FILES_MISSING_ANNOTATION) != since.is_some();
            (is_here && is_new).then(
                || json!({ "metadata": { "annotations": { FILES_MISSING_ANNOTATION: since } } }),
            )
        },
    )
    .await?;
    Ok(())
}
