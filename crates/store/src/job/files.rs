//! The files of a backup or restore: each is one object in the store.

use std::fmt::Display;

use backup_core::volume_info::VolumeInfo;
use bytes::Bytes;
use flate2::read::GzDecoder;
use object_store::path::Path;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{StoredJob, record::Record};
use crate::{
    Location, LogFile, ResourceList, Results, StoreError,
    gzip::file,
    layout::{
        ITEM_OPERATIONS, JobKeys, LOG, POD_VOLUME_BACKUPS, RESOURCE_LIST, RESULTS, VOLUME_INFO,
        VOLUME_SNAPSHOTS,
    },
};

/// All files of a backup except contents and metadata, and all files of a restore. All are always
/// written, empty lists too: Velero's command line takes a missing file for an older format.
#[derive(Debug)]
pub struct JobFiles {
    pub log: LogFile,
    /// Warnings and errors. The counts in the object's status must equal the lengths of these
    /// lists.
    pub results: Results,
    /// Names of the items; for a restore each with what was done.
    pub resource_list: ResourceList,
    pub item_operations: Vec<Value>,
    pub volume_info: Vec<VolumeInfo>,
    /// Backups only.
    pub volume_snapshots: Vec<Value>,
    /// Backups only.
    pub pod_volume_backups: Vec<Value>,
}

impl JobFiles {
    /// Has a log; the other files are empty.
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

    /// Returns each final key with its bytes, in the order of writing; the same bytes each time.
    pub(crate) fn encode<J: StoredJob>(
        &self,
        keys: &JobKeys,
    ) -> Result<Vec<(Path, Bytes)>, StoreError> {
        let mut files = vec![
            (keys.file(LOG), self.log.bytes()?),
            file(keys.file(RESULTS), &self.results)?,
            file(keys.file(RESOURCE_LIST), &self.resource_list)?,
            file(keys.file(ITEM_OPERATIONS), &self.item_operations)?,
            file(keys.file(VOLUME_INFO), &self.volume_info)?,
            file(keys.file(VOLUME_SNAPSHOTS), &self.volume_snapshots)?,
            file(keys.file(POD_VOLUME_BACKUPS), &self.pod_volume_backups)?,
        ];
        files.retain(|(key, _)| writing_position::<J>(keys, key).is_some());
        files.sort_by_key(|(key, _)| writing_position::<J>(keys, key));
        Ok(files)
    }

    /// Decodes the output of [`Self::encode`] from the record with this number.
    /// Errors: [`StoreError::Corrupt`] for a file that is missing or invalid.
    pub(crate) async fn read<J: StoredJob>(
        location: &Location,
        keys: &JobKeys,
        number: u64,
        record: &Record,
    ) -> Result<Self, StoreError> {
        let reader = FileReader {
            location,
            keys,
            number,
            record,
        };
        let log = reader.bytes(LOG).await?;
        let log = LogFile::resume(&log).map_err(|error| reader.corrupt(LOG, &error))?;
        Ok(Self {
            log,
            results: reader.parse(RESULTS).await?,
            resource_list: reader.parse(RESOURCE_LIST).await?,
            item_operations: reader.list::<J>(ITEM_OPERATIONS).await?,
            volume_info: VolumeInfo::all(&reader.list::<J>(VOLUME_INFO).await?),
            volume_snapshots: reader.list::<J>(VOLUME_SNAPSHOTS).await?,
            pod_volume_backups: reader.list::<J>(POD_VOLUME_BACKUPS).await?,
        })
    }
}

/// Position of a file in the order of writing; `None` if this kind of object has no such file.
fn writing_position<J: StoredJob>(keys: &JobKeys, key: &Path) -> Option<usize> {
    J::FILES.iter().position(|suffix| keys.file(suffix) == *key)
}

/// Reads the files in a record, one at a time.
struct FileReader<'a> {
    location: &'a Location,
    keys: &'a JobKeys,
    number: u64,
    record: &'a Record,
}

impl FileReader<'_> {
    async fn bytes(&self, suffix: &str) -> Result<Bytes, StoreError> {
        let found = self
            .location
            .recorded_for(self.record, &self.keys.file(suffix))
            .await?;
        found.ok_or_else(|| self.corrupt(suffix, &"it is missing"))
    }

    async fn parse<T: DeserializeOwned>(&self, suffix: &str) -> Result<T, StoreError> {
        let bytes = self.bytes(suffix).await?;
        serde_json::from_reader(GzDecoder::new(bytes.as_ref()))
            .map_err(|error| self.corrupt(suffix, &error))
    }

    /// Reads a list that only some kinds have.
    async fn list<J: StoredJob>(&self, suffix: &str) -> Result<Vec<Value>, StoreError> {
        if J::FILES.contains(&suffix) {
            self.parse(suffix).await
        } else {
            Ok(Vec::new())
        }
    }

    fn corrupt(&self, suffix: &str, reason: &dyn Display) -> StoreError {
        let file = self.keys.file(suffix);
        let detail = format!("{}: {reason}", file.filename().unwrap_or_default());
        self.location
            .corrupt(&self.keys.record(self.number), detail)
    }
}
