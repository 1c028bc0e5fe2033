//! What is stored of a backup.

use backup_core::api::Backup;

use super::{
    Decided, Waiting,
    record::{Contents, MAX_RECORD, Record},
};
use crate::{Location, StoreError};

/// What the store holds under the name of a backup.
#[derive(Debug)]
pub enum Found {
    /// Neither metadata nor a record of this uid: nothing was decided.
    Nothing,
    /// Metadata, of this or another uid: a finished backup.
    Stored(Box<Backup>),
    /// A record of this uid says what its end will be.
    Decided(Box<Decided>),
    /// A record of this uid holds what was collected, and its operations went on.
    Waiting(Box<Waiting>),
}

impl Location {
    /// Looks for a backup of this name: metadata, else the last record of this uid.
    ///
    /// Errors: [`StoreError::Corrupt`] for metadata or a record that can't be used.
    pub async fn find_backup(&self, backup: &str, uid: &str) -> Result<Found, StoreError> {
        // Metadata that a plugin was broken off in the middle of is written again by whoever has the record.
        let broken = match self.read_metadata(backup).await {
            Ok(Some(stored)) => return Ok(Found::Stored(Box::new(stored))),
            Ok(None) => None,
            Err(error @ StoreError::Corrupt { .. }) if self.plugin().is_some() => Some(error),
            Err(error) => return Err(error),
        };
        let keys = self.layout().backup(backup)?;
        let found = self.list(&keys.private()).await?;
        let Some(number) = keys.records().last(&found) else {
            return broken.map_or(Ok(Found::Nothing), Err);
        };
        let key = keys.records().key(number);
        let corrupt = |detail: String| StoreError::Corrupt { url: self.url_of(&key), detail };
        let Some(bytes) = self.get_small(&key, MAX_RECORD).await? else {
            // Another replica has just finished it, and tidied up.
            let stored = self.read_metadata(backup).await?;
            return Ok(stored.map_or(Found::Nothing, |stored| Found::Stored(Box::new(stored))));
        };
        let record = Record::decode(&bytes, keys.folder()).map_err(corrupt)?;
        if record.uid != uid {
            return broken.map_or(Ok(Found::Nothing), Err); // the folder is another's; opening it says whose
        }
        if matches!(record.contents, Contents::Open { .. }) {
            let waiting = Waiting::found(self.clone(), keys, number, record).await?;
            return Ok(Found::Waiting(Box::new(waiting)));
        }
        let metadata = record.file(&keys.metadata()).unwrap_or_default();
        let metadata: Backup = serde_json::from_slice(&metadata)
            .map_err(|error| corrupt(format!("the Backup in it can not be read: {error}")))?;
        Ok(Found::Decided(Box::new(Decided::new(self.clone(), keys, number, record, metadata))))
    }
}
