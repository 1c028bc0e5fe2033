//! Removing a Backup from the cluster that is gone from its bucket. Nothing in the bucket or in a storage system is changed.

use backup_actions::csi::SnapshotApi;
use backup_core::{api::Backup, sync::Summary};
use backup_runtime::errors::{is_conflict, is_gone, is_transient, plain};
use backup_store::StoreError;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Preconditions},
};

use super::{comparison::is_stored, pass::Pass};
use crate::error::ReconcileError;

/// Removes it after location, bucket and Backup were read again.
pub(super) async fn remove(pass: &Pass<'_>, name: &str, summary: &mut Summary) -> Result<(), ReconcileError> {
    pass.current_location().await?;
    // Two questions: a listing may be empty for reasons of its own.
    let exists = pass.store.inspect_folder(name).await?.has_anything
        || match pass.store.read_metadata(name).await {
            Ok(found) => found.is_some(),
            Err(StoreError::Corrupt { .. }) => true,
            Err(error) => return Err(error.into()),
        };
    if exists {
        return Ok(());
    }
    let Some(backup) = pass.backup(name).await? else { return Ok(()) };
    let here = backup.spec.storage_location.as_deref() == Some(&pass.location.name_any());
    if !here || !is_stored(&backup.phase()) || backup.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    // Before the Backup, by whose uid they are found. They have the policy Retain: what they stand for stays.
    let api = SnapshotApi::new(&pass.cluster.client, &pass.cluster.leadership);
    for content in api.synced_for(&backup.uid().unwrap_or_default()).await? {
        api.remove_content(&content, "Retain").await?;
    }
    pass.cluster.leadership.check()?;
    // This very object, as it was read.
    let preconditions = Preconditions { uid: backup.uid(), resource_version: backup.resource_version() };
    let params = DeleteParams::default().preconditions(preconditions);
    let api: Api<Backup> = pass.cluster.api();
    match api.delete(name, &params).await {
        Ok(_) => {
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
