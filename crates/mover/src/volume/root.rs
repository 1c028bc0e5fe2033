//! The root folder of a volume, below which everything is opened.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use super::Attributes;

/// Attempts while another process renames folders on the way.
const MAX_RACES: usize = 16;

/// An open root folder.
///
/// Paths are relative, and are resolved by the kernel beneath the root without following a symbolic
/// link: on a volume that is in use, a link put there in the meantime cannot lead to files of this
/// pod.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
    path: PathBuf,
}

/// An open folder beneath a root.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Self {
            folder: openat(CWD, path, flags, Mode::empty())?,
            path: path.to_owned(),
        };
        // Fails here and not at each file where the kernel, or the sandbox, lacks openat2.
        root.folder(Path::new(""))?;
        Ok(root)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file for reading. Does not wait for a pipe's other end.
    pub(crate) fn file(&self, path: &Path) -> io::Result<File> {
        self.beneath(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
            .map(File::from)
    }

    /// Opens a folder; the root itself if the path is empty.
    pub(crate) fn folder(&self, path: &Path) -> io::Result<Folder> {
        self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)
            .map(Folder)
    }

    /// The attributes of the root itself.
    pub(crate) fn attributes(&self) -> io::Result<Attributes> {
        let folder = self.folder(Path::new(""))?;
        let path = folder.entry(OsStr::new("."));
        Attributes::read(&path, &std::fs::symlink_metadata(&path)?)
    }

    fn beneath(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mut races = 0;
        loop {
            match openat2(&self.folder, path, flags, Mode::empty(), resolve) {
                Err(rustix::io::Errno::AGAIN) if races < MAX_RACES => races += 1,
                opened => return Ok(opened?),
            }
        }
    }
}

impl Folder {
    /// The names in the folder, sorted by their bytes.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let entries = std::fs::read_dir(self.entry(OsStr::new(".")))?;
        let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
        let mut names = names?;
        names.sort_unstable();
        Ok(names)
    }

    /// A path to an entry that stays in this folder, whatever is renamed. It is valid while the
    /// folder is open. Calls that do not follow a link as last part see the entry itself.
    pub(crate) fn entry(&self, name: &OsStr) -> PathBuf {
        let mut path = PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        path.push(name);
        path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_leads_out_of_the_root_or_is_followed() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        let inside = tempfile::tempdir().unwrap();
        std::fs::create_dir(inside.path().join("folder")).unwrap();
        std::fs::write(inside.path().join("folder/file"), "own").unwrap();
        symlink(outside.path(), inside.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), inside.path().join("link")).unwrap();
        symlink("folder", inside.path().join("in")).unwrap();
        let root = Root::open(inside.path()).unwrap();
        assert!(root.file(Path::new("folder/file")).is_ok());
        for path in ["out/secret", "link", "in/file", "../secret", "/etc/passwd"] {
            assert!(root.file(Path::new(path)).is_err(), "{path}");
        }
        assert!(root.folder(Path::new("out")).is_err());
    }
}
