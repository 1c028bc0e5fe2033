//! Deletes the data of a backup: data outside of cluster and bucket, its files, and its restores
//! with their files.

use backup_core::{
    api::{Backup, BackupStorageLocation, DeleteBackupRequest},
    deletion::Waits,
};
use backup_runtime::delete;
use backup_store::{DeletedBackup, Location, RetainedVersions, StoreError};
use kube::ResourceExt as _;

use super::{
    DeletionController, StepError, copies,
    decide::{has_files, owns_files},
};
use crate::{restores_of_backup, volumes::moved_snapshots::ForgottenSnapshots};

/// Maximum number of locked snapshots of volumes that a waiting deletion remembers: they are in an
/// annotation, and all annotations of an object together have at most 256 KiB. Versions of others
/// stay hidden.
const MAX_LOCKED_SNAPSHOTS: usize = 500;

/// Facts about the data after its deletion.
#[derive(Default)]
pub(super) struct DeletedData {
    /// `None` if the backup has no files.
    pub(super) location: Option<BackupStorageLocation>,
    /// The uid that has claimed the folder; empty if nothing remains after the deletion.
    pub(super) owner: String,
    pub(super) retained: RetainedVersions,
    /// Removed snapshots of volumes with versions that the store locks, as `namespace/id`.
    pub(super) snapshots: Vec<String>,
}

pub(super) struct BackupStore {
    pub(super) store: Location,
    /// Whether deleted files may only be hidden there.
    pub(super) keeps_versions: bool,
}

impl DeletionController {
    /// With `waits`, all files were hidden before.
    pub(super) async fn delete_data(
        &self,
        request: &DeleteBackupRequest,
        backup: &Backup,
        waits: Option<&Waits>,
    ) -> Result<DeletedData, StepError> {
        let mut deleted = DeletedData::default();
        if !has_files(backup) {
            self.delete_restores(backup, None, waits.is_some(), &mut deleted.retained)
                .await?;
            return Ok(deleted);
        }
        let location = self.locations.of_backup(backup).await?;
        let store = self.locations.store(&location).await?;
        let of = BackupStore {
            keeps_versions: store.may_keep_versions(&location),
            store,
        };
        deleted.location = Some(location);
        let is_copy = waits.is_none() && copies::is_copy(backup, &of.store).await?;
        if is_copy {
            self.release_snapshots(backup).await?;
        } else if waits.is_none() {
            self.delete_external_data(backup, &of.store).await?;
        }
        deleted.owner = if let Some(waits) = waits {
            waits.owner.clone()
        } else if of.keeps_versions {
            of.store.owner_of(&backup.name_any()).await?
        } else {
            String::new()
        };
        let forgotten = if is_copy {
            ForgottenSnapshots::default()
        } else {
            self.forget_volume_data(backup, &of, waits).await?
        };
        let locked = forgotten.locked.iter().take(MAX_LOCKED_SNAPSHOTS);
        deleted.snapshots = locked.map(ToString::to_string).collect();
        let copies = self.delete_copies(request, backup).await?;
        let retained = self.delete_files(backup, &of, waits).await?;
        deleted.retained = retained.and(forgotten.retained).and(copies);
        self.delete_restores(backup, Some(&of), waits.is_some(), &mut deleted.retained)
            .await?;
        Ok(deleted)
    }

    /// Deletes the files of the backup. Returns the versions that the store retains.
    async fn delete_files(
        &self,
        backup: &Backup,
        BackupStore {
            store,
            keeps_versions,
        }: &BackupStore,
        waits: Option<&Waits>,
    ) -> Result<RetainedVersions, StepError> {
        let name = backup.name_any();
        if let Some(waits) = waits {
            self.cluster.leadership.check()?;
            return Ok(store
                .delete_backup_and_versions(&name, Some(&waits.owner))
                .await?
                .retained);
        }
        let failed = backup.status.failure_reason.is_some();
        // Unreadable metadata does not belong to another backup, unless the backup failed because
        // the name was taken: files under the name are still deleted. Unfinished files may be those
        // that another cluster is storing.
        let stored = match store.read_metadata(&name).await {
            Err(StoreError::Corrupt { .. }) if !failed => None,
            stored => stored?,
        };
        self.cluster.leadership.check()?;
        let taken = if failed && stored.is_none() {
            store
                .is_anothers(&name, &backup.uid().unwrap_or_default())
                .await?
        } else {
            !owns_files(backup, stored.as_ref())
        };
        if taken {
            tracing::info!(
                backup = name,
                "the files under this name belong to another backup and stay"
            );
            return Ok(RetainedVersions::default());
        }
        self.cluster.leadership.check()?;
        // Metadata first, then the other files.
        let deleted = if *keeps_versions {
            store.delete_backup_and_versions(&name, None).await?
        } else {
            DeletedBackup {
                keys: store.delete_backup(&name).await?,
                ..DeletedBackup::default()
            }
        };
        tracing::info!(backup = name, keys = deleted.keys, "files deleted");
        Ok(deleted.retained)
    }

    /// Deletes the ended restores from the backup, with their files, and adds the versions that the
    /// store retains to `retained`: a restore with locked files is kept until the lock ends.
    /// `hidden`: its files were hidden before.
    async fn delete_restores(
        &self,
        backup: &Backup,
        of: Option<&BackupStore>,
        hidden: bool,
        retained: &mut RetainedVersions,
    ) -> Result<(), StepError> {
        let mut errors = Vec::new();
        for restore in restores_of_backup::ended(&self.cluster, backup).await? {
            self.cluster.leadership.check()?;
            let name = restore.name_any();
            let uid = restore.uid().unwrap_or_default();
            if let Some(BackupStore {
                store,
                keeps_versions,
            }) = of
            {
                let deleted = if *keeps_versions {
                    store.delete_restore_and_versions(&name, &uid, hidden).await
                } else {
                    store
                        .delete_restore(&name, &uid)
                        .await
                        .map(|_| RetainedVersions::default())
                };
                let kept = match deleted {
                    Ok(kept) => kept,
                    Err(error) if error.is_transient() => return Err(error.into()),
                    Err(error) => {
                        errors.push(error.to_string());
                        continue;
                    }
                };
                let is_locked = kept.is_locked();
                *retained = std::mem::take(retained).and(kept);
                if is_locked {
                    continue;
                }
            }
            delete::delete(&self.cluster, &restore).await?;
        }
        StepError::unless_empty(errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn unfinished_files_of_another_backup_of_the_name_are_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        let store = Location::open(&testing::local_location(folder.path()), None, None).unwrap();
        let writer = store
            .open_backup("b", &testing::claimant("theirs"))
            .await
            .unwrap();
        assert!(store.is_anothers("b", "ours").await.unwrap());
        assert!(!store.is_anothers("b", "theirs").await.unwrap());
        writer.abort().await;
        store.delete_backup("b").await.unwrap();
        assert!(
            !store.is_anothers("b", "ours").await.unwrap(),
            "nothing is there"
        );
    }
}
