//! The record of a decision: one private object that says what the final keys will hold. One of a restore holds what its
//! files are so far.
//!
//! A plain tar archive, so that a person can look into it: `record.json` first, then the small files under the names that
//! they will have, or have so far. Create-only and numbered; the one with the highest number counts.

use backup_core::digest::sha256;
use std::io::Read as _;

use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{StoreError, staging::Uploaded};

/// The version of the format. A record with a higher one was written by a newer program, and is left alone.
const FORMAT: u32 = 1;

const HEADER: &str = "record.json";

/// Name of the entry with the compressed items that are not uploaded yet.
const TAIL: &str = "contents.tail";

/// Records larger than this are refused (bytes). Lists of names and the log grow with a backup, by some bytes per item.
pub(crate) const MAX_RECORD: u64 = 512 * 1024 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub uid: String,
    pub contents: Contents,
    /// What the status says of the collection; null where nothing is to be kept of it.
    pub status: Value,
    /// States of operations up to this number are of another backup, which was abandoned.
    pub operations_after: u64,
    /// Final keys and their bytes, in the order of writing; the metadata last.
    pub files: Vec<(Path, Bytes)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Contents {
    /// They are complete, and their bytes are the first of the files. A restore has none.
    Inline,
    Uploaded(Uploaded),
    /// More items may come.
    Open {
        /// What is uploaded.
        parts: Option<Uploaded>,
        /// What is not.
        tail: Bytes,
        /// Size of the archive so far, not compressed (bytes).
        total: u64,
    },
    /// There are none, and will be none: the backup was abandoned, and no record of its uid counts any more.
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
    contents: Option<Uploaded>,
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
    /// The bytes of the record; the same each time.
    pub(crate) fn encode(&self) -> Result<Bytes, StoreError> {
        let failed = |error: std::io::Error| StoreError::io("encode a record", &error);
        let mut entries: Vec<(&str, &Bytes)> =
            self.files.iter().map(|(key, bytes)| (key.filename().unwrap_or_default(), bytes)).collect();
        let (mut contents, mut total) = (None, 0);
        match &self.contents {
            Contents::Inline | Contents::Abandoned => {}
            Contents::Uploaded(parts) => contents = Some(parts.clone()),
            Contents::Open { parts, tail, total: so_far } => {
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
        let header = serde_json::to_vec_pretty(&header).map_err(|error| failed(error.into()))?;
        let size = entries.iter().map(|(_, bytes)| bytes.len() + 1024).sum::<usize>() + header.len() + 4096;
        let mut tar = tar::Builder::new(Vec::with_capacity(size));
        let mut append = |name: &str, bytes: &[u8]| {
            let mut head = tar::Header::new_gnu();
            head.set_mode(0o644);
            head.set_size(bytes.len() as u64);
            tar.append_data(&mut head, name, bytes)
        };
        append(HEADER, &header).map_err(failed)?;
        for (name, bytes) in entries {
            append(name, bytes).map_err(failed)?;
        }
        Ok(tar.into_inner().map_err(failed)?.into())
    }

    /// Reads a record; `folder` is where its files belong. Errors: why it cannot be used.
    pub(crate) fn decode(bytes: &Bytes, folder: &Path) -> Result<Self, String> {
        let text = |error: std::io::Error| format!("it is damaged: {error}");
        let mut archive = tar::Archive::new(bytes.as_ref());
        let mut entries = archive.entries().map_err(text)?;
        let mut header = String::new();
        match entries.next() {
            Some(entry) => entry.and_then(|mut entry| entry.read_to_string(&mut header)).map_err(text)?,
            None => return Err("it is empty".to_owned()),
        };
        let wrong = |error: serde_json::Error| format!("it is no record: {error}");
        let header: Value = serde_json::from_str(&header).map_err(wrong)?;
        // Before the rest: what else a newer format holds is not known.
        let format = header["format"].as_u64().unwrap_or_default();
        if format > u64::from(FORMAT) {
            return Err(format!(
                "it has format {format}, this program knows {FORMAT}: a newer version has written it, and must finish it"
            ));
        }
        let header: Header = serde_json::from_value(header).map_err(wrong)?;
        let (mut files, mut tail) = (Vec::new(), Bytes::new());
        for (expected, entry) in header.files.iter().zip(entries) {
            let entry = entry.map_err(text)?;
            let cut = || format!("{} in it is cut short", expected.name);
            let at = usize::try_from(entry.raw_file_position()).map_err(|_| cut())?;
            let end = at.saturating_add(usize::try_from(entry.size()).map_err(|_| cut())?);
            if end > bytes.len() {
                return Err(cut());
            }
            let data = bytes.slice(at..end);
            if entry.path_bytes().as_ref() != expected.name.as_bytes() || sha256(&data) != expected.sha256 {
                return Err(format!("{} in it is damaged", expected.name));
            }
            if expected.name == TAIL {
                tail = data;
            } else {
                files.push((folder.clone().join(expected.name.as_str()), data));
            }
        }
        if files.len() + usize::from(header.open) != header.files.len() {
            return Err("files are missing in it".to_owned());
        }
        let contents = match (header.open, header.contents) {
            _ if header.abandoned => Contents::Abandoned,
            (true, parts) => Contents::Open { parts, tail, total: header.total },
            (false, Some(parts)) => Contents::Uploaded(parts),
            (false, None) => Contents::Inline,
        };
        let Header { uid, status, operations_after, .. } = header;
        Ok(Self { uid, contents, status, operations_after, files })
    }

    pub(crate) fn file(&self, key: &Path) -> Option<Bytes> {
        self.files.iter().find(|(of, _)| of == key).map(|(_, bytes)| bytes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging::Part;

    fn records() -> Vec<Record> {
        let parts = Uploaded {
            upload: "u".to_owned(),
            parts: vec![Part { id: "<e>\"1\"</e>".to_owned(), sha256: "00".to_owned() }],
            bytes: 9 << 20,
        };
        let file = |name: &str, bytes: &'static [u8]| (Path::from(format!("p/b/{name}")), Bytes::from(bytes));
        let open = |parts| Contents::Open { parts, tail: Bytes::from_static(b"tail"), total: 7 };
        [Contents::Inline, Contents::Uploaded(parts.clone()), open(Some(parts)), open(None)]
            .map(|contents| Record {
                uid: "u1".to_owned(),
                contents,
                status: serde_json::json!({ "progress": { "totalItems": 3 } }),
                operations_after: 0,
                files: vec![file("b-logs.gz", b"log"), file("empty", b""), file("velero-backup.json", b"{}")],
            })
            .into()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for record in records() {
            let bytes = record.encode().unwrap();
            assert_eq!(bytes, record.encode().unwrap(), "the same bytes each time");
            let read = Record::decode(&bytes, &Path::from("p/b")).unwrap();
            assert_eq!(format!("{read:?}"), format!("{record:?}"));
            assert_eq!(read.file(&Path::from("p/b/b-logs.gz")).unwrap(), "log");
        }
    }

    #[test]
    fn a_record_that_is_damaged_or_newer_is_refused() {
        for record in records() {
            let bytes = record.encode().unwrap();
            let folder = Path::from("p/b");
            for at in (0..bytes.len() - 1024 - 512).step_by(100) {
                assert!(Record::decode(&bytes.slice(..at), &folder).is_err(), "cut at {at}");
            }
            let mut newer = bytes.to_vec();
            let at = newer.windows(11).position(|text| text == b"\"format\": 1").unwrap();
            newer[at + 10] = b'2';
            assert!(Record::decode(&newer.into(), &folder).unwrap_err().contains("newer version"));
            let mut flipped = bytes.to_vec();
            let at = flipped.windows(4).position(|text| text == b"log\0").unwrap();
            flipped[at] = b'x';
            assert!(Record::decode(&flipped.into(), &folder).unwrap_err().contains("damaged"));
        }
        assert!(Record::decode(&Bytes::from_static(b"junk"), &Path::from("p")).is_err());
    }
}
