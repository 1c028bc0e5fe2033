//! Removing backups and restores.

use object_store::path::Path;

use super::Location;
use crate::{StoreError, layout::BackupKeys};

/// A backup of which only our marker is there.
pub(super) struct Hidden {
    /// The number of keys that were there.
    pub keys: u64,
    /// The marker, if it was among them.
    pub owner: Option<Path>,
}

impl Location {
    /// Removes a backup; the number of keys that were there.
    ///
    /// The metadata goes first, so that a deletion that is cut short never leaves a backup that looks whole, and our
    /// marker last, so that nobody else takes the folder meanwhile. Safe to repeat.
    pub async fn delete_backup(&self, backup: &str) -> Result<u64, StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.hide_backup(&keys).await?;
        self.delete(found.owner.into_iter().collect()).await?;
        self.remove_folder(keys.folder()).await?;
        Ok(found.keys)
    }

    /// All of [`Self::delete_backup`] but our marker.
    pub(super) async fn hide_backup(&self, keys: &BackupKeys) -> Result<Hidden, StoreError> {
        let (metadata, owner) = (keys.metadata(), keys.owner());
        let mut found = self.list(keys.folder()).await?;
        if found.iter().any(|key| keys.upload_note_number(key).is_some()) {
            self.remove_begun(keys, false).await?;
        }
        let number = found.len() as u64;
        let marker = found.iter().position(|key| *key == owner).map(|at| found.swap_remove(at));
        let (first, then): (Vec<Path>, Vec<Path>) = found.into_iter().partition(|key| *key == metadata);
        self.delete(first).await?;
        self.delete(then).await?;
        Ok(Hidden { keys: number, owner: marker })
    }

    /// Removes the files of a restore; the number of keys that were there. Safe to repeat.
    pub async fn delete_restore(&self, restore: &str) -> Result<u64, StoreError> {
        let keys = self.layout().restore(restore)?;
        let found = self.list(keys.folder()).await?;
        let number = found.len() as u64;
        self.delete(found).await?;
        self.remove_folder(keys.folder()).await?;
        Ok(number)
    }

    /// On a local disk a writer that crashed leaves staging files, which listings don't show, and so the folder.
    pub(super) async fn remove_folder(&self, folder: &Path) -> Result<(), StoreError> {
        let Some(root) = &self.inner.root.folder else { return Ok(()) };
        match tokio::fs::remove_dir_all(root.join(folder.as_ref())).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io(&format!("remove {}", self.url_of(folder)), &error))
            }
            _ => Ok(()),
        }
    }
}
