//! Verifies the stored files of a backup: each is read to its end and compared with the digest that
//! was stored with it, and the files are compared with one another and with the metadata.
//!
//! The command `kubectl backup verify` reads the files by other means, and compares them by
//! [`counts`] and [`Inventory`], too.

pub mod counts;
mod inventory;
mod reader;

use std::{io::Read, sync::Arc};

use backup_core::{
    api::Backup,
    operation::BackupOperation,
    results::Results,
    volume_info::{VolumeInfo, VolumeMethod},
};
use object_store::path::Path;
use serde::de::IgnoredAny;

use crate::{
    FileIdentity, Limits, Location, StoreError, Throttle,
    digests::FileDigests,
    layout::{
        CONTENTS, ITEM_OPERATIONS, JobKeys, LOG, POD_VOLUME_BACKUPS, RESOURCE_LIST, RESULTS,
        VOLUME_INFO, VOLUME_SNAPSHOTS,
    },
    reading::is_of,
};
use reader::{FileRead, FileReader};

pub use inventory::{Inventory, error_words};

/// Remedy for a missing, damaged or changed file.
pub const PUT_BACK: &str = "Use another backup, or put the file back from a copy of the bucket.";
/// Remedy if files and status differ.
pub const DISAGREE: &str = "Don't rely on this backup alone: make another one, and look for who has written into its folder.";

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFinding {
    /// Name of the file in the folder of the backup.
    pub file: String,
    pub message: String,
    pub remedy: &'static str,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedFiles {
    pub findings: Vec<FileFinding>,
    /// Whether digests were stored with the files, so that each file was compared with what was
    /// written. Otherwise, only their structure and their counts were checked.
    pub compared: bool,
    /// Number of bytes that were read.
    pub bytes: u64,
}

impl Location {
    /// Reads all files of a backup that has ended, within the rate of `throttle`. Memory use does
    /// not grow with their sizes, and by some 40 bytes for each item.
    ///
    /// Errors: any error of reading that says nothing about the files, such as a store that does
    /// not answer. Files that are missing or damaged are findings.
    pub async fn verify(
        &self,
        backup: &Backup,
        limits: Limits,
        throttle: &Arc<Throttle>,
    ) -> Result<VerifiedFiles, StoreError> {
        let name = backup.metadata.name.as_deref().unwrap_or_default();
        let keys = self.layout().backup(name)?;
        let mut outcome = VerifiedFiles::default();
        let stored = match self.read_metadata(name).await {
            Ok(stored) => stored,
            Err(StoreError::Corrupt { detail, .. }) => {
                outcome.add(&keys.metadata(), detail, PUT_BACK);
                None
            }
            Err(error) => return Err(error),
        };
        let of = FileIdentity {
            uid: backup.metadata.uid.as_deref().unwrap_or_default(),
            started: backup.status.start_timestamp.as_ref().map(|time| time.0),
            ended: true,
        };
        match &stored {
            Some(stored) => {
                if !is_of(stored, of) {
                    let message = "it is the metadata of another backup of this name".to_owned();
                    outcome.add(&keys.metadata(), message, DISAGREE);
                    return Ok(outcome);
                }
            }
            None => {
                if outcome.findings.is_empty() {
                    outcome.add(&keys.metadata(), "it is missing".to_owned(), PUT_BACK);
                }
            }
        }
        let mut present = self.list(&keys.folder).await?;
        present.retain(|key| !keys.is_private(key) && *key != keys.metadata());
        let digests = stored.as_ref().and_then(FileDigests::read);
        outcome.compared = digests.is_some();
        let verifier = Verifier {
            reader: FileReader::new(self, throttle, digests.as_ref()),
            keys: &keys,
            present,
            digests: digests.as_ref(),
            limits,
            verified: outcome,
        };
        verifier.run(stored.as_ref().unwrap_or(backup)).await
    }
}

impl VerifiedFiles {
    fn add(&mut self, key: &Path, message: String, remedy: &'static str) {
        self.findings.push(FileFinding {
            file: key.filename().unwrap_or_default().to_owned(),
            message,
            remedy,
        });
    }
}

/// A list of which only the length is needed; `null` is an empty one.
type AnyList = Option<Vec<IgnoredAny>>;

struct Verifier<'a> {
    reader: FileReader<'a>,
    keys: &'a JobKeys,
    /// Keys of the existing files that were not read yet.
    present: Vec<Path>,
    digests: Option<&'a FileDigests>,
    limits: Limits,
    verified: VerifiedFiles,
}

