//! Reading stored backups.

use std::io::{BufReader, Read as _};

use backup_core::{
    api::Backup,
    repository_data::{self, RepositoryVolume},
    volume_info::VolumeInfo,
};
use flate2::read::MultiGzDecoder;
use futures::TryStreamExt as _;
use jiff::Timestamp;
use object_store::path::Path;
use serde::de::DeserializeOwned;
use serde_json::{Value, value::RawValue};

use super::{IncompleteBackup, Location};
use crate::{
    StoreError,
    layout::{
        CSI_SNAPSHOT_CLASSES, CSI_SNAPSHOT_CONTENTS, JobKeys, POD_VOLUME_BACKUPS, VOLUME_INFO,
        VOLUME_SNAPSHOTS,
    },
};

/// Maximum size of metadata; larger ones are refused (bytes). An object in a cluster has at most
/// 1.5 MiB, which Velero indents.
pub(super) const MAX_METADATA: u64 = 16 * 1024 * 1024;
/// Maximum size of a list of snapshots (bytes, before and after it is decompressed).
const MAX_SNAPSHOTS: u64 = 64 * 1024 * 1024;
/// A gzipped empty list is smaller than this, any other list larger (bytes): gzip alone takes 18,
/// and an object of Kubernetes in JSON has its kind and its name.
const MAX_EMPTY_LIST: u64 = 48;
/// Maximum size of a list of objects beside a backup (bytes, before and after it is decompressed).
const MAX_LIST: u64 = 32 * 1024 * 1024;

/// A list of objects that belong to a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideFile {
    PodVolumeBackups,
    SnapshotClasses,
    SnapshotContents,
}

impl SideFile {
    const ALL: [Self; 3] = [
        Self::PodVolumeBackups,
        Self::SnapshotClasses,
        Self::SnapshotContents,
    ];

    fn key(self, keys: &JobKeys) -> Path {
        keys.file(match self {
            Self::PodVolumeBackups => POD_VOLUME_BACKUPS,
            Self::SnapshotClasses => CSI_SNAPSHOT_CLASSES,
            Self::SnapshotContents => CSI_SNAPSHOT_CONTENTS,
        })
    }
}

/// State of a backup's folder, by one listing: what a reader needs to know before it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupFolder {
    pub has_anything: bool,
    pub incomplete: Option<IncompleteBackup>,
    /// The size of the metadata (bytes; 0 where the store has no sizes). If set, the backup exists.
    pub metadata: Option<u64>,
    pub metadata_too_large: bool,
    pub contents: bool,
    pub lists: Vec<SideFile>,
    /// Time at which the metadata was written, if the tarball is older and another program wrote
    /// the folder. Velero stores the tarball after the metadata, and once more after the operations
    /// of a backup.
    pub newer_metadata: Option<Timestamp>,
    /// Whether it is a copy of a backup in another location.
    pub is_copy: bool,
}

/// The records of a backup about its volumes.
#[derive(Clone, Debug, Default)]
pub struct SavedVolumes {
    /// Empty for Velero before 1.13.
    pub records: Vec<VolumeInfo>,
    /// Volumes whose data is in a file repository.
    pub in_repository: Vec<RepositoryVolume>,
}

