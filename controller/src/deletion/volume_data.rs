//! Data of volumes that our data mover has saved: its snapshots are removed from the repositories.

use std::collections::BTreeSet;

use backup_core::{api::Backup, deletion::Waits};
use backup_runtime::Cluster;
use backup_store::{Location, StoreError};
use kube::ResourceExt as _;

use super::{DeletionController, StepError, data::BackupStore, decide::owns_files};
use crate::volumes::moved_snapshots::{BackupSnapshots, ForgottenSnapshots, MovedSnapshot, forget};

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
            None => snapshots_of(&self.cluster, &of.store, backup).await?,
        };
        let count = snapshots.count();
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
}

/// Snapshots that the records of the backup name, snapshots of its DataUploads in the cluster (a
/// backup that failed has no records), and snapshots that are noted for it in the repositories.
async fn snapshots_of(
    cluster: &Cluster,
    store: &Location,
    backup: &Backup,
) -> Result<BackupSnapshots, StepError> {
    let name = backup.name_any();
    let own_uid = backup.uid().unwrap_or_default();
    let mut uids = BTreeSet::from([own_uid.clone()]);
    let mut snapshots = match store.saved_volumes(backup).await {
        Ok(saved) => BackupSnapshots::of_records(&saved.records),
        // That is a reason why users delete a broken backup.
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::warn!(backup = name, %error, "only notes in the repositories name the data of its volumes");
            let mut unknown = BackupSnapshots::default();
            unknown.may_be_in(store.repository_namespaces().await?);
            unknown
        }
        Err(error) => return Err(error.into()),
    };
    if !snapshots.has_no_repository() {
        // Files under this name may belong to another backup.
        let stored = match store.read_metadata(&name).await {
            Err(StoreError::Corrupt { .. }) => None,
            stored => stored?,
        };
        if owns_files(backup, stored.as_ref()) {
            // A Backup that was imported has another uid.
            uids.extend(stored.and_then(|stored| stored.uid()));
        } else {
            snapshots = BackupSnapshots::default();
        }
    }
    if backup.spec.snapshot_move_data == Some(true) {
        snapshots.add_uploads(cluster, &own_uid).await?;
    }
    for uid in uids {
        snapshots.add_noted(store, &uid).await?;
    }
    Ok(snapshots)
}

/// The snapshots that a waiting deletion has hidden.
fn remembered(waits: &Waits) -> BackupSnapshots {
    let names = waits.snapshots.iter();
    names
        .filter_map(|name| name.parse::<MovedSnapshot>().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use backup_core::{
        api::{BackupPhase, BackupSpec},
        volume_info::VolumeInfo,
    };
    use backup_testkit::FakeApi;

    use super::*;
    use crate::testing;

    /// Stores the backup `b` of this uid, whose volume in namespace `shop` could not be moved.
    async fn store_backup(store: &Location, uid: &str) {
        let claimant = testing::claimant(uid);
        let writer = store.open_backup("b", &claimant).await.unwrap();
        let pending = writer.finish().await.unwrap();
        let mut files = testing::no_files();
        files.volume_info = vec![VolumeInfo::moved("shop", "data", "pv", "upload-1")];
        let mut end = testing::backup(BackupPhase::PartiallyFailed);
        end.metadata.name = Some("b".to_owned());
        end.metadata.uid = Some(uid.to_owned());
        let mut plan = pending.commit(&files, &end).await.unwrap();
        plan.publish().await.unwrap();
    }

    #[tokio::test]
    async fn snapshots_that_only_notes_name_are_removed_with_their_backup() {
        let folder = tempfile::tempdir().unwrap();
        let store = Location::open(&testing::local_location(folder.path()), None, None).unwrap();
        store_backup(&store, "stored").await;
        let [of_stored, of_own, of_other] = ["4f", "5f", "6f"].map(|digits| digits.repeat(32));
        for (uid, id) in [
            ("stored", &of_stored),
            ("imported", &of_own),
            ("other", &of_other),
        ] {
            let notes = folder.path().join(format!("restic/shop/uploads/{uid}/u"));
            std::fs::create_dir_all(&notes).unwrap();
            std::fs::write(notes.join(id), "").unwrap();
        }
        let cluster = testing::cluster(FakeApi::new().client());
        let mut backup = Backup::new("b", BackupSpec::default());
        backup.metadata.uid = Some("imported".to_owned());
        let found = snapshots_of(&cluster, &store, &backup).await.unwrap();
        let names = [&of_stored, &of_own].map(|id| format!("shop/{id}"));
        assert_eq!(found.names(), names);
        // It failed as its name was taken: the files are of the other one, and so is its data.
        backup.status.failure_reason = Some("the name is taken".to_owned());
        let found = snapshots_of(&cluster, &store, &backup).await.unwrap();
        assert_eq!(found.names(), Vec::<String>::new());
    }

    #[test]
    fn a_waiting_deletion_remembers_snapshots_by_name() {
        let id = "4f".repeat(32);
        let waits = Waits {
            snapshots: vec![format!("shop/{id}"), "shop/../../b".to_owned(), id.clone()],
            ..Waits::default()
        };
        assert_eq!(remembered(&waits).names(), [format!("shop/{id}")]);
    }
}
