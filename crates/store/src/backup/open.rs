//! Claims the folder of a backup.

use backup_core::api::Backup;
use object_store::path::Path;

use super::{BackupWriter, PendingBackup, writer::note_number};
use crate::{
    Location, StoreError, crash,
    job::{
        Claimant, MAX_NOTE_BYTES,
        record::{Contents, Record},
    },
    layout::JobKeys,
    tarball::{self, Writer},
    upload::{Note, Upload},
};

impl Location {
    /// Claims the folder of a backup for a Backup object, and starts the contents.
    ///
    /// Parts that an earlier attempt of the same uid has uploaded are removed, as nothing was
    /// decided about them. The folder of a Backup that was abandoned ([`Location::abandon_backup`])
    /// is taken over. Safe to repeat. Errors: [`StoreError::Exists`] if the folder holds a finished
    /// backup (of this uid: adopt it) or a decision about this one (see [`Location::find_job`]),
    /// belongs to another uid, or holds files that we did not write.
    pub async fn open_backup(
        &self,
        backup: &str,
        claimant: &Claimant,
    ) -> Result<BackupWriter, StoreError> {
        let uid = &claimant.uid;
        if uid.is_empty() {
            let message = "has no uid; only an object read from the API server can be stored";
            return Err(StoreError::config(
                "metadata.uid",
                format!("backup {backup:?} {message}"),
            ));
        }
        let keys = self.layout().backup(backup)?;
        let found = self.list(&keys.folder).await?;
        if found.contains(&keys.metadata()) {
            return Err(self.finished(&keys, self.read_metadata(backup).await?.as_ref(), uid));
        }
        let last = keys.records().last(&found);
        let owner = self.claimant_among(&keys, &found).await?;
        let fresh = owner.is_none() && last.is_none() && !keys.upload_notes().has_any(&found);
        match owner {
            None => {
                self.refuse_foreign(&keys, &found)?;
                self.claim(&keys, claimant).await?;
            }
            Some(owner) if owner.uid == *uid => {
                self.refuse_decided(&keys, last, uid).await?;
                self.refuse_foreign(&keys, &found)?;
            }
            Some(owner) => {
                self.take_over(&keys, &found, last, &owner, claimant)
                    .await?;
            }
        }
        crash::point("after-owner-marker");
        self.begin(keys, uid, last.unwrap_or_default(), fresh).await
    }

    /// Refuses to restart a backup that has a record.
    async fn refuse_decided(
        &self,
        keys: &JobKeys,
        last: Option<u64>,
        uid: &str,
    ) -> Result<(), StoreError> {
        let Some(number) = last else { return Ok(()) };
        let record = match self.read_record(keys, number).await {
            Err(error) if error.is_transient() => return Err(error),
            found => found.ok().flatten(),
        };
        // The record of an abandoned backup whose folder this one has taken over.
        if record.as_ref().is_some_and(|record| record.uid != uid) {
            return Ok(());
        }
        let decided = if is_abandonment(record.as_ref()) {
            "this backup was abandoned, as it failed or its deletion was asked for"
        } else {
            "what this backup holds is decided already; it is to be finished, not begun again"
        };
        Err(self.exists(&keys.record(number), decided))
    }

    /// Takes over the folder of an abandoned backup. The record of the abandonment stays, so that a
    /// controller that still works on the old backup can't write its own. Of two that take over at
    /// once, one gets the marker.
    async fn take_over(
        &self,
        keys: &JobKeys,
        found: &[Path],
        last: Option<u64>,
        owner: &Claimant,
        claimant: &Claimant,
    ) -> Result<(), StoreError> {
        if let Some(number) = last
            && is_abandonment(self.read_record(keys, number).await?.as_ref())
        {
            self.refuse_foreign(keys, found)?;
            let marker = keys.later_owners().key(number);
            return self.put_marker(keys, &marker, claimant).await;
        }
        Err(self.is_of_another(keys, &owner.uid, &claimant.uid))
    }

    /// Starts the contents of a folder that is ours. `after` is the number of the last record,
    /// which no longer counts, or 0; `fresh` says that nothing can have been uploaded yet.
    pub(super) async fn begin(
        &self,
        keys: JobKeys,
        uid: &str,
        after: u64,
        fresh: bool,
    ) -> Result<BackupWriter, StoreError> {
        let note = self.remove_begun(&keys, fresh).await?;
        let upload = Upload::new(
            self.clone(),
            keys.contents(),
            Some(keys.upload_notes().key(note)),
        );
        let tar = Writer::new(upload, tarball::now())?;
        Ok(BackupWriter {
            pending: PendingBackup::new(self.clone(), keys, uid.to_owned(), after + 1),
            tar,
        })
    }

    /// Removes what was uploaded for this backup and is not completed; returns the number of the
    /// next note.
    ///
    /// Each upload is noted once it has started. A crash before that can lose the upload's id, so a
    /// store that can list its uploads is asked, too. `fresh`: no upload can have started yet.
    pub(crate) async fn remove_begun(
        &self,
        keys: &JobKeys,
        fresh: bool,
    ) -> Result<u64, StoreError> {
        let mut next = note_number();
        if fresh {
            return Ok(next);
        }
        for key in self.list(&keys.private).await? {
            let Some(number) = keys.upload_notes().number(&key) else {
                continue;
            };
            next = next.max(number + 1);
            // An unreadable note was cut off while it was written, on a local disk.
            let note = self
                .get_small(&key, MAX_NOTE_BYTES)
                .await?
                .unwrap_or_default();
            if let Ok(Note { key: of, upload }) = serde_json::from_slice(&note)
                && let Ok(of) = Path::parse(&of)
                && of.prefix_matches(&keys.folder)
            {
                self.abort_upload(&of, &upload, Some(key)).await;
            }
        }
        let contents = keys.contents();
        for upload in self.begun_uploads(&contents).await {
            self.abort_upload(&contents, &upload, None).await;
        }
        Ok(next)
    }

    /// Whether a folder without a finished backup belongs to another uid: its marker has another
    /// uid, or it has files and no marker. An empty folder belongs to none.
    pub async fn is_anothers(&self, backup: &str, uid: &str) -> Result<bool, StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.list(&keys.folder).await?;
        match self.claimant_among(&keys, &found).await? {
            Some(owner) => Ok(owner.uid != uid),
            None => Ok(!found.is_empty()),
        }
    }

    fn finished(&self, keys: &JobKeys, stored: Option<&Backup>, uid: &str) -> StoreError {
        let detail = match stored {
            Some(stored) if stored.metadata.uid.as_deref() == Some(uid) => {
                format!(
                    "this backup is stored already, as {}; its metadata is what counts",
                    stored.phase()
                )
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

/// Whether a record says that its backup was abandoned.
fn is_abandonment(record: Option<&Record>) -> bool {
    record.is_some_and(|record| matches!(record.contents, Contents::Abandoned))
}
