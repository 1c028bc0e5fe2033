//! The record of a decision: one private object that says what the final keys will hold. The first
//! record of a restore holds the current state of its files instead.
//!
//! A plain tar archive, so that users can inspect it: `record.json` first, then the small files
//! under their final names. Create-only and numbered; the one with the highest number counts.
//!
//! A reader holds a small record as a whole. For a large one it holds the first entry only, and
//! reads each file when it is needed.

use std::{io, ops::Range};

use backup_core::digest::sha256;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use object_store::path::{Path, PathPart};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Location, StoreError, layout::JobKeys, staging::UploadedParts};

/// The version of the format. A record with a higher one was written by a newer program, and is
/// left unchanged.
const FORMAT: u32 = 1;

const HEADER: &str = "record.json";

/// Name of the entry with the compressed items that are not uploaded yet.
const TAIL: &str = "contents.tail";

/// Maximum size of a record; larger ones are refused (bytes). Lists of names and the log grow with
/// a backup, by some bytes per item.
const MAX_RECORD: u64 = 512 * 1024 * 1024;

/// Maximum size of `record.json` (bytes): it has some 200 bytes for each part of the contents.
const MAX_HEADER: u64 = 16 * 1024 * 1024;

/// Records of at most this size are held in memory with their files (bytes).
const MAX_RECORD_IN_MEMORY: u64 = 8 * 1024 * 1024;

/// Block size of tar archives; all entries are padded to it (bytes).
const BLOCK_BYTES: usize = 512;

/// Maximum length of what follows the last file (bytes): its padding, and two blocks.
const MAX_PADDING: u64 = 3 * BLOCK_BYTES as u64;

/// Maximum length of a name in the header of an entry (bytes); a longer name gets an entry before
/// it.
const MAX_SHORT_NAME: usize = 100;

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub uid: String,
    pub contents: Contents,
    /// The status after the collection; null where none is recorded.
    pub status: Value,
    /// States of operations up to this number belong to another backup, which was abandoned.
    pub operations_after: u64,
    /// Final keys and their bytes, in the order of writing; the metadata last.
    pub files: Vec<(Path, RecordedFile)>,
}

