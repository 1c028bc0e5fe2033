//! The first step: items.

use super::{
    BackupFiles, Collected, Waiting,
    record::{Contents, Record},
};
use crate::{
    Location, StoreError, crash,
    layout::BackupKeys,
    tarball::{ItemPath, Writer},
};
use serde_json::Value;

/// Takes the items of a backup. From [`Location::open_backup`].
#[derive(Debug)]
pub struct BackupWriter {
    location: Location,
    keys: BackupKeys,
    uid: String,
    /// Number of the record that comes next.
    record: u64,
    tar: Writer,
}

impl BackupWriter {
    pub(super) fn new(location: Location, keys: BackupKeys, uid: String, record: u64, tar: Writer) -> Self {
        Self { location, keys, uid, record, tar }
    }

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
    pub async fn finish(self) -> Result<Collected, StoreError> {
        let contents = self.tar.finish().await?;
        Ok(Collected::new(self.location, self.keys, self.uid, self.record, contents))
    }

    /// Keeps what was collected until operations have ended: a record (create-only) says what is uploaded and holds the
    /// rest, with all files as they are so far, and with what the status says of the collection (JSON, as it is there). Any
    /// process can go on from there.
    ///
    /// Errors: as for [`Self::item`]; [`StoreError::Exists`] if another replica has decided something else. Whether it is
    /// recorded is not known after an error: look again ([`Location::find_backup`]).
    pub async fn wait(self, files: BackupFiles, status: Value) -> Result<Waiting, StoreError> {
        let (parts, tail, total) = self.tar.pause().await?;
        let record = Record {
            uid: self.uid,
            contents: Contents::Open { parts, tail, total },
            status,
            files: files.encode(&self.keys)?,
        };
        self.location.still_ours(&self.keys, &record.uid).await?;
        self.location.put_new(&self.keys.records().key(self.record), record.encode()?).await?;
        Ok(Waiting::new(self.location, self.keys, self.record, record, files))
    }

    /// Gives up: removes what was sent. The claim on the folder stays, for the next try of the same uid.
    pub async fn abort(self) {
        self.tar.abort().await;
    }
}
