//! Carrying out the deletion of a backup. Every step can be repeated; the order makes that a half-done deletion is never
//! taken for a whole backup: phase, metadata, other files, versions of them, restores, the Backup, the request.

use std::time::Duration;

use backup_actions::csi;
use backup_core::{
    api::{
        Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest, DeleteBackupRequestPhase as Phase,
    },
    deletion::Waits,
    labels,
};
use backup_lock::{ActivateError, ObjectKey, ObjectKind};
use backup_runtime::errors::plain;
use backup_runtime::{
    delete,
    leader::NotLeader,
    queue::Action,
    retry::{self, PatchOutcome, WriteError},
};
use backup_store::{DeletedBackup, Location, RetainedVersions, StoreError};
use kube::ResourceExt;
use serde_json::json;

use super::{
    LOOK_AGAIN,
    decide::{has_files, owns_files, waits},
    items, locked, observe, snapshots,
};
use crate::{context::Context, location::LocationError, metrics};

/// How long the drivers of volumes get to delete the snapshots of one backup, before the request says that they have not.
const DRIVER_PATIENCE: Duration = Duration::from_mins(1);
/// Look again at once, through the queue.
const AT_ONCE: Action = Action::RequeueAfter(Duration::from_millis(100));

/// Why a step was not done. It is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the API server could not be asked: {}", plain(.0))]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    #[error(transparent)]
    Claim(ActivateError),
    #[error(transparent)]
    Location(LocationError),
    #[error(transparent)]
    Store(StoreError),
}

/// Publishes the deletion, in the request and in the backup, then goes on.
pub(super) async fn begin(
    ctx: &Context,
    request: &DeleteBackupRequest,
    backup: &Backup,
) -> Result<Action, Error> {
    let labels = json!({
        labels::BACKUP_NAME: labels::valid_value(&backup.name_any()),
        labels::BACKUP_UID: backup.uid(),
    });
    // Conditional on the resourceVersion, only from New.
    let outcome = retry::status_patch(&ctx.cluster, request, |current| {
        matches!(current.status.phase, None | Some(Phase::New)).then(|| {
            json!({"metadata": {"labels": labels}, "status": {"phase": Phase::InProgress, "errors": null}})
        })
    })
    .await?;
    let PatchOutcome::Written(request) = outcome else { return Ok(AT_ONCE) };
    ctx.metrics.deletion(metrics::Outcome::Attempt, backup.schedule().unwrap_or_default());
    tracing::info!(backup = backup.name_any(), uid = backup.uid(), "deleting the backup");
    delete(ctx, &request, backup).await
}

/// Deletes what belongs to the backup, then the backup, then answers.
pub(super) async fn delete(
    ctx: &Context,
    request: &DeleteBackupRequest,
    backup: &Backup,
) -> Result<Action, Error> {
    let Some(request) = &locked::wake(ctx, request).await? else { return Ok(AT_ONCE) };
    if let Some(wait) = claim(ctx, request).await? {
        return Ok(wait);
    }
    if backup.phase() != BackupPhase::Deleting {
        // Conditional on the resourceVersion, only from a terminal phase. From here on no restore begins from it.
        let outcome = retry::status_patch(&ctx.cluster, backup, |current| {
            let ended = current.phase().is_terminal() && current.phase() != BackupPhase::Deleting;
            ended.then(|| json!({"status": {"phase": BackupPhase::Deleting}}))
        })
        .await?;
        if !matches!(outcome, PatchOutcome::Written(_)) {
            return Ok(AT_ONCE);
        }
    }
    // Asked again after the phase is published: who saw the old phase is in this list, who comes later sees the new one.
    let users = observe::users(ctx, backup).await?;
    if !users.is_empty() {
        tracing::info!(backup = backup.name_any(), ?users, "the deletion waits for restores");
        return Ok(Action::RequeueAfter(LOOK_AGAIN));
    }
    ctx.deletions.record(&backup.name_any());
    let mut errors = Vec::new();
    let place = if has_files(backup) { open(ctx, backup, &mut errors).await? } else { None };
    let waits = waits(backup);
    if let Some(place) = &place
        && errors.is_empty()
        && waits.is_none()
    {
        delete_outside(ctx, backup, &place.store, &mut errors).await?;
    }
    let mut rest = RetainedVersions::default();
    let mut owner = String::new();
    if let Some(place) = &place
        && errors.is_empty()
    {
        owner = match &waits {
            Some(waits) => waits.owner.clone(),
            None => final_or_retry(place.owner_of(backup).await, &mut errors)?.unwrap_or_default(),
        };
        rest = delete_files(ctx, backup, place, waits.as_ref(), &mut errors).await?;
    }
    if errors.is_empty() {
        rest = delete_restores(ctx, backup, place.as_ref(), waits.is_some(), rest, &mut errors).await?;
    }
    if !errors.is_empty() {
        return end(ctx, request, Some(backup), errors).await;
    }
    if rest.is_locked() {
        let Some(left) = locked::wait(ctx, request, backup, waits, rest, owner).await? else {
            return Ok(AT_ONCE);
        };
        locked::rest(ctx, request).await?;
        return Ok(Action::RequeueAfter(left));
    }
    if let (Some(place), Some(why)) = (&place, &rest.refused) {
        locked::tell(ctx, backup, &place.location, rest.kept, why);
    }
    ctx.cluster.leadership.check()?;
    ctx.deletions.record(&backup.name_any());
    delete::delete(&ctx.cluster, backup).await?;
    end(ctx, request, Some(backup), errors).await
}

