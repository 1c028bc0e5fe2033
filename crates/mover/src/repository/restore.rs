//! Restoring of a volume.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustic_core::{
    IndexedFullStatus, LocalDestination, LsOptions, Repository as RusticRepository, RestoreOptions,
    RusticResult,
    repofile::{Node, SnapshotFile},
};
use serde_json::json;

use super::{
    Job, Report, Repository, block,
    errors::{OrMoverError as _, from_restore, to_rustic},
    record::{VolumeKind, VolumeRecord},
    session::Session,
    source::moment,
    verify::Verification,
};
use crate::{MoverError, failures::FailureLog, volume::Attributes};

/// The folder that a new ext file system has at its root.
const LOST_AND_FOUND: &str = "lost+found";

/// Minimum length of an abbreviated snapshot id (hexadecimal digits).
const MIN_ID: usize = 8;

/// What becomes of files that are in the volume already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistingFiles {
    /// The restore is refused if there are any, apart from an empty `lost+found`.
    #[default]
    Refuse,
    /// All are removed first. Also how an interrupted restore is done again.
    Replace,
    /// Those with the size and time of the snapshot's stay; the others are restored or removed.
    Update,
    /// All files of the snapshot are restored; files that it does not have stay.
    Overwrite,
    /// Those with the size and time of the snapshot's stay, and so do files that it does not have;
    /// the others are restored.
    Amend,
}

impl ExistingFiles {
    /// Whether files that the snapshot does not have are removed while it is restored.
    fn removes_extra(self) -> bool {
        self == Self::Update
    }

    /// Whether a file with the size and time of the snapshot's stays.
    fn keeps_unchanged(self) -> bool {
        matches!(self, Self::Update | Self::Amend)
    }
}

/// Which snapshot is restored, and where.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// The id, or its first 8 digits or more.
    pub snapshot: String,
    /// A folder, or the device if the snapshot is of one.
    pub target: PathBuf,
    pub existing: ExistingFiles,
}

pub(super) fn restore(
    repository: &Repository,
    request: &RestoreRequest,
    job: &Job,
) -> Result<Report, MoverError> {
    let session = Session::new(repository, job, Some(request.target.clone()));
    let opened = session.open()?;
    let snapshot = find(&opened, &request.snapshot, session.url())?;
    let opened = opened.to_indexed().ours(session.url())?;
    let record = VolumeRecord::read(snapshot.description.as_deref());
    let mut report = match &record {
        Some(record) if record.kind == VolumeKind::Block => {
            block::restore(&opened, &snapshot, &request.target, session.url(), job)?
        }
        record => {
            let tree = opened
                .node_from_snapshot_and_path(&snapshot, "")
                .ours(session.url())?;
            let restore = FolderRestore {
                opened: &opened,
                tree,
                listing: LsOptions::default(),
                root: record.as_ref().and_then(VolumeRecord::root),
                request,
                url: session.url(),
                job,
            };
            restore.run()?
        }
    };
    report.snapshot = Some(snapshot.id.to_hex().to_string());
    Ok(report)
}

/// Finds a snapshot by its id or the first digits of it; never by its age.
fn find<S: rustic_core::Open>(
    opened: &RusticRepository<S>,
    id: &str,
    url: &str,
) -> Result<SnapshotFile, MoverError> {
    if id.len() < MIN_ID || !id.chars().all(|digit| digit.is_ascii_hexdigit()) {
        let detail = format!("it is the id of a snapshot: {MIN_ID} to 64 hexadecimal digits");
        return Err(MoverError::config(format!("snapshot {id:?}"), detail));
    }
    let id = id.to_ascii_lowercase();
    let ids: Vec<rustic_core::repofile::SnapshotId> = opened.list().ours(url)?.collect();
    let mut fitting = ids
        .into_iter()
        .filter(|known| known.to_hex().starts_with(&id));
    match (fitting.next(), fitting.next()) {
        (Some(found), None) => opened
            .get_snapshot_from_str(&found.to_hex(), |_| true)
            .ours(url),
        (Some(_), Some(_)) => Err(MoverError::config(
            format!("snapshot {id:?}"),
            "several snapshots begin so: use the whole id",
        )),
        (None, _) => Err(MoverError::SnapshotMissing {
            url: url.to_owned(),
            snapshot: id,
        }),
    }
}

struct FolderRestore<'a> {
    opened: &'a RusticRepository<IndexedFullStatus>,
    tree: Node,
    listing: LsOptions,
    root: Option<crate::volume::Attributes>,
    request: &'a RestoreRequest,
    url: &'a str,
    job: &'a Job,
}

