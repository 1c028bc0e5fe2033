//! Files of a restore.

mod waiting;

use std::borrow::Borrow;

use bytes::Bytes;
use object_store::path::Path;
use serde_json::Value;

use crate::{
    Location, LogFile, ResourceList, Results, StoreError,
    gzip::{self, file, parse},
    layout::RestoreKeys,
};

pub use waiting::WaitingRestore;

/// Everything that a restore leaves in the store.
#[derive(Debug)]
pub struct RestoreFiles {
    /// The log.
    pub log: LogFile,
    /// Warnings and errors. The counts in the Restore's status must be those of these lists.
    pub results: Results,
    /// Names of the items, each with what was done.
    pub resource_list: ResourceList,
    /// Asynchronous operations of plugins.
    pub item_operations: Vec<Value>,
    /// How each volume was restored.
    pub volume_info: Vec<Value>,
}

impl RestoreFiles {
    /// Each final key with the bytes that it would have now; the same bytes each time.
    fn encode(&self, keys: &RestoreKeys) -> Result<Vec<(Path, Bytes)>, StoreError> {
        let log = self.log.bytes().map_err(|error| StoreError::io("read the log from local disk", &error))?;
        Ok(vec![
            (keys.log(), log),
            file(keys.resource_list(), &self.resource_list)?,
            file(keys.item_operations(), &self.item_operations)?,
            file(keys.volume_info(), &self.volume_info)?,
            file(keys.results(), &self.results)?,
        ])
    }

    /// Back from what [`Self::encode`] gave. Errors: a file is missing or not what it should be.
    fn decode(keys: &RestoreKeys, bytes_of: &dyn Fn(&Path) -> Option<Bytes>) -> Result<Self, String> {
        Ok(Self {
            log: LogFile::read(&keys.log(), bytes_of)?,
            results: parse(&keys.results(), bytes_of)?,
            resource_list: parse(&keys.resource_list(), bytes_of)?,
            item_operations: parse(&keys.item_operations(), bytes_of)?,
            volume_info: parse(&keys.volume_info(), bytes_of)?,
        })
    }
}

impl Location {
    /// Writes the files of a restore, each once. Takes them by value, or by reference to be able to try again.
    ///
    /// Safe to repeat with the same files. Errors: [`StoreError::Exists`] if a key holds other bytes: an earlier restore of
    /// this name, in this cluster or another one that uses the bucket ([`Location::delete_restore`] removes them).
    pub async fn put_restore_files(
        &self,
        restore: &str,
        files: impl Borrow<RestoreFiles> + Send + Sync,
    ) -> Result<(), StoreError> {
        let files = files.borrow();
        let keys = self.layout().restore(restore)?;
        self.put_log(&keys.log(), &files.log).await?;
        self.put_json(&keys.resource_list(), &files.resource_list).await?;
        self.put_json(&keys.item_operations(), &files.item_operations).await?;
        self.put_json(&keys.volume_info(), &files.volume_info).await?;
        // Last: Velero's command line asks for this one, so once it is there, all is there.
        self.put_json(&keys.results(), &files.results).await
    }

    /// A JSON document in gzip, written once.
    async fn put_json<T: serde::Serialize + Sync>(&self, key: &Path, value: &T) -> Result<(), StoreError> {
        self.put_new(key, Bytes::from(gzip::json(key.filename().unwrap_or_default(), value)?)).await
    }
}
