//! Keys of a store.
//!
//! Velero: `pkg/persistence/object_store_layout.go`, v1.18.

use backup_core::{
    data_movement::{NOTES_FOLDER, REPOSITORY_TYPE},
    names::is_dns_label,
};
use object_store::path::{Path, PathPart};

use crate::StoreError;

/// Size of all parts but the last (bytes). S3 requires at least 5 MiB, some stores equal sizes.
pub(crate) const PART_SIZE: usize = 8 * 1024 * 1024;

/// Folders allowed at the top of a store; any other folder makes Velero call the location
/// unavailable.
pub(crate) const TOP_LEVEL: &[&str] = &[
    "backups", "restores", "restic", "metadata", "plugins", "kopia",
];

/// Folder inside a backup's folder that is ours. Velero tolerates unknown keys there and deletes
/// them with the backup.
pub(crate) const PRIVATE: &str = ".private";

// Suffixes of the files' names.
pub(crate) const CONTENTS: &str = ".tar.gz";
pub(crate) const LOG: &str = "-logs.gz";
pub(crate) const RESULTS: &str = "-results.gz";
pub(crate) const RESOURCE_LIST: &str = "-resource-list.json.gz";
/// The one file of a restore without `restore-` in its name.
pub(crate) const VOLUME_INFO: &str = "-volumeinfo.json.gz";
pub(crate) const ITEM_OPERATIONS: &str = "-itemoperations.json.gz";
pub(crate) const VOLUME_SNAPSHOTS: &str = "-volumesnapshots.json.gz";
pub(crate) const POD_VOLUME_BACKUPS: &str = "-podvolumebackups.json.gz";
// Written by Velero only, up to 1.17; two of the files up to 1.16.
pub(crate) const CSI_SNAPSHOT_CLASSES: &str = "-csi-volumesnapshotclasses.json.gz";
pub(crate) const CSI_SNAPSHOT_CONTENTS: &str = "-csi-volumesnapshotcontents.json.gz";
pub(crate) const CSI_SNAPSHOTS: &str = "-csi-volumesnapshots.json.gz";

const OPERATIONS: &str = "operations-";
const JOURNAL: &str = "journal-";
const SNAPSHOT: &str = "so-far-";
const LOG_SNAPSHOT: &str = "so-far-log-";

/// Keys under the prefix of one BackupStorageLocation.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(crate) prefix: Path,
}

impl Layout {
    /// Keys under this prefix, with or without slashes around it. Errors: a prefix that cannot be
    /// part of a key.
    pub(crate) fn new(prefix: &str) -> Result<Self, StoreError> {
        let path = Path::parse(prefix.trim_matches('/')).map_err(|error| {
            let message = format!("{prefix:?} cannot be part of a key: {error}");
            StoreError::config("spec.objectStorage.prefix", message)
        })?;
        Ok(Self { prefix: path })
    }

    pub(crate) fn backups(&self) -> Path {
        self.prefix.clone().join("backups")
    }

    /// Key of the object that is written to test write access. It is beside the folders of backups,
    /// so that programs that list folders, as Velero always does, do not see it.
    pub(crate) fn probe(&self) -> Path {
        self.backups().join(".writable")
    }

    /// Keys of one backup. Errors: a name that would leave the folder.
    pub(crate) fn backup(&self, name: &str) -> Result<JobKeys, StoreError> {
        JobKeys::new("backup", self.backups(), name)
    }

    /// Folder of the repositories of volume data.
    pub(crate) fn repositories(&self) -> Path {
        self.prefix.clone().join(REPOSITORY_TYPE)
    }

    /// Folder of the repository of a namespace. Errors: a name that would leave the folder.
    pub(crate) fn repository(&self, namespace: &str) -> Result<Path, StoreError> {
        if !is_dns_label(namespace) {
            let message = format!("{namespace:?} is no name of a namespace");
            return Err(StoreError::config("namespace of the volume", message));
        }
        Ok(self.repositories().join(namespace))
    }

    /// Key of a snapshot in the repository of a namespace. Errors: an id that is not whole, or
    /// would leave the folder.
    pub(crate) fn volume_snapshot(&self, namespace: &str, id: &str) -> Result<Path, StoreError> {
        if !is_snapshot_id(id) {
            let message = format!("{id:?} is no id of a snapshot: expected 64 hexadecimal digits");
            return Err(StoreError::config("snapshotHandle", message));
        }
        Ok(self.repository(namespace)?.join("snapshots").join(id))
    }

