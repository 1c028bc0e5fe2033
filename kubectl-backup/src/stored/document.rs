//! Stored files that are JSON documents.

use std::io::Write as _;

use flate2::write::MultiGzDecoder;
use serde::de::DeserializeOwned;

use super::{StoredFile, read};
use crate::{client::Session, error::Problem};

/// The largest document (bytes, unpacked): some 100,000 operations. It is in memory as a whole.
const LARGEST: usize = 64 << 20;

/// Reads a document. What is unknown in it is left out.
pub(crate) async fn document<T: DeserializeOwned>(
    session: &Session,
    file: &StoredFile<'_>,
) -> Result<T, Problem> {
    sized(session, file).await.map(|(document, _)| document)
}

/// The same, with its size as it is stored (bytes).
pub(crate) async fn sized<T: DeserializeOwned>(
    session: &Session,
    file: &StoredFile<'_>,
) -> Result<(T, u64), Problem> {
    let mut text = MultiGzDecoder::new(Vec::new());
    let sink = |bytes: &[u8]| {
        text.write_all(bytes).map_err(|error| damaged(file, &error))?;
        if text.get_ref().len() > LARGEST {
            let message = format!("{} is larger than {} MiB", file.title(), LARGEST >> 20);
            return Err(Problem::other(message));
        }
        Ok(())
    };
    let size = read(session, file, sink, |_| ()).await?;
    let text = text.finish().map_err(|error| damaged(file, &error))?;
    let document = serde_json::from_slice(&text).map_err(|error| damaged(file, &error))?;
    Ok((document, size))
}

fn damaged(file: &StoredFile<'_>, error: &dyn std::fmt::Display) -> Problem {
    Problem::bad_file(format!("{} cannot be read: {error}", file.title()))
}