impl Location {
    /// Names of all folders that may hold a backup, sorted. One listing.
    pub async fn list_backups(&self) -> Result<Vec<String>, StoreError> {
        self.folder_exists()?;
        let folder = self.layout().backups();
        let listing = self.store().list_with_delimiter(Some(&folder)).await;
        let listing = listing.map_err(|error| self.failed("list", &folder, &error))?;
        let mut names: Vec<String> = listing
            .common_prefixes
            .iter()
            .filter_map(|path| path.filename())
            .map(ToOwned::to_owned)
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The stored Backup: the commit record. `None` if there is no `velero-backup.json`: then the
    /// folder holds no backup, or an unfinished one.
    ///
    /// Errors: [`StoreError::Corrupt`] for a file that is not a Backup of that name.
    pub async fn read_metadata(&self, backup: &str) -> Result<Option<Backup>, StoreError> {
        let key = self.layout().backup(backup)?.metadata();
        let Some(json) = self.get_small(&key, MAX_METADATA).await? else {
            return Ok(None);
        };
        let stored: Backup = serde_json::from_slice(&json).map_err(|error| {
            self.corrupt(
                &key,
                format!(
                    "it is not a Backup: {error}; delete the backup's folder, or repair the file"
                ),
            )
        })?;
        if stored.kind != "Backup" || !stored.api_version.starts_with("velero.io/") {
            return Err(self.corrupt(
                &key,
                format!(
                    "it holds a {} {}, expected velero.io/v1 Backup",
                    stored.api_version, stored.kind
                ),
            ));
        }
        let name = stored.metadata.name.as_deref();
        if name != Some(backup) {
            return Err(self.corrupt(
                &key,
                format!(
                    "the Backup in it is named {:?}, but its folder {backup:?}; rename the folder and its files",
                    name.unwrap_or_default()
                ),
            ));
        }
        Ok(Some(stored))
    }

    /// The volume snapshots that plugins have created for a backup; `None` if there is no such
    /// file, which is equivalent to an empty list.
    ///
    /// Errors: [`StoreError::Corrupt`] for a file that is no list.
    pub async fn read_volume_snapshots(
        &self,
        backup: &str,
    ) -> Result<Option<Vec<Value>>, StoreError> {
        let key = self.layout().backup(backup)?.file(VOLUME_SNAPSHOTS);
        self.read_list(&key, MAX_SNAPSHOTS).await
    }

    /// How the data of the volumes of a backup was saved.
    ///
    /// Errors: [`StoreError::Corrupt`] for an invalid list.
    pub async fn saved_volumes(&self, backup: &Backup) -> Result<SavedVolumes, StoreError> {
        let keys = self
            .layout()
            .backup(backup.metadata.name.as_deref().unwrap_or_default())?;
        let infos = self
            .read_list::<Value>(&keys.file(VOLUME_INFO), MAX_LIST)
            .await?;
        let files = self
            .read_list::<Value>(&keys.file(POD_VOLUME_BACKUPS), MAX_LIST)
            .await?;
        let records = VolumeInfo::all(infos.as_deref().unwrap_or_default());
        let mut volumes = repository_data::volumes(&records, &files.unwrap_or_default());
        let moves = backup.spec.snapshot_move_data == Some(true)
            && backup.status.csi_volume_snapshots_attempted > 0;
        if infos.is_none() && moves {
            volumes.push(RepositoryVolume::unnamed());
        }
        Ok(SavedVolumes {
            records,
            in_repository: volumes,
        })
    }

    /// A gzipped list; `None` if there is no such file. Errors: [`StoreError::Corrupt`] for a file
    /// that is no list, or has more than `max` bytes before or after it is decompressed.
    async fn read_list<T: DeserializeOwned>(
        &self,
        key: &Path,
        max: u64,
    ) -> Result<Option<Vec<T>>, StoreError> {
        let Some(bytes) = self.get_small(key, max).await? else {
            return Ok(None);
        };
        let reader = BufReader::new(MultiGzDecoder::new(&bytes[..]).take(max));
        // Go writes an empty list as null in some places.
        let list: Option<Vec<T>> = serde_json::from_reader(reader).map_err(|error| {
            self.corrupt(
                key,
                format!("it is no gzipped list of at most {max} bytes: {error}"),
            )
        })?;
        Ok(Some(list.unwrap_or_default()))
    }

    /// Inspects the folder of a backup. One listing. A missing folder counts as empty.
    pub async fn inspect_folder(&self, backup: &str) -> Result<BackupFolder, StoreError> {
        self.folder_exists()?;
        let keys = self.layout().backup(backup)?;
        let sized = self.plugin().is_none();
        let lists = SideFile::ALL.map(|list| (list.key(&keys), list));
        let metadata = keys.metadata();
        let contents = keys.contents();
        let mut folder = BackupFolder::default();
        let mut written = None;
        let mut packed = None;
        let mut ours = false;
        let mut found = self.store().list(Some(&keys.folder));
        while let Some(object) = found
            .try_next()
            .await
            .map_err(|error| self.failed("list", &keys.folder, &error))?
        {
            folder.has_anything = true;
            if let Some(remnant) = keys.classify(&object.location) {
                IncompleteBackup::add(&mut folder.incomplete, remnant, self.modified(&object));
            }
            ours |= keys.is_private(&object.location);
            folder.is_copy |= object.location == keys.copy_note();
            if object.location == metadata {
                written = self.modified(&object);
                folder.metadata = Some(if sized { object.size } else { 0 });
                folder.metadata_too_large = sized && object.size > MAX_METADATA;
            } else if object.location == contents {
                packed = self.modified(&object);
                folder.contents = true;
            } else if let Some((_, list)) = lists.iter().find(|(key, _)| *key == object.location)
                && (!sized || object.size > MAX_EMPTY_LIST)
            {
                folder.lists.push(*list);
            }
        }
        folder.newer_metadata =
            written.filter(|written| !ours && packed.is_some_and(|packed| packed < *written));
        Ok(folder)
    }

    /// The objects of a list beside a backup, not decoded yet; empty if there is no such file.
    ///
    /// Errors: [`StoreError::Corrupt`] for a file that is no list.
    pub async fn read_side_file(
        &self,
        backup: &str,
        file: SideFile,
    ) -> Result<Vec<Box<RawValue>>, StoreError> {
        let key = file.key(&self.layout().backup(backup)?);
        Ok(self.read_list(&key, MAX_LIST).await?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{folder, memory, put};

    #[tokio::test]
    async fn snapshots_of_a_backup_are_a_list_or_nothing_and_what_is_no_list_is_told() {
        let location = memory("p");
        assert_eq!(location.read_volume_snapshots("b").await.unwrap(), None);
        for (text, expected) in [
            ("null\n", Some(0)),
            ("[{}, {\"a\":1}]", Some(2)),
            ("{}", None),
        ] {
            let bytes = crate::gzip::member(text.as_bytes()).unwrap();
            let name = format!("b{}", text.len());
            put(
                &location,
                &format!("p/backups/{name}/{name}-volumesnapshots.json.gz"),
                &bytes,
            )
            .await;
            match location.read_volume_snapshots(&name).await {
                Ok(list) => assert_eq!(list.map(|list| list.len()), expected),
                Err(error) => assert!(
                    expected.is_none() && error.category() == "corrupt",
                    "{error}"
                ),
            }
        }
    }

    #[tokio::test]
    async fn metadata_that_is_not_this_backup_is_refused() {
        let location = memory("p");
        assert!(location.read_metadata("b").await.unwrap().is_none());
        assert!(location.list_backups().await.unwrap().is_empty());
        let object = |group: &str, kind: &str, name: &str| {
            let metadata = json!({"name": name});
            json!({"apiVersion": group, "kind": kind, "metadata": metadata, "new": 1}).to_string()
        };
        for (name, json, good) in [
            ("ok", object("velero.io/v1", "Backup", "ok"), true),
            ("other", object("velero.io/v1", "Backup", "ok"), false),
            ("kind", object("velero.io/v1", "Restore", "kind"), false),
            ("group", object("v1", "Backup", "group"), false),
            (
                "cut",
                r#"{"apiVersion":"velero.io/v1","kind":"Ba"#.to_owned(),
                false,
            ),
            ("empty", String::new(), false),
        ] {
            put(
                &location,
                &format!("p/backups/{name}/velero-backup.json"),
                json.as_bytes(),
            )
            .await;
            match location.read_metadata(name).await {
                Ok(stored) => assert!(good && stored.is_some(), "{name}"),
                Err(error) => assert!(!good && error.category() == "corrupt", "{name}: {error}"),
            }
        }
        put(&location, "p/backups/zzz/.private/owner", b"x").await;
        assert_eq!(
            location.list_backups().await.unwrap(),
            ["cut", "empty", "group", "kind", "ok", "other", "zzz"]
        );
    }

    #[tokio::test]
    async fn one_listing_tells_what_there_is_and_empty_lists_count_as_none() {
        let (_dir, on_disk) = folder("p");
        for location in [memory("p"), on_disk] {
            assert_eq!(
                location.inspect_folder("b").await.unwrap(),
                BackupFolder::default()
            );
            let gzip = |text: &str| crate::gzip::member(text.as_bytes()).unwrap();
            let list = "p/backups/b/b-podvolumebackups.json.gz";
            for text in ["null\n", "[]\n"] {
                put(&location, list, &gzip(text)).await;
            }
            let classes = "p/backups/b/b-csi-volumesnapshotclasses.json.gz";
            put(&location, classes, b"this is no gzip, but it is something").await;
            put(&location, "p/backups/bb/velero-backup.json", b"{}").await;
            let folder = location.inspect_folder("b").await.unwrap();
            assert!(folder.has_anything && folder.metadata.is_none());
            assert!(!folder.contents && folder.lists.is_empty());

            let one = r#"[{"kind":"PodVolumeBackup","metadata":{"name":"b-x7z"}}]"#;
            put(&location, list, &gzip(one)).await;
            put(&location, "p/backups/b/velero-backup.json", b"{}").await;
            put(&location, "p/backups/b/b.tar.gz", b"x").await;
            let folder = location.inspect_folder("b").await.unwrap();
            assert!(folder.metadata == Some(2) && folder.contents && !folder.metadata_too_large);
            assert_eq!(folder.lists, [SideFile::PodVolumeBackups]);
            let list = location
                .read_side_file("b", SideFile::PodVolumeBackups)
                .await
                .unwrap();
            assert_eq!(list.len(), 1);
            assert!(
                location
                    .read_side_file("b", SideFile::SnapshotContents)
                    .await
                    .unwrap()
                    .is_empty()
            );
            let error = location
                .read_side_file("b", SideFile::SnapshotClasses)
                .await
                .unwrap_err();
            assert_eq!(error.category(), "corrupt");
        }
    }

    #[tokio::test]
    async fn metadata_of_200_mib_is_told_by_its_size_alone() {
        let (dir, location) = folder("");
        let file = dir.path().join("store/backups/b/velero-backup.json");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::File::create(&file)
            .unwrap()
            .set_len(200 * 1024 * 1024)
            .unwrap();
        assert!(
            location
                .inspect_folder("b")
                .await
                .unwrap()
                .metadata_too_large
        );
        assert_eq!(
            location.read_metadata("b").await.unwrap_err().category(),
            "corrupt"
        );
    }
}
