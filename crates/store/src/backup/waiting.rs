//! A backup whose items are collected, and whose operations go on.

use bytes::Bytes;
use object_store::path::Path;
use serde_json::Value;

use super::{
    BackupFiles, BackupWriter,
    claim::note_number,
    record::{Contents, Record},
};
use crate::{
    Location, StoreError,
    layout::BackupKeys,
    tarball::{self, Writer},
    upload::Upload,
};

/// States of operations larger than this are refused (bytes).
const MAX_OPERATIONS: u64 = 64 * 1024 * 1024;

/// A backup that waits for operations. From [`BackupWriter::wait`], or found by [`Location::find_backup`].
#[derive(Debug)]
pub struct Waiting {
    location: Location,
    keys: BackupKeys,
    number: u64,
    record: Record,
    files: BackupFiles,
    /// Number of the last state of the operations.
    operations: u64,
}

impl Waiting {
    pub(super) fn new(
        location: Location,
        keys: BackupKeys,
        number: u64,
        record: Record,
        files: BackupFiles,
    ) -> Self {
        Self { location, keys, number, record, files, operations: 0 }
    }

    /// What was found in the store. Reads the last state of the operations.
    pub(super) async fn found(
        location: Location,
        keys: BackupKeys,
        number: u64,
        record: Record,
    ) -> Result<Self, StoreError> {
        let files = BackupFiles::decode(&keys, &|key| record.file(key)).map_err(|detail| {
            StoreError::Corrupt { url: location.url_of(&keys.records().key(number)), detail }
        })?;
        let found = location.list(&keys.private()).await?;
        let last = keys.operations().last(&found).unwrap_or_default();
        let mut waiting = Self::new(location, keys, number, record, files);
        if last > 0 {
            let key = waiting.keys.operations().key(last);
            let bytes = waiting.location.get_small(&key, MAX_OPERATIONS).await?.unwrap_or_default();
            waiting.files.item_operations =
                serde_json::from_slice(&bytes).map_err(|error| StoreError::Corrupt {
                    url: waiting.location.url_of(&key),
                    detail: format!("it holds no operations: {error}"),
                })?;
            waiting.operations = last;
        }
        Ok(waiting)
    }

    /// All files as they are so far; the operations in their last state that was kept, unless they were taken.
    pub fn files(&self) -> &BackupFiles {
        &self.files
    }

    /// The operations in their last state that was kept; not held here any longer, as there may be many.
    pub fn take_operations(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.files.item_operations)
    }

    /// What the status says of the collection.
    pub fn status(&self) -> &Value {
        &self.record.status
    }

    /// Number of the record.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What a final key would hold if this were the end, and the private key that this state of it belongs under; none for
    /// contents and metadata.
    pub(crate) fn file(&self, key: &Path) -> Result<Option<(Path, Bytes)>, StoreError> {
        let files = self.files.encode(&self.keys)?;
        let so_far = self.keys.file_snapshot(self.number, self.operations, key);
        Ok(files.into_iter().find_map(|(of, bytes)| (of == *key).then_some((so_far.clone(), bytes))))
    }

    /// Keeps a new state of the operations, under a new private key.
    ///
    /// Errors: [`StoreError::Exists`] if another replica has kept another one meanwhile: look again.
    pub async fn keep_operations(&mut self, operations: &[Value]) -> Result<(), StoreError> {
        let bytes =
            serde_json::to_vec(operations).map_err(|error| StoreError::io("encode operations", &error))?;
        let next = self.operations + 1;
        self.location.put_new(&self.keys.operations().key(next), Bytes::from(bytes)).await?;
        self.operations = next;
        Ok(())
    }

    /// Goes on with the contents: items may be added and replaced, then [`BackupWriter::finish`]. With the files as they
    /// are so far, without operations that were taken. The record stays until the next one is written, so this can be done again after a crash.
    ///
    /// [`StoreError::Lost`] is told later, when the contents are published, if a lifecycle rule has removed what was
    /// uploaded.
    pub fn resume(self) -> Result<(BackupWriter, BackupFiles), StoreError> {
        let Contents::Open { parts, tail, total } = self.record.contents else {
            return Err(StoreError::Corrupt {
                url: self.location.url_of(&self.keys.records().key(self.number)),
                detail: "it is a decision, not a backup that waits".to_owned(),
            });
        };
        let mut upload = Upload::resume(self.location.clone(), self.keys.contents(), parts, &tail);
        // Only used if nothing was uploaded before.
        upload.note_at(self.keys.upload_notes().key(note_number()));
        let tar = Writer::resume(upload, tarball::now(), total);
        let writer = BackupWriter::new(self.location, self.keys, self.record.uid, self.number + 1, tar);
        Ok((writer, self.files))
    }

    /// Begins again: what was collected counts no more.
    pub async fn begin_again(self) -> Result<BackupWriter, StoreError> {
        self.location.begin(self.keys, &self.record.uid, self.number, false).await
    }
}