/// Takes the right to delete, before anything is destroyed: no restore from the backup has its place then, nor gets one.
/// Some: somebody is in the way.
async fn claim(ctx: &Context, request: &DeleteBackupRequest) -> Result<Option<Action>, Error> {
    ctx.cluster.leadership.check()?;
    let uid = request.uid().unwrap_or_default();
    match backup_lock::activate(&ctx.ledger, &key_of(request), &uid).await {
        Ok(_) => Ok(None),
        Err(error @ (ActivateError::Conflict(_) | ActivateError::Waiting(_) | ActivateError::Full(_))) => {
            tracing::info!(backup = request.spec.backup_name, %error, "the deletion waits");
            ctx.cluster.events.normal(request, "Waiting", &error.to_string());
            Ok(Some(Action::RequeueAfter(LOOK_AGAIN)))
        }
        Err(ActivateError::Gone { .. } | ActivateError::Over { .. }) => Ok(Some(AT_ONCE)),
        Err(error) => Err(Error::Claim(error)),
    }
}

/// Gives the place back. A failure is only logged: what is over is collected anyway.
pub(super) async fn release(ctx: &Context, request: &DeleteBackupRequest) {
    let key = key_of(request);
    if let Err(error) = backup_lock::release(&ctx.ledger, &key, &request.uid().unwrap_or_default()).await {
        tracing::debug!(%key, %error, "the claim of the deletion is left to be collected");
    }
}

fn key_of(request: &DeleteBackupRequest) -> ObjectKey {
    let namespace = request.namespace().unwrap_or_default();
    ObjectKey::new(ObjectKind::DeleteBackupRequest, &namespace, &request.name_any())
}

/// Where a backup is stored.
struct Place {
    location: BackupStorageLocation,
    store: Location,
    /// Whether what is deleted there may only be covered.
    keeps_versions: bool,
}

impl Place {
    /// Who has claimed the backup's folder; not asked where nothing outlasts its deletion.
    async fn owner_of(&self, backup: &Backup) -> Result<String, StoreError> {
        if self.keeps_versions { self.store.owner_of(&backup.name_any()).await } else { Ok(String::new()) }
    }
}

/// The store of the backup; a failure that will not pass goes to `errors`.
async fn open(ctx: &Context, backup: &Backup, errors: &mut Vec<String>) -> Result<Option<Place>, Error> {
    let opened = match observe::location_of(ctx, backup).await {
        Ok(name) => ctx.locations.open(&name).await,
        Err(error) => Err(error),
    };
    match opened {
        Ok((location, store)) => {
            let keeps_versions = store.may_keep_versions(&location);
            Ok(Some(Place { location, store, keeps_versions }))
        }
        Err(error) if error.is_transient() => Err(Error::Location(error)),
        Err(error) => {
            errors.push(error.to_string());
            Ok(None)
        }
    }
}

