//! A tarball read from its first byte to its last.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

use super::{
    FORMAT_VERSION, MAX_ITEM, MAX_TOTAL,
    paths::{self, Entry},
};
use crate::StoreError;

/// Shows each file of a tarball, with its bytes, in their order. The largest item is in memory, and nothing else.
///
/// `url` names the tarball in errors. Errors: [`StoreError::Corrupt`] naming the entry, also for an archive that ends too early;
/// those of `visit`.
pub fn walk(
    url: &str,
    source: impl Read,
    mut visit: impl FnMut(&Entry<'_>, &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let decoder = MultiGzDecoder::new(BufReader::with_capacity(256 * 1024, source));
    let mut archive = Archive::new(Tail { inner: decoder, total: 0, zeros: 0 });
    let mut last = "its beginning".to_owned();
    let mut end = 0;
    let mut data = Vec::new();
    let entries = archive.entries().map_err(|error| corrupt(url, &last, &error.to_string()))?;
    for entry in entries {
        let mut entry = entry.map_err(|error| damaged(url, &last, &error))?;
        let path = entry.path_bytes().into_owned();
        last = String::from_utf8_lossy(&path).into_owned();
        let size = entry.size();
        end = entry.raw_file_position().saturating_add(size.next_multiple_of(512));
        match entry.header().entry_type() {
            EntryType::Regular => {}
            // Not written by any backup, but by people who repack one; they hold nothing.
            EntryType::Directory | EntryType::XGlobalHeader => continue,
            other => {
                return Err(corrupt(url, &last, &format!("it is not a regular file but of type {other:?}")));
            }
        }
        if size > MAX_ITEM {
            let why = format!("it has {size} bytes, at most {MAX_ITEM} are expected");
            return Err(corrupt(url, &last, &why));
        }
        data.clear();
        entry.read_to_end(&mut data).map_err(|error| damaged(url, &last, &error))?;
        if data.len() as u64 != size {
            return Err(corrupt(url, &last, "the file ends inside it: it was cut short"));
        }
        let parsed = paths::parse(&path).map_err(|why| corrupt(url, &last, why))?;
        if parsed == Entry::Version {
            check_version(&data).map_err(|why| corrupt(url, &last, &why))?;
        }
        visit(&parsed, &data)?;
    }
    let mut tail = archive.into_inner();
    // To the very end: the checksum of the last gzip member, and the zero blocks that end a tar archive. Without
    // them the archive was cut at a place that happens to look like an end.
    io::copy(&mut tail, &mut io::sink()).map_err(|error| damaged(url, &last, &error))?;
    let after = tail.total.saturating_sub(end);
    if after < 1024 || tail.zeros < after {
        let why = "the mark of the archive's end is missing after it: the file was cut short";
        return Err(corrupt(url, &last, why));
    }
    Ok(())
}

fn check_version(data: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(data.get(..64).unwrap_or(data));
    let text = text.trim();
    if text == "1" || text.starts_with("1.") {
        return Ok(());
    }
    Err(format!("the layout has version {text:?}, this program knows {FORMAT_VERSION}"))
}

fn damaged(url: &str, entry: &str, error: &io::Error) -> StoreError {
    let how = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the file was cut short there".to_owned(),
        _ => format!("the file is damaged there: {error}"),
    };
    corrupt(url, entry, &how)
}

fn corrupt(url: &str, entry: &str, why: &str) -> StoreError {
    StoreError::Corrupt { url: url.to_owned(), detail: format!("entry {entry}: {why}") }
}

/// Counts what was unpacked, and the zeros at its end. Ends with an error at [`MAX_TOTAL`].
struct Tail<R> {
    inner: R,
    total: u64,
    zeros: u64,
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.total += read as u64;
        if self.total > MAX_TOTAL {
            return Err(io::Error::other(format!("it unpacks to more than {MAX_TOTAL} bytes")));
        }
        match buffer[..read].iter().rposition(|byte| *byte != 0) {
            Some(at) => self.zeros = (read - at - 1) as u64,
            None => self.zeros += read as u64,
        }
        Ok(read)
    }
}
