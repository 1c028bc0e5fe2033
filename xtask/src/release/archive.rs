//! Archives whose bytes depend on their contents and on one time only.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::Path,
};

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// Value of gzip's field for the operating system that stands for an unknown one.
const UNKNOWN_SYSTEM: u8 = 255;

/// Folders and files by path, without a slash at the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Folder { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
}

impl Tree {
    /// Adds a folder, and the folders above it that are missing.
    pub(super) fn folder(&mut self, path: &str, mode: u32) {
        self.folders_above(path);
        self.entries.insert(path.to_owned(), Entry::Folder { mode });
    }

    /// Adds a file, and the folders above it that are missing.
    pub(super) fn file(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        self.folders_above(path);
        self.entries
            .insert(path.to_owned(), Entry::File { mode, bytes });
    }

    fn folders_above(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            self.entries
                .entry(path[..end].to_owned())
                .or_insert(Entry::Folder { mode: 0o755 });
        }
    }

    /// Its files: path and contents.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::File { bytes, .. } => Some((path.as_str(), bytes.as_slice())),
            Entry::Folder { .. } => None,
        })
    }

    /// A tar archive: sorted by path, all of user 0, all of one time (seconds since 1970).
    pub(super) fn tar(&self, time: u64) -> io::Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(time);
            match entry {
                Entry::Folder { mode } => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_size(0);
                    tar.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
                Entry::File { mode, bytes } => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_mode(*mode);
                    header.set_size(bytes.len() as u64);
                    tar.append_data(&mut header, path, bytes.as_slice())?;
                }
            }
        }
        tar.into_inner()
    }

    /// The tar archive, compressed.
    pub(super) fn tar_gz(&self, time: u64) -> io::Result<Vec<u8>> {
        gzip(&self.tar(time)?)
    }

    /// Writes it into a folder of this machine.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        for (path, entry) in &self.entries {
            let path = folder.join(path);
            match entry {
                Entry::Folder { .. } => fs::create_dir_all(path)?,
                Entry::File { bytes, .. } => fs::write(path, bytes)?,
            }
        }
        Ok(())
    }
}

/// Compresses, without name and time.
pub(super) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new()
        .operating_system(UNKNOWN_SYSTEM)
        .write(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_in_which_files_were_added_does_not_change_the_archive() {
        let (mut one, mut other) = (Tree::default(), Tree::default());
        one.file("lib/a", 0o644, b"a".to_vec());
        one.folder("tmp", 0o1777);
        one.file("program", 0o755, b"b".to_vec());
        other.file("program", 0o755, b"b".to_vec());
        other.file("lib/a", 0o644, b"a".to_vec());
        other.folder("tmp", 0o1777);
        assert_eq!(one.tar_gz(7).unwrap(), other.tar_gz(7).unwrap());
        assert_ne!(one.tar(7).unwrap(), one.tar(8).unwrap());
    }

    #[test]
    fn entries_are_sorted_of_user_0_and_of_the_given_time() {
        let mut tree = Tree::default();
        tree.folder("tmp", 0o1777);
        tree.file("lib/x/libc.so.6", 0o755, b"c".to_vec());
        let bytes = tree.tar(1_700_000_000).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut lines = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            assert_eq!(header.uid().unwrap() + header.gid().unwrap(), 0);
            let path = entry.path().unwrap().display().to_string();
            lines.push(format!("{:o} {path}", header.mode().unwrap()));
        }
        assert_eq!(
            lines,
            ["755 lib/", "755 lib/x/", "755 lib/x/libc.so.6", "1777 tmp/"]
        );
    }
}
