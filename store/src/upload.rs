//! One object on its way into the store: parts if it is large, bytes in hand if it is not. Nothing of it is visible before
//! [`Location::publish`].
//!
//! Memory: one part being filled and [`IN_FLIGHT`] on the wire, whatever the size of the object.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{PutPayload, multipart::PartId, path::Path};
use tokio::task::JoinSet;

use crate::{
    Location, StoreError,
    error::is_lost_upload,
    location::is_taken,
    staging::{PART_SIZE, Part, Staged, Uploaded, sha256_of},
};

/// Uploaded on the wire at a time.
const IN_FLIGHT: usize = 2;

/// A part that has landed: its place, its digest, and what the store calls it.
type Sent = (usize, String, object_store::Result<PartId>);

/// An object being written.
#[derive(Debug)]
pub(crate) struct Upload {
    location: Location,
    key: Path,
    /// Where the upload is noted once it has begun, so that whoever comes after a crash can remove its parts.
    note: Option<Path>,
    pending: Vec<Bytes>,
    pending_len: usize,
    begun: Option<Arc<str>>,
    /// A record counts on what was uploaded: it is not removed when this comes to nothing.
    recorded: bool,
    /// By their place; those on the wire are missing.
    parts: Vec<Option<Part>>,
    wire: JoinSet<Sent>,
    bytes: u64,
}

/// What a note holds.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Note {
    /// The key that the upload is for.
    pub key: String,
    /// What the store calls the upload.
    pub upload: String,
}

impl Upload {
    /// Nothing is sent before there is a full part.
    pub(crate) fn new(location: Location, key: Path, note: Option<Path>) -> Self {
        Self {
            location,
            key,
            note,
            pending: Vec::new(),
            pending_len: 0,
            begun: None,
            recorded: false,
            parts: Vec::new(),
            wire: JoinSet::new(),
            bytes: 0,
        }
    }

    /// Goes on with an upload: `parts` are full ones, `tail` is less than one.
    pub(crate) fn resume(location: Location, key: Path, parts: Option<Uploaded>, tail: Bytes) -> Self {
        let mut upload = Self::new(location, key, None);
        upload.pending_len = tail.len();
        upload.bytes = tail.len() as u64;
        if !tail.is_empty() {
            upload.pending.push(tail);
        }
        if let Some(parts) = parts {
            upload.bytes += parts.bytes;
            upload.begun = Some(parts.upload.into());
            upload.recorded = true;
            upload.parts = parts.parts.into_iter().map(Some).collect();
        }
        upload
    }

    /// Where the upload is noted when it begins.
    pub(crate) fn note_at(&mut self, note: Path) {
        self.note = Some(note);
    }

    /// Reports a part that has failed meanwhile, without waiting.
    pub(crate) fn failed_part(&mut self) -> Result<(), StoreError> {
        while let Some(joined) = self.wire.try_join_next() {
            self.joined(joined)?;
        }
        Ok(())
    }

