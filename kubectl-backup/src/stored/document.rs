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
    let mut text = MultiGzDecoder::new(Vec::new());
    let sink = |bytes: &[u8]| {
        text.write_all(bytes).map_err(|error| damaged(wanted, &error))?;
        if text.get_ref().len() > LARGEST {
            let message = format!("{} is larger than {} MiB", title(wanted), LARGEST >> 20);
            return Err(Problem::Other { message, remedy: None });
        }
        Ok(())
    };
    read(session, wanted, sink, |_| ()).await?;
    let text = text.finish().map_err(|error| damaged(wanted, &error))?;
    serde_json::from_slice(&text).map_err(|error| damaged(wanted, &error))
}

fn damaged(wanted: &Wanted<'_>, error: &dyn std::fmt::Display) -> Problem {
    Problem::Other {
        message: format!("{} cannot be read: {error}", title(wanted)),
        remedy: Some("The file in the store is damaged.".to_owned()),
    }
}
