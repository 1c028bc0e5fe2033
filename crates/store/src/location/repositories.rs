//! Repositories of volume data, beside the backups (`restic/<namespace>`): whether they exist, the
//! notes of their snapshots, and the removal of both. All else about them is done by pods with
//! `backup-mover`.

use backup_core::names::is_dns_label;
use object_store::path::Path;

use super::{
    Location,
    deletion::{Removal, RetainedVersions},
};
use crate::{StoreError, layout::is_snapshot_id};

/// A note that a DataUpload writes before it writes a snapshot. The snapshot may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotNote {
    /// Uid of the DataUpload.
    pub upload: String,
    /// Id of the snapshot.
    pub snapshot: String,
    key: Path,
}

impl SnapshotNote {
    /// `None` for a key that is no note.
    fn of(key: Path) -> Option<Self> {
        let mut parts = key.parts().map(|part| part.as_ref().to_owned());
        let snapshot = parts.next_back()?;
        let upload = parts.next_back()?;
        is_snapshot_id(&snapshot).then_some(Self {
            upload,
            snapshot,
            key,
        })
    }
}

impl Location {
    /// Whether there is a repository of this namespace.
    pub async fn has_repository(&self, namespace: &str) -> Result<bool, StoreError> {
        let key = self.layout().repository(namespace)?.join("config");
        Ok(self.look_at(&key).await?.is_some())
    }

    /// Whether there may be a repository of any namespace. One listing.
    pub async fn has_repositories(&self) -> Result<bool, StoreError> {
        Ok(!self.repository_namespaces().await?.is_empty())
    }

