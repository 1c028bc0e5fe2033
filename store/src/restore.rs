//! Files of a restore.

use std::borrow::Borrow;

use bytes::Bytes;
use object_store::path::Path;
use serde_json::Value;

use crate::{Location, LogFile, ResourceList, Results, StoreError, gzip};

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
