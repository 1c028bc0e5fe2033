//! The second step: everything is collected, and what the final keys will hold is decided.

use backup_core::api::{Backup, BackupPhase};
use serde_json::Value;

use super::{
    BackupFiles, Decided,
    record::{Contents, Record},
};
use crate::{Location, StoreError, crash, layout::BackupKeys, staging::Staged};

/// A backup whose contents are in the store or in hand, and not visible. From [`crate::BackupWriter::finish`].
///
/// Nothing is removed when it is dropped: whether a decision has landed may not be known. What was not decided is removed
/// when the backup is opened again.
#[derive(Debug)]
pub struct Collected {
    location: Location,
    keys: BackupKeys,
    uid: String,
    record: u64,
    contents: Staged,
}

impl Collected {
    pub(super) fn new(
        location: Location,
        keys: BackupKeys,
        uid: String,
        record: u64,
        contents: Staged,
    ) -> Self {
        Self { location, keys, uid, record, contents }
    }

    /// Size of the tarball (bytes).
    pub fn bytes(&self) -> u64 {
        self.contents.bytes()
    }

    /// Decides what every final key will hold, durably: in one record, create-only. From then on any process can finish the
    /// backup, and none can make another one of it.
    ///
    /// Safe to repeat with the same arguments. Errors: [`StoreError::Config`] for a phase other than Completed,
    /// PartiallyFailed or Failed, or for another name or uid than was opened; [`StoreError::Exists`] if another replica
    /// has decided something else (see [`Location::find_backup`]).
    pub async fn decide(&self, files: &BackupFiles, metadata: &Backup) -> Result<Decided, StoreError> {
        self.check(metadata)?;
        let mut all = Vec::new();
        let contents = match &self.contents {
            Staged::Inline(bytes) => {
                all.push((self.keys.contents(), bytes.clone()));
                Contents::Inline
            }
            Staged::Upload(parts) => Contents::Uploaded(parts.clone()),
        };
        all.append(&mut files.encode(&self.keys)?);
        let json = serde_json::to_vec_pretty(metadata)
            .map_err(|error| StoreError::io("encode the Backup", &error))?;
        all.push((self.keys.metadata(), json.into()));
        let record = Record { uid: self.uid.clone(), contents, status: Value::Null, files: all };
        crash::point("before-record");
        self.location.still_ours(&self.keys, &self.uid).await?;
        self.location.put_new(&self.keys.records().key(self.record), record.encode()?).await?;
        crash::point("after-record");
        Ok(Decided::new(self.location.clone(), self.keys.clone(), self.record, record, metadata.clone()))
    }

    /// Gives up before anything was decided: removes what was uploaded. Best effort.
    pub async fn discard(self) {
        if let Err(error) = self.location.remove_begun(&self.keys, false).await {
            tracing::debug!(backup = self.keys.name(), %error, "parts of a backup that was given up stay");
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
        Ok(())
    }
}
