//! The first step: items.

use std::marker::PhantomData;

use super::{AwaitingBackup, PendingBackup, open::note_number};
use crate::{
    StoreError, crash,
    job::{
        JobFiles,
        record::{Contents, Record, held},
    },
    tarball::{self, ItemPath, Writer},
    upload::Upload,
};
use backup_core::api::Backup;
use serde_json::Value;

/// Takes the items of a backup. From [`crate::Location::open_backup`].
#[derive(Debug)]
pub struct BackupWriter {
    /// What is to become of it; its contents are in `tar`.
    pub(super) pending: PendingBackup,
    pub(super) tar: Writer,
}

impl BackupWriter {
    /// Adds an item; `json` is the whole object, compact. Waits while the store is slower than the caller; holds a few MiB,
    /// whatever is added. An item that was added before is replaced: of two entries with one path every reader takes
    /// the last one.
    ///
    /// Errors: [`StoreError::is_item`] concerns this item only. After any other one (a part could not be uploaded; told
    /// by the first call after it is known) the archive is lost, what was sent is removed, and the backup must be opened
    /// again. Dropping the returned future half way also ends the archive.
    pub async fn item(&mut self, item: &ItemPath<'_>, json: &[u8]) -> Result<(), StoreError> {
        crash::point("mid-collection");
        self.tar.item(item, json).await
    }

    /// Ends the archive. All of it is in the store or in hand then, and nothing is visible.
    ///
    /// Errors: as for [`Self::item`].
    pub async fn finish(self) -> Result<PendingBackup, StoreError> {
        Ok(PendingBackup { contents: Some(self.tar.finish().await?), ..self.pending })
    }

    /// Keeps what was collected until operations have ended: a record (create-only) says what is uploaded and holds the
    /// rest, with all files as they are so far, and with what the status says of the collection (JSON, as it is there). Any
    /// process can go on from there.
    ///
    /// Errors: as for [`Self::item`]; [`StoreError::Exists`] if another replica has decided something else. Whether it is
    /// recorded is not known after an error: look again ([`crate::Location::find_job`]).
    pub async fn await_operations(
        self,
        files: JobFiles,
        status: Value,
    ) -> Result<AwaitingBackup, StoreError> {
        let PendingBackup { location, keys, uid, record: number, .. } = self.pending;
        let contents = self.tar.pause().await?;
        let before = location.numbers(&keys.operations()).await?;
        let operations = before.last().copied().unwrap_or_default();
        let files_so_far = held(files.encode::<Backup>(&keys)?);
        let record = Record { uid, contents, status, operations_after: operations, files: files_so_far };
        location.put_record(&keys, number, &record).await?;
        Ok(AwaitingBackup { location, keys, number, record, files, operations, of: PhantomData })
    }

    /// Gives up: removes what was sent. The claim on the folder stays, for the next try of the same uid.
    pub async fn abort(self) {
        self.tar.abort().await;
    }
}

impl AwaitingBackup {
    /// Goes on with the contents: items may be added and replaced, then [`BackupWriter::finish`]. With the files as they
    /// are so far, without operations that were taken. The record stays until the next one is written, so this can be done
    /// again after a crash.
    ///
    /// [`StoreError::Lost`] is told later, when the contents are published, if a lifecycle rule has removed what was
    /// uploaded.
    pub fn resume(self) -> Result<(BackupWriter, JobFiles), StoreError> {
        let Contents::Open { parts, tail, total } = self.record.contents else {
            let record = self.keys.record(self.number);
            return Err(self.location.corrupt(&record, "it is a decision, not a backup that waits"));
        };
        // Only used if nothing was uploaded before.
        let note = self.keys.upload_notes().key(note_number());
        let upload = Upload::new(self.location.clone(), self.keys.contents(), Some(note));
        let tar = Writer::resume(upload.resume(parts, &tail), tarball::now(), total);
        let Self { location, keys, record: Record { uid, .. }, number, files, .. } = self;
        Ok((BackupWriter { pending: PendingBackup::new(location, keys, uid, number + 1), tar }, files))
    }

    /// Begins again: what was collected counts no more.
    pub async fn begin_again(self) -> Result<BackupWriter, StoreError> {
        self.location.begin(self.keys, &self.record.uid, self.number, false).await
    }
}

impl PendingBackup {
    /// Gives up before anything was committed: removes what was uploaded. Best effort.
    pub async fn discard(self) {
        if let Err(error) = self.location.remove_begun(&self.keys, false).await {
            tracing::debug!(backup = &self.keys.name, %error, "parts of a backup that was given up stay");
        }
    }
}
