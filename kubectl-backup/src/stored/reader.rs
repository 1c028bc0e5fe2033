//! Readers of stored files: for JSON documents, and in a separate thread for synchronous code such
//! as that for tarballs.

use std::{
    io::{self, Read, Write as _},
    sync::mpsc::{Receiver, sync_channel},
};

use flate2::write::MultiGzDecoder;
use serde::de::DeserializeOwned;

use super::{FileRead, StoredFile, read};
use crate::{error::Problem, session::Session};

/// Maximum size of a document (bytes, unpacked): some 100,000 operations. A document is held in
/// memory.
const MAX_DOCUMENT_SIZE: usize = 64 << 20;

/// Reads a document. Unknown fields are ignored.
pub(crate) async fn document<T: DeserializeOwned>(
    session: &Session,
    file: &StoredFile<'_>,
) -> Result<T, Problem> {
    sized(session, file).await.map(|(document, _)| document)
}

/// Like [`document`], and returns the stored size (bytes).
pub(crate) async fn sized<T: DeserializeOwned>(
    session: &Session,
    file: &StoredFile<'_>,
) -> Result<(T, u64), Problem> {
    let mut text = MultiGzDecoder::new(Vec::new());
    let done = read(
        session,
        file,
        |bytes| unpack(bytes, &mut text, file),
        |_| (),
    )
    .await?;
    let text = text.finish().map_err(|error| damaged(file, &error))?;
    let document = serde_json::from_slice(&text).map_err(|error| damaged(file, &error))?;
    Ok((document, done.length))
}

/// Reads an answer that is not packed.
pub(crate) async fn answer<T: DeserializeOwned>(
    session: &Session,
    file: &StoredFile<'_>,
) -> Result<T, Problem> {
    let mut text = Vec::new();
    read(
        session,
        file,
        |bytes| {
            text.extend_from_slice(bytes);
            check_size(text.len(), file)
        },
        |_| (),
    )
    .await?;
    serde_json::from_slice(&text)
        .map_err(|error| Problem::other(format!("{} cannot be read: {error}", file.title())))
}

/// Unpacks a piece of a document, up to the maximum size.
fn unpack(
    bytes: &[u8],
    text: &mut MultiGzDecoder<Vec<u8>>,
    file: &StoredFile<'_>,
) -> Result<(), Problem> {
    text.write_all(bytes)
        .map_err(|error| damaged(file, &error))?;
    check_size(text.get_ref().len(), file)
}

fn check_size(length: usize, file: &StoredFile<'_>) -> Result<(), Problem> {
    if length > MAX_DOCUMENT_SIZE {
        let message = format!(
            "{} is larger than {} MiB",
            file.title(),
            MAX_DOCUMENT_SIZE >> 20
        );
        return Err(Problem::other(message));
    }
    Ok(())
}

/// Reads a file and writes its unpacked content.
pub(crate) async fn unpacked(
    session: &Session,
    file: &StoredFile<'_>,
    into: impl io::Write,
) -> Result<(), Problem> {
    let mut text = MultiGzDecoder::new(into);
    read(
        session,
        file,
        |bytes| text.write_all(bytes).map_err(|error| damaged(file, &error)),
        |_| (),
    )
    .await?;
    text.try_finish().map_err(|error| damaged(file, &error))
}

fn damaged(file: &StoredFile<'_>, error: &dyn std::fmt::Display) -> Problem {
    Problem::bad_file(format!("{} cannot be read: {error}", file.title()))
}

/// Maximum number of pieces queued for the reader; each has some 16 KiB.
const MAX_QUEUED_PIECES: usize = 16;

/// Reads a file through `work`. Returns the result of `work` and of the read. If `work` ends early,
/// so does the reading.
pub(crate) async fn piped<T: Send + 'static>(
    session: &Session,
    file: &StoredFile<'_>,
    work: impl FnOnce(Pipe) -> T + Send + 'static,
    talk: impl FnMut(&str),
) -> Result<(T, FileRead), Problem> {
    let (pieces, incoming) = sync_channel::<Vec<u8>>(MAX_QUEUED_PIECES);
    let worker = tokio::task::spawn_blocking(|| {
        work(Pipe {
            incoming,
            piece: io::Cursor::default(),
        })
    });
    let mut length = 0;
    let mut stopped = false;
    let outcome = read(
        session,
        file,
        |bytes| {
            length += bytes.len() as u64;
            // Blocks while the reader is slower. The reader is another thread, so it continues in
            // the meantime.
            pieces.send(bytes.to_vec()).map_err(|_| {
                stopped = true;
                Problem::other("the rest of the file is not read")
            })
        },
        talk,
    )
    .await;
    drop(pieces);
    let done = worker
        .await
        .map_err(|error| Problem::other(format!("cannot read on: {error}")))?;
    let read = if stopped {
        FileRead {
            length,
            version: None,
        }
    } else {
        outcome?
    };
    Ok((done, read))
}

/// The bytes of the file, in the order of their arrival.
pub(crate) struct Pipe {
    incoming: Receiver<Vec<u8>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            // The sender is gone: end of file.
            let Ok(next) = self.incoming.recv() else {
                return Ok(0);
            };
            self.piece = io::Cursor::new(next);
        }
    }
}
