//! The last steps: the other files, then the metadata.

use backup_core::api::{Backup, BackupPhase};
use bytes::Bytes;
use object_store::PutPayload;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    Location, LogFile, ResourceList, Results, StoreError, gzip, layout::BackupKeys, upload::Written,
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

/// A backup whose contents are stored. From [`crate::BackupWriter::finish_contents`].
#[derive(Debug)]
pub struct ContentsDone {
    location: Location,
    keys: BackupKeys,
    uid: String,
    written: Written,
    bytes: u64,
    side_files: bool,
}

impl ContentsDone {
    pub(super) fn new(
        location: Location,
        keys: BackupKeys,
        uid: String,
        written: Written,
        bytes: u64,
    ) -> Self {
        Self { location, keys, uid, written, bytes, side_files: false }
    }

    /// Size of the tarball in the store (bytes).
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes all files but contents and metadata.
    ///
    /// Safe to repeat, also with other contents (a log that has grown): a file that has landed before stays as it is.
    /// Errors: [`StoreError::Exists`] if a key holds bytes that are not from here.
    pub async fn put_side_files(&mut self, files: &BackupFiles) -> Result<(), StoreError> {
        let keys = &self.keys;
        let (location, written) = (&self.location, &self.written);
        location.put_log(&keys.log(), &files.log, written).await?;
        location.put_json(&keys.results(), &files.results, written).await?;
        location.put_json(&keys.resource_list(), &files.resource_list, written).await?;
        location.put_json(&keys.volume_info(), &files.volume_info, written).await?;
        location.put_json(&keys.item_operations(), &files.item_operations, written).await?;
        location.put_json(&keys.volume_snapshots(), &files.volume_snapshots, written).await?;
        location.put_json(&keys.pod_volume_backups(), &files.pod_volume_backups, written).await?;
        self.side_files = true;
        Ok(())
    }

    /// Writes the metadata, and with it the backup exists. Plain JSON, as Velero reads it.
    ///
    /// Returns what stands in the store, read back: that is what is to be published. Safe to repeat. If an earlier try has
    /// landed with the same phase, that one stands and this is success. Errors: [`StoreError::Config`] for a phase other
    /// than Completed, PartiallyFailed or Failed, for another name or uid than was opened, or before the side files are in;
    /// [`StoreError::Exists`] for metadata that is not from here or has another phase; [`StoreError::Corrupt`] if the
    /// contents have gone.
    pub async fn commit(&self, backup: &Backup) -> Result<Backup, StoreError> {
        self.check(backup)?;
        let key = self.keys.metadata();
        self.check_contents().await?;
        let json =
            serde_json::to_vec_pretty(backup).map_err(|error| StoreError::io("encode the Backup", &error))?;
        let json = Bytes::from(json);
        let digest = Sha256::digest(&json).into();
        match self.location.put_new(&key, PutPayload::from_bytes(json), digest, &self.written).await {
            // Other bytes may be ours, too: the Backup was changed between two tries, for example its completion time.
            Ok(()) | Err(StoreError::Exists { .. }) => {}
            Err(error) => return Err(error),
        }
        match self.location.read_metadata(self.keys.name()).await? {
            Some(stored)
                if stored.metadata.uid == backup.metadata.uid && stored.phase() == backup.phase() =>
            {
                Ok(stored)
            }
            Some(stored) => Err(self.other_metadata(&stored)),
            None => Err(StoreError::Unreachable {
                action: "read back".to_owned(),
                url: self.location.url_of(&key),
                detail: "it was written, and now it is not there; another program may have removed it"
                    .to_owned(),
            }),
        }
    }

    fn check(&self, backup: &Backup) -> Result<(), StoreError> {
        let refuse =
            |field: &str, message: String| Err(StoreError::Config { field: field.to_owned(), message });
        let (name, uid) = (backup.metadata.name.as_deref(), backup.metadata.uid.as_deref());
        if name != Some(self.keys.name()) || uid != Some(&self.uid) {
            return refuse(
                "metadata",
                format!(
                    "{name:?} with uid {uid:?} is not the backup that was opened, {:?} with uid {:?}",
                    self.keys.name(),
                    self.uid
                ),
            );
        }
        // Stored metadata is read as the end of the work: nothing may be stored that a reader would run, or wait for.
        if !matches!(
            backup.phase(),
            BackupPhase::Completed | BackupPhase::PartiallyFailed | BackupPhase::Failed
        ) {
            return refuse(
                "status.phase",
                format!(
                    "{} can not be stored: expected Completed, PartiallyFailed or Failed",
                    backup.phase()
                ),
            );
        }
        if !self.side_files {
            return refuse(
                "status.phase",
                "the backup's other files are not stored yet; they come before the metadata".to_owned(),
            );
        }
        Ok(())
    }

    /// Metadata says that the contents are there. So they are looked at once more, as bucket rules, people and other
    /// programs may have removed them.
    async fn check_contents(&self) -> Result<(), StoreError> {
        let key = self.keys.contents();
        match self.location.size_of(&key).await? {
            Some(size) if size == self.bytes => Ok(()),
            found => Err(StoreError::Corrupt {
                url: self.location.url_of(&key),
                detail: format!(
                    "{} bytes were stored, now there are {found:?}; the backup must be begun again",
                    self.bytes
                ),
            }),
        }
    }

    fn other_metadata(&self, stored: &Backup) -> StoreError {
        StoreError::Exists {
            url: self.location.url_of(&self.keys.metadata()),
            detail: format!(
                "it holds a backup with uid {:?} as {}; it is left alone",
                stored.metadata.uid.as_deref().unwrap_or_default(),
                stored.phase()
            ),
        }
    }
}

impl Location {
    /// A JSON document in gzip, written once.
    pub(crate) async fn put_json<T: serde::Serialize + Sync>(
        &self,
        key: &object_store::path::Path,
        value: &T,
        written: &Written,
    ) -> Result<(), StoreError> {
        let bytes = Bytes::from(gzip::json(key.filename().unwrap_or_default(), value)?);
        let digest = Sha256::digest(&bytes).into();
        self.put_new(key, PutPayload::from_bytes(bytes), digest, written).await
    }
}
