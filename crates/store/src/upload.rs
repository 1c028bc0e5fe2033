//! One object being uploaded: parts if it is large, bytes in memory if it is not. It is not visible
//! before [`Location::publish`].
//!
//! Memory: one part being filled and up to [`MAX_CONCURRENT_PARTS`] being sent, for any size of the object.

use backup_core::digest::sha256;
use std::{collections::BTreeMap, sync::Arc};

use bytes::{Bytes, BytesMut};
use object_store::{multipart::PartId, path::Path};
use tokio::task::{JoinError, JoinSet};

use crate::{
    Location, StoreError,
    error::{brief, is_lost_upload, is_taken},
    layout::PART_SIZE,
    staging::{Part, StagedObject, UploadedParts},
};

const MAX_CONCURRENT_PARTS: usize = 2;

#[derive(Debug)]
pub(crate) struct Upload {
    location: Location,
    key: Path,
    /// Key of the note of this upload, so that its parts can be removed after a crash.
    note: Option<Path>,
    pending: BytesMut,
    begun: Option<Arc<str>>,
    /// A record refers to these parts; they are not removed on failure.
    recorded: bool,
    /// Stored parts, by index.
    parts: BTreeMap<usize, Part>,
    sent: usize,
    wire: JoinSet<SentPart>,
    /// Total size of sent and pending parts (bytes).
    bytes: u64,
}

#[derive(Debug)]
struct SentPart {
    place: usize,
    sha256: String,
    answer: object_store::Result<PartId>,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Note {
    pub key: String,
    /// The store's id of the upload.
    pub upload: String,
}

impl Upload {
    /// Sends nothing before a part is full.
    pub(crate) fn new(location: Location, key: Path, note: Option<Path>) -> Self {
        Self {
            location,
            key,
            note,
            pending: BytesMut::new(),
            begun: None,
            recorded: false,
            parts: BTreeMap::new(),
            sent: 0,
            wire: JoinSet::new(),
            bytes: 0,
        }
    }

    /// Resumes an upload whose full `parts` are sent; `tail`, less than one part, is not.
    pub(crate) fn resume(mut self, parts: Option<UploadedParts>, tail: &[u8]) -> Self {
        self.bytes = tail.len() as u64;
        self.pending.extend_from_slice(tail);
        if let Some(parts) = parts {
            self.bytes += parts.bytes;
            self.begun = Some(parts.upload.into());
            self.recorded = true;
            self.sent = parts.parts.len();
            self.parts = parts.parts.into_iter().enumerate().collect();
        }
        self
    }

    /// Reports a part that has failed meanwhile, without waiting.
    pub(crate) fn failed_part(&mut self) -> Result<(), StoreError> {
        while let Some(joined) = self.wire.try_join_next() {
            self.joined(joined)?;
        }
        Ok(())
    }

    /// Adds bytes. Waits while [`MAX_CONCURRENT_PARTS`] parts are being sent. After an error: [`Self::abort`].
    pub(crate) async fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreError> {
        self.failed_part()?;
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = PART_SIZE - self.pending.len();
            self.pending.reserve(room); // exactly one part, not twice what it had
            self.pending
                .extend_from_slice(&bytes.split_to(bytes.len().min(room)));
            if self.pending.len() == PART_SIZE {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    /// The whole object, staged: less than a part stays in memory. From here on, dropping this
    /// removes nothing.
    pub(crate) async fn finish(&mut self) -> Result<StagedObject, StoreError> {
        if self.begun.is_some() && !self.pending.is_empty() {
            self.send_part().await?;
        }
        let (parts, tail) = self.pause().await?;
        Ok(parts.map_or(StagedObject::Inline(tail), StagedObject::Upload))
    }

    /// The sent parts, and the rest that is less than a part. From here on, dropping this removes
    /// nothing.
    pub(crate) async fn pause(&mut self) -> Result<(Option<UploadedParts>, Bytes), StoreError> {
        while let Some(joined) = self.wire.join_next().await {
            self.joined(joined)?;
        }
        if self.parts.len() != self.sent {
            let action = format!("write {}", self.location.url_of(&self.key));
            return Err(StoreError::io(
                action,
                "a part is missing although none has failed; it is begun again",
            ));
        }
        let tail = self.pending.split().freeze();
        let uploaded = self.begun.take().map(|upload| UploadedParts {
            upload: upload.to_string(),
            parts: std::mem::take(&mut self.parts).into_values().collect(),
            bytes: self.bytes - tail.len() as u64,
        });
        Ok((uploaded, tail))
    }

    /// Removes the parts that were sent, without waiting for others. Best effort: the note stays if
    /// they cannot be removed, and the store's lifecycle rules do the rest.
    pub(crate) async fn abort(&mut self) {
        self.wire.shutdown().await;
        self.pending.clear();
        if let Some(upload) = self.begun.take().filter(|_| !self.recorded) {
            self.location
                .abort_upload(&self.key, &upload, self.note.take())
                .await;
        }
    }

    async fn send_part(&mut self) -> Result<(), StoreError> {
        while self.wire.len() >= MAX_CONCURRENT_PARTS {
            if let Some(joined) = self.wire.join_next().await {
                self.joined(joined)?;
            }
        }
        let upload = match &self.begun {
            Some(upload) => Arc::clone(upload),
            None => self.begin().await?,
        };
        let location = self.location.clone();
        let key = self.key.clone();
        let place = self.sent;
        let bytes = self.pending.split().freeze();
        self.sent += 1;
        self.wire.spawn(async move {
            let sha256 = sha256(&bytes);
            let answer = location
                .uploads()
                .put_part(&key, &upload.to_string(), place, bytes.into())
                .await;
            SentPart {
                place,
                sha256,
                answer,
            }
        });
        Ok(())
    }

    async fn begin(&mut self) -> Result<Arc<str>, StoreError> {
        let begun = self.location.begin_upload(&self.key).await;
        let upload: Arc<str> = begun.map_err(|error| self.failed(&error))?.into();
        self.begun = Some(Arc::clone(&upload));
        if let Some(note) = &self.note {
            let text = Note {
                key: self.key.to_string(),
                upload: upload.to_string(),
            };
            let text = serde_json::to_vec(&text)
                .map_err(|error| StoreError::io("encode a note", &error))?;
            self.location.put_new(note, text.into()).await?;
        }
        Ok(upload)
    }

    fn joined(&mut self, joined: Result<SentPart, JoinError>) -> Result<(), StoreError> {
        let SentPart {
            place,
            sha256,
            answer,
        } = joined.map_err(|error| StoreError::io("run an upload", &error))?;
        let id = answer.map_err(|error| self.failed(&error))?.content_id;
        self.parts.insert(place, Part { id, sha256 });
        Ok(())
    }

    /// A conflict of a part is always temporary: errors that suggest it (409, 412, an upload that
    /// another replica has removed) are retryable, as the upload starts again.
    fn failed(&self, error: &object_store::Error) -> StoreError {
        if is_taken(error) || is_lost_upload(error) {
            return self.location.unreachable("write", &self.key, brief(error));
        }
        self.location.failed("write", &self.key, error)
    }
}

/// A writer that is dropped half way (its task was cancelled) removes its parts in the background.
impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(upload) = self.begun.take().filter(|_| !self.recorded)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let location = self.location.clone();
            let key = self.key.clone();
            let note = self.note.take();
            let mut wire = std::mem::take(&mut self.wire);
            runtime.spawn(async move {
                wire.shutdown().await;
                location.abort_upload(&key, &upload, note).await;
            });
        }
    }
}
