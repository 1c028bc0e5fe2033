//! Comparison of a restored volume with its snapshot.
//!
//! rustic_core only logs an owner, mode, time or extended attribute that it cannot set, and a
//! device, pipe or link that it cannot make. Contents of files are not compared: an error while
//! they are written ends the restore.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use rustic_core::repofile::{Node, NodeType};

use super::source::{moment, unix_permissions};
use crate::{
    failures::FailureLog,
    volume::{Attributes, ExtendedAttribute, NOT_OURS},
};

pub(super) struct Verification<'a> {
    target: &'a Path,
    failures: FailureLog,
    /// The file in the volume for each file of the snapshot that has several names.
    linked: HashMap<SavedFile, RestoredFile>,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SavedFile {
    device: u64,
    inode: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct RestoredFile {
    device: u64,
    inode: u64,
}

impl<'a> Verification<'a> {
    pub(super) fn new(target: &'a Path, failures: FailureLog) -> Self {
        Self {
            target,
            failures,
            linked: HashMap::new(),
            files: 0,
            bytes: 0,
        }
    }

    /// Compares one entry; records each difference.
    pub(super) fn compare(&mut self, path: &Path, node: &Node) {
        if !node.is_dir() {
            self.files += 1;
        }
        if node.is_file() {
            self.bytes += node.meta.size;
        }
        match self.differences(&self.target.join(path), node) {
            Ok(differences) => {
                for difference in differences {
                    self.failures.record(path, &difference);
                }
            }
            Err(error) => self
                .failures
                .record(path, &format!("it was not restored: {error}")),
        }
    }

    pub(super) fn compare_root(&mut self, root: &Attributes) {
        let found = fs::symlink_metadata(self.target)
            .and_then(|metadata| Attributes::read(self.target, &metadata));
        match found {
            Ok(found) => {
                for difference in root.differences(&found, false) {
                    self.failures.record(Path::new(""), &difference);
                }
            }
            Err(error) => self.failures.record(Path::new(""), &error),
        }
    }

    fn differences(&mut self, place: &Path, node: &Node) -> io::Result<Vec<String>> {
        let metadata = fs::symlink_metadata(place)?;
        let mut differences = self.kind_differences(place, node, &metadata)?;
        let found = Attributes::read(place, &metadata)?;
        let saved = saved_attributes(node, &found);
        differences.extend(saved.differences(&found, node.is_symlink()));
        Ok(differences)
    }

    fn kind_differences(
        &mut self,
        place: &Path,
        node: &Node,
        metadata: &fs::Metadata,
    ) -> io::Result<Vec<String>> {
        let file_type = metadata.file_type();
        let mut differences = Vec::new();
        let is_right_kind = match &node.node_type {
            NodeType::File => file_type.is_file(),
            NodeType::Dir => file_type.is_dir(),
            NodeType::Symlink { .. } => file_type.is_symlink(),
            NodeType::Dev { .. } => file_type.is_block_device(),
            NodeType::Chardev { .. } => file_type.is_char_device(),
            NodeType::Fifo => file_type.is_fifo(),
            NodeType::Socket => file_type.is_socket(),
        };
        if !is_right_kind {
            let kind = &node.node_type;
            return Ok(vec![format!("it was not restored: it is no {kind}")]);
        }
        match &node.node_type {
            NodeType::File => {
                if metadata.len() != node.meta.size {
                    differences.push(format!(
                        "it has {} bytes instead of {}",
                        metadata.len(),
                        node.meta.size
                    ));
                }
                if !self.is_linked_as_saved(node, metadata) {
                    differences.push("it is no hard link any longer".to_owned());
                }
            }
            NodeType::Symlink { .. } if fs::read_link(place)? != node.node_type.to_link() => {
                differences.push("it links to something else".to_owned());
            }
            NodeType::Dev { device } | NodeType::Chardev { device }
                if metadata.rdev() != *device =>
            {
                differences.push("it is another device".to_owned());
            }
            _ => {}
        }
        Ok(differences)
    }

    fn is_linked_as_saved(&mut self, node: &Node, metadata: &fs::Metadata) -> bool {
        if node.meta.links < 2 || node.meta.device_id == 0 || node.meta.inode == 0 {
            return true;
        }
        let saved = SavedFile {
            device: node.meta.device_id,
            inode: node.meta.inode,
        };
        let restored = RestoredFile {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        *self.linked.entry(saved).or_insert(restored) == restored
    }
}

/// The attributes in the snapshot. What it does not say is taken from what was found.
fn saved_attributes(node: &Node, found: &Attributes) -> Attributes {
    let meta = &node.meta;
    let mut extended: Vec<_> = meta
        .extended_attributes
        .iter()
        .filter(|attribute| !NOT_OURS.contains(&attribute.name.as_str()))
        .map(|attribute| ExtendedAttribute {
            name: attribute.name.clone().into(),
            value: attribute.value.clone().unwrap_or_default(),
        })
        .collect();
    extended.sort();
    Attributes {
        mode: meta.mode.map_or(found.mode, unix_permissions),
        uid: meta.uid.unwrap_or(found.uid),
        gid: meta.gid.unwrap_or(found.gid),
        modified: meta.mtime.map_or(found.modified, moment),
        extended,
    }
}
