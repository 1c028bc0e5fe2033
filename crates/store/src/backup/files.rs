//! The files beside contents and metadata, as bytes.

use bytes::Bytes;
use object_store::path::Path;
use serde_json::Value;

use crate::{
    LogFile, ResourceList, Results, StoreError,
    gzip::{file, parse},
    layout::BackupKeys,
};

/// Everything of a backup but contents and metadata. All files are always written, empty lists too: Velero's command line
/// takes a missing file for an older format.
#[derive(Debug)]
pub struct BackupFiles {
    /// The log.
    pub log: LogFile,
    /// Warnings and errors. The counts in the Backup's status must be those of these lists.
    pub results: Results,
    /// Names of the items.
    pub resource_list: ResourceList,
    /// How each volume was backed up.
    pub volume_info: Vec<Value>,
    /// Asynchronous operations of plugins.
    pub item_operations: Vec<Value>,
    /// Native volume snapshots.
    pub volume_snapshots: Vec<Value>,
    /// PodVolumeBackups.
    pub pod_volume_backups: Vec<Value>,
}

impl BackupFiles {
    /// Each final key with its bytes, in the order of writing; the same bytes each time.
    pub(super) fn encode(&self, keys: &BackupKeys) -> Result<Vec<(Path, Bytes)>, StoreError> {
        let log = self.log.bytes().map_err(|error| StoreError::io("read the log from local disk", &error))?;
        Ok(vec![
            (keys.log(), log),
            file(keys.results(), &self.results)?,
            file(keys.resource_list(), &self.resource_list)?,
            file(keys.volume_info(), &self.volume_info)?,
            file(keys.item_operations(), &self.item_operations)?,
            file(keys.volume_snapshots(), &self.volume_snapshots)?,
            file(keys.pod_volume_backups(), &self.pod_volume_backups)?,
        ])
    }

    /// Back from what [`Self::encode`] gave. Errors: a file is missing or not what it should be.
    pub(super) fn decode(
        keys: &BackupKeys,
        bytes_of: &dyn Fn(&Path) -> Option<Bytes>,
    ) -> Result<Self, String> {
        let log = LogFile::read(&keys.log(), bytes_of)?;
        Ok(Self {
            log,
            results: parse(&keys.results(), bytes_of)?,
            resource_list: parse(&keys.resource_list(), bytes_of)?,
            volume_info: parse(&keys.volume_info(), bytes_of)?,
            item_operations: parse(&keys.item_operations(), bytes_of)?,
            volume_snapshots: parse(&keys.volume_snapshots(), bytes_of)?,
            pod_volume_backups: parse(&keys.pod_volume_backups(), bytes_of)?,
        })
    }
}