impl FolderRestore<'_> {
    fn run(self) -> Result<Report, MoverError> {
        let target = &self.request.target;
        let path = target
            .to_str()
            .ok_or_else(|| MoverError::target(target, &"its path is not UTF-8"))?;
        self.prepare()?;
        let destination = LocalDestination::new(path, false, false).ours(self.url)?;
        let options = self.options()?;
        let plan = self
            .opened
            .prepare_restore(&options, self.nodes()?, &destination, false)
            .map_err(|error| from_restore(&error, self.url, target))?;
        let restored = self
            .opened
            .restore(plan, &options, self.nodes()?, &destination);
        restored.map_err(|error| from_restore(&error, self.url, target))?;
        let failures = FailureLog::default();
        let root_failures = self.root.as_ref().map(|root| root.apply(target));
        for reason in root_failures.iter().flatten() {
            failures.record(Path::new(""), &reason);
        }
        let mut verification = Verification::new(target, failures.clone());
        for node in self.nodes()? {
            let (path, node) = node.ours(self.url)?;
            verification.compare(&path, &node);
            if !node.is_dir() {
                self.job.progress.add_file();
            }
        }
        match (&self.root, root_failures) {
            (Some(root), Some(failed)) if failed.is_empty() => verification.compare_root(root),
            // They are named already, with their reasons.
            _ => {}
        }
        flush(target)?;
        Ok(Report {
            files: verification.files,
            bytes: verification.bytes,
            failures: failures.collected(),
            ..Report::default()
        })
    }

    fn options(&self) -> Result<RestoreOptions, MoverError> {
        let mut options = RestoreOptions::default();
        options.numeric_id = true;
        options.delete = self.request.existing.removes_extra();
        // Its type has no public name. Zeros are not written then: no file may have other contents
        // there, which `prepare` sees to.
        options.sparse = serde_json::from_value(json!("ByContent"))
            .map_err(|error| MoverError::repository(&error.to_string()))?;
        Ok(options)
    }

    /// All entries of the snapshot, a folder before its contents. Ends with an error when the
    /// operation is stopped.
    fn nodes(&self) -> Result<impl Iterator<Item = RusticResult<(PathBuf, Node)>>, MoverError> {
        let nodes = self.opened.ls(&self.tree, &self.listing).ours(self.url)?;
        let stop = self.job.stop.clone();
        Ok(nodes.map(move |node| {
            stop.check().map_err(to_rustic)?;
            let (path, mut node) = node?;
            if node.is_file() && node.meta.mode.is_none() {
                // How restic writes a file without any permission.
                node.meta.mode = Some(0);
            }
            Ok((path, node))
        }))
    }

    /// Sees to the files that are there already.
    fn prepare(&self) -> Result<(), MoverError> {
        let target = &self.request.target;
        let failed = |error: io::Error| MoverError::target(target, &error);
        if !fs::symlink_metadata(target).map_err(failed)?.is_dir() {
            return Err(MoverError::target(target, &"it is no folder"));
        }
        match self.request.existing {
            ExistingFiles::Refuse => match first_entry(target).map_err(failed)? {
                None => Ok(()),
                Some(entry) => {
                    let detail = format!(
                        "there are files in it, such as {}: choose what becomes of them (--existing)",
                        entry.display()
                    );
                    Err(MoverError::target(target, &detail))
                }
            },
            ExistingFiles::Replace => {
                for entry in fs::read_dir(target).map_err(failed)? {
                    self.job.stop.check()?;
                    let path = entry.map_err(failed)?.path();
                    if is_empty_lost_and_found(&path) {
                        continue;
                    }
                    remove(&path).map_err(|error| MoverError::target(&path, &error))?;
                }
                Ok(())
            }
            existing => {
                for node in self.nodes()? {
                    let (path, node) = node.ours(self.url)?;
                    let path = target.join(path);
                    remove_outdated(&path, &node, existing.keeps_unchanged())
                        .map_err(|error| MoverError::target(&path, &error))?;
                }
                Ok(())
            }
        }
    }
}

fn first_entry(folder: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !is_empty_lost_and_found(&path) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// `path`: an entry of the root.
fn is_empty_lost_and_found(path: &Path) -> bool {
    path.file_name() == Some(OsStr::new(LOST_AND_FOUND))
        && fs::read_dir(path).is_ok_and(|mut inner| inner.next().is_none())
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// Removes what is at the place of an entry unless it can stay. rustic_core would write into it:
/// through a hard link into another file, and without the zeros of a sparse file. `keeps_unchanged`:
/// whether a file with the size and time of the snapshot's stays.
fn remove_outdated(path: &Path, node: &Node, keeps_unchanged: bool) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let can_stay = if node.is_dir() {
        metadata.is_dir()
    } else {
        keeps_unchanged
            && node.is_file()
            && metadata.is_file()
            && node.meta.links < 2
            && metadata.nlink() < 2
            && metadata.len() == node.meta.size
            && node.meta.mtime.map(moment) == Some(Attributes::without_extended(&metadata).modified)
    };
    if can_stay { Ok(()) } else { remove(path) }
}

/// Writes all to the disk: the volume is handed over next.
fn flush(target: &Path) -> Result<(), MoverError> {
    let flushed = fs::File::open(target).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
    flushed.map_err(|error| MoverError::target(target, &error))
}