    /// The namespaces that have a folder for a repository, which may hold none (see
    /// [`Self::has_repository`]). One listing.
    pub async fn repository_namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.folder_exists()?;
        let folder = self.layout().repositories();
        let listing = self.store().list_with_delimiter(Some(&folder)).await;
        let listing = listing.map_err(|error| self.failed("list", &folder, &error))?;
        let names = listing.common_prefixes.iter().filter_map(Path::filename);
        // Other folders are not of the data mover.
        let names = names.filter(|name| is_dns_label(name));
        Ok(names.map(str::to_owned).collect())
    }

    /// Removes a snapshot from the repository of a namespace: the repository forgets it, and its
    /// next maintenance removes data that no other snapshot needs. With `and_versions`, every
    /// version of the object is removed; returns those that the store keeps. Safe to repeat; a
    /// missing snapshot is no error.
    ///
    /// Errors: [`StoreError::Config`] for an id that is not 64 hexadecimal digits.
    pub async fn delete_volume_snapshot(
        &self,
        namespace: &str,
        id: &str,
        and_versions: bool,
    ) -> Result<RetainedVersions, StoreError> {
        let key = self.layout().volume_snapshot(namespace, id)?;
        self.delete_key(&key, and_versions).await
    }

    /// The notes of all snapshots that were written, or were about to be, for the Backup of this
    /// uid into the repository of a namespace. One listing.
    pub async fn snapshot_notes(
        &self,
        namespace: &str,
        backup_uid: &str,
    ) -> Result<Vec<SnapshotNote>, StoreError> {
        let folder = self.layout().snapshot_notes(namespace, backup_uid)?;
        let keys = self.list(&folder).await?;
        Ok(keys.into_iter().filter_map(SnapshotNote::of).collect())
    }

    /// Removes a note, after its snapshot. With `and_versions`, also those versions of it that the
    /// store does not lock. Safe to repeat.
    pub async fn delete_snapshot_note(
        &self,
        note: &SnapshotNote,
        and_versions: bool,
    ) -> Result<(), StoreError> {
        self.delete_key(&note.key, and_versions).await.map(drop)
    }

    /// Removes an object that may be missing; with `and_versions`, every version of it. Returns
    /// those that the store keeps.
    async fn delete_key(
        &self,
        key: &Path,
        and_versions: bool,
    ) -> Result<RetainedVersions, StoreError> {
        // Where versions are kept, deleting a missing key would leave a delete marker.
        if self.look_at(key).await?.is_some() {
            self.delete(vec![key.clone()]).await?;
        }
        let bucket = self.backend().bucket.clone().filter(|_| and_versions);
        match bucket {
            Some(bucket) => Removal::of_key(self, bucket.as_ref(), key).run(None).await,
            None => Ok(RetainedVersions::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{folder, keys, memory, put};

    #[tokio::test]
    async fn a_snapshot_is_removed_by_its_whole_id_and_nothing_else_is() {
        let (_dir, in_folder) = folder("p");
        for location in [memory("p"), in_folder] {
            let id = "4f".repeat(32);
            assert!(!location.has_repository("shop").await.unwrap());
            assert!(!location.has_repositories().await.unwrap());
            put(&location, "p/restic/shop/config", b"c").await;
            let other = format!("p/restic/shop/snapshots/{}", "5f".repeat(32));
            put(&location, &other, b"s").await;
            put(&location, &format!("p/restic/shop/snapshots/{id}"), b"s").await;
            assert!(location.has_repository("shop").await.unwrap());
            assert!(!location.has_repository("shops").await.unwrap());
            assert!(location.has_repositories().await.unwrap());
            assert_eq!(location.repository_namespaces().await.unwrap(), ["shop"]);
            for _ in 0..2 {
                let retained = location.delete_volume_snapshot("shop", &id, true).await;
                assert_eq!(retained.unwrap(), RetainedVersions::default());
            }
            assert_eq!(
                keys(&location).await,
                ["p/restic/shop/config", other.as_str()]
            );
        }
    }

    #[tokio::test]
    async fn notes_are_listed_by_backup_and_removed_one_by_one() {
        let (_dir, in_folder) = folder("p");
        for location in [memory("p"), in_folder] {
            let [first, second, other] = ["4f", "5f", "6f"].map(|digits| digits.repeat(32));
            let note = |of: &str, id: &str| format!("p/restic/shop/uploads/{of}/{id}");
            for (of, id) in [
                ("uid-b/uid-1", first.as_str()),
                ("uid-b/uid-2", second.as_str()),
                ("uid-b/uid-2", "no-id"),
                ("uid-c/uid-3", other.as_str()),
            ] {
                put(&location, &note(of, id), b"").await;
            }
            let notes = location.snapshot_notes("shop", "uid-b").await.unwrap();
            let found: Vec<_> = notes
                .iter()
                .map(|note| (note.upload.as_str(), note.snapshot.as_str()))
                .collect();
            assert_eq!(
                found,
                [("uid-1", first.as_str()), ("uid-2", second.as_str())]
            );
            let elsewhere = location.snapshot_notes("shops", "uid-b").await.unwrap();
            assert_eq!(elsewhere, []);
            for _ in 0..2 {
                location
                    .delete_snapshot_note(&notes[0], true)
                    .await
                    .unwrap();
            }
            assert_eq!(
                keys(&location).await,
                [
                    note("uid-b/uid-2", &second),
                    note("uid-b/uid-2", "no-id"),
                    note("uid-c/uid-3", &other),
                ]
            );
            for uid in ["", "..", "uid-b/uid-1"] {
                let error = location.snapshot_notes("shop", uid).await.unwrap_err();
                assert_eq!(error.category(), "config", "{uid:?}");
            }
        }
    }

    #[tokio::test]
    async fn folders_of_namespaces_are_listed_and_no_others() {
        let (_dir, in_folder) = folder("p");
        for location in [memory("p"), in_folder] {
            assert!(location.repository_namespaces().await.unwrap().is_empty());
            for key in [
                "p/restic/shop/data/ab/abcd",
                "p/restic/shop/config",
                "p/restic/db/keys/abcd",
                "p/restic/No_Namespace/config",
                "p/restic/file",
                "p/backups/b/velero-backup.json",
                "restic/elsewhere/config",
            ] {
                put(&location, key, b"x").await;
            }
            let mut names = location.repository_namespaces().await.unwrap();
            names.sort();
            assert_eq!(names, ["db", "shop"]);
        }
    }

    #[tokio::test]
    async fn what_is_no_id_or_no_namespace_becomes_no_key() {
        let location = memory("p");
        let id = "4f".repeat(32);
        let (upper, longer) = (id.to_uppercase(), format!("{id}0"));
        for (namespace, id) in [
            ("shop", ""),
            ("shop", "4f1c0a7d"),
            ("shop", "../../backups/b/velero-backup.json"),
            ("shop", upper.as_str()),
            ("shop", longer.as_str()),
            ("", id.as_str()),
            ("..", id.as_str()),
            ("a/b", id.as_str()),
        ] {
            let error = location
                .delete_volume_snapshot(namespace, id, false)
                .await
                .unwrap_err();
            assert_eq!(error.category(), "config", "{namespace:?} {id:?}");
        }
    }
}
