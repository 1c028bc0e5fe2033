//! Keys of a store.
//!
//! Velero: `pkg/persistence/object_store_layout.go`, v1.18.

use object_store::path::{Path, PathPart};

use crate::StoreError;

/// Folders that may stand at the top of a store; anything else makes Velero call the location unavailable.
pub const TOP_LEVEL: &[&str] = &["backups", "restores", "restic", "metadata", "plugins", "kopia"];

/// Folder inside a backup's folder that is ours. Velero tolerates unknown keys there and deletes them with the backup.
pub const PRIVATE: &str = ".private";

const RECORD: &str = "record-";
const OPERATIONS: &str = "operations-";
const JOURNAL: &str = "journal-";
const UPLOAD_NOTE: &str = "upload-";
const SO_FAR: &str = "so-far-";
const LOG_SO_FAR: &str = "so-far-log-";

/// Keys under the prefix of one BackupStorageLocation.
#[derive(Clone, Debug)]
pub struct Layout {
    prefix: Path,
}

impl Layout {
    /// Keys under this prefix; slashes around it don't matter. Errors: a prefix that can't be part of a key.
    pub fn new(prefix: &str) -> Result<Self, StoreError> {
        let prefix = Path::parse(prefix.trim_matches('/')).map_err(|error| StoreError::Config {
            field: "spec.objectStorage.prefix".to_owned(),
            message: format!("{prefix:?} can not be part of a key: {error}"),
        })?;
        Ok(Self { prefix })
    }

    /// The prefix; empty if there is none.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The folder of all backups.
    pub fn backups(&self) -> Path {
        self.prefix.clone().join("backups")
    }

    /// What is written to see whether that is allowed. An object beside the folders of backups: what lists folders, as Velero
    /// does everywhere, does not see it.
    pub fn probe(&self) -> Path {
        self.backups().join(".writable")
    }

    /// Keys of one backup. Errors: a name that would leave the folder.
    pub fn backup(&self, name: &str) -> Result<BackupKeys, StoreError> {
        Ok(BackupKeys { folder: self.backups().join(part(name)?), name: name.to_owned() })
    }

    /// Keys of one restore. Errors: a name that would leave the folder.
    pub fn restore(&self, name: &str) -> Result<RestoreKeys, StoreError> {
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
        return Err(StoreError::Config {
            field: "metadata.name".to_owned(),
            message: format!(
                "{name:?} can not be part of a key: letters, digits, '-', '.' and '_' are expected"
            ),
        });
    }
    Ok(PathPart::from(name))
}

/// Keys of one backup.
#[derive(Clone, Debug)]
pub struct BackupKeys {
    folder: Path,
    name: String,
}

impl BackupKeys {
    /// The backup's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder that everything of the backup lies in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The Backup itself; its existence is the existence of the backup.
    pub fn metadata(&self) -> Path {
        self.folder.clone().join("velero-backup.json")
    }

    /// The items.
    pub fn contents(&self) -> Path {
        self.file(".tar.gz")
    }

    /// The log.
    pub fn log(&self) -> Path {
        self.file("-logs.gz")
    }

    /// Warnings and errors.
    pub fn results(&self) -> Path {
        self.file("-results.gz")
    }

    /// Names of the items.
    pub fn resource_list(&self) -> Path {
        self.file("-resource-list.json.gz")
    }

    /// How each volume was backed up.
    pub fn volume_info(&self) -> Path {
        self.file("-volumeinfo.json.gz")
    }

    /// Asynchronous operations of plugins.
    pub fn item_operations(&self) -> Path {
        self.file("-itemoperations.json.gz")
    }

    /// Native volume snapshots.
    pub fn volume_snapshots(&self) -> Path {
        self.file("-volumesnapshots.json.gz")
    }

    /// PodVolumeBackups.
    pub fn pod_volume_backups(&self) -> Path {
        self.file("-podvolumebackups.json.gz")
    }

    /// VolumeSnapshotClasses. Written by Velero up to 1.17, never by us.
    pub fn csi_snapshot_classes(&self) -> Path {
        self.file("-csi-volumesnapshotclasses.json.gz")
    }

    /// VolumeSnapshotContents. Written by Velero up to 1.16, never by us.
    pub fn csi_snapshot_contents(&self) -> Path {
        self.file("-csi-volumesnapshotcontents.json.gz")
    }

