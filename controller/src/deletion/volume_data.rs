//! Data of volumes that our data mover has saved: its snapshots are removed from the repositories.

use std::collections::BTreeSet;

use backup_core::{api::Backup, deletion::Waits};
use backup_store::StoreError;
use kube::ResourceExt as _;

use super::{DeletionController, StepError, data::BackupStore, decide::owns_files};
use crate::moved_snapshots::{ForgottenSnapshots, MovedSnapshot, forget};

impl DeletionController {
    /// Removes the snapshots of a backup from their repositories, before the files that name them.
    /// With `waits`, those that were locked are tried again.
    pub(super) async fn forget_volume_data(
        &self,
        backup: &Backup,
        of: &BackupStore,
        waits: Option<&Waits>,
    ) -> Result<ForgottenSnapshots, StepError> {
        let snapshots = match waits {
            Some(waits) => remembered(waits),
            None => self.moved_snapshots(backup, of).await?,
        };
        let count = snapshots.len();
        let leadership = &self.cluster.leadership;
        let forgotten = forget(leadership, &of.store, snapshots, of.keeps_versions).await?;
        if count > 0 {
            tracing::info!(
                backup = backup.name_any(),
                count,
                "snapshots of its volumes were removed from their repositories"
            );
        }
        Ok(forgotten)
    }

    /// Snapshots that the records of the backup name, and snapshots of its DataUploads in the
    /// cluster: a backup that failed has no records.
    async fn moved_snapshots(
        &self,
        backup: &Backup,
        BackupStore { store, .. }: &BackupStore,
    ) -> Result<BTreeSet<MovedSnapshot>, StepError> {
        let name = backup.name_any();
        let mut snapshots = match store.saved_volumes(backup).await {
            Ok(saved) => MovedSnapshot::of_records(&saved.records),
            // That is a reason why users delete a broken backup.
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::warn!(backup = name, %error, "data of its volumes may stay in their repositories");
                BTreeSet::new()
            }
            Err(error) => return Err(error.into()),
        };
        if !snapshots.is_empty() {
            // Files under this name may belong to another backup.
            let stored = match store.read_metadata(&name).await {
                Err(StoreError::Corrupt { .. }) => None,
                stored => stored?,
            };
            if !owns_files(backup, stored.as_ref()) {
                snapshots.clear();
            }
        }
        if backup.spec.snapshot_move_data == Some(true) {
            snapshots.extend(MovedSnapshot::of_uploads(&self.cluster, backup).await?);
        }
        Ok(snapshots)
    }
}

/// The snapshots that a waiting deletion has hidden.
fn remembered(waits: &Waits) -> BTreeSet<MovedSnapshot> {
    let names = waits.snapshots.iter();
    names.filter_map(|name| name.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_deletion_remembers_snapshots_by_name() {
        let id = "4f".repeat(32);
        let waits = Waits {
            snapshots: vec![format!("shop/{id}"), "shop/../../b".to_owned(), id.clone()],
            ..Waits::default()
        };
        let names: Vec<_> = remembered(&waits).iter().map(ToString::to_string).collect();
        assert_eq!(names, [format!("shop/{id}")]);
    }
}
