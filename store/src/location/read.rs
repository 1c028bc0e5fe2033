//! Reading what is stored.

use std::io::{BufReader, Read as _};

use backup_core::api::Backup;
use flate2::read::MultiGzDecoder;
use object_store::path::Path;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Location;
use crate::StoreError;

/// Metadata larger than this is refused (bytes). An object in a cluster has at most 1.5 MiB, which Velero indents.
pub(super) const MAX_METADATA: u64 = 16 * 1024 * 1024;
/// A list of snapshots larger than this is refused (bytes, before and after it is decompressed).
const MAX_SNAPSHOTS: u64 = 64 * 1024 * 1024;

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

    /// The stored Backup: the commit record. None if there is no `velero-backup.json`: then the folder holds no backup, or
    /// one that is not finished.
    ///
    /// Errors: [`StoreError::Corrupt`] for a file that is not a Backup of that name.
    pub async fn read_metadata(&self, backup: &str) -> Result<Option<Backup>, StoreError> {
        let key = self.layout().backup(backup)?.metadata();
        let Some(json) = self.get_small(&key, MAX_METADATA).await? else { return Ok(None) };
        let corrupt = |detail: String| StoreError::Corrupt { url: self.url_of(&key), detail };
        let stored: Backup = serde_json::from_slice(&json).map_err(|error| {
            corrupt(format!("it is not a Backup: {error}; delete the backup's folder, or repair the file"))
        })?;
        if stored.kind != "Backup" || !stored.api_version.starts_with("velero.io/") {
            return Err(corrupt(format!(
                "it holds a {} {}, expected velero.io/v1 Backup",
                stored.api_version, stored.kind
            )));
        }
        match stored.metadata.name.as_deref() {
            Some(name) if name == backup => Ok(Some(stored)),
            name => Err(corrupt(format!(
                "the Backup in it is named {:?}, but its folder {backup:?}; rename the folder and its files",
                name.unwrap_or_default()
            ))),
        }
    }

    /// The snapshots of volumes that plugins have taken for a backup; none if there is no such file, which is as good as an
    /// empty list.
    ///
    /// Errors: [`StoreError::Corrupt`] for a file that is no list.
    pub async fn read_volume_snapshots(&self, backup: &str) -> Result<Option<Vec<Value>>, StoreError> {
        let key = self.layout().backup(backup)?.volume_snapshots();
        self.read_list(&key, MAX_SNAPSHOTS).await
    }

    /// A gzipped list; none if there is no such file. Errors: [`StoreError::Corrupt`] for a file that is no list, or has more
    /// than `max` bytes before or after it is decompressed.
    pub(super) async fn read_list<T: DeserializeOwned>(
        &self,
        key: &Path,
        max: u64,
    ) -> Result<Option<Vec<T>>, StoreError> {
        let Some(bytes) = self.get_small(key, max).await? else { return Ok(None) };
        let reader = BufReader::new(MultiGzDecoder::new(&bytes[..]).take(max));
        // Go writes an empty list as null in some places.
        let list: Option<Vec<T>> = serde_json::from_reader(reader).map_err(|error| {
            let detail = format!("it is no gzipped list of at most {max} bytes: {error}");
            StoreError::Corrupt { url: self.url_of(key), detail }
        })?;
        Ok(Some(list.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{memory, put};

    #[tokio::test]
    async fn snapshots_of_a_backup_are_a_list_or_nothing_and_what_is_no_list_is_told() {
        let location = memory("p");
        assert_eq!(location.read_volume_snapshots("b").await.unwrap(), None);
        for (text, expected) in [("null\n", Some(0)), ("[{}, {\"a\":1}]", Some(2)), ("{}", None)] {
            let bytes = crate::gzip::member(text.as_bytes()).unwrap();
            let name = format!("b{}", text.len());
            put(&location, &format!("p/backups/{name}/{name}-volumesnapshots.json.gz"), &bytes).await;
            match location.read_volume_snapshots(&name).await {
                Ok(list) => assert_eq!(list.map(|list| list.len()), expected),
                Err(error) => assert!(expected.is_none() && error.category() == "corrupt", "{error}"),
            }
        }
    }

    #[tokio::test]
    async fn metadata_that_is_not_this_backup_is_refused() {
        let location = memory("p");
        assert!(location.read_metadata("b").await.unwrap().is_none());
        assert!(location.list_backups().await.unwrap().is_empty());
        let table: [(&str, &[u8], bool); 6] = [
            (
                "ok",
                br#"{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"ok"},"new":1}"#,
                true,
            ),
            ("other", br#"{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"ok"}}"#, false),
            ("kind", br#"{"apiVersion":"velero.io/v1","kind":"Restore","metadata":{"name":"kind"}}"#, false),
            ("group", br#"{"apiVersion":"v1","kind":"Backup","metadata":{"name":"group"}}"#, false),
            ("cut", br#"{"apiVersion":"velero.io/v1","kind":"Ba"#, false),
            ("empty", b"", false),
        ];
        for (name, json, good) in table {
            put(&location, &format!("p/backups/{name}/velero-backup.json"), json).await;
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
}
