//! Removes the snapshots of a backup from the cluster. They are found by the backup's uid, so any
//! replica can do this, and repeat it.

use backup_core::{api::Backup, data_movement::MOVED_LABEL};
use kube::ResourceExt as _;

use super::api::{SnapshotApi, SnapshotStatus, status};

/// After a backup was stored: ready snapshots stay in the storage system, and only there; others
/// are removed there, too: they are unusable, or their data is in a repository. Errors: the first
/// request that failed; earlier removals remain done.
pub async fn stored(api: &SnapshotApi, backup: &Backup) -> Result<usize, kube::Error> {
    each(api, backup, true).await
}

/// After a backup has failed: all its snapshots are removed.
pub async fn abandoned(api: &SnapshotApi, backup: &Backup) -> Result<usize, kube::Error> {
    each(api, backup, false).await
}

async fn each(api: &SnapshotApi, backup: &Backup, keep_ready: bool) -> Result<usize, kube::Error> {
    let uid = backup.uid().unwrap_or_default();
    let found = if uid.is_empty() {
        Vec::new()
    } else {
        api.of_backup(&uid).await?
    };
    for snapshot in &found {
        let is_moved = snapshot.labels().contains_key(MOVED_LABEL);
        let is_ready = status::<SnapshotStatus>(snapshot).ready_to_use == Some(true);
        if keep_ready && is_ready && !is_moved {
            api.release(snapshot).await?;
        } else {
            api.destroy(snapshot).await?;
        }
    }
    Ok(found.len())
}
