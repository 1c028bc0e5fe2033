//! The files beside contents and metadata, as bytes.

use bytes::Bytes;
use object_store::path::Path;
use serde_json::Value;

use crate::{LogFile, ResourceList, Results, StoreError, gzip, layout::BackupKeys};

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
            json(keys.results(), &self.results)?,
            json(keys.resource_list(), &self.resource_list)?,
            json(keys.volume_info(), &self.volume_info)?,
            json(keys.item_operations(), &self.item_operations)?,
            json(keys.volume_snapshots(), &self.volume_snapshots)?,
            json(keys.pod_volume_backups(), &self.pod_volume_backups)?,
        ])
    }

    /// Back from what [`Self::encode`] gave. Errors: a file is missing or not what it should be.
    pub(super) fn decode(
        keys: &BackupKeys,
        bytes_of: &dyn Fn(&Path) -> Option<Bytes>,
    ) -> Result<Self, String> {
        let bytes = |key: Path| bytes_of(&key).ok_or_else(|| format!("{key} is missing in it"));
        let parse = |key: Path| gunzip(&key, &bytes(key.clone())?);
        let log = LogFile::resume(&bytes(keys.log())?).map_err(|error| format!("the log: {error}"))?;
        Ok(Self {
            log,
            results: typed(parse(keys.results())?)?,
            resource_list: typed(parse(keys.resource_list())?)?,
            volume_info: typed(parse(keys.volume_info())?)?,
            item_operations: typed(parse(keys.item_operations())?)?,
            volume_snapshots: typed(parse(keys.volume_snapshots())?)?,
            pod_volume_backups: typed(parse(keys.pod_volume_backups())?)?,
        })
    }
}

fn json<T: serde::Serialize>(key: Path, value: &T) -> Result<(Path, Bytes), StoreError> {
    let bytes = gzip::json(key.filename().unwrap_or_default(), value)?;
    Ok((key, bytes.into()))
}

fn gunzip(key: &Path, bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_reader(flate2::read::GzDecoder::new(bytes)).map_err(|error| format!("{key}: {error}"))
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}
