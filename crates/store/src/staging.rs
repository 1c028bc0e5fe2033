//! Bytes in the store, or in memory, before they are visible under their final key.

use backup_core::digest::{hex, sha256};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{GetResult, path::Path};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    Location, StoreError,
    error::{brief, is_lost_upload, is_taken},
    layout::PART_SIZE,
    piece_hasher::PieceHasher,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The store's id of the part (an ETag on S3, the id of a block on Azure).
    pub id: String,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UploadedParts {
    /// The store's id of the upload.
    pub upload: String,
    /// In order; all of [`PART_SIZE`] but the last.
    pub parts: Vec<Part>,
    /// Total size of the parts (bytes).
    pub bytes: u64,
}

/// An object that is committed and not yet visible.
#[derive(Clone, Debug)]
pub(crate) enum StagedObject {
    /// The object is small, and its bytes are in memory.
    Inline(Bytes),
    Upload(UploadedParts),
}

struct Digests {
    /// Digests of its pieces of [`PART_SIZE`].
    pieces: Vec<String>,
    size: u64,
}

impl StagedObject {
    /// Its size (bytes).
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Upload(parts) => parts.bytes,
        }
    }

    pub(crate) fn digests(&self) -> Vec<String> {
        match self {
            Self::Inline(bytes) => bytes.chunks(PART_SIZE).map(sha256).collect(),
            Self::Upload(parts) => parts.parts.iter().map(|part| part.sha256.clone()).collect(),
        }
    }
}

impl Location {
    /// Makes staged bytes the object of a key, create-only. Safe to repeat, by any process:
    /// existing bytes are compared with the staged ones.
    ///
    /// Errors: [`StoreError::Exists`] for any other bytes, which are left unchanged;
    /// [`StoreError::Lost`] if the store no longer has the staged bytes and the key does not exist.
    pub(crate) async fn publish(
        &self,
        key: &Path,
        staged: &StagedObject,
    ) -> Result<(), StoreError> {
        match staged {
            StagedObject::Inline(bytes) => self.put_new(key, bytes.clone()).await,
            StagedObject::Upload(parts) => self.complete(key, staged, parts).await,
        }
    }

    async fn complete(
        &self,
        key: &Path,
        staged: &StagedObject,
        parts: &UploadedParts,
    ) -> Result<(), StoreError> {
        // Not every store supports the condition of the completion, so we look first.
        if self.holds(key, staged).await? {
            return Ok(());
        }
        let Err(error) = self.complete_upload(key, parts).await else {
            return Ok(());
        };
        // The answer may be lost though the object was written; or another replica was faster.
        if self.holds(key, staged).await? {
            return Ok(());
        }
        if is_lost_upload(&error) {
            return Err(StoreError::Lost {
                url: self.url_of(key),
                detail: format!(
                    "its parts were uploaded and are not in the store any more ({}); a lifecycle rule or a person may \
                     have removed them",
                    brief(&error)
                ),
            });
        }
        Err(if is_taken(&error) {
            self.says_it_exists(key)
        } else {
            self.failed("write", key, &error)
        })
    }

    /// Whether the key holds exactly these bytes, and not only the first of them. Errors:
    /// [`StoreError::Exists`] if it holds others.
    pub(crate) async fn holds(
        &self,
        key: &Path,
        staged: &StagedObject,
    ) -> Result<bool, StoreError> {
        let Some(there) = self.look_at(key).await? else {
            return Ok(false);
        };
        if let Some(size) = there.size.filter(|size| *size != staged.bytes()) {
            return Err(self.foreign_object(key, size, staged));
        }
        let Some(object) = self.get(key).await? else {
            return Ok(false);
        };
        let found = self.digests_of(key, object).await?;
        if found.pieces == staged.digests() {
            return Ok(true);
        }
        if self.is_partial_write(key, &found, staged).await? {
            tracing::warn!(%key, size = found.size, "a write was broken off in the middle; it is written again");
            return Ok(false);
        }
        Err(self.foreign_object(key, found.size, staged))
    }

    /// The error for a key that holds other bytes than those being written.
    fn foreign_object(&self, key: &Path, size: u64, staged: &StagedObject) -> StoreError {
        let detail = format!(
            "it holds {size} bytes that are not those being written ({} bytes); it is left alone. Choose another \
             name, or remove it",
            staged.bytes()
        );
        self.exists(key, detail)
    }

    /// Hashes an object while reading it; holds one chunk from the network at a time.
    async fn digests_of(&self, key: &Path, object: GetResult) -> Result<Digests, StoreError> {
        let mut hasher = PieceHasher::new(PART_SIZE);
        let mut stream = object.into_stream();
        while let Some(chunk) = stream.next().await {
            hasher.update(&chunk.map_err(|error| self.failed("read", key, &error))?);
        }
        let size = hasher.size();
        let pieces = hasher.finish();
        Ok(Digests { pieces, size })
    }

    /// Whether an object was left by an interrupted write: it holds the first bytes of what is
    /// staged.
    ///
    /// Other stores make an object visible as a whole or not at all, but a plugin may, for example,
    /// be killed while it writes a file. No other program writes the first bytes of what is
    /// committed, so the object is ours, and is written again.
    async fn is_partial_write(
        &self,
        key: &Path,
        found: &Digests,
        staged: &StagedObject,
    ) -> Result<bool, StoreError> {
        if self.plugin().is_none() || found.size >= staged.bytes() {
            return Ok(false);
        }
        let rest = usize::try_from(found.size % PART_SIZE as u64).unwrap_or_default();
        let whole = found.pieces.len() - usize::from(rest > 0);
        if found.pieces.get(..whole) != staged.digests().get(..whole) {
            return Ok(false);
        }
        match found.pieces.get(whole) {
            Some(digest) => Ok(self.digest_of_first(key, staged, whole, rest).await? == *digest),
            None => Ok(true),
        }
    }

    /// Digest of the first bytes of a staged piece.
    async fn digest_of_first(
        &self,
        key: &Path,
        staged: &StagedObject,
        piece: usize,
        mut bytes: usize,
    ) -> Result<String, StoreError> {
        let (parts, plugin) = match (staged, self.plugin()) {
            (StagedObject::Upload(parts), Some(plugin)) => (parts, plugin),
            (StagedObject::Inline(all), _) => {
                let from = piece * PART_SIZE;
                return Ok(sha256(all.get(from..from + bytes).unwrap_or_default()));
            }
            (StagedObject::Upload(_), None) => return Ok(String::new()),
        };
        let Some(part) = parts.parts.get(piece) else {
            return Ok(String::new());
        };
        let action = "read the parts of";
        let mut body = plugin
            .part(key, &parts.upload, &part.id)
            .map_err(|error| self.failed(action, key, &error))?;
        let mut hash = Sha256::new();
        while bytes > 0
            && let Some(chunk) = body
                .try_next()
                .await
                .map_err(|fault| self.failed(action, key, &fault.into()))?
        {
            let used = chunk.len().min(bytes);
            hash.update(&chunk[..used]);
            bytes -= used;
        }
        Ok(hex(hash.finalize().as_slice()))
    }
}