/// The bytes of a file in a record.
#[derive(Clone, Debug)]
pub(crate) enum RecordedFile {
    Held(Bytes),
    /// The bytes are in the store, in a range of the record.
    Stored {
        record: Path,
        place: Place,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Place {
    name: String,
    range: Range<u64>,
    sha256: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Contents {
    /// The contents are complete, and are the first of the files. A restore has none.
    Inline,
    Uploaded(UploadedParts),
    /// More items may come.
    Open {
        /// The uploaded parts.
        parts: Option<UploadedParts>,
        /// The bytes not uploaded yet.
        tail: Bytes,
        /// Size of the archive so far, uncompressed (bytes).
        total: u64,
    },
    /// There are no contents and will be none: the backup was abandoned, and no record of its uid
    /// counts any longer.
    Abandoned,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    format: u32,
    uid: String,
    open: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    abandoned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contents: Option<UploadedParts>,
    #[serde(default)]
    total: u64,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    status: Value,
    #[serde(default, skip_serializing_if = "is_zero")]
    operations_after: u64,
    files: Vec<File>,
}

#[derive(Serialize, Deserialize)]
struct File {
    name: String,
    bytes: u64,
    sha256: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Record {
    /// Encodes the record; the same bytes each time.
    pub(crate) fn encode(&self) -> Result<Bytes, StoreError> {
        let mut entries: Vec<(&str, &Bytes)> = Vec::new();
        for (key, file) in &self.files {
            let RecordedFile::Held(bytes) = file else {
                let reason = "a record that was found in the store is not written again";
                return Err(StoreError::io("encode a record", reason));
            };
            entries.push((key.filename().unwrap_or_default(), bytes));
        }
        let mut contents = None;
        let mut total = 0;
        match &self.contents {
            Contents::Inline | Contents::Abandoned => {}
            Contents::Uploaded(parts) => contents = Some(parts.clone()),
            Contents::Open {
                parts,
                tail,
                total: so_far,
            } => {
                contents.clone_from(parts);
                total = *so_far;
                entries.push((TAIL, tail));
            }
        }
        let header = Header {
            format: FORMAT,
            uid: self.uid.clone(),
            open: matches!(self.contents, Contents::Open { .. }),
            abandoned: matches!(self.contents, Contents::Abandoned),
            contents,
            total,
            status: self.status.clone(),
            operations_after: self.operations_after,
            files: entries
                .iter()
                .map(|(name, bytes)| File {
                    name: (*name).to_owned(),
                    bytes: bytes.len() as u64,
                    sha256: sha256(bytes),
                })
                .collect(),
        };
        let header = serde_json::to_vec_pretty(&header)
            .map_err(|error| StoreError::io("encode a record", &error))?;
        let tar = archive(&header, &entries)
            .map_err(|error| StoreError::io("encode a record", &error))?;
        Ok(tar.into())
    }

    pub(crate) fn file(&self, key: &Path) -> Option<&RecordedFile> {
        self.files
            .iter()
            .find(|(of, _)| of == key)
            .map(|(_, file)| file)
    }
}

/// A tar archive of the header and these entries.
fn archive(header: &[u8], entries: &[(&str, &Bytes)]) -> io::Result<Vec<u8>> {
    let size = entries
        .iter()
        .map(|(_, bytes)| bytes.len() + 1024)
        .sum::<usize>()
        + header.len()
        + 4096;
    let mut tar = tar::Builder::new(Vec::with_capacity(size));
    append(&mut tar, HEADER, header)?;
    for (name, bytes) in entries {
        append(&mut tar, name, bytes)?;
    }
    tar.into_inner()
}

fn append(tar: &mut tar::Builder<Vec<u8>>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut head = tar::Header::new_gnu();
    head.set_mode(0o644);
    head.set_size(bytes.len() as u64);
    tar.append_data(&mut head, name, bytes)
}

impl RecordedFile {
    /// Its size (bytes).
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Held(bytes) => bytes.len() as u64,
            Self::Stored { place, .. } => place.range.end - place.range.start,
        }
    }
}

impl From<Bytes> for RecordedFile {
    fn from(bytes: Bytes) -> Self {
        Self::Held(bytes)
    }
}

/// Marks files as held in memory.
pub(crate) fn held(files: Vec<(Path, Bytes)>) -> Vec<(Path, RecordedFile)> {
    files
        .into_iter()
        .map(|(key, bytes)| (key, bytes.into()))
        .collect()
}

/// The first entry of a record.
struct Head {
    header: Header,
    places: Vec<Place>,
    /// Offset of the end of the last file (bytes).
    size: u64,
}

impl Head {
    /// Parses the first bytes of a record; returns `None` if they are too few. Errors: why the
    /// record is unusable.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, String> {
        let Some(entry) = bytes.first_chunk::<BLOCK_BYTES>() else {
            return Ok(None);
        };
        let entry = tar::Header::from_byte_slice(entry);
        if entry.path_bytes().as_ref() != HEADER.as_bytes() {
            return Err(format!("it is no record: it does not begin with {HEADER}"));
        }
        let size = entry
            .entry_size()
            .map_err(|error| format!("it is damaged: {error}"))?;
        if size > MAX_HEADER {
            return Err(format!(
                "{HEADER} in it has {size} bytes, more than are ever written"
            ));
        }
        let end = index(size).saturating_add(BLOCK_BYTES);
        let Some(text) = bytes.get(BLOCK_BYTES..end) else {
            return Ok(None);
        };
        let header: Value =
            serde_json::from_slice(text).map_err(|error| format!("it is no record: {error}"))?;
        // First of all, as the other fields of a newer format are unknown.
        let format = header["format"].as_u64().unwrap_or_default();
        if format > u64::from(FORMAT) {
            return Err(format!(
                "it has format {format}, this program knows {FORMAT}: a newer version has written it, and must finish it"
            ));
        }
        let header: Header =
            serde_json::from_value(header).map_err(|error| format!("it is no record: {error}"))?;
        let block = BLOCK_BYTES as u64;
        let mut places = Vec::new();
        let mut at = block + size.next_multiple_of(block);
        for file in &header.files {
            if PathPart::from(file.name.as_str()).as_ref() != file.name {
                return Err(format!("{:?} in it is no name of a file", file.name));
            }
            if file.name.len() > MAX_SHORT_NAME {
                at += block + (file.name.len() as u64 + 1).next_multiple_of(block);
            }
            let start = at + block;
            let range = start..start.saturating_add(file.bytes);
            if range.end > MAX_RECORD {
                return Err(format!(
                    "it has more than {MAX_RECORD} bytes; nothing of that size is ever written there"
                ));
            }
            at = range.end.next_multiple_of(block);
            places.push(Place {
                name: file.name.clone(),
                range,
                sha256: file.sha256.clone(),
            });
        }
        if header.open != places.iter().any(|place| place.name == TAIL) {
            return Err(format!("{TAIL} is missing in it, or is not expected"));
        }
        let size = places.last().map_or(at, |place| place.range.end);
        Ok(Some(Self {
            header,
            places,
            size,
        }))
    }

    /// Builds the record with these files; `folder` is the folder they belong to.
    fn into_record(self, folder: &Path, files: Vec<RecordedFile>, tail: Bytes) -> Record {
        let Header {
            uid,
            open,
            abandoned,
            contents,
            total,
            status,
            operations_after,
            ..
        } = self.header;
        let contents = if abandoned {
            Contents::Abandoned
        } else if open {
            Contents::Open {
                parts: contents,
                tail,
                total,
            }
        } else {
            contents.map_or(Contents::Inline, Contents::Uploaded)
        };
        let names = self.places.iter().filter(|place| place.name != TAIL);
        let keys = names.map(|place| folder.clone().join(place.name.as_str()));
        Record {
            uid,
            contents,
            status,
            operations_after,
            files: keys.zip(files).collect(),
        }
    }
}

impl Place {
    /// The file's bytes in a whole record. Errors: why they are unusable.
    fn slice(&self, record: &Bytes) -> Result<Bytes, String> {
        let range = index(self.range.start)..index(self.range.end);
        if range.end > record.len() {
            return Err(format!("{} in it is cut short", self.name));
        }
        self.check(record.slice(range))
    }

