//! Owner, mode, time and extended attributes of a file or folder.

use std::{
    ffi::{CString, OsStr, OsString},
    fmt, fs, io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, lremovexattr,
        lsetxattr, utimensat,
    },
    io::Errno,
};
use serde::{Deserialize, Serialize};

/// Extended attributes that are neither saved nor compared: kubelet and the container runtime
/// label volumes for the pods that mount them.
pub(crate) const NOT_OURS: [&str; 1] = ["security.selinux"];

/// Maximum size of the names, or of one value (bytes): the kernel's limits.
const MAX_XATTR: usize = 64 << 10;

/// A time of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExtendedAttribute {
    pub(crate) name: OsString,
    pub(crate) value: Vec<u8>,
}

/// What a file or folder has beside its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The permissions with setuid, setgid and sticky, without the type.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified: Moment,
    /// Sorted by name. POSIX ACLs and file capabilities are among them.
    pub(crate) extended: Vec<ExtendedAttribute>,
}

impl Attributes {
    /// Reads the attributes of an entry, not of what it links to.
    pub(crate) fn read(path: &Path, metadata: &fs::Metadata) -> io::Result<Self> {
        Ok(Self {
            extended: extended(path)?,
            ..Self::without_extended(metadata)
        })
    }

    pub(crate) fn without_extended(metadata: &fs::Metadata) -> Self {
        Self {
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            modified: Moment {
                seconds: metadata.mtime(),
                nanoseconds: metadata.mtime_nsec(),
            },
            extended: Vec::new(),
        }
    }

    /// Sets the attributes of a folder. Continues after a failure; returns all failures.
    pub(crate) fn apply(&self, path: &Path) -> Vec<String> {
        let mut failures = Vec::new();
        let mut note = |what: String, result: io::Result<()>| {
            if let Err(error) = result {
                failures.push(format!("{what}: {error}"));
            }
        };
        let owner = format!("its owner cannot be set to {}:{}", self.uid, self.gid);
        note(
            owner,
            std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid)),
        );
        let mode = format!("its mode cannot be set to {:04o}", self.mode);
        note(
            mode,
            fs::set_permissions(path, fs::Permissions::from_mode(self.mode)),
        );
        let present = extended(path).unwrap_or_default();
        for other in &present {
            if !self.extended.iter().any(|ours| ours.name == other.name) {
                let what = format!(
                    "its extended attribute {} cannot be removed",
                    other.name.display()
                );
                note(
                    what,
                    lremovexattr(path, &other.name).map_err(io::Error::from),
                );
            }
        }
        for ours in self.extended.iter().filter(|ours| !present.contains(ours)) {
            let what = format!(
                "its extended attribute {} cannot be set",
                ours.name.display()
            );
            let set = lsetxattr(path, &ours.name, &ours.value, XattrFlags::empty());
            note(what, set.map_err(io::Error::from));
        }
        let time = Timespec {
            tv_sec: self.modified.seconds,
            tv_nsec: self.modified.nanoseconds,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let set = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
        note(
            "its time cannot be set".to_owned(),
            set.map_err(io::Error::from),
        );
        failures
    }

    /// How the attributes found in a volume differ from these. `is_link`: the mode of a
    /// symbolic link is not compared.
    pub(crate) fn differences(&self, found: &Self, is_link: bool) -> Vec<String> {
        let mut differences = Vec::new();
        if (self.uid, self.gid) != (found.uid, found.gid) {
            differences.push(format!(
                "its owner is {}:{} instead of {}:{}",
                found.uid, found.gid, self.uid, self.gid
            ));
        }
        if self.mode != found.mode && !is_link {
            differences.push(format!(
                "its mode is {:04o} instead of {:04o}",
                found.mode, self.mode
            ));
        }
        if self.modified != found.modified {
            differences.push(format!(
                "its time is {} instead of {}",
                found.modified, self.modified
            ));
        }
        for ours in &self.extended {
            if !found.extended.contains(ours) {
                differences.push(format!(
                    "its extended attribute {} is missing or different",
                    ours.name.display()
                ));
            }
        }
        for other in &found.extended {
            if !self.extended.iter().any(|ours| ours.name == other.name) {
                differences.push(format!(
                    "it has an extended attribute {} that was not saved",
                    other.name.display()
                ));
            }
        }
        differences
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

/// The extended attributes of an entry, not of what it links to. Empty where the file system has
/// none.
fn extended(path: &Path) -> io::Result<Vec<ExtendedAttribute>> {
    let mut buffer = Vec::with_capacity(256);
    let names = loop {
        match llistxattr(path, rustix::buffer::spare_capacity(&mut buffer)) {
            Ok(_) => break buffer,
            Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
            Err(Errno::RANGE) if buffer.capacity() < MAX_XATTR => {
                buffer = Vec::with_capacity(MAX_XATTR);
            }
            Err(error) => return Err(error.into()),
        }
    };
    let mut all = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        if name.is_empty() || NOT_OURS.iter().any(|other| other.as_bytes() == name) {
            continue;
        }
        if let Some(value) = value(path, name)? {
            all.push(ExtendedAttribute {
                name: OsString::from_vec(name.to_vec()),
                value,
            });
        }
    }
    all.sort();
    Ok(all)
}

