//! What work has to remember beyond the life of a process: that something is about to be done which can't be undone or told
//! afterwards, and what came of it.

use bytes::Bytes;
use serde_json::Value;

use crate::{Location, StoreError, layout::BackupKeys};

/// An entry larger than this is refused (bytes).
const MAX_ENTRY: u64 = 16 * 1024 * 1024;

/// Entries of one backup, each a private key of its own, create-only. From [`Location::journal`].
///
/// They stay until the backup is finished or deleted, also when its items are collected again.
#[derive(Debug)]
pub struct Journal {
    location: Location,
    keys: BackupKeys,
    last: u64,
}

impl Location {
    /// The journal of a backup whose folder is ours ([`Location::open_backup`]), and what is in it, in order.
    ///
    /// Errors: [`StoreError::Corrupt`] for an entry that can't be read.
    pub async fn journal(&self, backup: &str) -> Result<(Journal, Vec<Value>), StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.list(&keys.private()).await?;
        let mut numbers: Vec<u64> = found.iter().filter_map(|key| keys.journal_number(key)).collect();
        numbers.sort_unstable();
        let mut entries = Vec::with_capacity(numbers.len());
        for number in &numbers {
            let key = keys.journal(*number);
            let bytes = self.get_small(&key, MAX_ENTRY).await?.unwrap_or_default();
            entries.push(serde_json::from_slice(&bytes).map_err(|error| StoreError::Corrupt {
                url: self.url_of(&key),
                detail: format!("it is no entry of a journal: {error}"),
            })?);
        }
        let last = numbers.last().copied().unwrap_or_default();
        Ok((Journal { location: self.clone(), keys, last }, entries))
    }
}

impl Journal {
    /// Adds an entry; once this returns, whoever comes next will find it.
    ///
    /// Errors: [`StoreError::Exists`] if another replica has added one meanwhile: work must not go on from what was read.
    pub async fn add(&mut self, entry: &Value) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(entry).map_err(|error| StoreError::io("encode an entry", &error))?;
        self.location.put_new(&self.keys.journal(self.last + 1), Bytes::from(bytes)).await?;
        self.last += 1;
        Ok(())
    }
}
