//! The log of one backup or restore, in logrus' text format, compressed, on local disk.
//!
//! Each full buffer becomes a gzip member of its own, so that the file can be read at any moment without being closed
//! (joined members are one gzip stream) and memory stays flat.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
};

use bytes::Bytes;
use object_store::path::Path;

use crate::{Location, StoreError, gzip, staging::Staged, upload::Upload};

mod format;

/// Lines are compressed when this much text has gathered (bytes).
const BUFFER: usize = 256 * 1024;

/// A log that is uploaded when the work is done. Lives in an unlinked temporary file, so nothing is left after a crash.
#[derive(Debug)]
pub struct LogFile {
    spool: File,
    text: Vec<u8>,
    /// Lines in `text`.
    lines: u64,
    /// Lines that could not be written to disk.
    lost: u64,
}

impl LogFile {
    /// An empty log. Errors: no temporary file can be made.
    pub fn new() -> io::Result<Self> {
        Ok(Self { spool: tempfile::tempfile()?, text: Vec::new(), lines: 0, lost: 0 })
    }

    /// Adds a line. `level` is logrus' word: `info`, `warning`, `error`, `debug`.
    ///
    /// Never fails: when the disk is full, lines are counted, and the log says in the end how many are missing.
    pub fn line(&mut self, level: &str, message: &str, fields: &[(&str, &str)], at: jiff::Timestamp) {
        format::line(&mut self.text, level, message, fields, at);
        self.lines += 1;
        if self.text.len() >= BUFFER && self.flush().is_err() {
            self.lost += self.lines;
            self.forget();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let member = gzip::member(&self.text)?;
        let end = self.spool.seek(SeekFrom::End(0))?;
        if let Err(error) = self.spool.write_all(&member) {
            self.spool.set_len(end)?; // half a member would spoil what comes after it
            return Err(error);
        }
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.text.clear();
        self.lines = 0;
    }

    /// The whole log as gzip.
    pub(crate) fn bytes(&self) -> io::Result<Bytes> {
        let mut all = Vec::new();
        for piece in self.compressed()? {
            all.extend_from_slice(&piece?);
        }
        Ok(all.into())
    }

    /// Goes on with a log that was kept under this key. Errors: it is missing, or the local disk fails.
    pub(crate) fn read(key: &Path, bytes_of: &dyn Fn(&Path) -> Option<Bytes>) -> Result<Self, String> {
        let bytes = bytes_of(key).ok_or_else(|| format!("{key} is missing in it"))?;
        Self::resume(&bytes).map_err(|error| format!("the log: {error}"))
    }

    /// Goes on with a log that was kept: `compressed` is what it held, as gzip.
    fn resume(compressed: &[u8]) -> io::Result<Self> {
        let mut log = Self::new()?;
        log.spool.write_all(compressed)?;
        Ok(log)
    }

    /// The whole log as gzip, in pieces of bounded size. The same bytes each time, as long as no line is added.
    fn compressed(&self) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>>> {
        let mut tail = self.text.clone();
        if self.lost > 0 {
            tail.extend_from_slice(format!("level=warning msg=\"{} lines lost\"\n", self.lost).as_bytes());
        }
        let mut rest = Some(gzip::member(&tail)?);
        let mut offset = 0;
        Ok(std::iter::from_fn(move || {
            let mut piece = vec![0; BUFFER];
            match self.spool.read_at(&mut piece, offset) {
                Ok(0) => rest.take().map(Ok),
                Ok(read) => {
                    offset += read as u64;
                    piece.truncate(read);
                    Some(Ok(piece))
                }
                Err(error) => Some(Err(error)),
            }
        }))
    }
}

impl Location {
    /// A log, written once. Reads the local spool as it goes: short reads, mostly from the page cache.
    pub(crate) async fn put_log(&self, key: &Path, log: &LogFile) -> Result<(), StoreError> {
        let failed = |error: io::Error| StoreError::io("read the log from local disk", &error);
        let mut upload = Upload::new(self.clone(), key.clone(), None);
        let mut result = Ok(());
        for piece in log.compressed().map_err(failed)? {
            result = match piece.map_err(failed) {
                Ok(piece) => upload.write(piece.into()).await,
                Err(error) => Err(error),
            };
            if result.is_err() {
                break;
            }
        }
        let staged = match result {
            Ok(()) => upload.finish().await,
            Err(error) => Err(error),
        };
        match staged {
            // What was uploaded is removed by nobody else.
            Ok(staged) => match self.publish(key, &staged).await {
                Err(error) => {
                    if let Staged::Upload(parts) = &staged {
                        self.abort_upload(key, &parts.upload, None).await;
                    }
                    Err(error)
                }
                Ok(()) => Ok(()),
            },
            Err(error) => {
                upload.abort().await;
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_log_that_was_kept_is_gone_on_with() {
        let at: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let mut log = LogFile::new().unwrap();
        log.line("info", "before", &[], at);
        let mut log = LogFile::resume(&log.bytes().unwrap()).unwrap();
        log.line("info", "after", &[], at);
        let bytes = log.bytes().unwrap();
        let text = io::read_to_string(flate2::read::MultiGzDecoder::new(bytes.as_ref())).unwrap();
        assert_eq!(
            text.lines().map(|line| line.rsplit_once('=').unwrap().1).collect::<Vec<_>>(),
            ["before", "after"]
        );
    }

    #[test]
    fn every_line_is_in_the_log_and_reading_changes_nothing() {
        let at: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        for lines in [0_usize, 1, 50_000] {
            let mut log = LogFile::new().unwrap();
            for n in 0..lines {
                log.line("info", "working on it", &[("n", &n.to_string())], at);
            }
            let all = || log.compressed().unwrap().map(Result::unwrap).collect::<Vec<_>>().concat();
            assert_eq!(all(), all());
            assert_eq!(all(), log.bytes().unwrap());
            let mut text = String::new();
            flate2::read::MultiGzDecoder::new(all().as_slice()).read_to_string(&mut text).unwrap();
            assert_eq!(text.lines().count(), lines);
            for (n, line) in text.lines().enumerate() {
                assert!(line.ends_with(&format!(" n={n}")), "{line}");
            }
        }
    }
}
