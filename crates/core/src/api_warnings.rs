//! Warnings in the answers of an API server, each reported once. Pure.

use std::collections::HashSet;

/// Maximum number of warnings that are reported; further ones are dropped.
pub const MAX_WARNINGS: usize = 64;

/// The warnings that were met so far.
#[derive(Debug, Default)]
pub struct SeenWarnings {
    seen: HashSet<String>,
    new: Vec<String>,
}

impl SeenWarnings {
    /// Adds a warning, unless it was met before or there are too many. `sentence` makes its
    /// message.
    pub fn add(&mut self, warning: String, sentence: impl FnOnce(&str) -> String) {
        if self.seen.len() >= MAX_WARNINGS || self.seen.contains(&warning) {
            return;
        }
        self.new.push(sentence(&warning));
        self.seen.insert(warning);
    }

    /// Takes the messages that were not taken before.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}

/// The text of a `Warning` header (RFC 7234, `299 - "text"`), as API servers send it.
pub fn text(header: &str) -> Option<String> {
    let (_, quoted) = header.split_once('"')?;
    let mut text = String::new();
    let mut chars = quoted.chars();
    while let Some(next) = chars.next() {
        match next {
            '"' => break,
            '\\' => text.extend(chars.next()),
            other => text.push(other),
        }
    }
    Some(text)
}
