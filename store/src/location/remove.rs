//! Removing backups and restores.

use object_store::path::Path;

use super::Location;
use crate::StoreError;

impl Location {
    /// Removes a backup; the number of keys that were there.
    ///
    /// The metadata goes first, so that a deletion that is cut short never leaves a backup that looks whole, and our
    /// marker last, so that nobody else takes the folder meanwhile. Safe to repeat.
    pub async fn delete_backup(&self, backup: &str) -> Result<u64, StoreError> {
        let keys = self.layout().backup(backup)?;
        let (metadata, owner) = (keys.metadata(), keys.owner());
        let found = self.list(keys.folder()).await?;
        if found.iter().any(|key| keys.upload_note_number(key).is_some()) {
            self.remove_begun(&keys, false).await?;
        }
        let step = |wanted: &dyn Fn(&Path) -> bool| -> Vec<Path> {
            found.iter().filter(|key| wanted(key)).cloned().collect()
        };
        self.delete(step(&|key| *key == metadata)).await?;
        self.delete(step(&|key| *key != metadata && *key != owner)).await?;
        self.delete(step(&|key| *key == owner)).await?;
        self.remove_folder(keys.folder()).await?;
        Ok(found.len() as u64)
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
