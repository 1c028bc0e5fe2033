//! The log of one backup or restore, in logrus' text format, compressed, on local disk.
//!
//! Each full buffer becomes a gzip member of its own, so that the file can be read at any moment without being closed
//! (joined members are one gzip stream) and memory stays flat.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use object_store::path::Path;

use crate::{Location, StoreError, gzip, staging::Staged, upload::Upload};

mod format;
mod so_far;

/// Lines are compressed when this much text has gathered (bytes).
const BUFFER: usize = 256 * 1024;

/// A log that is uploaded when the work is done. Lives in an unlinked temporary file, so nothing is left after a crash.
///
/// Clones are the same log, so that it can be read while lines are added.
#[derive(Clone, Debug)]
pub struct LogFile(Arc<Mutex<Spool>>);

#[derive(Debug)]
struct Spool {
    file: File,
    text: Vec<u8>,
    /// Lines in `text`.
    lines: u64,
    /// Lines that could not be written to disk.
    lost: u64,
}

impl LogFile {
    /// An empty log. Errors: no temporary file can be made.
    pub fn new() -> io::Result<Self> {
        let file = tempfile::tempfile()?;
        Ok(Self(Arc::new(Mutex::new(Spool { file, text: Vec::new(), lines: 0, lost: 0 }))))
    }

    /// Adds a line. `level` is logrus' word: `info`, `warning`, `error`, `debug`.
    ///
    /// Never fails: when the disk is full, lines are counted, and the log says in the end how many are missing.
    pub fn line(&mut self, level: &str, message: &str, fields: &[(&str, &str)], at: jiff::Timestamp) {
        let mut spool = self.spool();
        format::line(&mut spool.text, level, message, fields, at);
        spool.lines += 1;
        if spool.text.len() >= BUFFER && spool.flush().is_err() {
            spool.lost += spool.lines;
            spool.forget();
        }
    }

    fn spool(&self) -> MutexGuard<'_, Spool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let log = Self::new()?;
        log.spool().file.write_all(compressed)?;
        Ok(log)
    }

    /// The log as it is now as gzip, in pieces of bounded size. The same bytes each time, as long as no line is added.
    fn compressed(&self) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>> + use<>> {
        let (file, end, mut tail, lost) = {
            let mut spool = self.spool();
            let end = spool.file.seek(SeekFrom::End(0))?;
            (spool.file.try_clone()?, end, spool.text.clone(), spool.lost)
        };
        if lost > 0 {
            tail.extend_from_slice(format!("level=warning msg=\"{lost} lines lost\"\n").as_bytes());
        }
        let mut rest = Some(gzip::member(&tail)?);
        let mut offset = 0;
        Ok(std::iter::from_fn(move || {
            // What is added meanwhile comes after `end`.
            let left = usize::try_from(end - offset).map_or(BUFFER, |left| left.min(BUFFER));
            if left == 0 {
                return rest.take().map(Ok);
            }
            let mut piece = vec![0; left];
            if let Err(error) = file.read_exact_at(&mut piece, offset) {
                return Some(Err(error));
            }
            offset += left as u64;
            Some(Ok(piece))
        }))
    }
}

impl Spool {
    fn flush(&mut self) -> io::Result<()> {
        let member = gzip::member(&self.text)?;
        let end = self.file.seek(SeekFrom::End(0))?;
        if let Err(error) = self.file.write_all(&member) {
            self.file.set_len(end)?; // half a member would spoil what comes after it
            return Err(error);
        }
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.text.clear();
        self.lines = 0;
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
    fn what_is_read_is_the_log_of_that_moment() {
        let at: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let log = LogFile::new().unwrap();
        let (mut writer, reader) = (log.clone(), log.clone());
        let mut write = |lines: usize| {
            (0..lines).for_each(|n| writer.line("info", "working", &[("n", &n.to_string())], at));
        };
        write(10_000);
        let before = log.bytes().unwrap();
        let mut pieces = reader.compressed().unwrap();
        let first = pieces.next().unwrap().unwrap();
        write(10_000);
        let rest: Vec<Vec<u8>> = pieces.map(Result::unwrap).collect();
        assert_eq!([first, rest.concat()].concat(), before);
        let text =
            io::read_to_string(flate2::read::MultiGzDecoder::new(reader.bytes().unwrap().as_ref())).unwrap();
        assert_eq!(text.lines().count(), 20_000);
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
