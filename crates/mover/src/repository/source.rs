//! A folder as source of a backup.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustic_core::{
    ErrorKind, ReadSource, ReadSourceEntry, ReadSourceOpen, RusticError, RusticResult,
    jiff::Timestamp,
    repofile::{Metadata, Node, NodeType},
};
use serde_json::json;

use super::Job;
use crate::{
    MoverError,
    failures::FailureLog,
    volume::{
        Attributes, Entry, EntryKind, ExtendedAttribute, Identity, Moment, Root, SourceFile,
        SourceReader, Walk, WalkDepth,
    },
};

/// Bits of a mode as Go, and so restic, writes them (`io/fs.ModeType` and others).
const GO_FOLDER: u32 = 1 << 31;
const GO_LINK: u32 = 1 << 27;
const GO_DEVICE: u32 = 1 << 26;
const GO_FIFO: u32 = 1 << 25;
const GO_SOCKET: u32 = 1 << 24;
const GO_SETUID: u32 = 1 << 23;
const GO_SETGID: u32 = 1 << 22;
const GO_CHAR_DEVICE: u32 = 1 << 21;
const GO_STICKY: u32 = 1 << 20;

/// The entries of a folder. What cannot be read is recorded, and left out.
#[derive(Debug)]
pub(super) struct FolderSource {
    root: Arc<Root>,
    job: Job,
    pub(super) failures: FailureLog,
    /// Entries that were given to rustic_core, without folders.
    given: Arc<AtomicU64>,
    /// Entries that rustic_core had to leave out.
    dropped: Arc<AtomicU64>,
    /// Total size of all files (bytes), if a walk has determined it already.
    size: Option<u64>,
}

impl FolderSource {
    pub(super) fn open(path: &Path, job: &Job) -> Result<Self, MoverError> {
        let source = |error: std::io::Error| MoverError::source(path, &error);
        let root = Root::open(path).map_err(source)?;
        // Without it there is nothing to save: that is no snapshot with a failure.
        let folder = root.folder(Path::new("")).map_err(source)?;
        folder.names().map_err(source)?;
        Ok(Self {
            root: Arc::new(root),
            job: job.clone(),
            failures: FailureLog::default(),
            given: Arc::default(),
            dropped: Arc::default(),
            size: None,
        })
    }

    /// Whether all files are smaller than this (bytes). Ends at the first that is not.
    pub(super) fn has_only_files_below(&mut self, limit: u64) -> bool {
        let total = self
            .file_sizes()
            .try_fold(0, |total, size| (size < limit).then_some(total + size));
        self.size = total;
        total.is_some()
    }

    fn file_sizes(&self) -> impl Iterator<Item = u64> {
        // The walk that saves the entries records the failures.
        let walk = self.walk(WalkDepth::Sizes, FailureLog::default());
        walk.filter(|entry| entry.kind == EntryKind::File)
            .map(|file| file.identity.size)
    }

    pub(super) fn root_attributes(&self) -> Result<Attributes, MoverError> {
        self.root
            .attributes()
            .map_err(|error| MoverError::source(self.root.path(), &error))
    }

    /// The number of entries that have to be in the snapshot, without folders.
    pub(super) fn expected(&self) -> u64 {
        self.given.load(Ordering::Relaxed) - self.dropped.load(Ordering::Relaxed)
    }

    fn walk(&self, depth: WalkDepth, failures: FailureLog) -> Walk {
        Walk::new(self.root.clone(), depth, failures, self.job.stop.clone())
    }
}

impl ReadSource for FolderSource {
    type Open = FolderFile;
    type Iter = FolderEntries;

    fn size(&self) -> RusticResult<Option<u64>> {
        Ok(Some(self.size.unwrap_or_else(|| self.file_sizes().sum())))
    }

