//! One object on its way into the store: a single PUT if it is small, parts if it is not.
//!
//! Memory: one part being filled and [`IN_FLIGHT`] on the wire, whatever the size of the object.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use object_store::{MultipartUpload, PutMultipartOptions, PutPayload, path::Path};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use crate::{Location, StoreError};

/// Size of all parts but the last (bytes). S3 wants at least 5 MiB, and equal sizes on some stores.
const PART_SIZE: usize = 8 * 1024 * 1024;

/// Parts on the wire at a time.
const IN_FLIGHT: usize = 2;

/// SHA-256 of an object.
pub(crate) type Digest256 = [u8; 32];

/// What this process has tried to write to each key. An attempt whose answer was lost may have landed; these bytes are
/// ours when they are found later.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<HashMap<Path, Vec<Digest256>>>);

impl Written {
    pub(crate) fn tried(&self, key: &Path, digest: Digest256) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let digests = keys.entry(key.clone()).or_default();
        if !digests.contains(&digest) {
            digests.push(digest);
        }
    }

    pub(crate) fn contains(&self, key: &Path, digest: &Digest256) -> bool {
        let keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.get(key).is_some_and(|digests| digests.contains(digest))
    }
}

/// An object being written.
#[derive(Debug)]
pub(crate) struct Upload {
    location: Location,
    key: Path,
    pending: Vec<Bytes>,
    pending_len: usize,
    multipart: Option<Box<dyn MultipartUpload>>,
    parts: JoinSet<object_store::Result<()>>,
    digest: Sha256,
    bytes: u64,
}

impl Upload {
    /// Nothing is sent before there is a full part.
    pub(crate) fn new(location: Location, key: Path) -> Self {
        Self {
            location,
            key,
            pending: Vec::new(),
            pending_len: 0,
            multipart: None,
            parts: JoinSet::new(),
            digest: Sha256::new(),
            bytes: 0,
        }
    }

    /// Reports a part that has failed meanwhile, without waiting.
    pub(crate) fn failed_part(&mut self) -> Result<(), StoreError> {
        while let Some(joined) = self.parts.try_join_next() {
            self.joined(joined)?;
        }
        Ok(())
    }

    /// Adds bytes. Waits while [`IN_FLIGHT`] parts are on the wire. After an error: [`Self::abort`].
    pub(crate) async fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreError> {
        self.failed_part()?;
        self.digest.update(&bytes);
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PART_SIZE - self.pending_len));
            self.pending_len += piece.len();
            self.pending.push(piece);
            if self.pending_len == PART_SIZE {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    /// Publishes the object; its size. Nothing is ever overwritten: bytes that are there already are compared with ours.
    pub(crate) async fn finish(&mut self, written: &Written) -> Result<u64, StoreError> {
        if self.multipart.is_none() {
            let payload = PutPayload::from_iter(std::mem::take(&mut self.pending));
            let digest = self.digest.clone().finalize().into();
            self.location.put_new(&self.key, payload, digest, written).await?;
            return Ok(self.bytes);
        }
        match self.publish_parts(written).await {
            Ok(()) => {
                self.multipart = None;
                Ok(self.bytes)
            }
            Err(error) => {
                self.abort().await;
                Err(error)
            }
        }
    }

    /// Gives up: waits for nothing, removes the parts that were sent. Best effort, the store's lifecycle rules do the rest.
    pub(crate) async fn abort(&mut self) {
        self.parts.shutdown().await;
        self.pending.clear();
        if let Some(mut multipart) = self.multipart.take()
            && let Err(error) = multipart.abort().await
        {
            tracing::warn!(key = %self.key, %error, "could not abort an upload; its parts stay until the bucket's lifecycle rule removes them");
        }
    }

    async fn publish_parts(&mut self, written: &Written) -> Result<(), StoreError> {
        if self.pending_len > 0 {
            self.send_part().await?;
        }
        while let Some(joined) = self.parts.join_next().await {
            self.joined(joined)?;
        }
        let digest: Digest256 = self.digest.clone().finalize().into();
        // object_store completes S3 uploads without If-None-Match (0.14), and a local one by rename. So we look first.
        // The owner marker keeps other installations of ours out; the gap that is left is for writers that ignore it.
        if let Some(size) = self.location.size_of(&self.key).await? {
            self.location.is_ours(&self.key, size, self.bytes, written).await?;
            self.abort().await;
            return Ok(());
        }
        written.tried(&self.key, digest);
        let Some(multipart) = self.multipart.as_mut() else { return Ok(()) };
        let Err(error) = multipart.complete().await else { return Ok(()) };
        // The answer may be lost though the object is there.
        if let Ok(Some(size)) = self.location.size_of(&self.key).await
            && self.location.is_ours(&self.key, size, self.bytes, written).await.is_ok()
        {
            return Ok(());
        }
        Err(self.failed(&error))
    }

    async fn send_part(&mut self) -> Result<(), StoreError> {
        while self.parts.len() >= IN_FLIGHT {
            if let Some(joined) = self.parts.join_next().await {
                self.joined(joined)?;
            }
        }
        if self.multipart.is_none() {
            let begun =
                self.location.store().put_multipart_opts(&self.key, PutMultipartOptions::default()).await;
            self.multipart = Some(begun.map_err(|error| self.failed(&error))?);
        }
        if let Some(multipart) = self.multipart.as_mut() {
            let part = PutPayload::from_iter(std::mem::take(&mut self.pending));
            self.pending_len = 0;
            self.parts.spawn(multipart.put_part(part));
        }
        Ok(())
    }

    fn joined(
        &self,
        joined: Result<object_store::Result<()>, tokio::task::JoinError>,
    ) -> Result<(), StoreError> {
        match joined {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.failed(&error)),
            Err(error) => Err(StoreError::io("run an upload", &error)),
        }
    }

    fn failed(&self, error: &object_store::Error) -> StoreError {
        StoreError::from_store("write", &self.location.url_of(&self.key), error)
    }
}

/// A writer that is dropped half way (its task was cancelled) removes its parts in the background.
impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(mut multipart) = self.multipart.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let mut parts = std::mem::take(&mut self.parts);
            runtime.spawn(async move {
                parts.shutdown().await;
                let _ = multipart.abort().await; // nobody is left to be told
            });
        }
    }
}
