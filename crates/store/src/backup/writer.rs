//! The first step: collecting items.

use std::marker::PhantomData;

use super::{AwaitingBackup, PendingBackup};
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
use jiff::Timestamp;
use serde_json::Value;

/// Takes the items of a backup. From [`crate::Location::open_backup`].
#[derive(Debug)]
pub struct BackupWriter {
    /// The upload without its contents, which are in `tar`.
    pub(super) pending: PendingBackup,
    pub(super) tar: Writer,
}

impl BackupWriter {
    /// Adds an item; `json` is the whole object, compact. Waits while the store is slower than the
    /// caller; holds a few MiB, whatever is added. An item that was added before is replaced: of
    /// two entries with one path every reader takes the last one.
    ///
    /// Errors: [`StoreError::is_item`] concerns this item only. After any other error (a part could
    /// not be uploaded; reported by the next call) the archive is lost, its uploaded parts are
    /// removed, and the backup must be opened again. Dropping the returned future half way also
    /// ends the archive.
    pub async fn item(&mut self, item: &ItemPath<'_>, json: &[u8]) -> Result<(), StoreError> {
        crash::point("mid-collection");
        self.tar.item(item, json).await
    }

    /// Ends the archive. All of it is in the store or in memory then, and nothing is visible.
    ///
    /// Errors: as for [`Self::item`].
    pub async fn finish(self) -> Result<PendingBackup, StoreError> {
        Ok(PendingBackup {
            contents: Some(self.tar.finish().await?),
            ..self.pending
        })
    }

    /// Keeps what was collected until operations have ended: a record (create-only) says what is
    /// uploaded and holds the rest, with the current state of all files, and with the status of the
    /// collection (JSON, unchanged). Any process can resume from it.
    ///
    /// Errors: as for [`Self::item`]; [`StoreError::Exists`] if another replica has decided
    /// something else. After an error it is unknown whether the record was written: look again
    /// ([`crate::Location::find_job`]).
    pub async fn await_operations(
        self,
        files: JobFiles,
        status: Value,
    ) -> Result<AwaitingBackup, StoreError> {
        let PendingBackup {
            location,
            keys,
            uid,
            record: number,
            ..
        } = self.pending;
        let contents = self.tar.pause().await?;
        let before = location.numbers(&keys.operations()).await?;
        let operations = before.last().copied().unwrap_or_default();
        let files_so_far = held(files.encode::<Backup>(&keys)?);
        let record = Record {
            uid,
            contents,
            status,
            operations_after: operations,
            files: files_so_far,
        };
        location.put_record(&keys, number, &record).await?;
        Ok(AwaitingBackup {
            location,
            keys,
            number,
            record,
            files,
            operations,
            of: PhantomData,
        })
    }

    /// Discards what was sent. The claim on the folder stays, for the next attempt of the same uid.
    pub async fn abort(self) {
        self.tar.abort().await;
    }
}

impl AwaitingBackup {
    /// Resumes the contents: items may be added and replaced, then [`BackupWriter::finish`]. Also
    /// returns the files in their current state, without operations that were taken. The record
    /// stays until the next one is written, so this can be repeated after a crash.
    ///
    /// If a lifecycle rule has removed uploaded parts, [`StoreError::Lost`] is returned later, when
    /// the contents are published.
    pub fn resume(self) -> Result<(BackupWriter, JobFiles), StoreError> {
        let Contents::Open { parts, tail, total } = self.record.contents else {
            let record = self.keys.record(self.number);
            return Err(self
                .location
                .corrupt(&record, "it is a decision, not a backup that waits"));
        };
        // Only used if nothing was uploaded before.
        let note = self.keys.upload_notes().key(note_number());
        let upload = Upload::new(self.location.clone(), self.keys.contents(), Some(note));
        let tar = Writer::resume(upload.resume(parts, &tail), tarball::now(), total);
        let Self {
            location,
            keys,
            record: Record { uid, .. },
            number,
            files,
            ..
        } = self;
        Ok((
            BackupWriter {
                pending: PendingBackup::new(location, keys, uid, number + 1),
                tar,
            },
            files,
        ))
    }

    /// Starts again: the collected items are discarded.
    pub async fn begin_again(self) -> Result<BackupWriter, StoreError> {
        self.location
            .begin(self.keys, &self.record.uid, self.number, false)
            .await
    }
}

impl PendingBackup {
    /// Discards a backup before anything was committed: removes what was uploaded. Best effort.
    pub async fn discard(self) {
        if let Err(error) = self.location.remove_begun(&self.keys, false).await {
            tracing::debug!(backup = &self.keys.name, %error, "parts of a backup that was given up stay");
        }
    }
}

/// A number that no earlier note had: some stores (buckets with versions) refuse a key that was
/// deleted before.
pub(crate) fn note_number() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default()
}
