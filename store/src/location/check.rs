//! Whether a location can be used.
//!
//! Velero: `objectBackupStore.IsValid` in `pkg/persistence/object_store.go`, v1.18.

use super::Location;
use crate::{StoreError, error::is_missing_bucket, layout::TOP_LEVEL};

impl Location {
    /// Whether the bucket is there, may be listed, and looks like a backup store. One listing; writes nothing.
    ///
    /// Errors: `not_found` (no such bucket or folder), `denied`, `unreachable`, or `config` if there are folders at the top
    /// that no backup store has (usually a bucket shared with something else, or a wrong prefix).
    pub async fn check(&self) -> Result<(), StoreError> {
        self.folder_exists()?;
        let prefix = self.layout().prefix();
        let listing = match self.store().list_with_delimiter(Some(prefix)).await {
            Ok(listing) => listing,
            Err(error) if is_missing_bucket(&error) => {
                let root = &self.inner.root;
                let at = root.endpoint.as_ref().map(|endpoint| format!(" at {endpoint}")).unwrap_or_default();
                let bucket = root.url.rsplit('/').next().unwrap_or_default();
                return Err(StoreError::NotFound {
                    what: format!("bucket {bucket:?}{at}"),
                    remedy: "create it, or correct spec.objectStorage.bucket of the BackupStorageLocation"
                        .to_owned(),
                });
            }
            Err(error) => return Err(self.failed("list", prefix, &error)),
        };
        let foreign: Vec<&str> = listing
            .common_prefixes
            .iter()
            .filter_map(|folder| folder.filename())
            .filter(|name| !TOP_LEVEL.contains(name) && !self.is_of_the_disk(name))
            .collect();
        if foreign.is_empty() {
            return Ok(());
        }
        Err(StoreError::Config {
            field: "spec.objectStorage".to_owned(),
            message: format!(
                "{} has folders that are not part of a backup store: {}; expected only {}. Use a bucket or prefix of its own, or move them",
                self.url(),
                foreign.join(", "),
                TOP_LEVEL.join(", ")
            ),
        })
    }

    /// Folders that file systems and storage appliances put at the top of a volume.
    fn is_of_the_disk(&self, name: &str) -> bool {
        self.inner.root.folder.is_some() && (name == "lost+found" || name.starts_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{folder, memory, put};

    #[tokio::test]
    async fn folders_that_do_not_belong_there_are_named() {
        for prefix in ["", "p/q"] {
            let location = memory(prefix);
            let base = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
            for key in [
                "backups/b/x",
                "restores/r/x",
                "restic/x",
                "kopia/x",
                "plugins/x",
                "metadata/revision",
                "readme",
            ] {
                put(&location, &format!("{base}{key}"), b"").await;
            }
            location.check().await.unwrap();
            put(&location, &format!("{base}photos/1.jpg"), b"").await;
            put(&location, &format!("{base}music/1.mp3"), b"").await;
            let error = location.check().await.unwrap_err();
            assert_eq!(error.category(), "config");
            assert!(error.to_string().contains("music, photos"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_folder_that_has_gone_is_not_an_empty_store() {
        let (dir, location) = folder("p");
        location.check().await.unwrap();
        std::fs::create_dir(dir.path().join("store/lost+found")).unwrap();
        location.check().await.unwrap();
        std::fs::remove_dir_all(dir.path().join("store")).unwrap();
        for error in [
            location.check().await.unwrap_err(),
            location.list_backups().await.unwrap_err(),
            location.read_metadata("b").await.unwrap_err(),
        ] {
            assert_eq!(error.category(), "not_found");
            assert!(error.to_string().contains("store"), "{error}");
        }
    }
}
