//! What lies in a backup's folder, told by one listing: what a reader needs to know before it reads.

use futures::TryStreamExt as _;
use serde_json::value::RawValue;

use super::{Location, read::MAX_METADATA, stray::Stray};
use crate::StoreError;

/// A gzipped list of nothing is smaller than this, one of anything larger (bytes): gzip alone takes 18, and an object of
/// Kubernetes in JSON has its kind and its name.
const NOTHING: u64 = 48;
/// Lists of objects beside a backup that are larger than this are refused (bytes, before and after they are decompressed).
const MAX_LIST: u64 = 32 * 1024 * 1024;

/// A list of objects that belong to a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideFile {
    /// PodVolumeBackups.
    PodVolumeBackups,
    /// VolumeSnapshotClasses of CSI.
    SnapshotClasses,
    /// VolumeSnapshotContents of CSI.
    SnapshotContents,
}

/// What lies in a backup's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folder {
    /// Whether anything is in it, of whatever kind.
    pub has_anything: bool,
    /// What is in it beside the metadata.
    pub stray: Option<Stray>,
    /// The size of the metadata (bytes; 0 where the store does not tell): the backup is there.
    pub metadata: Option<u64>,
    /// Whether the metadata is larger than any Backup can be.
    pub metadata_too_large: bool,
    /// Whether the items are there.
    pub contents: bool,
    /// Lists with something in them.
    pub lists: Vec<SideFile>,
}

impl Location {
    /// Looks into the folder of a backup. One listing.
    ///
    /// Errors: those of the store. A folder that is not there is an empty one.
    pub async fn look_into(&self, backup: &str) -> Result<Folder, StoreError> {
        self.folder_exists()?;
        let keys = self.layout().backup(backup)?;
        let sized = self.plugin().is_none();
        let lists = [
            (keys.pod_volume_backups(), SideFile::PodVolumeBackups),
            (keys.csi_snapshot_classes(), SideFile::SnapshotClasses),
            (keys.csi_snapshot_contents(), SideFile::SnapshotContents),
        ];
        let (metadata, contents) = (keys.metadata(), keys.contents());
        let mut folder = Folder::default();
        let mut found = self.store().list(Some(keys.folder()));
        loop {
            let object = match found.try_next().await {
                Ok(Some(object)) => object,
                Ok(None) => return Ok(folder),
                Err(error) => return Err(self.failed("list", keys.folder(), &error)),
            };
            folder.has_anything = true;
            if let Some(left) = keys.left(&object.location) {
                Stray::add(&mut folder.stray, left, self.modified(&object));
            }
            if object.location == metadata {
                folder.metadata = Some(if sized { object.size } else { 0 });
                folder.metadata_too_large = sized && object.size > MAX_METADATA;
            } else if object.location == contents {
                folder.contents = true;
            } else if let Some((_, list)) = lists.iter().find(|(key, _)| *key == object.location)
                && (!sized || object.size > NOTHING)
            {
                folder.lists.push(*list);
            }
        }
    }

    /// The objects of a list beside a backup, not decoded yet; none where there is no such file.
    ///
    /// Errors: [`StoreError::Corrupt`] for a file that is no list.
    pub async fn read_side_file(
        &self,
        backup: &str,
        file: SideFile,
    ) -> Result<Vec<Box<RawValue>>, StoreError> {
        let keys = self.layout().backup(backup)?;
        let key = match file {
            SideFile::PodVolumeBackups => keys.pod_volume_backups(),
            SideFile::SnapshotClasses => keys.csi_snapshot_classes(),
            SideFile::SnapshotContents => keys.csi_snapshot_contents(),
        };
        Ok(self.read_list(&key, MAX_LIST).await?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{folder, memory, put};

    #[tokio::test]
    async fn one_listing_tells_what_there_is_and_empty_lists_count_as_none() {
        let (_dir, on_disk) = folder("p");
        for location in [memory("p"), on_disk] {
            assert_eq!(location.look_into("b").await.unwrap(), Folder::default());
            for text in ["null\n", "[]\n"] {
                let list = crate::gzip::member(text.as_bytes()).unwrap();
                put(&location, "p/backups/b/b-podvolumebackups.json.gz", &list).await;
            }
            put(
                &location,
                "p/backups/b/b-csi-volumesnapshotclasses.json.gz",
                b"this is no gzip, but it is something",
            )
            .await;
            put(&location, "p/backups/bb/velero-backup.json", b"{}").await;
            let looked = location.look_into("b").await.unwrap();
            assert!(
                looked.has_anything
                    && looked.metadata.is_none()
                    && !looked.contents
                    && looked.lists.is_empty()
            );

            let one = r#"[{"kind":"PodVolumeBackup","metadata":{"name":"b-x7z"}}]"#;
            put(
                &location,
                "p/backups/b/b-podvolumebackups.json.gz",
                &crate::gzip::member(one.as_bytes()).unwrap(),
            )
            .await;
            put(&location, "p/backups/b/velero-backup.json", b"{}").await;
            put(&location, "p/backups/b/b.tar.gz", b"x").await;
            let looked = location.look_into("b").await.unwrap();
            assert!(looked.metadata == Some(2) && looked.contents && !looked.metadata_too_large);
            assert_eq!(looked.lists, [SideFile::PodVolumeBackups]);
            let list = location.read_side_file("b", SideFile::PodVolumeBackups).await.unwrap();
            assert_eq!(list.len(), 1);
            assert!(location.read_side_file("b", SideFile::SnapshotContents).await.unwrap().is_empty());
            let error = location.read_side_file("b", SideFile::SnapshotClasses).await.unwrap_err();
            assert_eq!(error.category(), "corrupt");
        }
    }

    #[tokio::test]
    async fn metadata_of_200_mib_is_told_by_its_size_alone() {
        let (dir, location) = folder("");
        let file = dir.path().join("store/backups/b/velero-backup.json");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::File::create(&file).unwrap().set_len(200 * 1024 * 1024).unwrap();
        assert!(location.look_into("b").await.unwrap().metadata_too_large);
        assert_eq!(location.read_metadata("b").await.unwrap_err().category(), "corrupt");
    }
}
