//! The first step: items.

use super::ContentsDone;
use crate::{
    Location, StoreError,
    layout::BackupKeys,
    tarball::{ItemPath, Writer},
    upload::Written,
};

/// Takes the items of a backup. From [`Location::open_backup`].
#[derive(Debug)]
pub struct BackupWriter {
    location: Location,
    keys: BackupKeys,
    uid: String,
    written: Written,
    tar: Writer,
}

impl BackupWriter {
    pub(super) fn new(
        location: Location,
        keys: BackupKeys,
        uid: String,
        written: Written,
        tar: Writer,
    ) -> Self {
        Self { location, keys, uid, written, tar }
    }

    /// Adds an item; `json` is the whole object, compact. Waits while the store is slower than the caller; holds a few MiB,
    /// whatever is added.
    ///
    /// Errors: [`StoreError::is_item`] concerns this item only. After any other one (a part could not be uploaded; told
    /// by the first call after it is known) the archive is lost, what was sent is removed, and the backup must be opened
    /// again. Dropping the returned future half way also ends the archive.
    pub async fn item(&mut self, item: &ItemPath<'_>, json: &[u8]) -> Result<(), StoreError> {
        self.tar.item(item, json).await
    }

    /// Ends the archive and publishes it under its final name, once.
    ///
    /// Errors: as for [`Self::item`]; [`StoreError::Exists`] if the key has been taken meanwhile.
    pub async fn finish_contents(self) -> Result<ContentsDone, StoreError> {
        let bytes = self.tar.finish(&self.written).await?;
        Ok(ContentsDone::new(self.location, self.keys, self.uid, self.written, bytes))
    }

    /// Gives up: removes what was sent. The claim on the folder stays, for the next try of the same uid.
    pub async fn abort(self) {
        self.tar.abort().await;
    }
}
