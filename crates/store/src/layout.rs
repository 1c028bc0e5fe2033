//! Keys of a store.
//!
//! Velero: `pkg/persistence/object_store_layout.go`, v1.18.

use object_store::path::{Path, PathPart};

use crate::StoreError;

/// Folders that may stand at the top of a store; anything else makes Velero call the location unavailable.
pub(crate) const TOP_LEVEL: &[&str] = &["backups", "restores", "restic", "metadata", "plugins", "kopia"];

/// Folder inside a backup's folder that is ours. Velero tolerates unknown keys there and deletes them with the backup.
pub(crate) const PRIVATE: &str = ".private";

const OPERATIONS: &str = "operations-";
const JOURNAL: &str = "journal-";
const SNAPSHOT: &str = "so-far-";
const LOG_SNAPSHOT: &str = "so-far-log-";

/// Keys under the prefix of one BackupStorageLocation.
#[derive(Clone, Debug)]
pub struct Layout {
    prefix: Path,
}

impl Layout {
    /// Keys under this prefix; slashes around it do not matter. Errors: a prefix that cannot be part of a key.
    pub(crate) fn new(prefix: &str) -> Result<Self, StoreError> {
        let path = Path::parse(prefix.trim_matches('/')).map_err(|error| {
            let message = format!("{prefix:?} cannot be part of a key: {error}");
            StoreError::config("spec.objectStorage.prefix", message)
        })?;
        Ok(Self { prefix: path })
    }

    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }

    pub(crate) fn backups(&self) -> Path {
        self.prefix.clone().join("backups")
    }

    /// What is written to see whether that is allowed. An object beside the folders of backups: what lists folders, as Velero
    /// does everywhere, does not see it.
    pub(crate) fn probe(&self) -> Path {
        self.backups().join(".writable")
    }

    /// Keys of one backup. Errors: a name that would leave the folder.
    pub(crate) fn backup(&self, name: &str) -> Result<BackupKeys, StoreError> {
        Ok(BackupKeys { folder: self.backups().join(part(name)?), name: name.to_owned() })
    }

    /// Keys of one restore. Errors: a name that would leave the folder.
    pub(crate) fn restore(&self, name: &str) -> Result<RestoreKeys, StoreError> {
        Ok(RestoreKeys {
            folder: self.prefix.clone().join("restores").join(part(name)?),
            name: name.to_owned(),
        })
    }
}

/// A name as one part of a key. Names of Kubernetes objects pass unchanged.
fn part(name: &str) -> Result<PathPart<'_>, StoreError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.is_empty() || name.len() > 253 || name == "." || name == ".." || !name.chars().all(plain) {
        let message =
            format!("{name:?} cannot be part of a key: letters, digits, '-', '.' and '_' are expected");
        return Err(StoreError::config("metadata.name", message));
    }
    Ok(PathPart::from(name))
}

#[derive(Clone, Debug)]
pub struct BackupKeys {
    folder: Path,
    name: String,
}

impl BackupKeys {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The Backup itself; its existence is the existence of the backup.
    pub(crate) fn metadata(&self) -> Path {
        self.folder.clone().join("velero-backup.json")
    }

    pub(crate) fn contents(&self) -> Path {
        self.file(".tar.gz")
    }

    pub(crate) fn log(&self) -> Path {
        self.file("-logs.gz")
    }

    pub(crate) fn results(&self) -> Path {
        self.file("-results.gz")
    }

    pub(crate) fn resource_list(&self) -> Path {
        self.file("-resource-list.json.gz")
    }

    pub(crate) fn volume_info(&self) -> Path {
        self.file("-volumeinfo.json.gz")
    }

    pub(crate) fn item_operations(&self) -> Path {
        self.file("-itemoperations.json.gz")
    }

    pub(crate) fn volume_snapshots(&self) -> Path {
        self.file("-volumesnapshots.json.gz")
    }

    pub(crate) fn pod_volume_backups(&self) -> Path {
        self.file("-podvolumebackups.json.gz")
    }

    /// VolumeSnapshotClasses. Written by Velero up to 1.17, never by us.
    pub(crate) fn csi_snapshot_classes(&self) -> Path {
        self.file("-csi-volumesnapshotclasses.json.gz")
    }

    /// VolumeSnapshotContents. Written by Velero up to 1.16, never by us.
    pub(crate) fn csi_snapshot_contents(&self) -> Path {
        self.file("-csi-volumesnapshotcontents.json.gz")
    }

    /// CSI snapshots; written by Velero up to 1.16 only.
    pub(crate) fn csi_snapshots(&self) -> Path {
        self.file("-csi-volumesnapshots.json.gz")
    }

    /// Where everything lies that is ours and of no concern to a reader.
    pub(crate) fn private(&self) -> PrivateKeys {
        PrivateKeys { folder: self.folder.clone().join(PRIVATE), owner: self.folder.clone().join(PRIVATE) }
    }

