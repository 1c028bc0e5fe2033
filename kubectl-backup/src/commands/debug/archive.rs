//! The archive: a temporary file without a name until the user has agreed.

use std::{
    fs::File,
    io::{self, Seek as _, SeekFrom},
};

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, Header};

use super::part::Part;
use crate::{
    commands::prelude::*,
    print::{aligned, size},
    redact::SecretPatterns,
};

pub(super) struct Archive {
    tar: Builder<GzEncoder<File>>,
    /// Folder of all parts.
    folder: String,
    at: Timestamp,
    secrets: SecretPatterns,
    /// Parts in the archive: name, size in bytes, and why the part is incomplete.
    there: Vec<(String, u64, Option<String>)>,
    /// Parts that are missing, and why.
    missing: Vec<(String, String)>,
}

pub(super) fn failed(error: &io::Error) -> Problem {
    let place = std::env::temp_dir();
    Problem::other(format!(
        "cannot write a temporary file in {}: {error}",
        place.display()
    ))
    .with_remedy("Make room there, or name another folder by TMPDIR.")
}

impl Archive {
    pub(super) fn begin(
        folder: &str,
        at: Timestamp,
        secrets: SecretPatterns,
    ) -> Result<Self, Problem> {
        let file = tempfile::tempfile().map_err(|error| failed(&error))?;
        let tar = Builder::new(GzEncoder::new(file, Compression::default()));
        let folder = folder.to_owned();
        Ok(Self {
            tar,
            folder,
            at,
            secrets,
            there: Vec::new(),
            missing: Vec::new(),
        })
    }

    /// Adds a part after removing what looks like a secret.
    pub(super) fn add(&mut self, part: Part) -> Result<(), Problem> {
        let Part { name, text, note } = part;
        let note = note.map(|note| self.secrets.take_out(note));
        match text {
            Some(text) => {
                let text = self.secrets.take_out(text);
                self.append(&name, text.as_bytes())?;
                self.there.push((name, text.len() as u64, note));
            }
            None => self.missing.push((name, note.unwrap_or_default())),
        }
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), Problem> {
        let mut header = Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(bytes.len() as u64);
        header.set_mtime(self.at.as_second().try_into().unwrap_or_default());
        let path = format!("{}/{name}", self.folder);
        self.tar
            .append_data(&mut header, path, bytes)
            .map_err(|error| failed(&error))
    }

    /// The list of included and missing parts, as text.
    pub(super) fn list(&self) -> Result<String, Problem> {
        let total: u64 = self.there.iter().map(|(_, bytes, _)| bytes).sum();
        let there = self.there.iter().map(|(name, bytes, note)| {
            vec![
                format!("  {name}"),
                size(*bytes),
                note.clone().unwrap_or_default(),
            ]
        });
        let mut text = format!(
            "In it, {} without what may be secret:\n{}",
            size(total),
            aligned(there)?
        );
        if !self.missing.is_empty() {
            let missing = self
                .missing
                .iter()
                .map(|(name, why)| vec![format!("  {name}"), why.clone()]);
            text = text + "Not in it:\n" + &aligned(missing)?;
        }
        Ok(text)
    }

    /// Adds the list and ends the archive. Returns the file, at its beginning, and its length
    /// (bytes).
    pub(super) fn end(mut self, list: &str) -> Result<(File, u64), Problem> {
        self.append("contents.txt", list.as_bytes())?;
        let ended = self
            .tar
            .into_inner()
            .and_then(GzEncoder::finish)
            .and_then(|mut file| {
                let length = file.seek(SeekFrom::End(0))?;
                file.seek(SeekFrom::Start(0))?;
                Ok((file, length))
            });
        ended.map_err(|error| failed(&error))
    }
}
