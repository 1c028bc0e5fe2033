//! Journal for what must survive the process: that a step is about to be done which cannot be
//! undone or detected afterwards, and its outcome.

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StoredJob;
use crate::{Location, StoreError, layout::NumberedKeys};

/// Maximum size of a key; larger ones are refused (bytes).
const MAX_KEY: u64 = 16 * 1024 * 1024;
/// Number of keys read concurrently.
const MAX_CONCURRENT_READS: usize = 16;

/// Entries of one backup or restore, in private keys that are create-only. From
/// [`Location::journal`].
///
/// A key holds one entry, or an array of entries that were added together. They stay until the job
/// is finished or deleted, also when its items are processed again.
#[derive(Debug)]
pub struct Journal {
    location: Location,
    keys: NumberedKeys,
    last: u64,
}

/// Position of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPosition {
    /// The number of its key.
    pub key: u64,
    /// Its index among the entries of that key.
    pub index: usize,
}

impl Location {
    /// Opens the journal of the object of this name and uid, and returns its entries in order. A
    /// backup has one journal for all uids: the caller must have claimed its folder. `slim` removes
    /// from each entry, by its position, what should not be held in memory; [`Journal::entry`]
    /// returns the whole entry.
    ///
    /// Errors: [`StoreError::Corrupt`] for an entry that cannot be read.
    pub async fn journal<J: StoredJob>(
        &self,
        name: &str,
        uid: &str,
        slim: fn(EntryPosition, &mut Value),
    ) -> Result<(Journal, Vec<Value>), StoreError> {
        let mut journal = self.new_journal::<J>(name, uid)?;
        let numbers = self.numbers(&journal.keys).await?;
        journal.last = numbers.last().copied().unwrap_or_default();
        let keys = stream::iter(numbers)
            .map(|key| journal.slim_entries(key, slim))
            .buffered(MAX_CONCURRENT_READS);
        let entries: Vec<Vec<Value>> = keys.try_collect::<Vec<_>>().await?;
        Ok((journal, entries.into_iter().flatten().collect()))
    }

    /// The journal of an object that no process has worked on before: there is nothing to read.
    pub fn new_journal<J: StoredJob>(&self, name: &str, uid: &str) -> Result<Journal, StoreError> {
        let keys = J::keys(self.layout(), name, uid)?.journal();
        Ok(Journal {
            location: self.clone(),
            keys,
            last: 0,
        })
    }

    /// The existing numbers, sorted.
    pub(crate) async fn numbers(&self, keys: &NumberedKeys) -> Result<Vec<u64>, StoreError> {
        let found = self.list(&keys.folder).await?;
        let mut numbers: Vec<u64> = found.iter().filter_map(|key| keys.number(key)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

impl Journal {
    /// Reads one entry as it was written. Errors: as of [`Location::journal`].
    pub async fn entry(&self, position: EntryPosition) -> Result<Value, StoreError> {
        let EntryPosition { key, index } = position;
        let entry = self.entries(key).await?.into_iter().nth(index);
        entry.ok_or_else(|| {
            self.location.corrupt(
                &self.keys.key(key),
                format!("it has no entry of index {index}"),
            )
        })
    }

    /// The entries of one key, after `slim`.
    async fn slim_entries(
        &self,
        key: u64,
        slim: fn(EntryPosition, &mut Value),
    ) -> Result<Vec<Value>, StoreError> {
        let mut entries = self.entries(key).await?;
        for (index, entry) in entries.iter_mut().enumerate() {
            slim(EntryPosition { key, index }, entry);
        }
        Ok(entries)
    }

    async fn entries(&self, key: u64) -> Result<Vec<Value>, StoreError> {
        let key = self.keys.key(key);
        let bytes = self
            .location
            .get_small(&key, MAX_KEY)
            .await?
            .unwrap_or_default();
        match serde_json::from_slice(&bytes) {
            Ok(Value::Array(entries)) => Ok(entries),
            Ok(entry) => Ok(vec![entry]),
            Err(error) => Err(self
                .location
                .corrupt(&key, format!("it is no entry of a journal: {error}"))),
        }
    }

    /// Adds entries in one write; once this returns, the next process finds them.
    ///
    /// Errors: [`StoreError::Exists`] if another replica has added entries meanwhile: do not
    /// continue from what was read.
    pub async fn add(&mut self, entries: &[impl Serialize]) -> Result<(), StoreError> {
        let encoded = match entries {
            [entry] => serde_json::to_vec(entry),
            entries => serde_json::to_vec(entries),
        };
        let bytes = encoded.map_err(|error| StoreError::io("encode entries", &error))?;
        self.location
            .put_new(&self.keys.key(self.last + 1), Bytes::from(bytes))
            .await?;
        self.last += 1;
        Ok(())
    }

    /// Finds the position for the next entries: after all that another replica has added.
    pub async fn look_again(&mut self) -> Result<(), StoreError> {
        self.last = self
            .location
            .numbers(&self.keys)
            .await?
            .last()
            .copied()
            .unwrap_or_default();
        Ok(())
    }
}
