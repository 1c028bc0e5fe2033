//! Reads a tarball from its first byte to its last.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

use super::{
    FORMAT_VERSION, MAX_ITEM,
    paths::{self, Entry},
};
use crate::StoreError;

/// Maximum size of an extended header (bytes): a path has at most 4096, and GNU tar adds times and
/// attributes.
const MAX_HEADER: u64 = 64 * 1024;
/// Size of the read buffer (bytes).
pub(super) const READ_BUFFER_BYTES: usize = 256 * 1024;
/// A buffer larger than this is freed after its item (bytes).
const MAX_KEPT_BUFFER: usize = 1024 * 1024;

/// Calls `visit` with each file of a tarball and its bytes, in order. Holds only the largest item
/// in memory.
///
/// `url` names the tarball in errors; a tarball that unpacks to more than `max` bytes is refused.
/// Errors: [`StoreError::Corrupt`] naming the entry, also for an archive that ends too early; those
/// of `visit`.
pub fn walk(
    url: &str,
    source: impl Read,
    max: u64,
    mut visit: impl FnMut(&Entry<'_>, &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let unpacked = MultiGzDecoder::new(BufReader::with_capacity(READ_BUFFER_BYTES, source));
    walk_unpacked(url, unpacked, max, |entry, _, data| visit(entry, data)).map(drop)
}

/// The same for an unpacked tarball, which is returned. Also passes the offset of each file's bytes
/// in it.
pub(super) fn walk_unpacked<R: Read>(
    url: &str,
    unpacked: R,
    max: u64,
    mut visit: impl FnMut(&Entry<'_>, u64, &[u8]) -> Result<(), StoreError>,
) -> Result<R, StoreError> {
    let mut archive = Archive::new(Tail {
        inner: unpacked,
        max,
        total: 0,
        zeros: 0,
    });
    let mut last = "its beginning".to_owned();
    let mut end = 0;
    let mut data = Vec::new();
    let mut extended = ExtendedHeaders::default();
    let entries = archive
        .entries()
        .map_err(|error| corrupt(url, &last, &error.to_string()))?;
    // The library reads extended headers whole, of any size. Raw, they are entries like all others.
    for entry in entries.raw(true) {
        let mut entry = entry.map_err(|error| damaged(url, &last, &error))?;
        let size = entry.size();
        let begin = entry.raw_file_position();
        end = begin.saturating_add(size.next_multiple_of(512));
        let kind = entry.header().entry_type();
        if let EntryType::GNULongName | EntryType::XHeader = kind {
            extended.read(kind, size, &mut entry).map_err(|error| {
                let after = format!("{last}, the extended header after it");
                if error.kind() == io::ErrorKind::InvalidData {
                    return corrupt(url, &after, &error.to_string());
                }
                damaged(url, &after, &error)
            })?;
            continue;
        }
        match kind {
            // Not written by any backup, but by users who repack one; their content is skipped.
            EntryType::XGlobalHeader | EntryType::GNULongLink => continue,
            _ => {}
        }
        let ExtendedHeaders { path, size: again } = std::mem::take(&mut extended);
        let path = path.unwrap_or_else(|| entry.path_bytes().into_owned());
        last = String::from_utf8_lossy(&path).into_owned();
        match kind {
            EntryType::Regular => {}
            EntryType::Directory => continue,
            other => {
                return Err(corrupt(
                    url,
                    &last,
                    &format!("it is not a regular file but of type {other:?}"),
                ));
            }
        }
        if again.is_some_and(|again| again != size) {
            return Err(corrupt(url, &last, "its two headers say different sizes"));
        }
        if size > MAX_ITEM {
            let why = format!("it has {size} bytes, at most {MAX_ITEM} are expected");
            return Err(corrupt(url, &last, &why));
        }
        let parsed = paths::parse(&path).map_err(|why| corrupt(url, &last, why))?;
        data.clear();
        if data.capacity() > MAX_KEPT_BUFFER {
            data = Vec::new();
        }
        data.reserve_exact(usize::try_from(size).unwrap_or_default());
        entry
            .read_to_end(&mut data)
            .map_err(|error| damaged(url, &last, &error))?;
        if data.len() as u64 != size {
            return Err(corrupt(
                url,
                &last,
                "the file ends inside it: it was cut short",
            ));
        }
        if parsed == Entry::Version {
            check_version(&data).map_err(|why| corrupt(url, &last, &why))?;
        }
        visit(&parsed, begin, &data).map_err(|error| match error {
            StoreError::Corrupt { detail, .. } => corrupt(url, &last, &detail),
            error => error,
        })?;
    }
    let mut tail = archive.into_inner();
    // Read to the very end: to the checksum of the last gzip member, and the zero blocks that end a
    // tar archive. Without them the archive was cut at a point that happens to look like an end.
    io::copy(&mut tail, &mut io::sink()).map_err(|error| damaged(url, &last, &error))?;
    let after = tail.total.saturating_sub(end);
    if after < 1024 || tail.zeros < after {
        let why = "the mark of the archive's end is missing after it: the file was cut short";
        return Err(corrupt(url, &last, why));
    }
    if extended != ExtendedHeaders::default() {
        return Err(corrupt(
            url,
            &last,
            "an extended header after it belongs to no entry",
        ));
    }
    Ok(tail.inner)
}

/// The extended headers of the next entry.
#[derive(Debug, Default, PartialEq, Eq)]
struct ExtendedHeaders {
    path: Option<Vec<u8>>,
    size: Option<u64>,
}

impl ExtendedHeaders {
    /// Reads a header of GNU (`L`) or PAX (`x`). [`io::ErrorKind::InvalidData`]: no tool writes
    /// such a header.
    fn read(&mut self, kind: EntryType, size: u64, source: &mut impl Read) -> io::Result<()> {
        if *self != Self::default() {
            return Err(invalid_header("it is the second one for the same entry"));
        }
        if size > MAX_HEADER {
            let why = format!("it has {size} bytes, at most {MAX_HEADER} are expected");
            return Err(invalid_header(&why));
        }
        let mut data = Vec::new();
        source.read_to_end(&mut data)?;
        if data.len() as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if kind == EntryType::GNULongName {
            let end = data
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(data.len());
            data.truncate(end);
            self.path = Some(data);
            return Ok(());
        }
        let mut rest = data.as_slice();
        while !rest.is_empty() {
            let Some((key, value, after)) = record(rest) else {
                return Err(invalid_header("it is malformed"));
            };
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"size" => match std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok())
                {
                    Some(size) => self.size = Some(size),
                    None => return Err(invalid_header("its size is no number")),
                },
                _ => {}
            }
            rest = after;
        }
        Ok(())
    }
}

