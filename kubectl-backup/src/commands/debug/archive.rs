//! The archive, in a temporary file without a name until a person has said yes.

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
    /// The one folder in it.
    folder: String,
    at: Timestamp,
    secrets: SecretPatterns,
    /// What is in it: name, bytes, and why it is not whole.
    there: Vec<(String, u64, Option<String>)>,
    /// What is not, and why.
    missing: Vec<(String, String)>,
}

pub(super) fn failed(error: &io::Error) -> Problem {
    let place = std::env::temp_dir();
    Problem::other(format!("cannot write a temporary file in {}: {error}", place.display()))
        .with_remedy("Make room there, or name another folder by TMPDIR.")
}

impl Archive {
    pub(super) fn begin(folder: &str, at: Timestamp, secrets: SecretPatterns) -> Result<Self, Problem> {
        let file = tempfile::tempfile().map_err(|error| failed(&error))?;
        let tar = Builder::new(GzEncoder::new(file, Compression::default()));
        let folder = folder.to_owned();
        Ok(Self { tar, folder, at, secrets, there: Vec::new(), missing: Vec::new() })
    }

    /// Adds a part, without what looks like a secret.
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
        self.tar.append_data(&mut header, path, bytes).map_err(|error| failed(&error))
    }

    /// What is in it and what is not, for people.
    pub(super) fn list(&self) -> Result<String, Problem> {
        let total: u64 = self.there.iter().map(|(_, bytes, _)| bytes).sum();
        let there = self.there.iter().map(|(name, bytes, note)| {
            vec![format!("  {name}"), size(*bytes), note.clone().unwrap_or_default()]
        });
        let mut text = format!("In it, {} without what may be secret:\n{}", size(total), aligned(there)?);
        if !self.missing.is_empty() {
            let missing = self.missing.iter().map(|(name, why)| vec![format!("  {name}"), why.clone()]);
            text = text + "Not in it:\n" + &aligned(missing)?;
        }
        Ok(text)
    }

    /// Puts the list in, too. The file stands at its beginning; its length (bytes).
    pub(super) fn end(mut self, list: &str) -> Result<(File, u64), Problem> {
        self.append("contents.txt", list.as_bytes())?;
        let ended = self.tar.into_inner().and_then(GzEncoder::finish).and_then(|mut file| {
            let length = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(0))?;
            Ok((file, length))
        });
        ended.map_err(|error| failed(&error))
    }
}
