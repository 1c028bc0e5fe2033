//! State in which all items are done and operations still run.

use std::marker::PhantomData;

use bytes::Bytes;
use object_store::path::Path;
use serde::Deserialize;
use serde_json::Value;

use super::{JobFiles, StoredJob, record::Record};
use crate::{Location, StoreError, layout::JobKeys};

/// Maximum size of the states of operations; larger ones are refused (bytes).
const MAX_OPERATIONS: u64 = 64 * 1024 * 1024;

/// Results that are incomplete until operations have ended. From
/// [`crate::BackupWriter::await_operations`] or [`crate::PendingRestore::await_operations`], or
/// found by [`Location::find_job`].
#[derive(Debug)]
pub struct AwaitingOperations<J: StoredJob> {
    pub(crate) location: Location,
    pub(crate) keys: JobKeys,
    pub(crate) number: u64,
    pub(crate) record: Record,
    pub(crate) files: JobFiles,
    /// Number of the last state of the operations.
    pub(crate) operations: u64,
    pub(crate) of: PhantomData<J>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum State {
    List(Vec<Value>),
    /// Written for restores by versions that stored the time of the state, too.
    Timed {
        operations: Vec<Value>,
    },
}

impl<J: StoredJob> AwaitingOperations<J> {
    /// Builds it from what is in the store. Reads the last state of the operations.
    pub(super) async fn found(
        location: Location,
        keys: JobKeys,
        number: u64,
        record: Record,
        found: &[Path],
    ) -> Result<Self, StoreError> {
        let mut files = JobFiles::read::<J>(&location, &keys, number, &record).await?;
        let operations = keys
            .operations()
            .last(found)
            .unwrap_or_default()
            .max(record.operations_after);
        if operations > record.operations_after {
            let key = keys.operations().key(operations);
            let bytes = location
                .get_small(&key, MAX_OPERATIONS)
                .await?
                .unwrap_or_default();
            let read = serde_json::from_slice(&bytes);
            let (State::List(list) | State::Timed { operations: list }) =
                read.map_err(|error| {
                    location.corrupt(&key, format!("it holds no operations: {error}"))
                })?;
            files.item_operations = list;
        }
        Ok(Self {
            location,
            keys,
            number,
            record,
            files,
            operations,
            of: PhantomData,
        })
    }

    /// All files in their current state; the operations in their last stored state, unless they
    /// were taken.
    pub fn files(&self) -> &JobFiles {
        &self.files
    }

    /// Takes the operations in their last stored state; they are not kept here as well, as there
    /// may be many.
    pub fn take_operations(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.files.item_operations)
    }

    pub fn status(&self) -> &Value {
        &self.record.status
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// What a final key would hold if this were the end, and the private key for this state of it;
    /// `None` for contents and metadata.
    pub(crate) fn file(&self, key: &Path) -> Result<Option<(Path, Bytes)>, StoreError> {
        let files = self.files.encode::<J>(&self.keys)?;
        let snapshot = self.keys.file_snapshot(self.number, self.operations, key);
        Ok(files
            .into_iter()
            .find_map(|(of, bytes)| (of == *key).then_some((snapshot.clone(), bytes))))
    }

    /// Stores a new state of the operations, under a new private key.
    ///
    /// Errors: [`StoreError::Exists`] if another replica has stored another state meanwhile: look
    /// again.
    pub async fn store_operations(&mut self, operations: &[Value]) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(operations)
            .map_err(|error| StoreError::io("encode operations", &error))?;
        let next = self.operations + 1;
        self.location
            .put_new(&self.keys.operations().key(next), Bytes::from(bytes))
            .await?;
        self.operations = next;
        Ok(())
    }
}
