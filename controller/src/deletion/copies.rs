//! Copies of a deleted backup in other locations, and backups that are copies themselves.

use backup_actions::csi;
use backup_core::{
    api::{Backup, BackupStorageLocation, DeleteBackupRequest},
    labels::{COPY_OF_ANNOTATION, KEEP_COPIES_ANNOTATION},
};
use backup_runtime::Cluster;
use backup_store::{Location, RetainedVersions, StoreError};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{DeletionController, StepError};
use crate::{
    copies::of_deletion,
    location::{LocationError, Locations},
    retention::{self, KeptCopies},
};

/// The expired copies that stay, for [`of_deletion`]; `None` if all copies go with the backup.
pub(super) async fn kept(
    cluster: &Cluster,
    locations: &Locations,
    request: &DeleteBackupRequest,
    backup: &Backup,
    now: Timestamp,
) -> Result<Option<KeptCopies>, kube::Error> {
    if !request.annotations().contains_key(KEEP_COPIES_ANNOTATION) {
        return Ok(None);
    }
    if backup.complete_copies().any(|copy| copy.has_expired(now)) {
        let kept = retention::kept_copies(cluster, locations, backup);
        return Box::pin(kept).await.map(Some);
    }
    Ok(Some(KeptCopies::new()))
}

/// Whether the files of a backup are a copy: data outside of them belongs to the original.
pub(super) async fn is_copy(backup: &Backup, store: &Location) -> Result<bool, StoreError> {
    // The note may be gone already, if the deletion was interrupted.
    if backup.annotations().contains_key(COPY_OF_ANNOTATION) {
        return Ok(true);
    }
    match store.copy_note(&backup.name_any()).await {
        Err(StoreError::Corrupt { .. }) => Ok(true),
        note => Ok(note?.is_some()),
    }
}

impl DeletionController {
    /// Deletes the copies of a backup, but those that stay. Returns the versions that stores lock.
    /// Safe to repeat.
    pub(super) async fn delete_copies(
        &self,
        request: &DeleteBackupRequest,
        backup: &Backup,
    ) -> Result<RetainedVersions, StepError> {
        let name = backup.name_any();
        let mut locked = RetainedVersions::default();
        let now = Timestamp::now();
        let kept = kept(&self.cluster, &self.locations, request, backup, now).await?;
        for copy in of_deletion(backup, kept.as_ref(), now) {
            let location = match find(&self.locations, &copy.location).await {
                Ok(Some(location)) => location,
                Ok(None) => {
                    tracing::warn!(
                        backup = name,
                        location = copy.location,
                        "the location of a copy does not exist; files in it stay"
                    );
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let store = self.locations.store(&location).await?;
            self.cluster.leadership.check()?;
            let keeps_versions = store.may_keep_versions(&location);
            let deleted = store.delete_copy(&name, &copy.uid, keeps_versions).await?;
            tracing::info!(
                backup = name,
                location = copy.location,
                keys = deleted.keys,
                "the files of a copy were deleted"
            );
            let retained = deleted.retained;
            if retained.is_locked() {
                locked = locked.and(retained);
            } else if let Some(why) = &retained.refused {
                self.emit_retained(backup, &location, retained.kept, why);
            }
        }
        Ok(locked)
    }

    /// Removes the VolumeSnapshotContents that sync has created for a copy. Their snapshots belong
    /// to the original.
    pub(super) async fn release_snapshots(&self, backup: &Backup) -> Result<(), StepError> {
        let api = csi::SnapshotApi::new(&self.cluster.client, &self.cluster.leadership);
        let uid = backup.uid().unwrap_or_default();
        for content in api.synced_for(&uid).await? {
            self.cluster.leadership.check()?;
            api.remove_content(&content, "Retain").await?;
        }
        Ok(())
    }
}

/// The location of a copy; `None` if it does not exist.
pub(super) async fn find(
    locations: &Locations,
    name: &str,
) -> Result<Option<BackupStorageLocation>, LocationError> {
    match locations.get(name).await {
        Ok(location) => Ok(Some(location)),
        Err(LocationError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
