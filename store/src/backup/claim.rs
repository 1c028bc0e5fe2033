//! Whose a backup's folder is.
//!
//! The folder is claimed by one key with the Backup's uid in it, written create-only before anything else. Two backups
//! of one name (two clusters on one bucket, or a recreated object) thus never mix their files.

use std::time::{SystemTime, UNIX_EPOCH};

use backup_core::api::Backup;
use bytes::Bytes;
use object_store::{PutPayload, path::Path};
use sha2::{Digest, Sha256};

use super::BackupWriter;
use crate::{
    Location, StoreError,
    layout::BackupKeys,
    tarball::Writer,
    upload::{Upload, Written},
};

impl Location {
    /// Claims the folder of a backup for the Backup object with this uid, and begins the contents.
    ///
    /// Files of an earlier try of the same uid are removed, if its metadata was never written. Safe to repeat.
    /// Errors: [`StoreError::Exists`] if the folder holds a finished backup (of this uid: adopt it), belongs to another
    /// uid, or holds files that we did not write.
    pub async fn open_backup(&self, backup: &str, uid: &str) -> Result<BackupWriter, StoreError> {
        if uid.is_empty() {
            return Err(StoreError::Config {
                field: "metadata.uid".to_owned(),
                message: format!(
                    "backup {backup:?} has no uid; only an object read from the API server can be stored"
                ),
            });
        }
        let keys = self.layout().backup(backup)?;
        let found = self.list(keys.folder()).await?;
        if found.contains(&keys.metadata()) {
            return Err(self.finished(&keys, self.read_metadata(backup).await?.as_ref(), uid));
        }
        if found.contains(&keys.owner()) {
            self.check_owner(&keys, uid).await?;
            let ours = keys.before_metadata();
            self.refuse_foreign(&keys, &found, &|key| ours.contains(key))?;
            self.delete(found.into_iter().filter(|key| ours.contains(key)).collect()).await?;
        } else {
            self.refuse_foreign(&keys, &found, &|_| false)?;
            self.claim(&keys, uid).await?;
        }
        let written = Written::default();
        // Shown by tar tools only; nothing decides by it.
        let mtime = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let tar = Writer::new(Upload::new(self.clone(), keys.contents()), mtime)?;
        Ok(BackupWriter::new(self.clone(), keys, uid.to_owned(), written, tar))
    }

    /// Writes the marker (create-only), then looks again: who wrote into the folder meanwhile does not know our marker.
    async fn claim(&self, keys: &BackupKeys, uid: &str) -> Result<(), StoreError> {
        let marker = Bytes::from(format!("{uid}\n"));
        let digest = Sha256::digest(&marker).into();
        self.put_new(&keys.owner(), PutPayload::from_bytes(marker), digest, &Written::default())
            .await
            .map_err(|error| match error {
                StoreError::Exists { url, .. } => StoreError::Exists {
                    url,
                    detail: "another backup of this name has just claimed the folder; choose another name"
                        .to_owned(),
                },
                other => other,
            })?;
        let found = self.list(keys.folder()).await?;
        if let Err(error) = self.refuse_foreign(keys, &found, &|_| false) {
            self.delete(vec![keys.owner()]).await?;
            return Err(error);
        }
        Ok(())
    }

    async fn check_owner(&self, keys: &BackupKeys, uid: &str) -> Result<(), StoreError> {
        let marker = self.get_small(&keys.owner(), 1024).await?.unwrap_or_default();
        let owner = String::from_utf8_lossy(&marker).trim().to_owned();
        if owner == uid {
            return Ok(());
        }
        Err(StoreError::Exists {
            url: self.url_of(keys.folder()),
            detail: format!(
                "it belongs to another backup of this name, which is not finished (uid {owner:?}, ours is {uid:?}); choose \
                 another name, or remove the folder if that backup is gone"
            ),
        })
    }

    fn refuse_foreign(
        &self,
        keys: &BackupKeys,
        found: &[Path],
        known: &dyn Fn(&Path) -> bool,
    ) -> Result<(), StoreError> {
        let owner = keys.owner();
        match found.iter().find(|key| **key != owner && !known(key)) {
            None => Ok(()),
            Some(foreign) => Err(StoreError::Exists {
                url: self.url_of(keys.folder()),
                detail: format!(
                    "it holds files that this backup did not write, such as {:?}; choose another name, or remove them",
                    foreign.filename().unwrap_or_default()
                ),
            }),
        }
    }

    fn finished(&self, keys: &BackupKeys, stored: Option<&Backup>, uid: &str) -> StoreError {
        let detail = match stored {
            Some(stored) if stored.metadata.uid.as_deref() == Some(uid) => {
                format!("this backup is stored already, as {}; its metadata is what counts", stored.phase())
            }
            Some(stored) => format!(
                "a backup of this name with uid {:?} is stored there; choose another name, or delete that backup",
                stored.metadata.uid.as_deref().unwrap_or_default()
            ),
            None => "it was being deleted; try again".to_owned(),
        };
        StoreError::Exists { url: self.url_of(keys.folder()), detail }
    }
}