    /// CSI snapshots; written by Velero up to 1.16 only.
    pub fn csi_snapshots(&self) -> Path {
        self.file("-csi-volumesnapshots.json.gz")
    }

    /// What a final key would hold in a state of a backup that waits for operations: its record, and the state of its
    /// operations. Ours, create-only; made when somebody asks for it.
    pub fn so_far(&self, record: u64, operations: u64, key: &Path) -> Path {
        self.private().join(format!("{SO_FAR}{record}-{operations}-{}", key.filename().unwrap_or_default()))
    }

    /// The log as it was at a moment (milliseconds since 1970) while items were collected. Ours, create-only; made when somebody
    /// asks for it.
    pub fn logs_so_far(&self) -> Numbered {
        Numbered { folder: self.private(), kind: LOG_SO_FAR }
    }

    /// Whose the folder is: holds the uid of the Backup that writes it. Ours, create-only.
    pub fn owner(&self) -> Path {
        self.private().join("owner")
    }

    /// Where everything lies that is ours and of no concern to a reader.
    pub fn private(&self) -> Path {
        self.folder.clone().join(PRIVATE)
    }

    /// The n-th decision about what the final keys will hold. Ours, create-only; the one with the highest number counts.
    pub fn record(&self, number: u64) -> Path {
        self.private().join(format!("{RECORD}{number}"))
    }

    /// The n-th state of the operations of a backup that waits for them. Ours, create-only; the highest counts.
    pub fn operations(&self, number: u64) -> Path {
        self.private().join(format!("{OPERATIONS}{number}"))
    }

    /// The entries of what work has to remember. Ours, create-only.
    pub fn journal(&self) -> Numbered {
        Numbered { folder: self.private(), kind: JOURNAL }
    }

    /// A note of an upload that was begun, so that its parts can be removed after a crash. Ours, create-only.
    pub fn upload_note(&self, number: u64) -> Path {
        self.private().join(format!("{UPLOAD_NOTE}{number}"))
    }

    /// The number of a record; none for any other key.
    pub fn record_number(&self, key: &Path) -> Option<u64> {
        self.number(key, RECORD)
    }

    /// The number of a state of operations; none for any other key.
    pub fn operations_number(&self, key: &Path) -> Option<u64> {
        self.number(key, OPERATIONS)
    }

    /// The number of a note; none for any other key.
    pub fn upload_note_number(&self, key: &Path) -> Option<u64> {
        self.number(key, UPLOAD_NOTE)
    }

    /// Whether a key is one of [`Self::so_far`] or [`Self::logs_so_far`].
    pub fn is_so_far(&self, key: &Path) -> bool {
        self.is_private(key) && key.filename().is_some_and(|name| name.starts_with(SO_FAR))
    }

    /// Whether a key is in the private folder.
    pub fn is_private(&self, key: &Path) -> bool {
        key.prefix_matches(&self.private())
    }

    fn number(&self, key: &Path, kind: &str) -> Option<u64> {
        let name = self.is_private(key).then(|| key.filename()).flatten()?;
        name.strip_prefix(kind)?.parse().ok()
    }

    fn file(&self, suffix: &str) -> Path {
        self.folder.clone().join(format!("{}{suffix}", self.name))
    }
}

/// Private keys of one kind, which are numbered.
#[derive(Clone, Debug)]
pub struct Numbered {
    folder: Path,
    kind: &'static str,
}

impl Numbered {
    /// The folder that they lie in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The n-th.
    pub fn key(&self, number: u64) -> Path {
        self.folder.clone().join(format!("{}{number}", self.kind))
    }

    /// The number of a key in this folder; none if it is of another kind.
    pub fn number(&self, key: &Path) -> Option<u64> {
        key.filename()?.strip_prefix(self.kind)?.parse().ok()
    }
}

/// Keys of one restore.
#[derive(Clone, Debug)]
pub struct RestoreKeys {
    folder: Path,
    name: String,
}

impl RestoreKeys {
    /// The folder that everything of the restore lies in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The log.
    pub fn log(&self) -> Path {
        self.file("restore-", "-logs.gz")
    }

    /// Warnings and errors.
    pub fn results(&self) -> Path {
        self.file("restore-", "-results.gz")
    }

    /// Names of the items.
    pub fn resource_list(&self) -> Path {
        self.file("restore-", "-resource-list.json.gz")
    }