fn invalid_header(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// Key and value of the first record of a PAX header, `<length> <key>=<value>\n`, and the rest of
/// the header.
fn record(header: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let digits = header.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(header.get(..digits)?)
        .ok()?
        .parse()
        .ok()?;
    let text = header.get(digits + 1..length)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|byte| *byte == b'=')?;
    Some((&text[..equals], &text[equals + 1..], &header[length..]))
}

fn check_version(data: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(data.get(..64).unwrap_or(data));
    let text = text.trim();
    if text == "1" || text.starts_with("1.") {
        return Ok(());
    }
    Err(format!(
        "the layout has version {text:?}, this program knows {FORMAT_VERSION}"
    ))
}

fn damaged(url: &str, entry: &str, error: &io::Error) -> StoreError {
    let how = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the file was cut short there".to_owned(),
        io::ErrorKind::FileTooLarge => {
            format!(
                "the archive unpacks to more than {error} bytes there, the most that is taken (--restore-max-size of the controller)"
            )
        }
        _ => format!("the file is damaged there: {error}"),
    };
    corrupt(url, entry, &how)
}

fn corrupt(url: &str, entry: &str, why: &str) -> StoreError {
    StoreError::Corrupt {
        url: url.to_owned(),
        detail: format!("entry {entry}: {why}"),
    }
}

/// Counts the unpacked bytes, and the zeros at their end. Ends with an error at its limit.
struct Tail<R> {
    inner: R,
    max: u64,
    total: u64,
    zeros: u64,
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.total += read as u64;
        if self.total > self.max {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                self.max.to_string(),
            ));
        }
        match buffer[..read].iter().rposition(|byte| *byte != 0) {
            Some(at) => self.zeros = (read - at - 1) as u64,
            None => self.zeros += read as u64,
        }
        Ok(read)
    }
}