    /// Folder of the notes of snapshots for the Backup of this uid, in the repository of a
    /// namespace. Errors: a name that would leave the folder.
    pub(crate) fn snapshot_notes(
        &self,
        namespace: &str,
        backup_uid: &str,
    ) -> Result<Path, StoreError> {
        let notes = self.repository(namespace)?.join(NOTES_FOLDER);
        Ok(notes.join(part(backup_uid)?))
    }

    /// Keys of one restore, of any uid. Errors: a name that would leave the folder.
    pub(crate) fn restore(&self, name: &str) -> Result<JobKeys, StoreError> {
        JobKeys::new("restore", self.prefix.clone().join("restores"), name)
    }
}

/// Whether this is the whole id of a snapshot in a repository of the restic format.
pub fn is_snapshot_id(id: &str) -> bool {
    id.len() == 64
        && id
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checks that a name can be one part of a key. Names of Kubernetes objects pass unchanged.
fn part(name: &str) -> Result<PathPart<'_>, StoreError> {
    if name.is_empty()
        || name.len() > 253
        || name == "."
        || name == ".."
        || !name.chars().all(is_plain)
    {
        let message = format!(
            "{name:?} cannot be part of a key: letters, digits, '-', '.' and '_' are expected"
        );
        return Err(StoreError::config("metadata.name", message));
    }
    Ok(PathPart::from(name))
}

/// Whether a character may be in a part of a key.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

#[derive(Clone, Debug)]
pub struct JobKeys {
    /// `backup` or `restore`, for messages.
    pub(crate) noun: &'static str,
    pub(crate) folder: Path,
    pub(crate) name: String,
    /// Folder of our own keys, which readers ignore. All keys there are create-only.
    pub(crate) private: Path,
}

impl JobKeys {
    fn new(noun: &'static str, parent: Path, name: &str) -> Result<Self, StoreError> {
        let folder = parent.join(part(name)?);
        let private = folder.clone().join(PRIVATE);
        Ok(Self {
            noun,
            folder,
            name: name.to_owned(),
            private,
        })
    }

    /// Uses private keys of the object with this uid only. There may be another object of the same
    /// name, from an earlier time or another cluster. Errors: a uid that would leave the folder.
    pub(crate) fn of_uid(self, uid: &str) -> Result<Self, StoreError> {
        let private = self.private.join(part(uid)?);
        Ok(Self { private, ..self })
    }

    /// The Backup itself; the backup exists if and only if this key does.
    pub(crate) fn metadata(&self) -> Path {
        self.folder.clone().join("velero-backup.json")
    }

    pub(crate) fn contents(&self) -> Path {
        self.file(CONTENTS)
    }

    /// A file, by the suffix of its name.
    pub(crate) fn file(&self, suffix: &str) -> Path {
        let prefix = if self.noun == "restore" && suffix != VOLUME_INFO {
            "restore-"
        } else {
            ""
        };
        self.folder
            .clone()
            .join(format!("{prefix}{}{suffix}", self.name))
    }

    /// Whether a key is one of [`Self::file_snapshot`] or [`Self::log_snapshots`].
    pub(crate) fn is_snapshot(&self, key: &Path) -> bool {
        self.is_private(key)
            && key
                .filename()
                .is_some_and(|name| name.starts_with(SNAPSHOT))
    }

    pub(crate) fn is_private(&self, key: &Path) -> bool {
        key.prefix_matches(&self.private)
    }

    /// Holds the uid of the object that writes the folder, unless the folder was taken over.
    pub(crate) fn owner(&self) -> Path {
        self.folder.clone().join(PRIVATE).join("owner")
    }

    /// The same for objects that took the folder of a backup over, by the number of the record that
    /// allowed it. Some stores refuse a key that was deleted before, so the first marker is not
    /// replaced.
    pub(crate) fn later_owners(&self) -> NumberedKeys {
        NumberedKeys {
            folder: self.folder.clone().join(PRIVATE),
            kind: "owner-",
        }
    }

    /// Says that the folder holds a copy of a backup that was stored elsewhere.
    pub(crate) fn copy_note(&self) -> Path {
        self.folder.clone().join(PRIVATE).join("copy")
    }