/// What is outside of cluster and bucket, of which only the contents know: what plugins have made, and snapshots of volumes.
/// Contents that are gone, or can't be read, keep nothing from being deleted: that is what people delete a broken backup for.
/// Snapshots by plugins are named by a file beside them.
async fn delete_outside(
    ctx: &Context,
    backup: &Backup,
    store: &Location,
    errors: &mut Vec<String>,
) -> Result<(), Error> {
    let by_csi = backup.status.csi_volume_snapshots_attempted > 0 && ctx.args.csi();
    let actions = items::actions(ctx, errors).await?;
    if errors.is_empty() && (by_csi || !actions.is_empty()) {
        ctx.cluster.leadership.check()?;
        let name = backup.name_any();
        match store.read_contents(&name).await {
            Ok(contents) => {
                items::execute(ctx, backup, &contents, &actions, errors).await?;
                if by_csi && errors.is_empty() {
                    let api = csi::SnapshotApi::new(&ctx.cluster.client, &ctx.cluster.leadership);
                    errors
                        .append(&mut csi::delete::snapshots(&api, backup, &contents, DRIVER_PATIENCE).await);
                }
            }
            Err(error) if error.is_transient() => return Err(Error::Store(error)),
            Err(error) => {
                tracing::warn!(backup = name, %error, "its snapshots are not known, and may stay in the storage system");
            }
        }
    }
    if errors.is_empty() {
        // Contents that came with a backup of Velero up to 1.16.
        ctx.cluster.leadership.check()?;
        let api = csi::SnapshotApi::new(&ctx.cluster.client, &ctx.cluster.leadership);
        errors.append(&mut csi::delete::synced(&api, backup, DRIVER_PATIENCE).await?);
    }
    if errors.is_empty() {
        snapshots::delete(ctx, backup, store, errors).await?;
    }
    Ok(())
}

/// Deletes the files of the backup, and says what the store keeps of them. `waits`: they were hidden before.
async fn delete_files(
    ctx: &Context,
    backup: &Backup,
    place: &Place,
    waits: Option<&Waits>,
    errors: &mut Vec<String>,
) -> Result<RetainedVersions, Error> {
    let (name, store) = (backup.name_any(), &place.store);
    if let Some(waits) = waits {
        ctx.cluster.leadership.check()?;
        let deleted = store.delete_backup_and_versions(&name, Some(&waits.owner)).await;
        return Ok(final_or_retry(deleted, errors)?.unwrap_or_default().retained);
    }
    let failed = backup.status.failure_reason.is_some();
    // Metadata that can not be read is no one else's, unless the backup failed because the name was taken: what is under
    // the name is still deleted.
    let stored = match store.read_metadata(&name).await {
        Err(StoreError::Corrupt { .. }) if !failed => None,
        other => match final_or_retry(other, errors)? {
            Some(stored) => stored,
            None => return Ok(RetainedVersions::default()),
        },
    };
    ctx.cluster.leadership.check()?;
    let taken = if failed && stored.is_none() {
        final_or_retry(is_taken(store, backup).await, errors)?
    } else {
        Some(!owns_files(backup, stored.as_ref()))
    };
    let Some(taken) = taken else { return Ok(RetainedVersions::default()) };
    if taken {
        tracing::info!(backup = name, "the files under this name belong to another backup and stay");
        return Ok(RetainedVersions::default());
    }
    ctx.cluster.leadership.check()?;
    // Idempotent: metadata first, then what is left.
    let deleted = if place.keeps_versions {
        store.delete_backup_and_versions(&name, None).await
    } else {
        store.delete_backup(&name).await.map(|keys| DeletedBackup { keys, ..DeletedBackup::default() })
    };
    let Some(deleted) = final_or_retry(deleted, errors)? else { return Ok(RetainedVersions::default()) };
    tracing::info!(backup = name, keys = deleted.keys, "files deleted");
    Ok(deleted.retained)
}

/// Whether the unfinished files under the name of a failed backup are another's, perhaps one that is being stored by
/// another cluster. The folder's marker tells.
async fn is_taken(store: &Location, backup: &Backup) -> Result<bool, StoreError> {
    store.is_anothers(&backup.name_any(), &backup.uid().unwrap_or_default()).await
}

