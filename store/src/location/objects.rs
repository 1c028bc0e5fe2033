//! Single objects: reading, writing once, listing, deleting.

use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetResult, ObjectStoreExt, PutMode, PutOptions, PutPayload, path::Path};
use sha2::{Digest, Sha256};

use super::Location;
use crate::{
    StoreError,
    error::{is_missing_bucket, is_unsupported},
    upload::{Digest256, Written},
};

impl Location {
    /// The object, to be streamed; none if the key is not there. A missing bucket or folder is an error.
    pub(crate) async fn get(&self, key: &Path) -> Result<Option<GetResult>, StoreError> {
        match self.store().get(key).await {
            Ok(object) => Ok(Some(object)),
            Err(error) => self.absent("read", key, &error),
        }
    }

    /// A small object as a whole; none if the key is not there. Errors: it has more than `max` bytes.
    pub(crate) async fn get_small(&self, key: &Path, max: u64) -> Result<Option<Bytes>, StoreError> {
        let Some(object) = self.get(key).await? else { return Ok(None) };
        let too_large = || StoreError::Corrupt {
            url: self.url_of(key),
            detail: format!("it has more than {max} bytes; nothing of that size is ever written there"),
        };
        if object.meta.size > max {
            return Err(too_large());
        }
        let mut stream = object.into_stream();
        let mut all = BytesMut::new();
        while let Some(chunk) = stream.next().await {
            all.extend_from_slice(&chunk.map_err(|error| self.failed("read", key, &error))?);
            if all.len() as u64 > max {
                return Err(too_large());
            }
        }
        Ok(Some(all.freeze()))
    }

    /// Size of an object (bytes); none if the key is not there.
    pub(crate) async fn size_of(&self, key: &Path) -> Result<Option<u64>, StoreError> {
        match self.store().head(key).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) => self.absent("look at", key, &error),
        }
    }

    /// Writes an object that is not there yet (If-None-Match). Safe to repeat: if the key is there with bytes that this
    /// process has tried to write, that is success. Errors: [`StoreError::Exists`] for any other bytes.
    pub(crate) async fn put_new(
        &self,
        key: &Path,
        payload: PutPayload,
        digest: Digest256,
        written: &Written,
    ) -> Result<(), StoreError> {
        let ours = payload.content_length() as u64;
        written.tried(key, digest);
        if !self.inner.unconditional.load(Ordering::Relaxed) {
            match self.store().put_opts(key, payload.clone(), PutOptions::from(PutMode::Create)).await {
                Ok(_) => return Ok(()),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                    return match self.size_of(key).await? {
                        Some(size) => self.is_ours(key, size, ours, written).await,
                        // S3 says 409 too when another request for the key is on its way.
                        None => Err(StoreError::Unreachable {
                            action: "write".to_owned(),
                            url: self.url_of(key),
                            detail: "the store says that it exists, but it does not; another write or deletion may be under way"
                                .to_owned(),
                        }),
                    };
                }
                Err(error) if is_unsupported(&error) => {
                    tracing::warn!(store = %self.url(), "the store does not know conditional writes; looking before each write instead");
                    self.inner.unconditional.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(self.failed("write", key, &error)),
            }
        }
        if let Some(size) = self.size_of(key).await? {
            return self.is_ours(key, size, ours, written).await;
        }
        self.store().put(key, payload).await.map_err(|error| self.failed("write", key, &error))?;
        Ok(())
    }

    /// Success if the object holds bytes that this process has written, else [`StoreError::Exists`].
    pub(crate) async fn is_ours(
        &self,
        key: &Path,
        size: u64,
        ours: u64,
        written: &Written,
    ) -> Result<(), StoreError> {
        let foreign = |detail: String| Err(StoreError::Exists { url: self.url_of(key), detail });
        let Some(object) = self.get(key).await? else {
            return foreign("it was there a moment ago and is gone; another writer is at work".to_owned());
        };
        let mut hash = Sha256::new();
        let mut stream = object.into_stream();
        while let Some(chunk) = stream.next().await {
            hash.update(&chunk.map_err(|error| self.failed("read", key, &error))?);
        }
        if written.contains(key, &hash.finalize().into()) {
            return Ok(());
        }
        foreign(format!(
            "it holds {size} bytes that are not those being written ({ours} bytes); it is left alone. Choose another name, or remove it"
        ))
    }

    /// All keys under a folder, sorted; bounded by what one backup or restore consists of.
    pub(crate) async fn list(&self, folder: &Path) -> Result<Vec<Path>, StoreError> {
        let listed =
            self.store().list(Some(folder)).map_ok(|meta| meta.location).try_collect::<Vec<_>>().await;
        match listed {
            Ok(mut keys) => {
                keys.sort_unstable();
                Ok(keys)
            }
            Err(error) => Ok(self.absent("list", folder, &error)?.unwrap_or_default()),
        }
    }

    /// Deletes keys; those that are gone already don't matter.
    pub(crate) async fn delete(&self, keys: Vec<Path>) -> Result<(), StoreError> {
        let Some(first) = keys.first().cloned() else { return Ok(()) };
        let mut done = self.store().delete_stream(stream::iter(keys.into_iter().map(Ok)).boxed());
        while let Some(result) = done.next().await {
            if let Err(error) = result {
                self.absent::<()>("delete", &first, &error)?;
            }
        }
        Ok(())
    }

    /// "Not there" for an error that says so about the key; any other error, and a missing bucket or folder, is one.
    fn absent<T>(
        &self,
        action: &str,
        key: &Path,
        error: &object_store::Error,
    ) -> Result<Option<T>, StoreError> {
        if matches!(error, object_store::Error::NotFound { .. }) && !is_missing_bucket(error) {
            self.folder_exists()?;
            return Ok(None);
        }
        Err(self.failed(action, key, error))
    }

    /// A folder that has gone (a volume that is not mounted) must not look like an empty store.
    pub(super) fn folder_exists(&self) -> Result<(), StoreError> {
        match &self.inner.root.folder {
            Some(folder) if !folder.is_dir() => Err(StoreError::NotFound {
                what: format!("the folder {}", folder.display()),
                remedy:
                    "mount or create it, or correct spec.objectStorage.bucket of the BackupStorageLocation"
                        .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn failed(&self, action: &str, key: &Path, error: &object_store::Error) -> StoreError {
        StoreError::from_store(action, &self.url_of(key), error)
    }
}