    fn check(&self, bytes: Bytes) -> Result<Bytes, String> {
        if sha256(&bytes) == self.sha256 {
            Ok(bytes)
        } else {
            Err(format!("{} in it is damaged", self.name))
        }
    }
}

/// An offset as an index into memory.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Location {
    /// Reads a record; `None` if it does not exist (or was removed).
    pub(crate) async fn read_record(
        &self,
        keys: &JobKeys,
        number: u64,
    ) -> Result<Option<Record>, StoreError> {
        let key = keys.record(number);
        let Some(object) = self.get(&key).await? else {
            return Ok(None);
        };
        let mut stream = object.into_stream();
        let mut bytes = BytesMut::new();
        let mut head = None;
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.map_err(|error| self.failed("read", &key, &error))?);
            if head.is_none() {
                head = Head::parse(&bytes).map_err(|detail| self.corrupt(&key, detail))?;
            }
            if let Some(head) = &head
                && (head.size > MAX_RECORD_IN_MEMORY
                    || bytes.len() as u64 > head.size + MAX_PADDING)
            {
                break;
            }
        }
        drop(stream);
        let head = head.ok_or_else(|| self.corrupt(&key, "it is cut short"))?;
        let is_held = head.size <= MAX_RECORD_IN_MEMORY;
        let bytes = bytes.freeze();
        let mut files = Vec::new();
        let mut tail = Bytes::new();
        for place in &head.places {
            let file = if is_held {
                let slice = place.slice(&bytes);
                RecordedFile::Held(slice.map_err(|detail| self.corrupt(&key, detail))?)
            } else {
                RecordedFile::Stored {
                    record: key.clone(),
                    place: place.clone(),
                }
            };
            if place.name == TAIL {
                tail = self.recorded(&file).await?;
            } else {
                files.push(file);
            }
        }
        Ok(Some(head.into_record(&keys.folder, files, tail)))
    }

    /// The bytes of a file in a record. Errors: [`StoreError::Corrupt`] if they differ from those
    /// that were written.
    pub(crate) async fn recorded(&self, file: &RecordedFile) -> Result<Bytes, StoreError> {
        match file {
            RecordedFile::Held(bytes) => Ok(bytes.clone()),
            RecordedFile::Stored { record, place } => {
                let bytes = self.get_range(record, place.range.clone()).await?;
                place
                    .check(bytes)
                    .map_err(|detail| self.corrupt(record, detail))
            }
        }
    }

    /// The same for the file with this key; `None` if the record has none.
    pub(crate) async fn recorded_for(
        &self,
        record: &Record,
        key: &Path,
    ) -> Result<Option<Bytes>, StoreError> {
        match record.file(key) {
            Some(file) => Ok(Some(self.recorded(file).await?)),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        staging::Part,
        testing::{folder, memory, put},
    };

    const KEY: &str = "p/backups/b/.private/record-1";

    fn records() -> Vec<Record> {
        let parts = UploadedParts {
            upload: "u".to_owned(),
            parts: vec![Part {
                id: "<e>\"1\"</e>".to_owned(),
                sha256: "00".to_owned(),
            }],
            bytes: 9 << 20,
        };
        let file = |name: &str, bytes: &'static [u8]| {
            (
                Path::from(format!("p/backups/b/{name}")),
                Bytes::from(bytes).into(),
            )
        };
        let open = |parts| Contents::Open {
            parts,
            tail: Bytes::from_static(b"tail"),
            total: 7,
        };
        let long = [99, 100, 101, 511, 512, 900].map(|length| file(&"n".repeat(length), b"named"));
        [
            Contents::Inline,
            Contents::Uploaded(parts.clone()),
            open(Some(parts)),
            open(None),
        ]
        .map(|contents| {
            let mut files = vec![file("b-logs.gz", b"log"), file("empty", b"")];
            files.extend(long.clone());
            files.push(file("velero-backup.json", b"{}"));
            Record {
                uid: "u1".to_owned(),
                contents,
                status: serde_json::json!({ "progress": { "totalItems": 3 } }),
                operations_after: 0,
                files,
            }
        })
        .into()
    }

    /// The record with another file before the others, too large to be held.
    fn large(record: &Record) -> Record {
        let mut record = record.clone();
        let bytes = Bytes::from(vec![7; usize::try_from(MAX_RECORD_IN_MEMORY).unwrap()]);
        record
            .files
            .insert(0, (Path::from("p/backups/b/large"), bytes.into()));
        record
    }

    /// Reads these bytes as a record, with all of its files.
    async fn read(location: &Location, bytes: &[u8]) -> Result<Record, StoreError> {
        put(location, KEY, bytes).await;
        let keys = location.layout().backup("b").unwrap();
        let mut record = location.read_record(&keys, 1).await?.unwrap();
        for (_, file) in &mut record.files {
            *file = location.recorded(file).await?.into();
        }
        Ok(record)
    }

    #[tokio::test]
    async fn a_record_is_read_as_it_was_written_and_a_large_one_is_not_held() {
        let (_dir, on_disk) = folder("p");
        for location in [memory("p"), on_disk] {
            for record in records() {
                for record in [large(&record), record] {
                    let bytes = record.encode().unwrap();
                    assert_eq!(bytes, record.encode().unwrap(), "the same bytes each time");
                    let found = read(&location, &bytes).await.unwrap();
                    assert_eq!(format!("{found:?}"), format!("{record:?}"));
                    let keys = location.layout().backup("b").unwrap();
                    let found = location.read_record(&keys, 1).await.unwrap().unwrap();
                    let held =
                        |(_, file): &(Path, RecordedFile)| matches!(file, RecordedFile::Held(_));
                    assert_eq!(
                        found.files.iter().any(held),
                        bytes.len() as u64 <= MAX_RECORD_IN_MEMORY
                    );
                }
            }
        }
    }

    /// The record is a standard tar archive.
    #[test]
    fn files_are_where_tar_says_they_are() {
        for record in records() {
            let bytes = record.encode().unwrap();
            let head = Head::parse(&bytes).unwrap().unwrap();
            let mut archive = tar::Archive::new(bytes.as_ref());
            let mut entries = archive.entries().unwrap().skip(1);
            for place in &head.places {
                let entry = entries.next().unwrap().unwrap();
                assert_eq!(entry.path_bytes().as_ref(), place.name.as_bytes());
                let at = entry.raw_file_position();
                assert_eq!(place.range, at..at + entry.size());
            }
            assert!(entries.next().is_none());
        }
    }

    #[tokio::test]
    async fn a_record_that_is_damaged_or_newer_is_refused() {
        let location = memory("p");
        let error = async |bytes: &[u8]| read(&location, bytes).await.unwrap_err();
        for record in records() {
            let bytes = record.encode().unwrap();
            for at in (0..bytes.len() - 1024 - 512).step_by(100) {
                assert_eq!(
                    error(&bytes[..at]).await.category(),
                    "corrupt",
                    "cut at {at}"
                );
            }
            let mut newer = bytes.to_vec();
            let at = newer
                .windows(11)
                .position(|text| text == b"\"format\": 1")
                .unwrap();
            newer[at + 10] = b'2';
            assert_says!(error(&newer).await, "newer version");
        }
        for record in records()
            .into_iter()
            .flat_map(|record| [large(&record), record])
        {
            let mut flipped = record.encode().unwrap().to_vec();
            let at = flipped
                .windows(4)
                .position(|text| text == b"log\0")
                .unwrap();
            flipped[at] = b'x';
            let error = error(&flipped).await;
            assert!(
                error.category() == "corrupt" && error.to_string().contains("b-logs.gz"),
                "{error}"
            );
        }
        let cut = large(&records()[0]).encode().unwrap();
        assert_eq!(error(&cut[..cut.len() / 2]).await.category(), "corrupt");
        assert_eq!(error(b"junk").await.category(), "corrupt");
        assert_eq!(error(&[b'x'; 2048]).await.category(), "corrupt");
    }
}
