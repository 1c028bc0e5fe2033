//! Checks whether a location can be used: whether it can be listed and written, and what its bucket
//! keeps.
//!
//! Velero: `objectBackupStore.IsValid` in `pkg/persistence/object_store.go`, v1.18.

use std::time::Duration;

use backup_core::bucket::{Facts, ObjectLock, Versions};
use bytes::Bytes;
use object_store::path::Path;

use super::{Location, bucket_api::BucketError};
use crate::{StoreError, error::is_missing_bucket, layout::TOP_LEVEL};

/// Content of the key that is written to test write access; the same each time.
const TEXT: &str =
    "backup-controller has written this to see whether it may; it can be removed at any time\n";
/// Timeout for reading a bucket's settings, which nothing depends on.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of consecutive writes of an existing key before a store is taken to ignore the condition.
const MAX_PROBE_WRITES: u32 = 3;

impl Location {
    /// Whether the bucket is there, may be listed, and looks like a backup store. One listing;
    /// writes nothing.
    ///
    /// Errors: `not_found` (no such bucket or folder), `denied`, `unreachable`, or `config` if
    /// there are folders at the top that no backup store has (usually a bucket shared with
    /// something else, or a wrong prefix).
    pub async fn check(&self) -> Result<(), StoreError> {
        self.folder_exists()?;
        let prefix = &self.layout().prefix;
        let listing = self
            .store()
            .list_with_delimiter(Some(prefix))
            .await
            .map_err(|error| self.listing_failure(prefix, &error))?;
        let foreign: Vec<&str> = listing
            .common_prefixes
            .iter()
            .filter_map(|folder| folder.filename())
            .filter(|name| !TOP_LEVEL.contains(name) && !self.is_of_the_disk(name))
            .collect();
        if foreign.is_empty() {
            return Ok(());
        }
        let message = format!(
            "{} has folders that are not part of a backup store: {}; expected only {}. Use a bucket or prefix of its own, or move them",
            self.url(),
            foreign.join(", "),
            TOP_LEVEL.join(", ")
        );
        Err(StoreError::config("spec.objectStorage", message))
    }

    /// The error for a listing that failed; it names a missing bucket.
    fn listing_failure(&self, prefix: &Path, error: &object_store::Error) -> StoreError {
        if !is_missing_bucket(error) {
            return self.failed("list", prefix, error);
        }
        let endpoint = self.backend().endpoint.as_ref();
        let at = endpoint
            .map(|endpoint| format!(" at {endpoint}"))
            .unwrap_or_default();
        let bucket = self.backend().url.rsplit('/').next().unwrap_or_default();
        StoreError::missing_bucket(format!("bucket {bucket:?}{at}"))
    }

    /// Folders that file systems and storage appliances create at the top of a volume.
    fn is_of_the_disk(&self, name: &str) -> bool {
        self.backend().folder.is_some() && (name == "lost+found" || name.starts_with('.'))
    }

    /// Collects facts about the bucket; with `write`, tests whether objects can be written to it.
    ///
    /// One small object is written (create-only) and removed. If it exists already, from an
    /// interrupted attempt or another cluster, the store has answered for a write it would have
    /// allowed, and that counts. Where versions are kept the object stays, so that later attempts
    /// find it and add no versions.
    ///
    /// Errors: it cannot be written, with the right that may be missing. A failed removal is no
    /// error but one of the facts.
    pub async fn probe(&self, write: bool) -> Result<Facts, StoreError> {
        let mut facts = self.settings().await;
        if !write {
            return Ok(facts);
        }
        let key = self.layout().probe();
        let mut written = self
            .may_create(&key, Bytes::from_static(TEXT.as_bytes()))
            .await;
        if let Err(StoreError::Denied { detail, .. }) = &mut written {
            let right = self.right_to_write();
            *detail = format!(
                "{detail}; backups need {right} there: grant it, or set spec.accessMode to ReadOnly"
            );
        }
        written?;
        facts.unconditional = self.plugin().is_none() && self.overwrites(&key).await?;
        if matches!(
            facts.versions,
            Some(Versions::Enabled | Versions::Suspended)
        ) {
            return Ok(facts);
        }
        match self.delete(vec![key]).await {
            Ok(()) => {}
            Err(error @ StoreError::Denied { .. }) => facts.not_removable = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(facts)
    }

    /// Whether the store overwrites an existing key despite the condition: some ignore it, and each
    /// first write looks correct. If so, this location checks keys before it writes from now on.
    async fn overwrites(&self, key: &Path) -> Result<bool, StoreError> {
        // Another cluster's probe may have removed it in between.
        for _ in 0..MAX_PROBE_WRITES {
            if self
                .create(key, &Bytes::from_static(TEXT.as_bytes()))
                .await?
                == Some(false)
            {
                return Ok(false);
            }
        }
        self.knows_no_conditions();
        Ok(true)
    }

    /// The settings that the bucket reports. A failure to report them is no error.
    async fn settings(&self) -> Facts {
        let Some(bucket) = &self.backend().bucket else {
            // A folder has no versions.
            let versions = self.backend().folder.is_some().then_some(Versions::Off);
            let lock = versions.map(|_| ObjectLock::default());
            let unknown = versions
                .is_none()
                .then(|| "it is not asked of this provider".to_owned());
            return Facts {
                versions,
                lock,
                unknown,
                ..Facts::default()
            };
        };
        let (versions, lock) = tokio::join!(
            tokio::time::timeout(SETTINGS_TIMEOUT, bucket.versions()),
            tokio::time::timeout(SETTINGS_TIMEOUT, bucket.lock()),
        );
        let versions = versions.unwrap_or_else(|_| Err(late_answer()));
        let lock = lock.unwrap_or_else(|_| Err(late_answer()));
        let errors = versions
            .as_ref()
            .err()
            .into_iter()
            .chain(lock.as_ref().err());
        let reasons: Vec<String> = errors.map(ToString::to_string).collect();
        let unknown = (!reasons.is_empty()).then(|| reasons.join("; "));
        Facts {
            versions: versions.ok(),
            lock: lock.ok(),
            unknown,
            ..Facts::default()
        }
    }

    /// The provider's name for the right to write.
    fn right_to_write(&self) -> &'static str {
        match self.backend().url.split("://").next() {
            Some("s3") => {
                "s3:PutObject (and the use of the key, if the bucket is encrypted with one of its own)"
            }
            Some("azure") => "the role Storage Blob Data Contributor",
            Some("gs") => "storage.objects.create",
            _ => "the right to write",
        }
    }
}

