//! The entries of a volume, folder by folder in the order of their names.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    vec,
};

use super::{Attributes, Root, attributes::Moment, root::Folder};
use crate::{StopFlag, failures::FailureLog};

/// Something in a volume.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Relative to the root.
    pub(crate) path: PathBuf,
    pub(crate) kind: EntryKind,
    pub(crate) attributes: Attributes,
    pub(crate) identity: Identity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Folder,
    Link { target: PathBuf },
    BlockDevice { device: u64 },
    CharDevice { device: u64 },
    Fifo,
    Socket,
}

/// Which file it is, and in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) links: u64,
    pub(crate) size: u64,
    pub(crate) modified: Moment,
    pub(crate) changed: Moment,
}

impl Identity {
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            links: metadata.nlink(),
            size: metadata.len(),
            modified: Moment {
                seconds: metadata.mtime(),
                nanoseconds: metadata.mtime_nsec(),
            },
            changed: Moment {
                seconds: metadata.ctime(),
                nanoseconds: metadata.ctime_nsec(),
            },
        }
    }

    /// Whether the contents are the same, as far as the file system tells.
    pub(crate) fn has_contents_of(&self, other: &Self) -> bool {
        (self.device, self.inode, self.size) == (other.device, other.inode, other.size)
            && self.modified == other.modified
    }
}

/// How much of each entry is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkDepth {
    Everything,
    /// Without extended attributes.
    Sizes,
}

/// Walks over all entries beneath a root, without the root itself. A folder comes before its
/// entries. Entries that cannot be read are recorded as failures, and left out; the entries of a
/// folder that cannot be read, too. Ends early when the operation is stopped.
///
/// Only the innermost folder is kept open: the depth of a tree is not bounded by the number of
/// files that may be open.
#[derive(Debug)]
pub(crate) struct Walk {
    root: Arc<Root>,
    folders: Vec<OpenFolder>,
    depth: WalkDepth,
    failures: FailureLog,
    stop: StopFlag,
}

#[derive(Debug)]
struct OpenFolder {
    path: PathBuf,
    names: vec::IntoIter<OsString>,
    folder: Option<Folder>,
}

impl Walk {
    pub(crate) fn new(
        root: Arc<Root>,
        depth: WalkDepth,
        failures: FailureLog,
        stop: StopFlag,
    ) -> Self {
        let mut walk = Self {
            root,
            folders: Vec::new(),
            depth,
            failures,
            stop,
        };
        walk.enter(Path::new(""));
        walk
    }

    fn enter(&mut self, path: &Path) {
        let opened = self.root.folder(path);
        match opened.and_then(|folder| Ok((folder.names()?, folder))) {
            Ok((names, folder)) => {
                if let Some(outer) = self.folders.last_mut() {
                    outer.folder = None;
                }
                self.folders.push(OpenFolder {
                    path: path.to_owned(),
                    names: names.into_iter(),
                    folder: Some(folder),
                });
            }
            Err(error) => {
                let reason =
                    format!("the folder cannot be read, its contents are missing: {error}");
                self.failures.record(path, &reason);
            }
        }
    }

    fn inspect(&mut self, name: &OsString) -> io::Result<Entry> {
        let Some(open) = self.folders.last_mut() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let folder = match &mut open.folder {
            Some(folder) => folder,
            closed => closed.insert(self.root.folder(&open.path)?),
        };
        let place = folder.entry(name);
        let metadata = fs::symlink_metadata(&place)?;
        let kind = kind(&place, &metadata)?;
        let path = open.path.join(name);
        let attributes = match self.depth {
            WalkDepth::Sizes => Attributes::without_extended(&metadata),
            WalkDepth::Everything => match Attributes::read(&place, &metadata) {
                Ok(attributes) => attributes,
                Err(error) => {
                    let reason = format!("its extended attributes are missing: {error}");
                    self.failures.record(&path, &reason);
                    Attributes::without_extended(&metadata)
                }
            },
        };
        Ok(Entry {
            path,
            kind,
            attributes,
            identity: Identity::of(&metadata),
        })
    }
}

impl Iterator for Walk {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            if self.stop.is_set() {
                return None;
            }
            let open = self.folders.last_mut()?;
            let Some(name) = open.names.next() else {
                self.folders.pop();
                continue;
            };
            let path = open.path.join(&name);
            match self.inspect(&name) {
                Ok(entry) => {
                    if entry.kind == EntryKind::Folder {
                        self.enter(&entry.path);
                    }
                    return Some(entry);
                }
                Err(error) => self
                    .failures
                    .record(&path, &format!("it is missing: {error}")),
            }
        }
    }
}

fn kind(place: &Path, metadata: &fs::Metadata) -> io::Result<EntryKind> {
    let file_type = metadata.file_type();
    let device = metadata.rdev();
    Ok(if file_type.is_dir() {
        EntryKind::Folder
    } else if file_type.is_symlink() {
        EntryKind::Link {
            target: fs::read_link(place)?,
        }
    } else if file_type.is_block_device() {
        EntryKind::BlockDevice { device }
    } else if file_type.is_char_device() {
        EntryKind::CharDevice { device }
    } else if file_type.is_fifo() {
        EntryKind::Fifo
    } else if file_type.is_socket() {
        EntryKind::Socket
    } else {
        EntryKind::File
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(root: &Path, failures: &FailureLog) -> Walk {
        let root = Arc::new(Root::open(root).unwrap());
        Walk::new(
            root,
            WalkDepth::Everything,
            failures.clone(),
            StopFlag::default(),
        )
    }

    #[test]
    fn folders_come_before_their_entries_in_the_order_of_bytes() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["b", "b/inner", "a-"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        for file in ["b/z", "b/inner/x", "a-/y", "a", "B", "c"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        let failures = FailureLog::default();
        let paths: Vec<_> = walk(root.path(), &failures)
            .map(|entry| entry.path.display().to_string())
            .collect();
        let expected = [
            "B",
            "a",
            "a-",
            "a-/y",
            "b",
            "b/inner",
            "b/inner/x",
            "b/z",
            "c",
        ];
        assert_eq!(paths, expected);
        assert_eq!(failures.collected().count, 0);
    }

    #[test]
    fn an_entry_that_vanishes_during_the_walk_is_a_failure() {
        let root = tempfile::tempdir().unwrap();
        for file in ["a", "b", "c"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        fs::create_dir(root.path().join("d")).unwrap();
        let failures = FailureLog::default();
        let mut walk = walk(root.path(), &failures);
        walk.next().unwrap();
        fs::remove_file(root.path().join("b")).unwrap();
        fs::remove_dir(root.path().join("d")).unwrap();
        assert_eq!(walk.count(), 1);
        let failures = failures.collected();
        assert_eq!(failures.count, 2);
        assert_eq!(failures.first[0].path, "b");
        assert_eq!(failures.first[1].path, "d");
    }

    #[test]
    fn a_stopped_walk_ends() {
        let root = tempfile::tempdir().unwrap();
        for file in ["a", "b", "c"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        let mut walk = walk(root.path(), &FailureLog::default());
        assert!(walk.next().is_some());
        walk.stop.cancel();
        assert!(walk.next().is_none());
    }
}
