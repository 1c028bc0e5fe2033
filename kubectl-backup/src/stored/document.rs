//! Stored files that are JSON documents.

use std::io::Write as _;

use flate2::write::MultiGzDecoder;
use serde::de::DeserializeOwned;

use super::{Wanted, read, title};
use crate::{client::Session, error::Problem};

/// The largest document (bytes, unpacked): some 100,000 operations. It is in memory as a whole.
const LARGEST: usize = 64 << 20;

/// Reads a document. What is unknown in it is left out.
pub async fn document<T: DeserializeOwned>(session: &Session, wanted: &Wanted<'_>) -> Result<T, Problem> {
    sized(session, wanted).await.map(|(document, _)| document)
}

/// The same, with its size as it is stored (bytes).
pub async fn sized<T: DeserializeOwned>(session: &Session, wanted: &Wanted<'_>) -> Result<(T, u64), Problem> {
    let mut text = MultiGzDecoder::new(Vec::new());
    let sink = |bytes: &[u8]| {
        text.write_all(bytes).map_err(|error| damaged(wanted, &error))?;
        if text.get_ref().len() > LARGEST {
            let message = format!("{} is larger than {} MiB", title(wanted), LARGEST >> 20);
            return Err(Problem::Other { message, remedy: None });
        }
        Ok(())
    };
    let size = read(session, wanted, sink, |_| ()).await?;
    let text = text.finish().map_err(|error| damaged(wanted, &error))?;
    let document = serde_json::from_slice(&text).map_err(|error| damaged(wanted, &error))?;
    Ok((document, size))
}

fn damaged(wanted: &Wanted<'_>, error: &dyn std::fmt::Display) -> Problem {
    Problem::BadFile { message: format!("{} cannot be read: {error}", title(wanted)) }
}
