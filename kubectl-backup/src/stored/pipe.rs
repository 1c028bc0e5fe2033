//! Stored files for code that reads, such as that of tarballs: it runs in a thread of its own.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, sync_channel},
};

use super::{StoredFile, read};
use crate::{client::Session, error::Problem};

/// Pieces on their way to the reader; each has some 16 KiB.
const PIECES: usize = 16;

/// Reads a file through `work`: what it gave, and the length of what was read (bytes). Work that ends before the file does ends the
/// reading, too.
pub(crate) async fn piped<T: Send + 'static>(
    session: &Session,
    file: &StoredFile<'_>,
    work: impl FnOnce(Pipe) -> T + Send + 'static,
    talk: impl FnMut(&str),
) -> Result<(T, u64), Problem> {
    let (pieces, incoming) = sync_channel::<Vec<u8>>(PIECES);
    let worker = tokio::task::spawn_blocking(|| work(Pipe { incoming, piece: io::Cursor::default() }));
    let (mut length, mut stopped) = (0, false);
    let sink = |bytes: &[u8]| {
        length += bytes.len() as u64;
        // Waits while the reader is slower. It is another thread, so it goes on meanwhile.
        pieces.send(bytes.to_vec()).map_err(|_| {
            stopped = true;
            Problem::other("the rest of the file is not read")
        })
    };
    let outcome = read(session, file, sink, talk).await;
    drop(pieces);
    let done = worker.await.map_err(|error| Problem::other(format!("cannot read on: {error}")))?;
    if !stopped {
        outcome?;
    }
    Ok((done, length))
}

/// The file, as far as it has come.
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
            // The sender is gone: that is the end.
            let Ok(next) = self.incoming.recv() else { return Ok(0) };
            self.piece = io::Cursor::new(next);
        }
    }
}
