//! Taking the snapshots of a backup out of the cluster. They are found by the backup's uid, so this can be done by any replica that
//! is there, and again.

use backup_core::api::Backup;
use kube::ResourceExt as _;

use super::api::{SnapshotApi, SnapshotStatus, status};

/// When a backup is stored: what is ready stays in the storage system, and only there; what is not is removed there, too,
/// as nobody could use it.
/// Errors: the first request that failed; what was done before it stays done.
pub async fn stored(api: &SnapshotApi, backup: &Backup) -> Result<usize, kube::Error> {
    each(api, backup, true).await
}

/// When a backup has come to nothing: all of them are removed.
pub async fn abandoned(api: &SnapshotApi, backup: &Backup) -> Result<usize, kube::Error> {
    each(api, backup, false).await
}

async fn each(api: &SnapshotApi, backup: &Backup, keep_ready: bool) -> Result<usize, kube::Error> {
    let uid = backup.uid().unwrap_or_default();
    let found = if uid.is_empty() { Vec::new() } else { api.of_backup(&uid).await? };
    for snapshot in &found {
        if keep_ready && status::<SnapshotStatus>(snapshot).ready_to_use == Some(true) {
            api.release(snapshot).await?;
        } else {
            api.destroy(snapshot).await?;
        }
    }
    Ok(found.len())
}
