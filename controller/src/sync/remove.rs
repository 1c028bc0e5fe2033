//! Taking a Backup out of the cluster that is gone from its bucket. Nothing in the bucket or in a storage system is touched.

use backup_actions::csi::SnapshotApi;
use backup_core::{api::Backup, sync::Summary};
use backup_runtime::errors::{is_conflict, is_gone, is_transient, plain};
use backup_store::StoreError;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Preconditions},
};

use super::{error::Error, observe, pass::Pass};

/// Removes it after a second look at location, bucket and Backup, each as it is now.
///
/// # Errors
/// The location has changed, so nothing else is removed either; the store or the API server does not answer; this replica must
/// not write.
pub(super) async fn orphan(pass: &Pass<'_>, name: &str, summary: &mut Summary) -> Result<(), Error> {
    let ctx = pass.ctx;
    let location = observe::location(ctx, &pass.location.name_any()).await?;
    let same = |now: &backup_core::api::BackupStorageLocation| {
        now.metadata.uid == pass.location.metadata.uid && now.spec == pass.location.spec
    };
    if !location.as_ref().is_some_and(same) {
        return Err(Error::Changed);
    }
    // Two questions: a listing may be empty for reasons of its own.
    let is_there = pass.store.inspect_folder(name).await?.has_anything
        || match pass.store.read_metadata(name).await {
            Ok(found) => found.is_some(),
            Err(StoreError::Corrupt { .. }) => true,
            Err(error) => return Err(error.into()),
        };
    if is_there {
        return Ok(());
    }
    let Some(backup) = observe::backup(ctx, name).await? else { return Ok(()) };
    let here = backup.spec.storage_location.as_deref() == Some(&pass.location.name_any());
    if !here || !observe::is_stored(&backup.phase()) || backup.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    // Before the Backup, by whose uid they are found. They have the policy Retain: what they stand for stays.
    let api = SnapshotApi::new(&ctx.cluster.client, &ctx.cluster.leadership);
    for content in api.synced_for(&backup.uid().unwrap_or_default()).await? {
        api.remove_content(&content, "Retain").await?;
    }
    ctx.cluster.leadership.check()?;
    match delete(pass, &backup).await {
        Ok(()) => {
            tracing::info!(
                backup = name,
                uid = backup.uid(),
                "removed from the cluster: it is gone from the bucket"
            );
            summary.removed += 1;
            summary.note(name, "removed", "it is gone from the bucket");
        }
        // It has changed since, or is gone.
        Err(error) if is_gone(&error, name) || is_conflict(&error) => {}
        Err(error) if is_transient(&error) => return Err(error.into()),
        // A restore from it runs.
        Err(error) => summary.note(name, "kept", &plain(&error)),
    }
    Ok(())
}

/// Deletes this very object, as it was looked at.
async fn delete(pass: &Pass<'_>, backup: &Backup) -> Result<(), kube::Error> {
    let api: Api<Backup> = pass.ctx.cluster.api();
    let preconditions = Preconditions { uid: backup.uid(), resource_version: backup.resource_version() };
    let params = DeleteParams::default().preconditions(preconditions);
    api.delete(&backup.name_any(), &params).await.map(drop)
}
