//! Writes items as a tarball into the store: tar → chunks → gzip members → parts.
//!
//! Every stage is bounded and waits for the next one, so a slow store slows down the caller, and
//! memory use stays constant. All cores compress: each chunk becomes a separate member, and members
//! are sent in the order of their chunks.

use std::{io, num::NonZero, thread};

use futures::{StreamExt as _, stream::FuturesOrdered};
use jiff::Timestamp;
use tar::{Builder, EntryType, Header};
use tokio::task::JoinHandle;

use super::{FORMAT_VERSION, ItemPath, MAX_ITEM, MAX_TOTAL, paths::VERSION};
use crate::{StoreError, gzip, job::record::Contents, staging::StagedObject, upload::Upload};

/// Size of the chunks that are compressed separately (bytes).
const CHUNK_BYTES: usize = 1024 * 1024;

/// Size of the end of an archive, two zero blocks (bytes).
const END_BYTES: u64 = 1024;

/// The time that tar tools show, in seconds since 1970; no code depends on it.
pub(crate) fn now() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap_or_default()
}

pub(crate) struct Writer {
    tar: Builder<Vec<u8>>,
    chunk: Vec<u8>,
    /// Chunks being compressed on the blocking pool, oldest first; at most one per core.
    compressing: FuturesOrdered<JoinHandle<io::Result<Vec<u8>>>>,
    upload: Upload,
    mtime: u64,
    total: u64,
    /// Why writing has ended. Set during a write, so that a write whose future was dropped half way
    /// (a timeout around the call) is noticed: only some of its bytes were added.
    broken: Option<StoreError>,
}

impl Writer {
    /// `mtime` is shown by tar tools, in seconds since 1970.
    pub(crate) fn new(upload: Upload, mtime: u64) -> Result<Self, StoreError> {
        let mut writer = Self::resume(upload, mtime, 0);
        writer.entry(VERSION, format!("{FORMAT_VERSION}\n").as_bytes())?;
        Ok(writer)
    }

    /// Resumes an archive that was paused after `total` uncompressed bytes.
    pub(crate) fn resume(upload: Upload, mtime: u64, total: u64) -> Self {
        Self {
            tar: Builder::new(Vec::new()),
            chunk: Vec::with_capacity(CHUNK_BYTES),
            compressing: FuturesOrdered::new(),
            upload,
            mtime,
            total,
            broken: None,
        }
    }

    /// Writes an item at its path, or both its paths. Errors: [`StoreError::Item`] leaves the
    /// archive unchanged; any other one ends it.
    pub(crate) async fn item(
        &mut self,
        item: &ItemPath<'_>,
        json: &[u8],
    ) -> Result<(), StoreError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let paths = item.paths()?;
        self.fits(&paths, json.len() as u64)?;
        let interrupted = "an earlier write was interrupted; the backup must be begun again";
        self.broken = Some(StoreError::io("write the tarball", interrupted));
        let result = self.write(&paths, json).await;
        self.broken = result.as_ref().err().cloned();
        if self.broken.is_some() {
            self.upload.abort().await;
        }
        result
    }

    /// Ends the archive; no part of it is visible yet.
    pub(crate) async fn finish(mut self) -> Result<StagedObject, StoreError> {
        self.broken.take().map_or(Ok(()), Err)?;
        let result = self.end().await;
        if result.is_err() {
            self.upload.abort().await;
        }
        result
    }

    /// Pauses between two items; [`Self::resume`] continues.
    pub(crate) async fn pause(mut self) -> Result<Contents, StoreError> {
        self.broken.take().map_or(Ok(()), Err)?;
        let result = match self.flush().await {
            Ok(()) => self.upload.pause().await,
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.upload.abort().await;
        }
        result.map(|(parts, tail)| Contents::Open {
            parts,
            tail,
            total: self.total,
        })
    }

    pub(crate) async fn abort(mut self) {
        self.upload.abort().await;
    }

    fn fits(&self, paths: &[String], size: u64) -> Result<(), StoreError> {
        if size > MAX_ITEM {
            let detail = format!(
                "it has {size} bytes, at most {MAX_ITEM} are expected of a Kubernetes object"
            );
            return Err(refused_item(paths, detail));
        }
        // Header, long name and padding take less than 4 KiB an entry.
        if self.total + paths.len() as u64 * (size + 4096) + END_BYTES > MAX_TOTAL {
            let detail = format!(
                "the tarball would unpack to more than {MAX_TOTAL} bytes, which no reader accepts; split the backup"
            );
            return Err(refused_item(paths, detail));
        }
        Ok(())
    }

    async fn write(&mut self, paths: &[String], json: &[u8]) -> Result<(), StoreError> {
        // Parts fail in the background; reported now, not when the next part is full.
        self.upload.failed_part()?;
        for path in paths {
            self.entry(path, json)?;
            self.cut(false).await?;
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<StagedObject, StoreError> {
        self.tar
            .finish()
            .map_err(|error| StoreError::io("write the tarball", &error))?;
        self.flush().await?;
        self.upload.finish().await
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        self.cut(true).await?;
        while !self.compressing.is_empty() {
            self.send_member().await?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &str, data: &[u8]) -> Result<(), StoreError> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o755);
        header.set_mtime(self.mtime);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(data.len() as u64);
        self.tar
            .append_data(&mut header, path, data)
            .map_err(|error| StoreError::io(format!("write {path} into the tarball"), &error))
    }

    /// Cuts full chunks off the tar buffer and starts their compression; with `all`, the rest as
    /// well.
    async fn cut(&mut self, all: bool) -> Result<(), StoreError> {
        let mut bytes = std::mem::take(self.tar.get_mut());
        self.total += bytes.len() as u64;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(CHUNK_BYTES - self.chunk.len()));
            self.chunk.extend_from_slice(piece);
            rest = after;
            if self.chunk.len() == CHUNK_BYTES {
                self.send_chunk().await?;
            }
        }
        if all && !self.chunk.is_empty() {
            self.send_chunk().await?;
        }
        if bytes.capacity() <= CHUNK_BYTES {
            bytes.clear();
            *self.tar.get_mut() = bytes; // keeps the buffer, unless an odd item made it large
        }
        Ok(())
    }

    async fn send_chunk(&mut self) -> Result<(), StoreError> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        while self.compressing.len() >= cores {
            self.send_member().await?;
        }
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        self.compressing
            .push_back(tokio::task::spawn_blocking(move || gzip::member(&chunk)));
        Ok(())
    }

    /// Waits for the oldest chunk being compressed, and uploads it.
    async fn send_member(&mut self) -> Result<(), StoreError> {
        let Some(oldest) = self.compressing.next().await else {
            return Ok(());
        };
        let member = oldest.map_err(io::Error::from).flatten();
        self.upload
            .write(
                member
                    .map_err(|error| StoreError::io("compress", &error))?
                    .into(),
            )
            .await
    }
}

/// The error for an item that is not written, named by the first of its paths.
fn refused_item(paths: &[String], detail: String) -> StoreError {
    StoreError::Item {
        path: paths.first().cloned().unwrap_or_default(),
        detail,
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("total", &self.total)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
