//! The repository of a history, as its objects are in the store: a folder.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use backup_core::{
    api::{BackupStorageLocation, BackupStorageLocationSpec},
    data_movement::repository_path,
};
use backup_store::Location;
use sha2::{Digest as _, Sha256};
use tokio::runtime::{Builder, Runtime};

use super::volume::hex;

/// Namespace of the volumes.
pub(super) const NAMESPACE: &str = "shop";
/// Password of the repository.
pub(super) const PASSWORD: &str = "histories";

/// `backup-mover init` has made this repository; then key and config were encrypted once more. The
/// key has a cheap scrypt (N = 256), so that the repository is opened within milliseconds instead
/// of half a second. Packs have 64 KiB, packs of folders 16 KiB, instead of 16 and 4 MiB, so that
/// small volumes have several.
const CONFIG: &[u8] = include_bytes!("repository/config");
const KEY: &[u8] = include_bytes!("repository/key");

/// Length of the name of an object: a SHA-256 in hexadecimal digits. Objects that are being
/// written have longer names.
const NAME_LENGTH: usize = 64;

/// Names of the objects of a repository that come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RepositoryFiles {
    pub(super) snapshots: BTreeSet<String>,
    pub(super) index: BTreeSet<String>,
    pub(super) packs: BTreeSet<String>,
}

pub(super) struct RepositoryFolder {
    folder: PathBuf,
    location: Location,
    runtime: Runtime,
}

impl RepositoryFolder {
    /// Makes a repository in the bucket of a location of the provider `local`.
    pub(super) fn new(bucket: &Path) -> anyhow::Result<Self> {
        let folder = bucket.join(repository_path(NAMESPACE));
        let keys = folder.join("keys");
        fs::create_dir_all(&keys)?;
        fs::write(folder.join("config"), CONFIG)?;
        fs::write(keys.join(hex(&Sha256::digest(KEY))), KEY)?;
        let mut spec = BackupStorageLocationSpec {
            provider: "local".to_owned(),
            ..BackupStorageLocationSpec::default()
        };
        spec.object_storage.bucket = bucket.display().to_string();
        let location = BackupStorageLocation::new("location", spec);
        Ok(Self {
            folder,
            location: Location::open(&location, None, None)?,
            runtime: Builder::new_current_thread().enable_all().build()?,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn files(&self) -> io::Result<RepositoryFiles> {
        Ok(RepositoryFiles {
            snapshots: names(&self.folder.join("snapshots"))?,
            index: names(&self.folder.join("index"))?,
            packs: names(&self.folder.join("data"))?,
        })
    }

    /// Removes a snapshot, as the controller does when its backup is deleted.
    pub(super) fn forget(&self, snapshot: &str) -> anyhow::Result<()> {
        let removal = self
            .location
            .delete_volume_snapshot(NAMESPACE, snapshot, true);
        self.runtime
            .block_on(removal)
            .with_context(|| format!("remove snapshot {snapshot}"))?;
        Ok(())
    }

    /// Removes the snapshots that are noted for the backup with this uid, and their notes; not
    /// `recorded`, which the backup names. The controller does so when the upload has ended, and
    /// without `recorded` when the backup is deleted.
    pub(super) fn forget_noted(
        &self,
        backup_uid: &str,
        recorded: Option<&str>,
    ) -> anyhow::Result<()> {
        let listing = self.location.snapshot_notes(NAMESPACE, backup_uid);
        let notes = self
            .runtime
            .block_on(listing)
            .with_context(|| format!("list the notes of {backup_uid}"))?;
        for note in notes {
            if recorded != Some(note.snapshot.as_str()) {
                self.forget(&note.snapshot)?;
                let removal = self.location.delete_snapshot_note(&note, true);
                self.runtime
                    .block_on(removal)
                    .with_context(|| format!("remove the note of {}", note.snapshot))?;
            }
        }
        Ok(())
    }
}

/// Names of the objects in a folder and below. The first object makes its folder.
fn names(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(names(&entry.path())?);
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.len() == NAME_LENGTH {
            found.insert(name);
        }
    }
    Ok(found)
}
