//! gzip with Go's defaults, and without a time stamp: the same bytes in, the same bytes out.

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use serde::Serialize;

use crate::StoreError;

/// Go's default level.
const LEVEL: u32 = 6;

/// One gzip member.
pub(crate) fn member(raw: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(raw.len() / 4 + 64), Compression::new(LEVEL));
    encoder.write_all(raw)?;
    let mut member = encoder.finish()?;
    // Members wait for their part of the upload to be full: what they hold must be what they are counted for.
    member.shrink_to_fit();
    Ok(member)
}

/// One JSON document and a newline, as Go's `json.Encoder` writes it, in one gzip member.
pub(crate) fn json<T: Serialize + ?Sized>(what: &str, value: &T) -> Result<Vec<u8>, StoreError> {
    let encode = || -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
        // Compression works in blocks; serde_json writes single characters.
        let mut buffered = io::BufWriter::with_capacity(32 * 1024, &mut encoder);
        serde_json::to_writer(&mut buffered, value)?;
        buffered.write_all(b"\n")?;
        buffered.flush()?;
        drop(buffered);
        encoder.finish()
    };
    encode().map_err(|error| StoreError::io(&format!("encode {what}"), &error))
}
