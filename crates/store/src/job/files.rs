//! The files of a backup or restore: one object of the store each.

use bytes::Bytes;
use flate2::read::GzDecoder;
use object_store::path::Path;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{StoredJob, record::Record};
use crate::{
    LogFile, ResourceList, Results, StoreError,
    gzip::file,
    layout::{
        ITEM_OPERATIONS, JobKeys, LOG, POD_VOLUME_BACKUPS, RESOURCE_LIST, RESULTS, VOLUME_INFO,
        VOLUME_SNAPSHOTS,
    },
};

/// Everything of a backup but contents and metadata, and all that is stored of a restore. All files are always written,
/// empty lists too: Velero's command line takes a missing file for an older format.
#[derive(Debug)]
pub struct JobFiles {
    pub log: LogFile,
    /// Warnings and errors. The counts in the object's status must be those of these lists.
    pub results: Results,
    /// Names of the items; of a restore each with what was done.
    pub resource_list: ResourceList,
    pub item_operations: Vec<Value>,
    pub volume_info: Vec<Value>,
    /// Of backups only.
    pub volume_snapshots: Vec<Value>,
    /// Of backups only.
    pub pod_volume_backups: Vec<Value>,
}

impl JobFiles {
    /// A log, and nothing in the other files.
    pub fn new(log: LogFile) -> Self {
        Self {
            log,
            results: Results::default(),
            resource_list: ResourceList::default(),
            item_operations: Vec::new(),
            volume_info: Vec::new(),
            volume_snapshots: Vec::new(),
            pod_volume_backups: Vec::new(),
        }
    }

    /// Each final key with its bytes, in the order of writing; the same bytes each time.
    pub(crate) fn encode<J: StoredJob>(&self, keys: &JobKeys) -> Result<Vec<(Path, Bytes)>, StoreError> {
        let mut files = vec![
            (keys.file(LOG), self.log.bytes()?),
            file(keys.file(RESULTS), &self.results)?,
            file(keys.file(RESOURCE_LIST), &self.resource_list)?,
            file(keys.file(ITEM_OPERATIONS), &self.item_operations)?,
            file(keys.file(VOLUME_INFO), &self.volume_info)?,
            file(keys.file(VOLUME_SNAPSHOTS), &self.volume_snapshots)?,
            file(keys.file(POD_VOLUME_BACKUPS), &self.pod_volume_backups)?,
        ];
        let place = |key: &Path| J::FILES.iter().position(|suffix| keys.file(suffix) == *key);
        files.retain(|(key, _)| place(key).is_some());
        files.sort_by_key(|(key, _)| place(key));
        Ok(files)
    }

    /// Back from what [`Self::encode`] gave. Errors: a file is missing or not what it should be.
    pub(crate) fn decode<J: StoredJob>(record: &Record, keys: &JobKeys) -> Result<Self, String> {
        let list = |suffix| {
            if J::FILES.contains(&suffix) { parse(record, &keys.file(suffix)) } else { Ok(Vec::new()) }
        };
        let log = LogFile::resume(&recorded(record, &keys.file(LOG))?);
        Ok(Self {
            log: log.map_err(|error| format!("the log: {error}"))?,
            results: parse(record, &keys.file(RESULTS))?,
            resource_list: parse(record, &keys.file(RESOURCE_LIST))?,
            item_operations: list(ITEM_OPERATIONS)?,
            volume_info: list(VOLUME_INFO)?,
            volume_snapshots: list(VOLUME_SNAPSHOTS)?,
            pod_volume_backups: list(POD_VOLUME_BACKUPS)?,
        })
    }
}

fn recorded(record: &Record, key: &Path) -> Result<Bytes, String> {
    record.file(key).ok_or_else(|| format!("{key} is missing in it"))
}

fn parse<T: DeserializeOwned>(record: &Record, key: &Path) -> Result<T, String> {
    let bytes = recorded(record, key)?;
    serde_json::from_reader(GzDecoder::new(bytes.as_ref())).map_err(|error| format!("{key}: {error}"))
}
