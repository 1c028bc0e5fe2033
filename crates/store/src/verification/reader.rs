//! Reads files as streams: bytes arrive at a bounded rate, are hashed, and are parsed on a thread
//! that may block.

use std::{
    io::{self, Read},
    sync::Arc,
};

use flate2::read::MultiGzDecoder;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use serde::de::DeserializeOwned;
use tokio_util::{
    io::{StreamReader, SyncIoBridge},
    sync::{CancellationToken, DropGuard},
};

use crate::{
    Location, StoreError, Throttle,
    digests::FileDigests,
    layout::PART_SIZE,
    listed_names::{EachItem, read_list},
    piece_hasher::{PieceHasher, of_pieces},
    tarball::{Download, MAX_TOTAL},
};

/// Maximum size of a JSON file other than the list of items (bytes, unpacked). Such a file is held
/// in memory.
const MAX_JSON: u64 = 64 * 1024 * 1024;
/// Maximum size of a list of items (bytes, unpacked). One name of it is held in memory.
const MAX_LIST: u64 = 1024 * 1024 * 1024;

/// A file that was read to its end.
pub(super) struct FileRead<T> {
    /// The parsed file, or why it cannot be parsed.
    pub(super) parsed: Result<T, String>,
    pub(super) digest: String,
    /// Its stored size.
    pub(super) bytes: u64,
}

pub(super) struct FileReader<'a> {
    location: &'a Location,
    throttle: &'a Arc<Throttle>,
    /// Size of the pieces that are hashed (bytes).
    piece_bytes: usize,
    stop: CancellationToken,
    /// Ends the threads when the verification is dropped.
    _guard: DropGuard,
}

impl<'a> FileReader<'a> {
    pub(super) fn new(
        location: &'a Location,
        throttle: &'a Arc<Throttle>,
        digests: Option<&FileDigests>,
    ) -> Self {
        let stop = CancellationToken::new();
        Self {
            location,
            throttle,
            piece_bytes: digests.map_or(PART_SIZE, FileDigests::piece_bytes),
            _guard: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Reads a file to its end; `None` if it does not exist. Errors: any error of the store.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        key: &Path,
        parse: impl FnOnce(&mut dyn Read) -> Result<T, String> + Send + 'static,
    ) -> Result<Option<FileRead<T>>, StoreError> {
        let Some(object) = self.location.get(key).await? else {
            return Ok(None);
        };
        let throttle = Arc::clone(self.throttle);
        let pieces = object
            .into_stream()
            .map_err(io::Error::other)
            .and_then(move |bytes| {
                let throttle = Arc::clone(&throttle);
                async move {
                    throttle.pass(bytes.len() as u64).await;
                    Ok(bytes)
                }
            })
            .take_until(self.stop.clone().cancelled_owned())
            .boxed();
        let source = SyncIoBridge::new(StreamReader::new(pieces));
        let mut source = HashingReader {
            inner: Download::new(source),
            hasher: PieceHasher::new(self.piece_bytes),
        };
        let task = tokio::task::spawn_blocking(move || {
            let parsed = parse(&mut source);
            // Also the bytes that the parser did not need.
            let rest = io::copy(&mut source, &mut io::sink());
            let parsed = parsed.and_then(|parsed| match rest {
                Ok(_) => Ok(parsed),
                Err(error) => Err(error.to_string()),
            });
            (parsed, source)
        });
        let (parsed, source) = task
            .await
            .map_err(|error| StoreError::io("run the reader of a file", &error))?;
        if let Some(detail) = source.inner.into_failure() {
            return Err(self.location.unreachable("read", key, detail));
        }
        Ok(Some(FileRead {
            parsed,
            bytes: source.hasher.size(),
            digest: of_pieces(&source.hasher.finish()),
        }))
    }
}

struct HashingReader<R> {
    inner: Download<R>,
    hasher: PieceHasher,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

/// Reads a gzipped JSON file.
pub(super) fn json<T: DeserializeOwned>(source: &mut dyn Read) -> Result<T, String> {
    let unpacked = MultiGzDecoder::new(source).take(MAX_JSON);
    serde_json::from_reader(io::BufReader::new(unpacked)).map_err(|error| {
        format!("it is no gzipped JSON of this kind, of at most {MAX_JSON} bytes: {error}")
    })
}

/// Reads a gzipped list of items.
pub(super) fn list(source: &mut dyn Read, each: &mut EachItem<'_>) -> Result<(), String> {
    let unpacked = MultiGzDecoder::new(source).take(MAX_LIST);
    read_list(unpacked, each).map_err(|error| format!("it is no gzipped list of items: {error}"))
}

/// Reads a gzipped file to its end.
pub(super) fn unpack(source: &mut dyn Read) -> Result<(), String> {
    let mut unpacked = MultiGzDecoder::new(source).take(MAX_TOTAL);
    io::copy(&mut unpacked, &mut io::sink())
        .map(drop)
        .map_err(|error| format!("it cannot be unpacked: {error}"))
}