    /// Asynchronous operations of plugins.
    pub fn item_operations(&self) -> Path {
        self.file("restore-", "-itemoperations.json.gz")
    }

    /// How each volume was restored. The one file without `restore-` in its name.
    pub fn volume_info(&self) -> Path {
        self.file("", "-volumeinfo.json.gz")
    }

    /// Where everything lies that is ours and of no concern to a reader, about the Restore of this uid. There may be another
    /// of the same name, of before or of another cluster. Errors: a uid that would leave the folder.
    pub fn private(&self, uid: &str) -> Result<RestorePrivateKeys, StoreError> {
        Ok(RestorePrivateKeys { folder: self.folder.clone().join(PRIVATE).join(part(uid)?) })
    }

    fn file(&self, prefix: &str, suffix: &str) -> Path {
        self.folder.clone().join(format!("{prefix}{}{suffix}", self.name))
    }
}

/// Private keys of one Restore. All are create-only.
#[derive(Clone, Debug)]
pub struct RestorePrivateKeys {
    folder: Path,
}

impl RestorePrivateKeys {
    /// The folder that they lie in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files of a restore whose operations go on, as they were when its items were done.
    pub fn record(&self) -> Path {
        self.folder.clone().join("record")
    }

    /// The states of its operations; the one with the highest number counts.
    pub fn operations(&self) -> Numbered {
        Numbered { folder: self.folder.clone(), kind: OPERATIONS }
    }

    /// The entries of what work has to remember.
    pub fn journal(&self) -> Numbered {
        Numbered { folder: self.folder.clone(), kind: JOURNAL }
    }

    /// What a final key would hold in a state of the operations. Made when somebody asks for it.
    pub fn so_far(&self, operations: u64, key: &Path) -> Path {
        self.folder.clone().join(format!("{SO_FAR}{operations}-{}", key.filename().unwrap_or_default()))
    }

    /// The log as it was at a moment (milliseconds since 1970) while items were restored. Made when somebody asks for it.
    pub fn logs_so_far(&self) -> Numbered {
        Numbered { folder: self.folder.clone(), kind: LOG_SO_FAR }
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
                (b.so_far(1, 2, &b.log()), "backups/nightly-1.2/.private/so-far-1-2-nightly-1.2-logs.gz"),
                (b.owner(), "backups/nightly-1.2/.private/owner"),
                (b.record(2), "backups/nightly-1.2/.private/record-2"),
                (b.operations(3), "backups/nightly-1.2/.private/operations-3"),
                (b.journal().key(4), "backups/nightly-1.2/.private/journal-4"),
                (b.upload_note(1), "backups/nightly-1.2/.private/upload-1"),
                (r.log(), "restores/r1/restore-r1-logs.gz"),
                (r.results(), "restores/r1/restore-r1-results.gz"),
                (r.resource_list(), "restores/r1/restore-r1-resource-list.json.gz"),
                (r.item_operations(), "restores/r1/restore-r1-itemoperations.json.gz"),
                (r.volume_info(), "restores/r1/r1-volumeinfo.json.gz"),
                (of_u.record(), "restores/r1/.private/u-1/record"),
                (of_u.operations().key(2), "restores/r1/.private/u-1/operations-2"),
                (of_u.journal().key(3), "restores/r1/.private/u-1/journal-3"),
                (of_u.so_far(2, &r.log()), "restores/r1/.private/u-1/so-far-2-restore-r1-logs.gz"),
            ];
            for (key, expected) in table {
                assert_eq!(key.as_ref(), format!("{base}{expected}"));
            }
        }
    }

    #[test]
    fn numbers_are_read_back_from_private_keys_only() {
        let keys = Layout::new("p").unwrap().backup("b").unwrap();
        assert_eq!(keys.record_number(&keys.record(12)), Some(12));
        assert_eq!(keys.operations_number(&keys.operations(3)), Some(3));
        let journal = keys.journal();
        assert_eq!(journal.number(&journal.key(4)), Some(4));
        assert_eq!(journal.number(&keys.operations(3)), None);
        assert_eq!(keys.upload_note_number(&keys.upload_note(1)), Some(1));
        for other in [keys.owner(), keys.folder().clone().join("record-1"), keys.private().join("record-x")] {
            assert_eq!(keys.record_number(&other), None, "{other}");
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