    fn entries(&self) -> FolderEntries {
        FolderEntries {
            walk: self.walk(WalkDepth::Everything, self.failures.clone()),
            root: self.root.clone(),
            job: self.job.clone(),
            failures: self.failures.clone(),
            given: self.given.clone(),
            dropped: self.dropped.clone(),
        }
    }
}

#[derive(Debug)]
pub(super) struct FolderEntries {
    walk: Walk,
    root: Arc<Root>,
    job: Job,
    failures: FailureLog,
    given: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

impl Iterator for FolderEntries {
    type Item = RusticResult<ReadSourceEntry<FolderFile>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.walk.next()?;
        if entry.kind != EntryKind::Folder {
            self.given.fetch_add(1, Ordering::Relaxed);
            self.job.progress.add_file();
        }
        let open = (entry.kind == EntryKind::File).then(|| FolderFile {
            file: SourceFile {
                root: self.root.clone(),
                path: entry.path.clone(),
                identity: entry.identity,
                failures: self.failures.clone(),
                stop: self.job.stop.clone(),
                progress: self.job.progress.clone(),
            },
            dropped: self.dropped.clone(),
        });
        let node = node(&entry, &self.failures);
        Some(Ok(ReadSourceEntry {
            path: entry.path,
            node,
            open,
        }))
    }
}

/// A file that was found; opened by the thread that reads it.
#[derive(Debug)]
pub(super) struct FolderFile {
    file: SourceFile,
    dropped: Arc<AtomicU64>,
}

impl ReadSourceOpen for FolderFile {
    type Reader = CountedReader;

    fn open(self) -> RusticResult<CountedReader> {
        let path = self.file.path.clone();
        match self.file.open() {
            Ok(reader) => Ok(CountedReader {
                reader,
                dropped: Some(self.dropped),
            }),
            Err(error) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                Err(unreadable(&path, error))
            }
        }
    }
}

fn unreadable(path: &Path, error: std::io::Error) -> Box<RusticError> {
    RusticError::with_source(ErrorKind::InputOutput, "cannot open `{path}`", error)
        .attach_context("path", path.display().to_string())
}

/// Counts the file as dropped at the first error: rustic_core leaves it out of the snapshot then.
#[derive(Debug)]
pub(super) struct CountedReader {
    reader: SourceReader,
    dropped: Option<Arc<AtomicU64>>,
}