    pub(crate) fn is_marker(&self, key: &Path) -> bool {
        *key == self.owner() || self.later_owners().number(key).is_some()
    }

    /// The current marker among the existing keys.
    pub(crate) fn marker(&self, found: &[Path]) -> Path {
        let later = self.later_owners();
        later
            .last(found)
            .map_or_else(|| self.owner(), |number| later.key(number))
    }

    /// What the final keys hold so far (number 0 of a restore, and an open one of a backup), or
    /// will hold. The record with the highest number counts.
    pub(crate) fn record(&self, number: u64) -> Path {
        if number == 0 {
            self.private.clone().join("record")
        } else {
            self.records().key(number)
        }
    }

    /// The highest number among the existing records.
    pub(crate) fn last_record(&self, found: &[Path]) -> Option<u64> {
        self.records()
            .last(found)
            .or_else(|| found.contains(&self.record(0)).then_some(0))
    }

    pub(crate) fn records(&self) -> NumberedKeys {
        self.numbered("record-")
    }

    /// States of the operations; the highest number counts.
    pub(crate) fn operations(&self) -> NumberedKeys {
        self.numbered(OPERATIONS)
    }

    pub(crate) fn journal(&self) -> NumberedKeys {
        self.numbered(JOURNAL)
    }

    /// Notes of uploads that have started, so that their parts can be removed after a crash.
    pub(crate) fn upload_notes(&self) -> NumberedKeys {
        self.numbered("upload-")
    }

    /// What a final key would hold while operations run, by the numbers of the record and of the
    /// state of the operations. Written on request.
    pub(crate) fn file_snapshot(&self, record: u64, operations: u64, key: &Path) -> Path {
        let file = key.filename().unwrap_or_default();
        let state = if record == 0 {
            operations.to_string()
        } else {
            format!("{record}-{operations}")
        };
        self.private
            .clone()
            .join(format!("{SNAPSHOT}{state}-{file}"))
    }

    /// The log at a moment (milliseconds since 1970) while items were processed. Written on
    /// request.
    pub(crate) fn log_snapshots(&self) -> NumberedKeys {
        self.numbered(LOG_SNAPSHOT)
    }

    fn numbered(&self, kind: &'static str) -> NumberedKeys {
        NumberedKeys {
            folder: self.private.clone(),
            kind,
        }
    }
}

/// Private keys of one kind, which are numbered.
#[derive(Clone, Debug)]
pub(crate) struct NumberedKeys {
    pub(crate) folder: Path,
    kind: &'static str,
}

impl NumberedKeys {
    pub(crate) fn key(&self, number: u64) -> Path {
        self.folder.clone().join(format!("{}{number}", self.kind))
    }

    /// The number in a key; `None` for a key of another kind.
    pub(crate) fn number(&self, key: &Path) -> Option<u64> {
        let name = key
            .filename()
            .filter(|_| key.prefix_matches(&self.folder))?;
        name.strip_prefix(self.kind)?.parse().ok()
    }

    pub(crate) fn last(&self, keys: &[Path]) -> Option<u64> {
        keys.iter().filter_map(|key| self.number(key)).max()
    }

