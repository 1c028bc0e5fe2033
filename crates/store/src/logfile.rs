//! The log of one backup or restore, in logrus' text format, compressed, on local disk.
//!
//! Each full buffer becomes a separate gzip member, so that the file can be read at any moment
//! without being closed (joined members are one gzip stream) and memory use stays constant.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{StoreError, file_at::FileAt as _, gzip};

mod format;
mod snapshot;

/// Lines are compressed once the buffer has reached this size (bytes).
const BUFFER_BYTES: usize = 256 * 1024;

/// A log that is uploaded when the work is done. It is an unlinked temporary file, so nothing is
/// left after a crash.
///
/// Clones share the log, so that it can be read while lines are added.
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
    /// An empty log. Errors: no temporary file can be created.
    pub fn new() -> io::Result<Self> {
        let file = tempfile::tempfile()?;
        Ok(Self(Arc::new(Mutex::new(Spool {
            file,
            text: Vec::new(),
            lines: 0,
            lost: 0,
        }))))
    }

    /// Adds a line. `level` is one of logrus' levels: `info`, `warning`, `error`, `debug`.
    ///
    /// Never fails: when the disk is full, lost lines are counted, and the end of the log says how
    /// many are missing.
    pub fn line(
        &mut self,
        level: &str,
        message: &str,
        fields: &[(&str, &str)],
        at: jiff::Timestamp,
    ) {
        let mut spool = self.0.lock();
        format::line(&mut spool.text, level, message, fields, at);
        spool.lines += 1;
        if spool.text.len() >= BUFFER_BYTES && spool.flush().is_err() {
            spool.lost += spool.lines;
            spool.forget();
        }
    }

    /// The current log as gzip. The same bytes each time until a line is added.
    pub(crate) fn bytes(&self) -> Result<Bytes, StoreError> {
        self.read_all()
            .map_err(|error| StoreError::io("read the log from local disk", &error))
    }

    fn read_all(&self) -> io::Result<Bytes> {
        let (file, end, mut tail, lost) = {
            let mut spool = self.0.lock();
            let end = spool.file.seek(SeekFrom::End(0))?;
            (spool.file.try_clone()?, end, spool.text.clone(), spool.lost)
        };
        if lost > 0 {
            tail.extend_from_slice(format!("level=warning msg=\"{lost} lines lost\"\n").as_bytes());
        }
        // Lines added meanwhile come after `end`.
        let mut all = vec![0; usize::try_from(end).map_err(io::Error::other)?];
        file.read_exact_at(&mut all, 0)?;
        all.append(&mut gzip::member(&tail)?);
        Ok(all.into())
    }

    /// Continues a log that was stored. Errors: the local disk fails.
    pub(crate) fn resume(compressed: &[u8]) -> io::Result<Self> {
        let log = Self::new()?;
        log.0.lock().file.write_all(compressed)?;
        Ok(log)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::unzipped;

    const AT: &str = "2026-01-02T03:04:05Z";

    fn add(log: &mut LogFile, lines: usize) {
        for n in 0..lines {
            log.line(
                "info",
                "working on it",
                &[("n", &n.to_string())],
                AT.parse().unwrap(),
            );
        }
    }

    #[test]
    fn a_log_that_was_kept_is_continued() {
        let mut log = LogFile::new().unwrap();
        log.line("info", "before", &[], AT.parse().unwrap());
        let mut log = LogFile::resume(&log.bytes().unwrap()).unwrap();
        log.line("info", "after", &[], AT.parse().unwrap());
        let text = unzipped(&log.bytes().unwrap());
        let messages: Vec<_> = text
            .lines()
            .map(|line| line.rsplit_once('=').unwrap().1)
            .collect();
        assert_eq!(messages, ["before", "after"]);
    }

    #[test]
    fn what_is_read_is_the_log_of_that_moment() {
        let log = LogFile::new().unwrap();
        let (mut writer, reader) = (log.clone(), log.clone());
        add(&mut writer, 10_000);
        let before = log.bytes().unwrap();
        let writing = std::thread::spawn(move || add(&mut writer, 10_000));
        while !writing.is_finished() {
            let meanwhile = unzipped(&reader.bytes().unwrap());
            assert!(meanwhile.starts_with(&unzipped(&before)) && meanwhile.ends_with('\n'));
        }
        assert_eq!(unzipped(&reader.bytes().unwrap()).lines().count(), 20_000);
    }

    #[test]
    fn every_line_is_in_the_log_and_reading_changes_nothing() {
        for lines in [0_usize, 1, 50_000] {
            let mut log = LogFile::new().unwrap();
            add(&mut log, lines);
            let all = log.bytes().unwrap();
            assert_eq!(all, log.bytes().unwrap());
            let text = unzipped(&all);
            assert_eq!(text.lines().count(), lines);
            for (n, line) in text.lines().enumerate() {
                assert!(line.ends_with(&format!(" n={n}")), "{line}");
            }
        }
    }
}