impl std::io::Read for CountedReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.reader.read(buffer);
        if let Err(error) = &read
            && error.kind() != std::io::ErrorKind::Interrupted
            && let Some(dropped) = self.dropped.take()
        {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

fn node(entry: &Entry, failures: &FailureLog) -> Node {
    let (node_type, type_bits) = match &entry.kind {
        EntryKind::File => (NodeType::File, 0),
        EntryKind::Folder => (NodeType::Dir, GO_FOLDER),
        EntryKind::Link { target } => (NodeType::from_link(target), GO_LINK),
        EntryKind::BlockDevice { device } => (NodeType::Dev { device: *device }, GO_DEVICE),
        EntryKind::CharDevice { device } => (
            NodeType::Chardev { device: *device },
            GO_DEVICE | GO_CHAR_DEVICE,
        ),
        EntryKind::Fifo => (NodeType::Fifo, GO_FIFO),
        EntryKind::Socket => (NodeType::Socket, GO_SOCKET),
    };
    let mut meta = metadata(&entry.attributes);
    meta.mode = meta.mode.map(|mode| mode | type_bits);
    identify(&mut meta, &entry.identity, entry.kind == EntryKind::Folder);
    if let Err(reason) = add_extended(&mut meta, &entry.attributes.extended) {
        failures.record(&entry.path, &reason);
    }
    if meta.mtime.is_none() {
        let modified = entry.attributes.modified;
        let reason =
            format!("its time is missing, as {modified} is beyond the years of the format");
        failures.record(&entry.path, &reason);
    }
    let name = entry.path.file_name().unwrap_or_default();
    Node::new_node(name, node_type, meta)
}

pub(super) fn metadata(attributes: &Attributes) -> Metadata {
    let modified = timestamp(attributes.modified);
    Metadata {
        mode: Some(go_permissions(attributes.mode)),
        mtime: modified,
        // The access time on the disk changes with each backup.
        atime: modified,
        uid: Some(attributes.uid),
        gid: Some(attributes.gid),
        ..Metadata::default()
    }
}

fn identify(meta: &mut Metadata, identity: &Identity, is_folder: bool) {
    meta.ctime = timestamp(identity.changed);
    meta.inode = identity.inode;
    if !is_folder {
        meta.size = identity.size;
        meta.links = identity.links;
        // Only hard links need it, and it may differ with each mount.
        meta.device_id = if identity.links > 1 {
            identity.device
        } else {
            0
        };
    }
}

/// Their type has no public name: it is made from JSON.
fn add_extended(meta: &mut Metadata, extended: &[ExtendedAttribute]) -> Result<(), String> {
    if extended.is_empty() {
        return Ok(());
    }
    let mut saved = Vec::with_capacity(extended.len());
    let mut lost = Ok(());
    for attribute in extended {
        if let Some(name) = attribute.name.to_str() {
            let value = BASE64_STANDARD.encode(&attribute.value);
            saved.push(json!({ "name": name, "value": value }));
        } else {
            let name = attribute.name.display();
            lost = Err(format!(
                "its extended attribute {name} is missing, as its name is not UTF-8"
            ));
        }
    }
    let parsed = serde_json::from_value::<Metadata>(json!({ "extended_attributes": saved }));
    let parsed = parsed.map_err(|error| format!("its extended attributes are missing: {error}"))?;
    meta.extended_attributes = parsed.extended_attributes;
    lost
}

fn timestamp(moment: Moment) -> Option<Timestamp> {
    let nanoseconds = i32::try_from(moment.nanoseconds).ok()?;
    Timestamp::new(moment.seconds, nanoseconds).ok()
}

/// The moment as file systems count it: nanoseconds go forwards from the second before it, also
/// before 1970, where a timestamp has negative ones.
pub(super) fn moment(timestamp: Timestamp) -> Moment {
    let nanoseconds = timestamp.subsec_nanosecond();
    let borrow = i64::from(nanoseconds < 0);
    Moment {
        seconds: timestamp.as_second() - borrow,
        nanoseconds: i64::from(nanoseconds) + borrow * 1_000_000_000,
    }
}

/// Permissions with setuid, setgid and sticky as Go writes them.
fn go_permissions(mode: u32) -> u32 {
    let special = [
        (0o4000, GO_SETUID),
        (0o2000, GO_SETGID),
        (0o1000, GO_STICKY),
    ];
    let bits = special.iter().filter(|(bit, _)| mode & bit != 0);
    bits.fold(mode & 0o777, |mode, (_, go)| mode | go)
}

/// The opposite of [`go_permissions`]; the type is left out.
pub(super) fn unix_permissions(go: u32) -> u32 {
    let special = [
        (0o4000, GO_SETUID),
        (0o2000, GO_SETGID),
        (0o1000, GO_STICKY),
    ];
    let bits = special.iter().filter(|(_, bit)| go & bit != 0);
    bits.fold(go & 0o777, |mode, (bit, _)| mode | bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_survive_the_way_through_go() {
        for mode in [0, 0o644, 0o4755, 0o2750, 0o1777, 0o7777] {
            assert_eq!(unix_permissions(go_permissions(mode)), mode);
        }
    }

    #[test]
    fn times_before_and_after_1970_survive_the_way_through_the_format() {
        for (seconds, nanoseconds) in [
            (0, 0),
            (3, 4),
            (-1, 0),
            (-1, 999_999_999),
            (-315_619_200, 123_456_789),
        ] {
            let time = Moment {
                seconds,
                nanoseconds,
            };
            assert_eq!(timestamp(time).map(moment), Some(time));
        }
    }
}
