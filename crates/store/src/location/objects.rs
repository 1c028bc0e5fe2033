//! Single objects: reading, writing once, listing, deleting, URLs.

use std::{ops::Range, sync::atomic::Ordering, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use object_store::{
    GetOptions, GetRange, GetResult, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions,
    multipart::PartId, path::Path,
};

use super::Location;
use crate::{
    StoreError,
    error::{is_lost_upload, is_missing_key, is_taken, is_unsupported},
    staging::{StagedObject, UploadedParts},
};

/// Attempts, and the pause between them, after an answer that may be temporary (409 during another
/// write). Longer waits are the caller's.
const MAX_ATTEMPTS: u32 = 3;
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// What a store reports about an object without reading it.
pub(crate) struct ObjectProperties {
    /// Its size (bytes); `None` where only reading the object tells it.
    pub size: Option<u64>,
    /// Identifies these bytes, where the store supports that.
    pub e_tag: Option<String>,
}

impl Location {
    /// The object, to be streamed; `None` if the key does not exist. A missing bucket or folder is
    /// an error.
    pub(crate) async fn get(&self, key: &Path) -> Result<Option<GetResult>, StoreError> {
        match self.store().get(key).await {
            Ok(object) => Ok(Some(object)),
            Err(error) => self.absent("read", key, &error),
        }
    }

    /// A small object as a whole; `None` if the key does not exist. Errors: it has more than `max`
    /// bytes.
    pub(crate) async fn get_small(
        &self,
        key: &Path,
        max: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        let Some(object) = self.get(key).await? else {
            return Ok(None);
        };
        if object.meta.size > max {
            return Err(self.too_large(key, max));
        }
        // A growing buffer would take twice the memory; a plugin reports no sizes.
        let mut all =
            BytesMut::with_capacity(usize::try_from(object.meta.size).unwrap_or_default());
        let mut stream = object.into_stream();
        while let Some(chunk) = stream.next().await {
            all.extend_from_slice(&chunk.map_err(|error| self.failed("read", key, &error))?);
            if all.len() as u64 > max {
                return Err(self.too_large(key, max));
            }
        }
        Ok(Some(all.freeze()))
    }

    /// A range of an existing object. Errors: [`StoreError::Corrupt`] if the object is shorter.
    pub(crate) async fn get_range(
        &self,
        key: &Path,
        range: Range<u64>,
    ) -> Result<Bytes, StoreError> {
        let from = saturating_usize(range.start);
        let length = saturating_usize(range.end - range.start);
        if length == 0 {
            return Ok(Bytes::new());
        }
        // A plugin returns whole objects only.
        let (range, mut before) = if self.plugin().is_some() {
            (None, from)
        } else {
            (Some(GetRange::Bounded(range)), 0)
        };
        let object = self
            .store()
            .get_opts(
                key,
                GetOptions {
                    range,
                    ..GetOptions::default()
                },
            )
            .await;
        let mut stream = object
            .map_err(|error| self.failed("read", key, &error))?
            .into_stream();
        let mut part = BytesMut::with_capacity(length);
        while part.len() < length
            && let Some(chunk) = stream.next().await
        {
            let chunk = chunk.map_err(|error| self.failed("read", key, &error))?;
            let wanted = chunk.slice(before.min(chunk.len())..);
            before -= chunk.len() - wanted.len();
            part.extend_from_slice(&wanted[..wanted.len().min(length - part.len())]);
        }
        if part.len() < length {
            return Err(self.corrupt(key, format!("it ends before byte {}", from + length)));
        }
        Ok(part.freeze())
    }

    /// Looks an object up without reading it; `None` if the key does not exist.
    pub(crate) async fn look_at(&self, key: &Path) -> Result<Option<ObjectProperties>, StoreError> {
        match self.store().head(key).await {
            Ok(meta) => {
                let size = self.plugin().is_none().then_some(meta.size);
                Ok(Some(ObjectProperties {
                    size,
                    e_tag: meta.e_tag,
                }))
            }
            Err(error) => self.absent("look at", key, &error),
        }
    }

    /// Creates an object (If-None-Match). Safe to repeat: succeeds if the key already holds these
    /// bytes. Errors: [`StoreError::Exists`] for any other bytes.
    pub(crate) async fn put_new(&self, key: &Path, bytes: Bytes) -> Result<(), StoreError> {
        let ours = StagedObject::Inline(bytes.clone());
        let mut tries = 0;
        while let Some(is_created) = self.create(key, &bytes).await? {
            if is_created || self.holds(key, &ours).await? {
                return Ok(());
            }
            // S3 also answers so while another request for the key is in progress, and asks for a
            // retry.
            tries += 1;
            if tries >= MAX_ATTEMPTS {
                return Err(self.says_it_exists(key));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        if self.holds(key, &ours).await? {
            return Ok(());
        }
        let put = self.put(key, &bytes, PutMode::Overwrite).await;
        put.map_err(|error| self.failed("write", key, &error))
    }

    /// Creates an object, or gets the answer that it exists, which a store only gives to those who
    /// may write it. (Some answer so for a deleted key where versions are kept.)
    pub(crate) async fn may_create(&self, key: &Path, bytes: Bytes) -> Result<(), StoreError> {
        if self.create(key, &bytes).await?.is_some() {
            return Ok(());
        }
        match self.put_new(key, bytes).await {
            Err(StoreError::Exists { .. }) => Ok(()),
            other => other,
        }
    }

    /// Creates a key (If-None-Match). False: it exists already. `None`: the store does not support
    /// conditions.
    pub(super) async fn create(
        &self,
        key: &Path,
        bytes: &Bytes,
    ) -> Result<Option<bool>, StoreError> {
        if self.is_unconditional() {
            return Ok(None);
        }
        let Err(error) = self.put(key, bytes, PutMode::Create).await else {
            return Ok(Some(true));
        };
        if is_taken(&error) {
            Ok(Some(false))
        } else if is_unsupported(&error) {
            self.knows_no_conditions();
            Ok(None)
        } else {
            Err(self.failed("write", key, &error))
        }
    }

    async fn put(&self, key: &Path, bytes: &Bytes, mode: PutMode) -> object_store::Result<()> {
        let options = PutOptions {
            mode,
            tags: self.backend().tags.clone(),
            ..PutOptions::default()
        };
        self.store()
            .put_opts(key, bytes.clone().into(), options)
            .await
            .map(drop)
    }

    /// The error for a store that refuses a key although it does not exist.
    pub(crate) fn says_it_exists(&self, key: &Path) -> StoreError {
        self.unreachable(
            "write",
            key,
            "the store says that it exists, but it does not; another write or deletion may be under way",
        )
    }

    pub(super) fn knows_no_conditions(&self) {
        if self.inner.unconditional.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(store = %self.url(), "the store does not know conditional writes; looking before each write instead");
    }

    pub(crate) async fn begin_upload(&self, key: &Path) -> object_store::Result<String> {
        let tags = self.backend().tags.clone();
        if tags.encoded().is_empty() {
            return self.uploads().create_multipart(key).await; // not every store takes options
        }
        let options = PutMultipartOptions {
            tags,
            ..PutMultipartOptions::default()
        };
        self.uploads().create_multipart_opts(key, options).await
    }

    /// Incomplete uploads of a key, where the store can list them.
    pub(crate) async fn begun_uploads(&self, key: &Path) -> Vec<String> {
        let Some(bucket) = &self.backend().bucket else {
            return Vec::new();
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let reason = match bucket.uploads(key).await {
                Ok(uploads) => return uploads,
                Err(reason) => reason,
            };
            if tries >= MAX_ATTEMPTS {
                // Not every account may list uploads, and not every store supports it.
                tracing::debug!(%key, %reason, "uploads cannot be listed; those without a note are left to the bucket's lifecycle rule");
                return Vec::new();
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Completes an upload, where supported on the condition that the key does not exist.
    pub(crate) async fn complete_upload(
        &self,
        key: &Path,
        parts: &UploadedParts,
    ) -> object_store::Result<()> {
        if let Some(creating) = &self.backend().creating
            && !self.is_unconditional()
        {
            match creating
                .complete_multipart(key, &parts.upload, part_ids(parts))
                .await
            {
                Err(error) if is_unsupported(&error) => self.knows_no_conditions(),
                result => return result.map(|_| ()),
            }
        }
        self.uploads()
            .complete_multipart(key, &parts.upload, part_ids(parts))
            .await
            .map(|_| ())
    }

    /// Removes the parts of an upload that will never be completed, then its note. Best effort: the
    /// note stays as long as the parts do.
    pub(crate) async fn abort_upload(&self, key: &Path, upload: &str, note: Option<Path>) {
        if let Err(error) = self
            .uploads()
            .abort_multipart(key, &upload.to_owned())
            .await
            && !is_lost_upload(&error)
        {
            tracing::warn!(%key, %error, "could not abort an upload; its parts stay until it is tried again, or until the bucket's lifecycle rule removes them");
            return;
        }
        if let Some(note) = note
            && let Err(error) = self.delete(vec![note]).await
        {
            tracing::debug!(%key, %error, "the note of an aborted upload stays");
        }
    }

    /// All keys under a folder, sorted; their number is bounded by the files of one backup or
    /// restore.
    pub(crate) async fn list(&self, folder: &Path) -> Result<Vec<Path>, StoreError> {
        let listed = self
            .store()
            .list(Some(folder))
            .map_ok(|meta| meta.location)
            .try_collect::<Vec<_>>()
            .await;
        match listed {
            Ok(mut keys) => {
                keys.sort_unstable();
                Ok(keys)
            }
            Err(error) => Ok(self.absent("list", folder, &error)?.unwrap_or_default()),
        }
    }

    /// Deletes keys; missing ones are ignored.
    pub(crate) async fn delete(&self, keys: Vec<Path>) -> Result<(), StoreError> {
        let Some(first) = keys.first().cloned() else {
            return Ok(());
        };
        let mut done = self
            .store()
            .delete_stream(stream::iter(keys.into_iter().map(Ok)).boxed());
        while let Some(result) = done.next().await {
            if let Err(error) = result {
                self.absent::<()>("delete", &first, &error)?;
            }
        }
        Ok(())
    }

    /// Returns `Ok(None)` if the error says that the key does not exist; any other error, and a
    /// missing bucket or folder, is returned.
    fn absent<T>(
        &self,
        action: &str,
        key: &Path,
        error: &object_store::Error,
    ) -> Result<Option<T>, StoreError> {
        if is_missing_key(error) {
            self.folder_exists()?;
            return Ok(None);
        }
        Err(self.failed(action, key, error))
    }

    /// A missing folder (a volume that is not mounted) must not look like an empty store.
    pub(super) fn folder_exists(&self) -> Result<(), StoreError> {
        if let Some(folder) = &self.backend().folder
            && !folder.is_dir()
        {
            return Err(StoreError::NotFound {
                what: format!("the folder {}", folder.display()),
                remedy:
                    "mount or create it, or correct spec.objectStorage.bucket of the BackupStorageLocation"
                        .to_owned(),
            });
        }
        Ok(())
    }

    pub(crate) fn failed(
        &self,
        action: &str,
        key: &Path,
        error: &object_store::Error,
    ) -> StoreError {
        StoreError::from_store(action, &self.url_of(key), error)
    }

    fn too_large(&self, key: &Path, max: u64) -> StoreError {
        self.corrupt(
            key,
            format!("it has more than {max} bytes; nothing of that size is ever written there"),
        )
    }

    pub(crate) fn corrupt(&self, key: &Path, detail: impl Into<String>) -> StoreError {
        StoreError::Corrupt {
            url: self.url_of(key),
            detail: detail.into(),
        }
    }

    pub(crate) fn exists(&self, key: &Path, detail: impl Into<String>) -> StoreError {
        StoreError::Exists {
            url: self.url_of(key),
            detail: detail.into(),
        }
    }

    pub(crate) fn unreachable(
        &self,
        action: &str,
        key: &Path,
        detail: impl Into<String>,
    ) -> StoreError {
        StoreError::Unreachable {
            action: action.to_owned(),
            url: self.url_of(key),
            detail: detail.into(),
        }
    }

    pub(crate) fn can_sign(&self) -> bool {
        self.backend().signer.is_some() || self.plugin().is_some()
    }

    /// A URL by which everyone who has it can read this key until `ttl` has passed, even if the key
    /// does not exist yet. It is as sensitive as a credential: never log it. No request is sent,
    /// unless the store has to sign it (plugins, Google without a key).
    ///
    /// Errors: [`StoreError::Config`] where no URLs can be made.
    pub(crate) async fn sign(&self, key: &Path, ttl: Duration) -> Result<String, StoreError> {
        let signed = match (&self.backend().signer, self.plugin()) {
            (Some(signer), _) => signer
                .signed_url(Method::GET, key, ttl)
                .await
                .map(String::from),
            (None, Some(plugin)) => plugin
                .0
                .sign(key.as_ref(), ttl)
                .await
                .map_err(object_store::Error::from),
            (None, None) => {
                let message = format!(
                    "there are no URLs for files in {}: read them there, or use a location in an object store",
                    self.url()
                );
                return Err(StoreError::config("spec.provider", message));
            }
        };
        signed.map_err(|error| self.failed("sign a URL of", key, &error))
    }
}

/// A number as `usize`; the largest one if it does not fit.
fn saturating_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn part_ids(uploaded: &UploadedParts) -> Vec<PartId> {
    uploaded
        .parts
        .iter()
        .map(|part| PartId {
            content_id: part.id.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use backup_core::api::BackupStorageLocation;

    use super::*;
    use crate::testing::{memory, spec};

    fn aws(config: &[(&str, &str)]) -> Location {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut bsl = BackupStorageLocation::new("default", spec("aws", "b", config));
        bsl.spec.object_storage.prefix = Some("p".to_owned());
        let secret = b"[default]\naws_access_key_id=AKID\naws_secret_access_key=TOPSECRET\n";
        Location::open(&bsl, Some(secret), None).unwrap()
    }

    #[tokio::test]
    async fn a_url_is_for_where_its_reader_reaches_the_store_and_ends() {
        let (inside, path_style) = (
            ("s3Url", "http://minio.minio.svc:9000"),
            ("s3ForcePathStyle", "true"),
        );
        let public = ("publicUrl", "https://s3.example.com");
        for (config, begin) in [
            (vec![], "https://b.s3.us-east-1.amazonaws.com/p/k?"),
            (
                vec![inside, path_style],
                "http://minio.minio.svc:9000/b/p/k?",
            ),
            (
                vec![inside, path_style, public],
                "https://s3.example.com/b/p/k?",
            ),
            (
                vec![inside, ("publicUrl", "https://s3.example.com/")],
                "https://b.s3.example.com/p/k?",
            ),
        ] {
            let location = aws(&config);
            assert!(location.can_sign());
            let key = location.layout().prefix.clone().join("k");
            let url = location.sign(&key, Duration::from_mins(10)).await.unwrap();
            assert!(url.starts_with(begin), "{url}");
            assert!(
                url.contains("X-Amz-Expires=600") && !url.contains("TOPSECRET"),
                "{url}"
            );
        }
    }

    #[tokio::test]
    async fn where_no_urls_can_be_made_that_is_said() {
        let location = memory("p");
        assert!(!location.can_sign());
        let error = location
            .sign(&Path::from("p/k"), Duration::from_mins(10))
            .await
            .unwrap_err();
        assert_eq!(error.category(), "config");
    }
}
