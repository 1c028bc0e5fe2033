//! Whole operations against stores in memory. Each test shows what would be lost or misreported
//! without one of the cures in [`crate::repository`].

mod faults;
mod integrity;
mod keys;
mod messages;
mod round_trip;
mod store;
mod transfers;
mod volumes;

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use object_store::{ObjectStore, memory::InMemory};
use sha2::{Digest as _, Sha256};
use store::HookedStore;
use tempfile::TempDir;

use crate::{
    BackupRequest, ExistingFiles, Job, MoverError, Password, Report, Repository, RestoreRequest,
    Source, StopFlag, TransferLimits,
    failures::FailureLog,
    volume::{EntryKind, Root, Walk, WalkDepth},
};

const PASSWORD: &str = "correct horse";

/// A repository in memory, and a folder to save.
struct World {
    runtime: tokio::runtime::Runtime,
    store: Arc<HookedStore>,
    limits: TransferLimits,
    source: TempDir,
}

impl World {
    /// With a repository. All share the keys of one: deriving them takes a second.
    fn new() -> Self {
        static TEMPLATE: OnceLock<InMemory> = OnceLock::new();
        let template = TEMPLATE.get_or_init(|| {
            let store = InMemory::new();
            let world = Self::over(store.clone());
            world
                .run(|repository| repository.init(&Job::default()))
                .unwrap();
            world.store.inner.clone()
        });
        Self::over(template.fork())
    }

    fn without_repository() -> Self {
        Self::over(InMemory::new())
    }

    fn over(store: InMemory) -> Self {
        Self {
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap(),
            store: Arc::new(HookedStore::new(store)),
            limits: TransferLimits::default(),
            source: tempfile::tempdir().unwrap(),
        }
    }

    fn repository_with(&self, password: &str) -> Repository {
        let store: Arc<dyn ObjectStore> = self.store.clone();
        Repository::new(
            store,
            "backups/restic/shop".into(),
            "memory://backups/restic/shop".to_owned(),
            Password::new(password),
            self.limits.clone(),
        )
    }

    fn run<T>(&self, work: impl FnOnce(Repository) -> T) -> T {
        let _entered = self.runtime.enter();
        work(self.repository_with(PASSWORD))
    }

    fn request(&self) -> BackupRequest {
        BackupRequest {
            source: Source::Folder(self.source.path().to_owned()),
            host: "shop".to_owned(),
            label: "claim-1".to_owned(),
            path: "/".into(),
            tags: vec!["backup=b1".to_owned()],
            notes: None,
            read_all: false,
        }
    }

    fn backup(&self) -> Result<Report, MoverError> {
        self.run(|repository| repository.backup(&self.request(), &Job::default()))
    }

    /// Saves all; there may be no failures.
    fn save(&self) -> String {
        let report = self.backup().unwrap();
        assert_eq!(report.failures.count, 0, "{:?}", report.failures);
        report.snapshot.unwrap()
    }

    fn restore_to(
        &self,
        snapshot: &str,
        target: &Path,
        existing: ExistingFiles,
    ) -> Result<Report, MoverError> {
        let request = RestoreRequest {
            snapshot: snapshot.to_owned(),
            target: target.to_owned(),
            existing,
        };
        self.run(|repository| repository.restore(&request, &Job::default()))
    }

    /// Restores into a new folder; there may be no failures.
    fn restore(&self, snapshot: &str) -> TempDir {
        let target = tempfile::tempdir().unwrap();
        let report = self
            .restore_to(snapshot, target.path(), ExistingFiles::Refuse)
            .unwrap();
        assert_eq!(report.failures.count, 0, "{:?}", report.failures);
        target
    }

    fn path(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.path(name), contents).unwrap();
    }
}

/// Bytes that do not compress, different for each seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(length).collect()
}

/// Everything in a folder that a restore has to bring back, one line for each entry.
fn manifest(folder: &Path) -> Vec<String> {
    let root = Arc::new(Root::open(folder).unwrap());
    let failures = FailureLog::default();
    let attributes = root.attributes().unwrap();
    let mut lines = vec![format!("root {attributes:?}")];
    let walk = Walk::new(
        root,
        WalkDepth::Everything,
        failures.clone(),
        StopFlag::default(),
    );
    for entry in walk {
        let path = folder.join(&entry.path);
        let metadata = fs::symlink_metadata(&path).unwrap();
        let contents = match entry.kind {
            EntryKind::File => {
                let digest = Sha256::digest(fs::read(&path).unwrap());
                format!(
                    "{} bytes {digest:x?} {} links",
                    metadata.len(),
                    metadata.nlink()
                )
            }
            _ => String::new(),
        };
        lines.push(format!(
            "{:?} {:?} {:?} {contents}",
            entry.path, entry.kind, entry.attributes
        ));
    }
    assert_eq!(failures.collected().count, 0);
    lines
}

fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (manifest(one), manifest(other));
    for (left, right) in one.iter().zip(&other) {
        assert_eq!(left, right);
    }
    assert_eq!(one.len(), other.len());
}