    /// Adds bytes. Waits while [`IN_FLIGHT`] parts are on the wire. After an error: [`Self::abort`].
    pub(crate) async fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreError> {
        self.failed_part()?;
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

    /// The whole object, staged: less than a part stays in hand. From here on nothing is removed by itself.
    pub(crate) async fn finish(&mut self) -> Result<Staged, StoreError> {
        if self.begun.is_none() {
            return Ok(Staged::Inline(self.take_pending()));
        }
        if self.pending_len > 0 {
            self.send_part().await?;
        }
        let bytes = self.bytes;
        self.landed(bytes).await?.map(Staged::Upload).ok_or_else(|| self.incomplete())
    }

    /// What has been sent, and the rest that is less than a part. From here on nothing is removed by itself.
    pub(crate) async fn pause(&mut self) -> Result<(Option<Uploaded>, Bytes), StoreError> {
        let bytes = self.bytes - self.pending_len as u64;
        let parts = self.landed(bytes).await?;
        Ok((parts, self.take_pending()))
    }

    /// Gives up: waits for nothing, removes the parts that were sent. Best effort: the note stays if they can't be
    /// removed, and the store's lifecycle rules do the rest.
    pub(crate) async fn abort(&mut self) {
        self.wire.shutdown().await;
        self.pending.clear();
        if let Some(upload) = self.begun.take().filter(|_| !self.recorded) {
            self.location.abort_upload(&self.key, &upload, self.note.take()).await;
        }
    }

    fn take_pending(&mut self) -> Bytes {
        self.pending_len = 0;
        let pending = std::mem::take(&mut self.pending);
        match <[Bytes; 1]>::try_from(pending) {
            Ok([only]) => only,
            Err(pieces) => pieces.concat().into(),
        }
    }

    /// Waits for the wire to be empty; the parts, if anything was sent.
    async fn landed(&mut self, bytes: u64) -> Result<Option<Uploaded>, StoreError> {
        while let Some(joined) = self.wire.join_next().await {
            self.joined(joined)?;
        }
        let Some(upload) = self.begun.as_ref().map(ToString::to_string) else { return Ok(None) };
        let parts: Option<Vec<Part>> = self.parts.iter().cloned().collect();
        let parts = parts.ok_or_else(|| self.incomplete())?;
        self.begun = None;
        Ok(Some(Uploaded { upload, parts, bytes }))
    }

    async fn send_part(&mut self) -> Result<(), StoreError> {
        while self.wire.len() >= IN_FLIGHT {
            if let Some(joined) = self.wire.join_next().await {
                self.joined(joined)?;
            }
        }
        let upload = match &self.begun {
            Some(upload) => Arc::clone(upload),
            None => self.begin().await?,
        };
        let (location, key, index) = (self.location.clone(), self.key.clone(), self.parts.len());
        let pieces = std::mem::take(&mut self.pending);
        self.pending_len = 0;
        self.parts.push(None);
        self.wire.spawn(async move {
            let sha256 = sha256_of(&pieces);
            let payload = PutPayload::from_iter(pieces);
            (index, sha256, location.uploads().put_part(&key, &upload.to_string(), index, payload).await)
        });
        Ok(())
    }

    async fn begin(&mut self) -> Result<Arc<str>, StoreError> {
        let begun = self.location.begin_upload(&self.key).await;
        let upload: Arc<str> = begun.map_err(|error| self.failed(&error))?.into();
        self.begun = Some(Arc::clone(&upload));
        if let Some(note) = &self.note {
            let text = Note { key: self.key.to_string(), upload: upload.to_string() };
            let text = serde_json::to_vec(&text).map_err(|error| StoreError::io("encode a note", &error))?;
            self.location.put_new(note, text.into()).await?;
        }
        Ok(upload)
    }

    fn joined(&mut self, joined: Result<Sent, tokio::task::JoinError>) -> Result<(), StoreError> {
        match joined {
            Ok((index, sha256, Ok(part))) => {
                if let Some(place) = self.parts.get_mut(index) {
                    *place = Some(Part { id: part.content_id, sha256 });
                }
                Ok(())
            }
            Ok((_, _, Err(error))) => Err(self.failed(&error)),
            Err(error) => Err(StoreError::io("run an upload", &error)),
        }
    }

    fn incomplete(&self) -> StoreError {
        StoreError::Io {
            action: format!("write {}", self.location.url_of(&self.key)),
            detail: "a part is missing although none has failed; it is begun again".to_owned(),
        }
    }

    /// Nothing can be in the way of a part: what sounds like it (409, 412, an upload that another replica has removed) is
    /// over when it is begun again.
    fn failed(&self, error: &object_store::Error) -> StoreError {
        let url = self.location.url_of(&self.key);
        if is_taken(error) || is_lost_upload(error) {
            return StoreError::Unreachable {
                action: "write".to_owned(),
                url,
                detail: StoreError::brief(error),
            };
        }
        StoreError::from_store("write", &url, error)
    }
}

/// A writer that is dropped half way (its task was cancelled) removes its parts in the background.
impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(upload) = self.begun.take().filter(|_| !self.recorded)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (location, key, note) = (self.location.clone(), self.key.clone(), self.note.take());
            let mut wire = std::mem::take(&mut self.wire);
            runtime.spawn(async move {
                wire.shutdown().await;
                location.abort_upload(&key, &upload, note).await;
            });
        }
    }
}