impl Verifier<'_> {
    /// `backup` has the counts that the files are compared with. Older servers did not write all
    /// files: one may be missing if the status counts nothing in it, and no digest names it.
    async fn run(mut self, backup: &Backup) -> Result<VerifiedFiles, StoreError> {
        let status = &backup.status;
        let mut inventory = Inventory::new(false, self.limits.items);
        if let Some(listed) = self.list().await? {
            self.disagreements(RESOURCE_LIST, counts::list(backup, listed.len()));
            inventory = listed;
        }
        let has_messages = status.errors + status.warnings > 0;
        let results = self.json::<Results>(RESULTS, has_messages).await?;
        if let Some(results) = &results {
            self.disagreements(RESULTS, counts::results(status, results));
        }
        let operated = status.backup_item_operations_attempted > 0;
        let operations = self.json::<Option<Vec<BackupOperation>>>(ITEM_OPERATIONS, operated);
        if let Some(operations) = operations.await? {
            let operations = operations.unwrap_or_default();
            self.disagreements(ITEM_OPERATIONS, counts::operations(status, &operations));
        }
        let by_csi = status.csi_volume_snapshots_attempted > 0;
        let volumes = self.json::<Option<Vec<VolumeInfo>>>(VOLUME_INFO, by_csi);
        if let Some(volumes) = volumes.await? {
            let entries = volumes.unwrap_or_default();
            let entries = entries
                .iter()
                .filter(|one| one.backup_method == Some(VolumeMethod::CsiSnapshot));
            self.disagreements(VOLUME_INFO, counts::volumes(status, entries.count()));
        }
        let native = status.volume_snapshots_attempted > 0;
        if let Some(snapshots) = self.json::<AnyList>(VOLUME_SNAPSHOTS, native).await? {
            let count = snapshots.map_or(0, |all| all.len());
            self.disagreements(VOLUME_SNAPSHOTS, counts::snapshots(status, count));
        }
        self.json::<AnyList>(POD_VOLUME_BACKUPS, false).await?;
        self.file(&self.keys.file(LOG), true, reader::unpack)
            .await?;
        self.contents(inventory, results).await?;
        // Files of other versions, and of other programs.
        for key in self.present.clone() {
            let is_packed = key.extension() == Some("gz");
            if is_packed {
                self.file(&key, false, reader::unpack).await?;
            } else {
                self.file(&key, false, |_| Ok(())).await?;
            }
        }
        Ok(self.verified)
    }

    /// Reads the list of items into a new inventory.
    async fn list(&mut self) -> Result<Option<Inventory>, StoreError> {
        let max = self.limits.items;
        self.file(&self.keys.file(RESOURCE_LIST), true, move |source| {
            let mut inventory = Inventory::new(true, max);
            reader::list(source, &mut |kind, item| inventory.add_listed(kind, item))?;
            Ok(inventory)
        })
        .await
    }

    async fn contents(
        &mut self,
        mut inventory: Inventory,
        results: Option<Results>,
    ) -> Result<(), StoreError> {
        let key = self.keys.file(CONTENTS);
        let name = key.filename().unwrap_or_default().to_owned();
        let max = self.limits.bytes;
        let read = self.file(&key, true, move |source: &mut dyn Read| {
            match inventory.read(&name, source, max) {
                Ok(()) => Ok(inventory),
                Err(StoreError::Corrupt { detail, .. }) => Err(detail),
                Err(error) => Err(error.to_string()),
            }
        });
        let Some(mut inventory) = read.await? else {
            return Ok(());
        };
        if inventory.needs_names() {
            let list = self.keys.file(RESOURCE_LIST);
            let again = self.reader.read(&list, move |source: &mut dyn Read| {
                let excused = results.as_ref().map(error_words).unwrap_or_default();
                let compared = reader::list(source, &mut |kind, item| {
                    inventory.compare(kind, item, &excused);
                    Ok(())
                });
                // Without names the items are counted.
                drop(compared);
                Ok(inventory)
            });
            let Some(FileRead {
                parsed: Ok(compared),
                ..
            }) = again.await?
            else {
                let message = "it went away while it was read".to_owned();
                self.verified.add(&list, message, PUT_BACK);
                return Ok(());
            };
            inventory = compared;
        }
        self.disagreements(CONTENTS, inventory.findings());
        Ok(())
    }

    /// Reads a JSON file.
    async fn json<T: serde::de::DeserializeOwned + Send + 'static>(
        &mut self,
        suffix: &str,
        is_expected: bool,
    ) -> Result<Option<T>, StoreError> {
        self.file(&self.keys.file(suffix), is_expected, reader::json)
            .await
    }

    /// Reads a file to its end through `parse`, and compares its digest. Returns `None` for a file
    /// that is missing or damaged.
    async fn file<T: Send + 'static>(
        &mut self,
        key: &Path,
        is_expected: bool,
        parse: impl FnOnce(&mut dyn Read) -> Result<T, String> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let recorded = self.digests.and_then(|all| all.find(self.keys, key));
        let is_present = self.present.contains(key);
        self.present.retain(|present| present != key);
        let read = if is_present {
            self.reader.read(key, parse).await?
        } else {
            None
        };
        let Some(read) = read else {
            if is_expected || recorded.is_some() {
                let message = "it is missing".to_owned();
                self.verified.add(key, message, PUT_BACK);
            }
            return Ok(None);
        };
        self.verified.bytes += read.bytes;
        let parsed = match read.parsed {
            Ok(parsed) => parsed,
            Err(detail) => {
                self.verified.add(key, detail, PUT_BACK);
                return Ok(None);
            }
        };
        if recorded.is_some_and(|recorded| recorded != read.digest) {
            let message = "it can be read, but its bytes are not those that were written";
            self.verified.add(key, message.to_owned(), PUT_BACK);
        }
        Ok(Some(parsed))
    }

    fn disagreements(&mut self, suffix: &str, messages: Vec<String>) {
        let key = self.keys.file(suffix);
        for message in messages {
            self.verified.add(&key, message, DISAGREE);
        }
    }
}

#[cfg(test)]
mod tests;
