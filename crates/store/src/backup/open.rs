//! Whose a backup's folder is.

use backup_core::api::Backup;
use jiff::Timestamp;
use object_store::path::Path;

use super::{BackupWriter, PendingBackup};
use crate::{
    Location, StoreError, crash,
    job::{Claimant, SMALL},
    layout::JobKeys,
    tarball::{self, Writer},
    upload::{Note, Upload},
};

/// A number that no note had: some stores do not take a key again that was deleted (in a bucket with versions).
pub(super) fn note_number() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default()
}

impl Location {
    /// Claims the folder of a backup for the Backup object with this uid, and begins the contents.
    ///
    /// Parts that an earlier try of the same uid has uploaded are removed, as nothing was decided about them. Safe to
    /// repeat. Errors: [`StoreError::Exists`] if the folder holds a finished backup (of this uid: adopt it) or a decision
    /// about this one (see [`Location::find_job`]), belongs to another uid, or holds files that we did not write.
    pub async fn open_backup(&self, backup: &str, uid: &str) -> Result<BackupWriter, StoreError> {
        if uid.is_empty() {
            let message = "has no uid; only an object read from the API server can be stored";
            return Err(StoreError::config("metadata.uid", format!("backup {backup:?} {message}")));
        }
        let keys = self.layout().backup(backup)?;
        let found = self.list(&keys.folder).await?;
        if found.contains(&keys.metadata()) {
            return Err(self.finished(&keys, self.read_metadata(backup).await?.as_ref(), uid));
        }
        let fresh = !found.contains(&keys.owner());
        if fresh {
            self.refuse_foreign(&keys, &found)?;
            self.claim(&keys, &Claimant { uid: uid.to_owned(), ..Claimant::default() }).await?;
        } else {
            self.check_owner(&keys, uid).await?;
            if let Some(number) = keys.records().last(&found) {
                let decided =
                    "what this backup holds is decided already; it is to be finished, not begun again";
                return Err(self.exists(&keys.records().key(number), decided));
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
        keys: JobKeys,
        uid: &str,
        after: u64,
        fresh: bool,
    ) -> Result<BackupWriter, StoreError> {
        let note = self.remove_begun(&keys, fresh).await?;
        let upload = Upload::new(self.clone(), keys.contents(), Some(keys.upload_notes().key(note)));
        let tar = Writer::new(upload, tarball::now())?;
        Ok(BackupWriter { pending: PendingBackup::new(self.clone(), keys, uid.to_owned(), after + 1), tar })
    }

    /// Removes what was uploaded for this backup and is not completed; the number of the next note.
    ///
    /// Each upload is noted once it has begun. The answer of the store that says what it is called may be lost before
    /// that, so a store that can be asked is asked, too, unless nothing can have begun yet.
    pub(crate) async fn remove_begun(&self, keys: &JobKeys, fresh: bool) -> Result<u64, StoreError> {
        let mut next = note_number();
        for key in self.list(&keys.private).await? {
            let Some(number) = keys.upload_notes().number(&key) else { continue };
            next = next.max(number + 1);
            // A note that cannot be read was cut off while it was written, on a local disk.
            let note = self.get_small(&key, SMALL).await?.unwrap_or_default();
            if let Ok(Note { key: of, upload }) = serde_json::from_slice(&note)
                && let Ok(of) = Path::parse(&of)
                && of.prefix_matches(&keys.folder)
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
        let found = self.list(&keys.folder).await?;
        if found.contains(&keys.owner()) {
            return Ok(self.owner(&keys).await? != uid);
        }
        Ok(!found.is_empty())
    }

    fn finished(&self, keys: &JobKeys, stored: Option<&Backup>, uid: &str) -> StoreError {
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
        self.exists(&keys.folder, detail)
    }
}
