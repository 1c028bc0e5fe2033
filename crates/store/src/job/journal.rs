//! What work has to remember beyond the life of a process: that something is about to be done which cannot be undone or told
//! afterwards, and what came of it.

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use super::StoredJob;
use crate::{Location, StoreError, layout::Numbered};

/// An entry larger than this is refused (bytes).
const MAX_ENTRY: u64 = 16 * 1024 * 1024;
/// Entries that are read at the same time.
const READ_AT_ONCE: usize = 16;

/// Entries of one backup or restore, each a private key of its own, create-only. From [`Location::journal`].
///
/// They stay until it is finished or deleted, also when its items are gone through again.
#[derive(Debug)]
pub struct Journal {
    location: Location,
    keys: Numbered,
    last: u64,
}

impl Location {
    /// The journal of the object of this name and uid, and what is in it, in order. That of a backup is one for all uids:
    /// its folder is to be ours. `slim` takes out of each entry, by its number, what is not to be held in memory;
    /// [`Journal::entry`] has all of it.
    ///
    /// Errors: [`StoreError::Corrupt`] for an entry that cannot be read.
    pub async fn journal<J: StoredJob>(
        &self,
        name: &str,
        uid: &str,
        slim: fn(u64, &mut Value),
    ) -> Result<(Journal, Vec<Value>), StoreError> {
        let mut journal = self.new_journal::<J>(name, uid)?;
        let numbers = self.numbers(&journal.keys).await?;
        journal.last = numbers.last().copied().unwrap_or_default();
        let read = async |number: u64| {
            let mut entry = journal.entry(number).await?;
            slim(number, &mut entry);
            Ok(entry)
        };
        let entries = stream::iter(numbers).map(read).buffered(READ_AT_ONCE).try_collect().await?;
        Ok((journal, entries))
    }

    /// The journal of an object that nobody has worked on before: there is nothing to read.
    pub fn new_journal<J: StoredJob>(&self, name: &str, uid: &str) -> Result<Journal, StoreError> {
        let keys = J::keys(self.layout(), name, uid)?.journal();
        Ok(Journal { location: self.clone(), keys, last: 0 })
    }

    /// The numbers that are there, sorted.
    pub(crate) async fn numbers(&self, keys: &Numbered) -> Result<Vec<u64>, StoreError> {
        let found = self.list(&keys.folder).await?;
        let mut numbers: Vec<u64> = found.iter().filter_map(|key| keys.number(key)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

impl Journal {
    /// One entry as it was written. Errors: as of [`Location::journal`].
    pub async fn entry(&self, number: u64) -> Result<Value, StoreError> {
        let key = self.keys.key(number);
        let bytes = self.location.get_small(&key, MAX_ENTRY).await?.unwrap_or_default();
        serde_json::from_slice(&bytes)
            .map_err(|error| self.location.corrupt(&key, format!("it is no entry of a journal: {error}")))
    }

    /// Adds an entry; once this returns, the next process finds it.
    ///
    /// Errors: [`StoreError::Exists`] if another replica has added one meanwhile: work must not go on from what was read.
    pub async fn add(&mut self, entry: &Value) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(entry).map_err(|error| StoreError::io("encode an entry", &error))?;
        self.location.put_new(&self.keys.key(self.last + 1), Bytes::from(bytes)).await?;
        self.last += 1;
        Ok(())
    }

    /// Looks where the next entry goes: after whatever another replica has added.
    pub async fn look_again(&mut self) -> Result<(), StoreError> {
        self.last = self.location.numbers(&self.keys).await?.last().copied().unwrap_or_default();
        Ok(())
    }
}
