//! A closer look at a location than a listing: whether it can be written, and what its bucket keeps.

use std::time::Duration;

use backup_core::bucket::{Facts, Versions};
use bytes::Bytes;

use super::Location;
use crate::StoreError;

/// What lies under the key that is written to see whether that is allowed; the same each time.
const TEXT: &str =
    "backup-controller has written this to see whether it may; it can be removed at any time\n";
/// How long a bucket may take to tell its settings, which nothing depends on.
const PATIENCE: Duration = Duration::from_secs(10);

impl Location {
    /// What is known of the bucket, and with `write` whether objects can be written to it.
    ///
    /// One small object is written (create-only) and removed. If it is there, from a try that was broken off or by another
    /// cluster, the store has answered for a write it would have allowed, and that counts. Where versions are kept it stays,
    /// so that not every try leaves one behind: it is written once, and found there from then on.
    ///
    /// Errors: it can not be written, with the right that may be missing. That nothing can be removed is no error but one of the
    /// facts.
    pub async fn look_closely(&self, write: bool) -> Result<Facts, StoreError> {
        let mut facts = self.settings().await;
        if !write {
            return Ok(facts);
        }
        let key = self.layout().probe();
        match self.may_create(&key, Bytes::from_static(TEXT.as_bytes())).await {
            Ok(()) => {}
            Err(StoreError::Denied { action, url, detail }) => {
                let right = self.right_to_write();
                let detail = format!(
                    "{detail}; backups need {right} there: grant it, or set spec.accessMode to ReadOnly"
                );
                return Err(StoreError::Denied { action, url, detail });
            }
            Err(error) => return Err(error),
        }
        if matches!(facts.versions, Some(Versions::Enabled | Versions::Suspended)) {
            return Ok(facts);
        }
        match self.delete(vec![key]).await {
            Ok(()) => {}
            Err(error @ StoreError::Denied { .. }) => facts.not_removable = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(facts)
    }

    /// What the bucket says of itself. That it does not say is no error.
    async fn settings(&self) -> Facts {
        let Some(bucket) = &self.inner.bucket else {
            // A folder has no versions.
            let versions = self.inner.root.folder.is_some().then_some(Versions::Off);
            let lock = versions.map(|_| backup_core::bucket::ObjectLock::default());
            let unknown = versions.is_none().then(|| "it is not asked of this provider".to_owned());
            return Facts { versions, lock, unknown, not_removable: None };
        };
        let late = || format!("no answer within {PATIENCE:?}");
        let (versions, lock) = tokio::join!(
            tokio::time::timeout(PATIENCE, bucket.versions()),
            tokio::time::timeout(PATIENCE, bucket.lock()),
        );
        let versions = versions.unwrap_or_else(|_| Err(late()));
        let lock = lock.unwrap_or_else(|_| Err(late()));
        let reasons: Vec<String> =
            versions.as_ref().err().into_iter().chain(lock.as_ref().err()).cloned().collect();
        let unknown = (!reasons.is_empty()).then(|| reasons.join("; "));
        Facts { versions: versions.ok(), lock: lock.ok(), unknown, not_removable: None }
    }

    /// What the provider calls the right to write.
    fn right_to_write(&self) -> &'static str {
        match self.inner.root.url.split("://").next() {
            Some("s3") => {
                "s3:PutObject (and the use of the key, if the bucket is encrypted with one of its own)"
            }
            Some("azure") => "the role Storage Blob Data Contributor",
            Some("gs") => "storage.objects.create",
            _ => "the right to write",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fault, Recorder, folder, get, keys, memory, put};

    const KEY: &str = "p/backups/.writable";

    #[tokio::test]
    async fn what_is_written_is_removed_and_what_was_left_is_no_hindrance() {
        let (_dir, on_disk) = folder("p");
        for location in [memory("p"), on_disk] {
            location.look_closely(false).await.unwrap();
            assert!(keys(&location).await.is_empty(), "a location that is only read was written to");
            for left in [None, Some(TEXT.as_bytes()), Some(b"of another version")] {
                if let Some(left) = left {
                    put(&location, KEY, left).await;
                }
                let facts = location.look_closely(true).await.unwrap();
                assert_eq!(facts.not_removable, None);
                assert_eq!(get(&location, KEY).await, None, "{left:?}");
            }
            // It is none of the folders that readers see.
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
        assert_eq!(location.look_closely(true).await.unwrap_err().category(), "unreachable");
        let facts = location.look_closely(true).await.unwrap();
        assert!(facts.versions.is_none() && facts.unknown.is_some(), "{facts:?}");
    }
}