    /// Whether a key is one of [`PrivateKeys::file_snapshot`] or [`PrivateKeys::log_snapshots`].
    pub(crate) fn is_snapshot(&self, key: &Path) -> bool {
        self.is_private(key) && key.filename().is_some_and(|name| name.starts_with(SNAPSHOT))
    }

    pub(crate) fn is_private(&self, key: &Path) -> bool {
        key.prefix_matches(self.private().folder())
    }

    fn file(&self, suffix: &str) -> Path {
        self.folder.clone().join(format!("{}{suffix}", self.name))
    }
}

/// Private keys of one kind, which are numbered.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    folder: Path,
    kind: &'static str,
}

impl Numbered {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn key(&self, number: u64) -> Path {
        self.folder.clone().join(format!("{}{number}", self.kind))
    }

    /// The number of a key; none if it is of another kind.
    pub(crate) fn number(&self, key: &Path) -> Option<u64> {
        let name = key.filename().filter(|_| key.prefix_matches(&self.folder))?;
        name.strip_prefix(self.kind)?.parse().ok()
    }

    /// The highest number among keys.
    pub(crate) fn last(&self, keys: &[Path]) -> Option<u64> {
        keys.iter().filter_map(|key| self.number(key)).max()
    }

    pub(crate) fn has_any(&self, keys: &[Path]) -> bool {
        keys.iter().any(|key| self.number(key).is_some())
    }
}

#[derive(Clone, Debug)]
pub struct RestoreKeys {
    folder: Path,
    name: String,
}

impl RestoreKeys {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn log(&self) -> Path {
        self.file("restore-", "-logs.gz")
    }

    pub(crate) fn results(&self) -> Path {
        self.file("restore-", "-results.gz")
    }

    pub(crate) fn resource_list(&self) -> Path {
        self.file("restore-", "-resource-list.json.gz")
    }

    pub(crate) fn item_operations(&self) -> Path {
        self.file("restore-", "-itemoperations.json.gz")
    }

    /// How each volume was restored. The one file without `restore-` in its name.
    pub(crate) fn volume_info(&self) -> Path {
        self.file("", "-volumeinfo.json.gz")
    }

    /// Where everything lies that is ours and of no concern to a reader, about the Restore of this uid. There may be another
    /// of the same name, of before or of another cluster. Errors: a uid that would leave the folder.
    pub(crate) fn private(&self, uid: &str) -> Result<PrivateKeys, StoreError> {
        let folder = self.folder.clone().join(PRIVATE);
        Ok(PrivateKeys { folder: folder.clone().join(part(uid)?), owner: folder })
    }

    fn file(&self, prefix: &str, suffix: &str) -> Path {
        self.folder.clone().join(format!("{prefix}{}{suffix}", self.name))
    }
}

/// Private keys of one Backup or Restore. All are create-only.
#[derive(Clone, Debug)]
pub struct PrivateKeys {
    folder: Path,
    /// Where the marker lies.
    owner: Path,
}

impl PrivateKeys {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Holds the uid of the object that writes the folder.
    pub(crate) fn owner(&self) -> Path {
        self.owner.clone().join("owner")
    }

    /// What the final keys hold so far (number 0 of a restore, and one of a backup that is open), or will hold. The highest
    /// counts.
    pub(crate) fn record(&self, number: u64) -> Path {
        if number == 0 { self.folder.clone().join("record") } else { self.records().key(number) }
    }

    /// The highest number among the records that are there.
    pub(crate) fn last_record(&self, found: &[Path]) -> Option<u64> {
        self.records().last(found).or_else(|| found.contains(&self.record(0)).then_some(0))
    }

    pub(crate) fn records(&self) -> Numbered {
        self.numbered("record-")
    }

    /// States of the operations; the highest counts.
    pub(crate) fn operations(&self) -> Numbered {
        self.numbered(OPERATIONS)
    }

    pub(crate) fn journal(&self) -> Numbered {
        self.numbered(JOURNAL)
    }

    /// Notes of uploads that were begun, so that their parts can be removed after a crash.
    pub(crate) fn upload_notes(&self) -> Numbered {
        self.numbered("upload-")
    }

    /// What a final key would hold while operations go on, by the numbers of the record and of the state of the operations.
    /// Made when somebody asks for it.
    pub(crate) fn file_snapshot(&self, record: u64, operations: u64, key: &Path) -> Path {
        let file = key.filename().unwrap_or_default();
        let state = if record == 0 { operations.to_string() } else { format!("{record}-{operations}") };
        self.folder.clone().join(format!("{SNAPSHOT}{state}-{file}"))
    }

    /// The log as it was at a moment (milliseconds since 1970) while items were worked on. Made when somebody asks for it.
    pub(crate) fn log_snapshots(&self) -> Numbered {
        self.numbered(LOG_SNAPSHOT)
    }

