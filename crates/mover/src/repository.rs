//! Repositories of the restic format. Only this module uses rustic_core, whose interface changes
//! with each minor version.
//!
//! rustic_core alone is not safe enough for unattended backups. What this module adds:
//!
//! - it logs files that it cannot read, and continues: [`source`] counts and names them;
//! - it compares a block device by the size in its metadata, which is 0: [`backup`] always reads it;
//! - it logs attributes that it cannot restore: [`verify`] compares what was restored;
//! - it forgets the attributes of the root folder: [`record`] keeps them in the snapshot;
//! - it panics where a restored file cannot be written: [`guard`] makes that an error;
//! - it takes 0.2 ms to prepare the cuts of each file: [`chunking`] avoids that for small files;
//! - with two keys for one password it may take the wrong one: [`session`] tries both;
//! - a check stops at the first damaged folder: [`check`] reads all packs anyway.

mod backend;
mod backup;
mod bars;
mod block;
mod check;
mod chunking;
mod device_source;
mod errors;
mod guard;
mod init;
mod keys;
mod layout;
mod maintain;
mod record;
mod restore;
mod session;
mod source;
mod verify;

use std::{fmt, sync::Arc};

use backup_core::data_movement::{CheckReport, MaintainReport, MoverFailures};
use object_store::{ObjectStore, path::Path};
use serde::{Deserialize, Serialize};

pub use backup::{BackupRequest, Source};
pub use check::{CheckRequest, DataPart, DataToRead};
pub use maintain::MaintainRequest;
pub use restore::{ExistingFiles, RestoreRequest};

use crate::{MoverError, Progress, StopFlag, TransferLimits, objects::Place};

/// The password of a repository. Never shown.
#[derive(Clone)]
pub struct Password(String);

impl Password {
    pub fn new(password: impl Into<String>) -> Self {
        Self(password.into())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// What an operation shares with its caller.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub stop: StopFlag,
    pub progress: Arc<Progress>,
}

/// What an operation did. It is whole only if there are no failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The full id of the snapshot that was saved or restored.
    pub snapshot: Option<String>,
    /// Files and other entries, without folders.
    pub files: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Bytes that were added to the repository.
    pub new_bytes: u64,
    pub failures: MoverFailures,
}

/// A repository below a prefix of an object store. All its methods block, and are to be called on a
/// thread for that ([`tokio::task::spawn_blocking`]) of a runtime with more than one thread.
#[derive(Clone, Debug)]
pub struct Repository {
    place: Place,
    password: Password,
    limits: TransferLimits,
}

impl Repository {
    /// `url` is what messages call it. Sends no request yet.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        url: String,
        password: Password,
        limits: TransferLimits,
    ) -> Self {
        Self {
            place: Place { store, prefix, url },
            password,
            limits,
        }
    }

    /// In a store of its own.
    #[cfg(test)]
    fn in_memory() -> Self {
        Self::new(
            Arc::new(object_store::memory::InMemory::new()),
            "restic".into(),
            "memory://restic".to_owned(),
            Password::new("password"),
            TransferLimits::default(),
        )
    }

    /// Makes the repository. Fails with [`MoverError::RepositoryExists`] if there is one, also if
    /// another process makes it at the same moment.
    pub fn init(&self, job: &Job) -> Result<(), MoverError> {
        guard::run(&job.stop, || init::init(self, job))
    }

    /// Saves a volume as a new snapshot. The report may have failures: the snapshot exists then, and
    /// lacks the files that are named.
    pub fn backup(&self, request: &BackupRequest, job: &Job) -> Result<Report, MoverError> {
        guard::run(&job.stop, || backup::backup(self, request, job))
    }

    /// Restores a snapshot into a volume. The report may have failures: these files differ from the
    /// snapshot in the way that is named.
    pub fn restore(&self, request: &RestoreRequest, job: &Job) -> Result<Report, MoverError> {
        guard::run(&job.stop, || restore::restore(self, request, job))
    }

    /// Opens the repository and does nothing else.
    pub fn open(&self, job: &Job) -> Result<(), MoverError> {
        guard::run(&job.stop, || keys::open(self, job))
    }

    /// Makes both passwords open the repository: one that does not gets a key, if the other one
    /// does.
    pub fn add_key(&self, other: &Password, job: &Job) -> Result<(), MoverError> {
        guard::run(&job.stop, || keys::add(self, other, job))
    }

    /// Removes all keys of another password. The password of the repository opens it then, also if
    /// it did not before. Fails if the two are the same.
    pub fn remove_keys(&self, other: &Password, job: &Job) -> Result<(), MoverError> {
        guard::run(&job.stop, || keys::remove(self, other, job))
    }

    /// Looks for damage, and for the snapshots that it concerns.
    pub fn check(&self, request: &CheckRequest, job: &Job) -> Result<CheckReport, MoverError> {
        guard::run(&job.stop, || check::check(self, request, job))
    }

    /// Removes snapshots, and data that no snapshot needs. No backup may run meanwhile.
    pub fn maintain(
        &self,
        request: &MaintainRequest,
        job: &Job,
    ) -> Result<MaintainReport, MoverError> {
        guard::run(&job.stop, || maintain::maintain(self, request, job))
    }
}
