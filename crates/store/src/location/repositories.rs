//! Repositories of volume data, beside the backups (`restic/<namespace>`): whether they exist, and
//! the removal of their snapshots. All else about them is done by pods with `backup-mover`.

use backup_core::names::is_dns_label;
use object_store::path::Path;

use super::{
    Location,
    deletion::{Removal, RetainedVersions},
};
use crate::StoreError;

impl Location {
    /// Whether there is a repository of this namespace.
    pub async fn has_repository(&self, namespace: &str) -> Result<bool, StoreError> {
        let key = self.layout().repository(namespace)?.join("config");
        Ok(self.look_at(&key).await?.is_some())
    }

    /// Whether there may be a repository of any namespace. One listing.
    pub async fn has_repositories(&self) -> Result<bool, StoreError> {
        self.folder_exists()?;
        let folder = self.layout().repositories();
        let listing = self.store().list_with_delimiter(Some(&folder)).await;
        let listing = listing.map_err(|error| self.failed("list", &folder, &error))?;
        Ok(!listing.common_prefixes.is_empty())
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
        // Where versions are kept, deleting a missing key would leave a delete marker.
        if self.look_at(&key).await?.is_some() {
            self.delete(vec![key.clone()]).await?;
        }
        let bucket = self.backend().bucket.clone().filter(|_| and_versions);
        match bucket {
            Some(bucket) => Removal::of_key(self, bucket.as_ref(), &key).run(None).await,
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
