//! Positions of the items in a tarball, so that a single one can be read later without everything
//! before it.
//!
//! A tarball is gzipped, and can be unpacked only from the start of a gzip member.
//! [`super::Writer`] starts one every MiB. Velero's tarballs have one member: to reach an item,
//! everything before it is unpacked.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use serde::{Deserialize, Serialize};

use super::{
    MAX_ITEM, MAX_TOTAL,
    paths::Entry,
    walk::{READ_BUFFER_BYTES, walk_unpacked},
};
use crate::StoreError;

/// Minimum distance of members; closer ones are merged (bytes, unpacked), so that an archive of
/// empty ones takes no memory.
const MIN_MEMBER_DISTANCE: u64 = 64 * 1024;

/// A position in a tarball at which a member of gzip begins (bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Offset in the stored file.
    pub stored: u64,
    /// Offset in the unpacked data.
    pub unpacked: u64,
}

/// Position of the JSON of an item in the unpacked tarball (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub offset: u64,
    pub size: u64,
}

/// Calls `visit` with each item at its plain path and its position; returns the members, in order.
/// Reads the archive to its end and checks it as [`super::walk`] does. Errors: as there, and those
/// of `visit`.
pub fn places(
    url: &str,
    source: impl Read,
    mut visit: impl FnMut(&Entry<'_>, Place) -> Result<(), StoreError>,
) -> Result<Vec<Member>, StoreError> {
    let source = CountingReader {
        inner: BufReader::with_capacity(READ_BUFFER_BYTES, source),
        consumed: 0,
    };
    let members = Members {
        decoder: Some(GzDecoder::new(source)),
        unpacked: 0,
        all: vec![Member::default()],
    };
    let members = walk_unpacked(url, members, MAX_TOTAL, |entry, offset, json| match entry {
        Entry::Item { .. } => visit(
            entry,
            Place {
                offset,
                size: json.len() as u64,
            },
        ),
        _ => Ok(()),
    })?;
    Ok(members.all)
}

impl Place {
    /// The last of these members that begins before the item, and the stored offset of the first
    /// one after the item, if there is one.
    pub fn members(&self, all: &[Member]) -> (Member, Option<u64>) {
        let after = all.partition_point(|member| member.unpacked <= self.offset);
        let first = after
            .checked_sub(1)
            .and_then(|at| all.get(at))
            .copied()
            .unwrap_or_default();
        let end = self.offset.saturating_add(self.size);
        (
            first,
            all.iter()
                .skip(after)
                .find(|member| member.unpacked >= end)
                .map(|member| member.stored),
        )
    }

    /// Reads the item from the stored bytes that begin with this member. Errors: they are damaged,
    /// or end before the item does.
    pub fn read(&self, source: impl Read, first: Member) -> io::Result<Vec<u8>> {
        if self.size > MAX_ITEM {
            let why = format!(
                "an item has {} bytes, at most {MAX_ITEM} are expected",
                self.size
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut unpacked = flate2::read::MultiGzDecoder::new(source);
        let before = self.offset.saturating_sub(first.unpacked);
        io::copy(&mut (&mut unpacked).take(before), &mut io::sink())?;
        let mut item = Vec::new();
        unpacked.take(self.size).read_to_end(&mut item)?;
        if item.len() as u64 == self.size {
            Ok(item)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

/// Unpacks one member after the other, and records where they begin.
struct Members<R> {
    /// Always set, except between two members, when it is taken out briefly.
    decoder: Option<GzDecoder<CountingReader<R>>>,
    unpacked: u64,
    all: Vec<Member>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let read = decoder.read(buffer)?;
            self.unpacked += read as u64;
            if read > 0 || buffer.is_empty() || decoder.get_mut().fill_buf()?.is_empty() {
                return Ok(read);
            }
            let Some(source) = self.decoder.take().map(GzDecoder::into_inner) else {
                break;
            };
            let begins = Member {
                stored: source.consumed,
                unpacked: self.unpacked,
            };
            if self
                .all
                .last()
                .is_none_or(|last| begins.unpacked - last.unpacked >= MIN_MEMBER_DISTANCE)
            {
                self.all.push(begins);
            }
            self.decoder = Some(GzDecoder::new(source));
        }
        Ok(0)
    }
}

struct CountingReader<R> {
    inner: R,
    consumed: u64,
}

impl<R: BufRead> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.consumed += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for CountingReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.inner.consume(amount);
        self.consumed += amount as u64;
    }
}