/// The error for a setting that the bucket does not report in time.
fn late_answer() -> BucketError {
    BucketError::Retryable(format!("no answer within {SETTINGS_TIMEOUT:?}"))
}

#[cfg(test)]
mod tests {
    use backup_core::labels::BUCKET_ANNOTATION;

    use super::*;
    use crate::testing::{Fault, Recorder, folder, get, keys, memory, put, spec};

    const KEY: &str = "p/backups/.writable";

    #[tokio::test]
    async fn what_is_written_is_removed_and_what_was_left_is_no_hindrance() {
        let (_dir, on_disk) = folder("p");
        for location in [memory("p"), on_disk] {
            location.probe(false).await.unwrap();
            assert!(
                keys(&location).await.is_empty(),
                "a location that is only read was written to"
            );
            for left in [None, Some(TEXT.as_bytes()), Some(b"of another version")] {
                if let Some(left) = left {
                    put(&location, KEY, left).await;
                }
                let facts = location.probe(true).await.unwrap();
                assert_eq!(facts.not_removable, None);
                assert_eq!(get(&location, KEY).await, None, "{left:?}");
            }
            // Readers do not see it as a folder.
            put(&location, KEY, b"x").await;
            location.check().await.unwrap();
            assert!(location.list_backups().await.unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn a_store_that_fails_is_not_writable() {
        let recorder = Recorder::default();
        let location = recorder.location("p");
        recorder.fault(&format!("create {KEY}"), Fault::Fail);
        assert_eq!(
            location.probe(true).await.unwrap_err().category(),
            "unreachable"
        );
        let facts = location.probe(true).await.unwrap();
        assert!(
            facts.versions.is_none() && facts.unknown.is_some(),
            "{facts:?}"
        );
    }

    #[tokio::test]
    async fn a_store_that_ignores_the_condition_is_found_out() {
        let recorder = Recorder::default();
        let location = recorder.location("p");
        assert!(!location.probe(true).await.unwrap().unconditional && !location.is_unconditional());
        // Another cluster removes the probe's object once.
        recorder.fault(&format!("create {KEY}"), Fault::Ignored);
        recorder.fault(&format!("create {KEY}"), Fault::Ignored);
        assert!(!location.probe(true).await.unwrap().unconditional);
        (0..9).for_each(|_| recorder.fault(&format!("create {KEY}"), Fault::Ignored));
        assert!(location.probe(true).await.unwrap().unconditional && location.is_unconditional());
        assert!(
            location.probe(true).await.unwrap().unconditional,
            "it stays so"
        );
        assert_eq!(keys(&location).await, Vec::<String>::new());

        let mut bsl = backup_core::api::BackupStorageLocation::new("l", spec("local", "/tmp", &[]));
        for unconditional in [false, true] {
            let facts = Facts {
                unconditional,
                ..Facts::default()
            };
            let annotations = [(BUCKET_ANNOTATION.to_owned(), facts.annotation())];
            bsl.metadata.annotations = Some(annotations.into());
            assert_eq!(
                Location::open(&bsl, None, None).unwrap().is_unconditional(),
                unconditional
            );
        }
    }

    #[tokio::test]
    async fn folders_that_do_not_belong_there_are_named() {
        for prefix in ["", "p/q"] {
            let location = memory(prefix);
            let base = if prefix.is_empty() {
                String::new()
            } else {
                format!("{prefix}/")
            };
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
            assert_says!(error, "music, photos");
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
            assert_says!(error, "store");
        }
    }
}
