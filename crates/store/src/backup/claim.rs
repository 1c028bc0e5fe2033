//! Whose a backup's folder is.
//!
//! The folder is claimed by one key with the Backup's uid in it, written create-only before anything else. Two backups
//! of one name (two clusters on one bucket, or a recreated object) thus never mix their files.

use std::time::{SystemTime, UNIX_EPOCH};

use backup_core::api::Backup;
use bytes::Bytes;
use object_store::path::Path;

use super::BackupWriter;
use crate::{
    Location, StoreError, crash,
    layout::BackupKeys,
    tarball::{self, Writer},
    upload::{Note, Upload},
};

/// A number that no note had: some stores do not take a key again that was deleted (in a bucket with versions).
pub(super) fn note_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A note or a marker is at most this large (bytes).
const SMALL: u64 = 16 * 1024;

impl Location {
    /// Claims the folder of a backup for the Backup object with this uid, and begins the contents.
    ///
    /// Parts that an earlier try of the same uid has uploaded are removed, as nothing was decided about them. Safe to
    /// repeat. Errors: [`StoreError::Exists`] if the folder holds a finished backup (of this uid: adopt it) or a decision
    /// about this one (see [`Location::find_backup`]), belongs to another uid, or holds files that we did not write.
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
        let fresh = !found.contains(&keys.owner());
        if fresh {
            self.refuse_foreign(&keys, &found)?;
            self.claim(&keys, uid).await?;
        } else {
            self.check_owner(&keys, uid).await?;
            if let Some(number) = keys.records().last(&found) {
                return Err(StoreError::Exists {
                    url: self.url_of(&keys.records().key(number)),
                    detail:
                        "what this backup holds is decided already; it is to be finished, not begun again"
                            .to_owned(),
                });
            }
            self.refuse_foreign(&keys, &found)?;
        }
        crash::point("after-owner-marker");
        self.begin(keys, uid, 0, fresh).await
    }

    /// Begins the contents of a folder that is ours. `after` is the number of the last record, which counts no more;
    /// `fresh` says that nothing can have been uploaded yet.
    pub(super) async fn begin(
        &self,
        keys: BackupKeys,
        uid: &str,
        after: u64,
        fresh: bool,
    ) -> Result<BackupWriter, StoreError> {
        let note = self.remove_begun(&keys, fresh).await?;
        let upload = Upload::new(self.clone(), keys.contents(), Some(keys.upload_notes().key(note)));
        let tar = Writer::new(upload, tarball::now())?;
        Ok(BackupWriter::new(self.clone(), keys, uid.to_owned(), after + 1, tar))
    }

    /// Removes what was uploaded for this backup and is not completed; the number of the next note.
    ///
    /// Each upload is noted once it has begun. The answer of the store that says what it is called may be lost before
    /// that, so a store that can be asked is asked, too, unless nothing can have begun yet.
    pub(crate) async fn remove_begun(&self, keys: &BackupKeys, fresh: bool) -> Result<u64, StoreError> {
        let mut next = note_number();
        for key in self.list(&keys.private()).await? {
            let Some(number) = keys.upload_notes().number(&key) else { continue };
            next = next.max(number + 1);
            // A note that can't be read was cut off while it was written, on a local disk.
            let note = self.get_small(&key, SMALL).await?.unwrap_or_default();
            if let Ok(Note { key: of, upload }) = serde_json::from_slice(&note)
                && let Ok(of) = Path::parse(&of)
                && of.prefix_matches(keys.folder())
            {
                self.abort_upload(&of, &upload, Some(key)).await;
            }
        }
        if !fresh {
            let contents = keys.contents();
            for upload in self.begun_uploads(&contents).await {
                self.abort_upload(&contents, &upload, None).await;
            }
        }
        Ok(next)
    }

    /// Whether a folder that holds no finished backup is another's: it carries another uid, or none although files are in
    /// it. An empty one is nobody's.
    pub async fn is_anothers(&self, backup: &str, uid: &str) -> Result<bool, StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.list(keys.folder()).await?;
        if found.contains(&keys.owner()) {
            return Ok(self.owner(&keys).await? != uid);
        }
        Ok(!found.is_empty())
    }

    /// Writes the marker (create-only), then looks again: who wrote into the folder meanwhile does not know our marker.
    async fn claim(&self, keys: &BackupKeys, uid: &str) -> Result<(), StoreError> {
        let marker = Bytes::from(format!("{uid}\n"));
        self.put_new(&keys.owner(), marker).await.map_err(|error| match error {
            StoreError::Exists { url, .. } => StoreError::Exists {
                url,
                detail: "another backup of this name has just claimed the folder; choose another name"
                    .to_owned(),
            },
            other => other,
        })?;
        let found = self.list(keys.folder()).await?;
        if let Err(error) = self.refuse_foreign(keys, &found) {
            self.delete(vec![keys.owner()]).await?;
            return Err(error);
        }
        Ok(())
    }

    /// The uid in the marker; empty if there is none.
    pub(crate) async fn owner(&self, keys: &BackupKeys) -> Result<String, StoreError> {
        let marker = self.get_small(&keys.owner(), SMALL).await?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&marker).trim().to_owned())
    }

    /// Before a decision: where a store knows no conditions, two that claimed the folder at the same moment have both been
    /// told that it is theirs, and the marker is of the one who wrote last.
    pub(super) async fn still_ours(&self, keys: &BackupKeys, uid: &str) -> Result<(), StoreError> {
        if self.is_unconditional() { self.check_owner(keys, uid).await } else { Ok(()) }
    }

    async fn check_owner(&self, keys: &BackupKeys, uid: &str) -> Result<(), StoreError> {
        let owner = self.owner(keys).await?;
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

    /// Before a decision nothing of ours is outside of the private folder.
    fn refuse_foreign(&self, keys: &BackupKeys, found: &[Path]) -> Result<(), StoreError> {
        match found.iter().find(|key| !keys.is_private(key)) {
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