    fn numbered(&self, kind: &'static str) -> Numbered {
        Numbered { folder: self.folder.clone(), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_velero() {
        for (prefix, base) in
            [("", ""), ("/", ""), ("p", "p/"), ("/p/q/", "p/q/"), ("my prefix~1", "my prefix~1/")]
        {
            let layout = Layout::new(prefix).unwrap();
            let b = layout.backup("nightly-1.2").unwrap();
            let r = layout.restore("r1").unwrap();
            let of_u = r.private("u-1").unwrap();
            let table = [
                (b.metadata(), "backups/nightly-1.2/velero-backup.json"),
                (b.contents(), "backups/nightly-1.2/nightly-1.2.tar.gz"),
                (b.log(), "backups/nightly-1.2/nightly-1.2-logs.gz"),
                (b.results(), "backups/nightly-1.2/nightly-1.2-results.gz"),
                (b.resource_list(), "backups/nightly-1.2/nightly-1.2-resource-list.json.gz"),
                (b.volume_info(), "backups/nightly-1.2/nightly-1.2-volumeinfo.json.gz"),
                (b.item_operations(), "backups/nightly-1.2/nightly-1.2-itemoperations.json.gz"),
                (b.volume_snapshots(), "backups/nightly-1.2/nightly-1.2-volumesnapshots.json.gz"),
                (b.pod_volume_backups(), "backups/nightly-1.2/nightly-1.2-podvolumebackups.json.gz"),
                (
                    b.csi_snapshot_classes(),
                    "backups/nightly-1.2/nightly-1.2-csi-volumesnapshotclasses.json.gz",
                ),
                (
                    b.csi_snapshot_contents(),
                    "backups/nightly-1.2/nightly-1.2-csi-volumesnapshotcontents.json.gz",
                ),
                (b.csi_snapshots(), "backups/nightly-1.2/nightly-1.2-csi-volumesnapshots.json.gz"),
                (
                    b.private().file_snapshot(1, 2, &b.log()),
                    "backups/nightly-1.2/.private/so-far-1-2-nightly-1.2-logs.gz",
                ),
                (b.private().owner(), "backups/nightly-1.2/.private/owner"),
                (b.private().records().key(2), "backups/nightly-1.2/.private/record-2"),
                (b.private().operations().key(3), "backups/nightly-1.2/.private/operations-3"),
                (b.private().journal().key(4), "backups/nightly-1.2/.private/journal-4"),
                (b.private().upload_notes().key(1), "backups/nightly-1.2/.private/upload-1"),
                (r.log(), "restores/r1/restore-r1-logs.gz"),
                (r.results(), "restores/r1/restore-r1-results.gz"),
                (r.resource_list(), "restores/r1/restore-r1-resource-list.json.gz"),
                (r.item_operations(), "restores/r1/restore-r1-itemoperations.json.gz"),
                (r.volume_info(), "restores/r1/r1-volumeinfo.json.gz"),
                (of_u.owner(), "restores/r1/.private/owner"),
                (of_u.record(1), "restores/r1/.private/u-1/record-1"),
                (of_u.record(0), "restores/r1/.private/u-1/record"),
                (of_u.operations().key(2), "restores/r1/.private/u-1/operations-2"),
                (of_u.journal().key(3), "restores/r1/.private/u-1/journal-3"),
                (of_u.file_snapshot(0, 2, &r.log()), "restores/r1/.private/u-1/so-far-2-restore-r1-logs.gz"),
            ];
            for (key, expected) in table {
                assert_eq!(key.as_ref(), format!("{base}{expected}"));
            }
        }
    }

    #[test]
    fn numbers_are_read_back_from_private_keys_only() {
        let keys = Layout::new("p").unwrap().backup("b").unwrap().private();
        let (records, operations) = (keys.records(), keys.operations());
        assert_eq!(records.number(&records.key(12)), Some(12));
        assert_eq!(operations.number(&operations.key(3)), Some(3));
        let journal = keys.journal();
        assert_eq!(journal.number(&journal.key(4)), Some(4));
        assert_eq!(journal.number(&operations.key(3)), None);
        let notes = keys.upload_notes();
        assert_eq!(notes.number(&notes.key(1)), Some(1));
        for other in
            [keys.owner(), Path::from("p/backups/b/record-1"), keys.folder().clone().join("record-x")]
        {
            assert_eq!(records.number(&other), None, "{other}");
        }
    }

    #[test]
    fn a_name_never_leaves_its_folder() {
        let layout = Layout::new("p").unwrap();
        for name in ["", ".", "..", "a/b", "../x", "a#1", "a b", "a%2e", "a\n", &"x".repeat(254)] {
            assert_eq!(layout.backup(name).unwrap_err().category(), "config", "{name:?}");
            assert!(layout.restore(name).is_err(), "{name:?}");
            assert!(layout.restore("r").unwrap().private(name).is_err(), "{name:?}");
        }
        assert!(Layout::new("a/../b").is_err() && Layout::new("a//b").is_err());
    }
}