/// The value of an extended attribute; `None` if it was removed in the meantime.
fn value(path: &Path, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let name = CString::new(name)?;
    let mut value = Vec::with_capacity(256);
    loop {
        match lgetxattr(path, &name, rustix::buffer::spare_capacity(&mut value)) {
            Ok(_) => return Ok(Some(value)),
            Err(Errno::NODATA) => return Ok(None),
            Err(Errno::RANGE) if value.capacity() < MAX_XATTR => {
                value = Vec::with_capacity(MAX_XATTR);
            }
            Err(error) => {
                let name = OsStr::from_bytes(name.as_bytes()).display();
                let error = io::Error::from(error);
                let detail = format!("extended attribute {name}: {error}");
                return Err(io::Error::new(error.kind(), detail));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_named() {
        let saved = Attributes {
            mode: 0o4755,
            uid: 1,
            gid: 2,
            modified: Moment {
                seconds: 3,
                nanoseconds: 4,
            },
            extended: vec![ExtendedAttribute {
                name: "user.a".into(),
                value: vec![1],
            }],
        };
        assert!(saved.differences(&saved, false).is_empty());
        let found = Attributes {
            extended: vec![ExtendedAttribute {
                name: "user.b".into(),
                value: vec![1],
            }],
            ..Attributes::default()
        };
        assert_eq!(
            saved.differences(&found, false),
            [
                "its owner is 0:0 instead of 1:2",
                "its mode is 0000 instead of 4755",
                "its time is 0.000000000 instead of 3.000000004",
                "its extended attribute user.a is missing or different",
                "it has an extended attribute user.b that was not saved",
            ]
        );
        assert_eq!(
            saved.differences(&found, true).len(),
            4,
            "links have no mode"
        );
    }

    #[test]
    fn attributes_of_a_folder_are_set_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = Attributes {
            mode: 0o2750,
            modified: Moment {
                seconds: 1_000_000_000,
                nanoseconds: 123_456_789,
            },
            extended: vec![ExtendedAttribute {
                name: "user.note".into(),
                value: vec![7; 1000],
            }],
            ..Attributes::without_extended(&fs::metadata(folder.path()).unwrap())
        };
        lsetxattr(folder.path(), "user.old", b"x", XattrFlags::empty()).unwrap();
        assert_eq!(wanted.apply(folder.path()), Vec::<String>::new());
        let metadata = fs::symlink_metadata(folder.path()).unwrap();
        let found = Attributes::read(folder.path(), &metadata).unwrap();
        assert_eq!(found, wanted);
    }
}
