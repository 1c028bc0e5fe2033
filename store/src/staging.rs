//! Bytes that are in the store, or in hand, before they are visible under their final key.

use bytes::Bytes;
use futures::StreamExt as _;
use object_store::{GetResult, path::Path};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Location, StoreError, error::is_lost_upload, location::is_taken};

/// Size of all parts but the last (bytes). S3 wants at least 5 MiB, and equal sizes on some stores.
pub(crate) const PART_SIZE: usize = 8 * 1024 * 1024;

/// A part of an upload that is not completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// What the store calls it (an ETag on S3, the id of a block on Azure).
    pub id: String,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
}

/// An upload that is not completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Uploaded {
    /// What the store calls it.
    pub upload: String,
    /// In order; all of [`PART_SIZE`] but the last.
    pub parts: Vec<Part>,
    /// Size of all of them (bytes).
    pub bytes: u64,
}

/// An object that is decided and not yet visible.
#[derive(Clone, Debug)]
pub(crate) enum Staged {
    /// It is small, and its bytes are at hand.
    Inline(Bytes),
    /// Its bytes are in the store.
    Upload(Uploaded),
}

impl Staged {
    /// Its size (bytes).
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Upload(parts) => parts.bytes,
        }
    }

    /// Digests of its pieces of [`PART_SIZE`].
    pub fn digests(&self) -> Vec<String> {
        match self {
            Self::Inline(bytes) => bytes.chunks(PART_SIZE).map(sha256).collect(),
            Self::Upload(parts) => parts.parts.iter().map(|part| part.sha256.clone()).collect(),
        }
    }
}

/// SHA-256 in hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).as_slice())
}

/// SHA-256 of pieces that follow one another, in hex.
pub(crate) fn sha256_of(pieces: &[Bytes]) -> String {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update(piece);
    }
    hex(hash.finalize().as_slice())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // to a String, which takes everything
        text
    })
}

impl Location {
    /// Makes staged bytes the object of a key, create-only. Safe to repeat, by any process: bytes that are there already
    /// are compared with those that were staged.
    ///
    /// Errors: [`StoreError::Exists`] for any other bytes, which are left alone; [`StoreError::Lost`] if the store does
    /// not have the staged bytes any more and the key is not there.
    pub(crate) async fn publish(&self, key: &Path, staged: &Staged) -> Result<(), StoreError> {
        match staged {
            Staged::Inline(bytes) => self.put_new(key, bytes.clone()).await,
            Staged::Upload(parts) => self.complete(key, staged, parts).await,
        }
    }

    async fn complete(&self, key: &Path, staged: &Staged, parts: &Uploaded) -> Result<(), StoreError> {
        // The condition of the completion is not known to every store, so we look first.
        if self.holds(key, staged).await? {
            return Ok(());
        }
        let Err(error) = self.complete_upload(key, parts).await else { return Ok(()) };
        // The answer may be lost though the object is there; or another replica was faster.
        if self.holds(key, staged).await? {
            return Ok(());
        }
        if is_lost_upload(&error) {
            return Err(StoreError::Lost {
                url: self.url_of(key),
                detail: format!(
                    "its parts were uploaded and are not in the store any more ({}); a lifecycle rule or a person may \
                     have removed them",
                    StoreError::brief(&error)
                ),
            });
        }
        Err(if is_taken(&error) { self.says_it_exists(key) } else { self.failed("write", key, &error) })
    }

    /// Whether the key holds these very bytes, and not only the beginning of them. Errors: [`StoreError::Exists`] if it
    /// holds others.
    pub(crate) async fn holds(&self, key: &Path, staged: &Staged) -> Result<bool, StoreError> {
        let Some(there) = self.look_at(key).await? else { return Ok(false) };
        let foreign = |size: u64| StoreError::Exists {
            url: self.url_of(key),
            detail: format!(
                "it holds {size} bytes that are not those being written ({} bytes); it is left alone. Choose another \
                 name, or remove it",
                staged.bytes()
            ),
        };
        if let Some(size) = there.size.filter(|size| *size != staged.bytes()) {
            return Err(foreign(size));
        }
        let Some(object) = self.get(key).await? else { return Ok(false) };
        let (digests, size) = self.digests_of(key, object).await?;
        if digests == staged.digests() {
            return Ok(true);
        }
        if self.is_beginning(key, &digests, size, staged).await? {
            tracing::warn!(%key, size, "a write was broken off in the middle; it is written again");
            return Ok(false);
        }
        Err(foreign(size))
    }

    /// Digests of an object's pieces of [`PART_SIZE`], and its size; holds one piece of the network at a time.
    async fn digests_of(&self, key: &Path, object: GetResult) -> Result<(Vec<String>, u64), StoreError> {
        let (mut digests, mut hash, mut filled, mut size) = (Vec::new(), Sha256::new(), 0, 0);
        let mut stream = object.into_stream();
        while let Some(chunk) = stream.next().await {
            let mut chunk = chunk.map_err(|error| self.failed("read", key, &error))?;
            while !chunk.is_empty() {
                let piece = chunk.split_to(chunk.len().min(PART_SIZE - filled));
                hash.update(&piece);
                filled += piece.len();
                size += piece.len() as u64;
                if filled == PART_SIZE {
                    digests.push(hex(hash.finalize_reset().as_slice()));
                    filled = 0;
                }
            }
        }
        if filled > 0 {
            digests.push(hex(hash.finalize().as_slice()));
        }
        Ok((digests, size))
    }
}