    pub(crate) fn has_any(&self, keys: &[Path]) -> bool {
        keys.iter().any(|key| self.number(key).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_velero() {
        for (prefix, base) in [
            ("", ""),
            ("/", ""),
            ("p", "p/"),
            ("/p/q/", "p/q/"),
            ("my prefix~1", "my prefix~1/"),
        ] {
            let layout = Layout::new(prefix).unwrap();
            let b = layout.backup("n-1.2").unwrap();
            let r = layout.restore("r1").unwrap();
            let of_u = layout.restore("r1").unwrap().of_uid("u-1").unwrap();
            let table = [
                (b.metadata(), "backups/n-1.2/velero-backup.json"),
                (b.contents(), "backups/n-1.2/n-1.2.tar.gz"),
                (b.file(LOG), "backups/n-1.2/n-1.2-logs.gz"),
                (b.file(RESULTS), "backups/n-1.2/n-1.2-results.gz"),
                (
                    b.file(RESOURCE_LIST),
                    "backups/n-1.2/n-1.2-resource-list.json.gz",
                ),
                (
                    b.file(VOLUME_INFO),
                    "backups/n-1.2/n-1.2-volumeinfo.json.gz",
                ),
                (
                    b.file(ITEM_OPERATIONS),
                    "backups/n-1.2/n-1.2-itemoperations.json.gz",
                ),
                (
                    b.file(VOLUME_SNAPSHOTS),
                    "backups/n-1.2/n-1.2-volumesnapshots.json.gz",
                ),
                (
                    b.file(POD_VOLUME_BACKUPS),
                    "backups/n-1.2/n-1.2-podvolumebackups.json.gz",
                ),
                (
                    b.file(CSI_SNAPSHOT_CLASSES),
                    "backups/n-1.2/n-1.2-csi-volumesnapshotclasses.json.gz",
                ),
                (
                    b.file(CSI_SNAPSHOT_CONTENTS),
                    "backups/n-1.2/n-1.2-csi-volumesnapshotcontents.json.gz",
                ),
                (
                    b.file(CSI_SNAPSHOTS),
                    "backups/n-1.2/n-1.2-csi-volumesnapshots.json.gz",
                ),
                (
                    b.file_snapshot(1, 2, &b.file(LOG)),
                    "backups/n-1.2/.private/so-far-1-2-n-1.2-logs.gz",
                ),
                (b.owner(), "backups/n-1.2/.private/owner"),
                (b.later_owners().key(2), "backups/n-1.2/.private/owner-2"),
                (b.copy_note(), "backups/n-1.2/.private/copy"),
                (b.records().key(2), "backups/n-1.2/.private/record-2"),
                (b.operations().key(3), "backups/n-1.2/.private/operations-3"),
                (b.journal().key(4), "backups/n-1.2/.private/journal-4"),
                (b.upload_notes().key(1), "backups/n-1.2/.private/upload-1"),
                (r.file(LOG), "restores/r1/restore-r1-logs.gz"),
                (r.file(RESULTS), "restores/r1/restore-r1-results.gz"),
                (
                    r.file(RESOURCE_LIST),
                    "restores/r1/restore-r1-resource-list.json.gz",
                ),
                (
                    r.file(ITEM_OPERATIONS),
                    "restores/r1/restore-r1-itemoperations.json.gz",
                ),
                (r.file(VOLUME_INFO), "restores/r1/r1-volumeinfo.json.gz"),
                (of_u.owner(), "restores/r1/.private/owner"),
                (of_u.record(1), "restores/r1/.private/u-1/record-1"),
                (of_u.record(0), "restores/r1/.private/u-1/record"),
                (
                    of_u.operations().key(2),
                    "restores/r1/.private/u-1/operations-2",
                ),
                (of_u.journal().key(3), "restores/r1/.private/u-1/journal-3"),
                (
                    of_u.file_snapshot(0, 2, &r.file(LOG)),
                    "restores/r1/.private/u-1/so-far-2-restore-r1-logs.gz",
                ),
            ];
            for (key, expected) in table {
                assert_eq!(key.as_ref(), format!("{base}{expected}"));
            }
        }
    }

    #[test]
    fn numbers_are_read_back_from_private_keys_only() {
        let keys = Layout::new("p").unwrap().backup("b").unwrap();
        let (records, operations) = (keys.records(), keys.operations());
        assert_eq!(records.number(&records.key(12)), Some(12));
        assert_eq!(operations.number(&operations.key(3)), Some(3));
        let journal = keys.journal();
        assert_eq!(journal.number(&journal.key(4)), Some(4));
        assert_eq!(journal.number(&operations.key(3)), None);
        let notes = keys.upload_notes();
        assert_eq!(notes.number(&notes.key(1)), Some(1));
        for other in [
            keys.owner(),
            Path::from("p/backups/b/record-1"),
            keys.private.clone().join("record-x"),
        ] {
            assert_eq!(records.number(&other), None, "{other}");
        }
    }

    #[test]
    fn a_name_never_leaves_its_folder() {
        let layout = Layout::new("p").unwrap();
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "../x",
            "a#1",
            "a b",
            "a%2e",
            "a\n",
            &"x".repeat(254),
        ] {
            assert_eq!(
                layout.backup(name).unwrap_err().category(),
                "config",
                "{name:?}"
            );
            assert!(layout.restore(name).is_err(), "{name:?}");
            assert!(
                layout.restore("r").unwrap().of_uid(name).is_err(),
                "{name:?}"
            );
        }
        assert!(Layout::new("a/../b").is_err() && Layout::new("a//b").is_err());
    }
}
