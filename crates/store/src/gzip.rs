//! gzip with Go's defaults and without a time stamp: the same input gives the same bytes.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use object_store::path::Path;
use serde::Serialize;

use crate::StoreError;

const LEVEL: u32 = 6;

pub(crate) fn member(raw: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(
        Vec::with_capacity(raw.len() / 4 + 64),
        Compression::new(LEVEL),
    );
    encoder.write_all(raw)?;
    encoder.finish()
}

/// One JSON document and a newline, as Go's `json.Encoder` writes it, in one gzip member, with the
/// key for it.
pub(crate) fn file<T: Serialize + ?Sized>(
    key: Path,
    value: &T,
) -> Result<(Path, Bytes), StoreError> {
    match json_member(value) {
        Ok(bytes) => Ok((key, bytes.into())),
        Err(error) => Err(StoreError::io(
            format!("encode {}", key.filename().unwrap_or_default()),
            error,
        )),
    }
}

fn json_member<T: Serialize + ?Sized>(value: &T) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
    // Compression works in blocks; serde_json writes single characters.
    let mut buffered = io::BufWriter::with_capacity(32 * 1024, &mut encoder);
    serde_json::to_writer(&mut buffered, value)?;
    buffered.write_all(b"\n")?;
    buffered.flush()?;
    drop(buffered);
    encoder.finish()
}