/// Deletes the restores from the backup that have ended, with their files, and adds to `rest` what the store keeps of these: a
/// restore of which something is locked stays until that is over.
async fn delete_restores(
    ctx: &Context,
    backup: &Backup,
    place: Option<&Place>,
    hidden: bool,
    mut rest: RetainedVersions,
    errors: &mut Vec<String>,
) -> Result<RetainedVersions, Error> {
    for restore in observe::ended_restores(ctx, backup).await? {
        ctx.cluster.leadership.check()?;
        let (name, uid) = (restore.name_any(), restore.uid().unwrap_or_default());
        if let Some(Place { store, keeps_versions, .. }) = place {
            let deleted = if *keeps_versions {
                store.delete_restore_and_versions(&name, &uid, hidden).await
            } else {
                store.delete_restore(&name, &uid).await.map(|_| RetainedVersions::default())
            };
            let Some(kept) = final_or_retry(deleted, errors)? else { continue };
            let is_locked = kept.is_locked();
            rest = rest.and(kept);
            if is_locked {
                continue;
            }
        }
        delete::delete(&ctx.cluster, &restore).await?;
    }
    Ok(rest)
}

/// The value; none if the failure is final, which is then one of `errors`.
fn final_or_retry<T>(result: Result<T, StoreError>, errors: &mut Vec<String>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_transient() => Err(Error::Store(error)),
        Err(error) => {
            errors.push(error.to_string());
            Ok(None)
        }
    }
}

/// Answers the request. With errors it stays, for a person to read; without, all requests for the backup go.
pub(super) async fn end(
    ctx: &Context,
    request: &DeleteBackupRequest,
    backup: Option<&Backup>,
    errors: Vec<String>,
) -> Result<Action, Error> {
    // Conditional on the resourceVersion; an answer is never changed.
    let outcome = retry::status_patch(&ctx.cluster, request, |current| {
        (current.status.phase != Some(Phase::Processed))
            .then(|| json!({"status": {"phase": Phase::Processed, "errors": errors}}))
    })
    .await?;
    let PatchOutcome::Written(request) = outcome else { return Ok(Action::AwaitChange) };
    release(ctx, &request).await;
    if errors.is_empty() {
        ctx.metrics
            .deletion(metrics::Outcome::Success, backup.and_then(Backup::schedule).unwrap_or_default());
        tracing::info!(backup = request.spec.backup_name, "backup deleted");
        return sweep(ctx, &request).await;
    }
    ctx.metrics.deletion(metrics::Outcome::Failure, backup.and_then(Backup::schedule).unwrap_or_default());
    let text = errors.join("; ");
    tracing::warn!(backup = request.spec.backup_name, error = text, "backup not deleted");
    ctx.cluster.events.warning(&request, "NotDeleted", &text);
    if let Some(backup) = backup {
        ctx.cluster.events.warning(backup, "NotDeleted", &text);
    }
    Ok(Action::AwaitChange)
}

/// Deletes all requests for a backup that is gone, this one last.
pub(super) async fn sweep(ctx: &Context, request: &DeleteBackupRequest) -> Result<Action, Error> {
    let uid = request.labels().get(labels::BACKUP_UID).map(String::as_str);
    for other in observe::requests_for(ctx, &request.spec.backup_name, uid).await? {
        if other.uid() != request.uid() {
            ctx.cluster.leadership.check()?;
            delete::delete(&ctx.cluster, &other).await?;
        }
    }
    ctx.cluster.leadership.check()?;
    delete::delete(&ctx.cluster, request).await?;
    Ok(Action::AwaitChange)
}

#[cfg(test)]
mod tests {
    use backup_core::api::{BackupSpec, BackupStorageLocation, BackupStorageLocationSpec};

    use super::*;

    #[tokio::test]
    async fn unfinished_files_of_another_backup_of_the_name_are_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        let mut spec = BackupStorageLocationSpec {
            provider: "local".to_owned(),
            ..BackupStorageLocationSpec::default()
        };
        spec.object_storage.bucket = folder.path().to_str().unwrap().to_owned();
        let store = Location::open(&BackupStorageLocation::new("default", spec), None, None).unwrap();
        let of = |uid: &str| {
            let mut backup = Backup::new("b", BackupSpec::default());
            backup.metadata.uid = Some(uid.to_owned());
            backup
        };
        let writer = store.open_backup("b", "theirs").await.unwrap();
        assert!(is_taken(&store, &of("ours")).await.unwrap());
        assert!(!is_taken(&store, &of("theirs")).await.unwrap());
        writer.abort().await;
        store.delete_backup("b").await.unwrap();
        assert!(!is_taken(&store, &of("ours")).await.unwrap(), "nothing is there");
    }
}
