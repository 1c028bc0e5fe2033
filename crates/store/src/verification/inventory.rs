//! Compares the contents of a backup with the list of items that is stored beside it.
//!
//! Holds some 40 bytes for each item: a hash of its type and name, and in which forms it was seen.
//! So the list is read twice if something is wrong: before the contents, and after them for the
//! names.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io::Read,
};

use backup_core::{
    results::Results,
    text::{counted, plain},
};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::{
    StoreError,
    tarball::{Entry, walk},
};

/// Maximum number of names in a sentence; the others are counted.
const MAX_NAMES: usize = 5;

/// The list names the item.
const LISTED: u8 = 1;
/// The item is at the path without a version.
const PLAIN: u8 = 1 << 1;
/// The item is at the path with its version, which is the preferred one.
const PREFERRED: u8 = 1 << 2;
/// The item is at the path of another version.
const OTHER: u8 = 1 << 3;
/// A sentence names the item, or counts it.
const COUNTED: u8 = 1 << 4;

/// A hash of a type and a name. As bytes it needs no padding in a table.
type ItemHash = [u8; 16];

fn hash(kind: &str, item: &str) -> ItemHash {
    let digest = Sha256::new()
        .chain_update(kind)
        .chain_update(" ")
        .chain_update(item)
        .finalize();
    let mut hash = ItemHash::default();
    hash.iter_mut()
        .zip(digest)
        .for_each(|(to, from)| *to = from);
    hash
}

/// The items of a list and of a tarball.
#[derive(Debug)]
pub struct Inventory {
    /// Maximum number of items.
    max: usize,
    items: HashMap<ItemHash, u8>,
    /// Whether there is a list.
    has_list: bool,
    /// Number of items in the tarball.
    stored: usize,
    types: HashSet<ItemHash>,
    version: Option<String>,
    unreadable: Names,
    misplaced: Names,
    half: Names,
    missing: Names,
    extra: Names,
}

/// The fields of an item that are needed; the others are skipped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

impl Inventory {
    /// Of at most `max` items. With a list, [`Self::add_listed`] follows for each of its items.
    pub fn new(has_list: bool, max: usize) -> Self {
        Self {
            max,
            items: HashMap::new(),
            has_list,
            stored: 0,
            types: HashSet::new(),
            version: None,
            unreadable: Names::default(),
            misplaced: Names::default(),
            half: Names::default(),
            missing: Names::default(),
            extra: Names::default(),
        }
    }

    /// Adds an item of the list: its type, as `<apiVersion>/<Kind>`, and its name, with the
    /// namespace before it. Errors: there are more items than the maximum.
    pub fn add_listed(&mut self, kind: &str, item: &str) -> Result<(), String> {
        *self.items.entry(hash(kind, item)).or_default() |= LISTED;
        self.check()
    }

    /// Number of items in the list and the tarball.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn check(&self) -> Result<(), String> {
        let Self { max, items, .. } = self;
        if items.len() > *max {
            return Err(format!(
                "there are more than {max} items, the most that the controller restores with its memory; if they are meant to \
                 be so many, raise its --restore-max-items and its memory limit"
            ));
        }
        Ok(())
    }

    /// Reads a tarball to its end; `url` names it. Fails if it cannot be read, or unpacks to more
    /// than `max_bytes`; the error says where.
    pub fn read(&mut self, url: &str, source: impl Read, max_bytes: u64) -> Result<(), StoreError> {
        walk(url, source, max_bytes, |entry, json| {
            self.add(entry, json).map_err(|detail| StoreError::Corrupt {
                url: url.to_owned(),
                detail,
            })
        })
    }

    fn add(&mut self, entry: &Entry<'_>, json: &[u8]) -> Result<(), String> {
        let (namespace, name) = match *entry {
            Entry::Item {
                namespace, name, ..
            }
            | Entry::Versioned {
                namespace, name, ..
            } => (namespace, name),
            Entry::Version => {
                self.version = Some(String::from_utf8_lossy(json).trim().to_owned());
                return Ok(());
            }
            Entry::Other => return Ok(()),
        };
        let path = namespace.map_or_else(
            || name.to_owned(),
            |namespace| format!("{namespace}/{name}"),
        );
        let head: Head = match serde_json::from_slice(json) {
            Ok(head) => head,
            Err(error) => {
                self.unreadable.add(&format!("{path}: {error}"));
                return Ok(());
            }
        };
        let kind = format!("{}/{}", head.api_version, head.kind);
        if head.metadata.name != name || head.metadata.namespace.as_deref() != namespace {
            self.misplaced.add(&title(&kind, &path));
        }
        let form = match *entry {
            Entry::Versioned {
                preferred: true, ..
            } => PREFERRED,
            Entry::Versioned { .. } => OTHER,
            _ => PLAIN,
        };
        let flags = self.items.entry(hash(&kind, &path)).or_default();
        let before = *flags;
        *flags |= form;
        if before & !LISTED == 0 {
            self.stored += 1;
            self.types.insert(hash(&kind, ""));
            if self.has_list && before & LISTED == 0 {
                self.extra.add(&title(&kind, &path));
            }
        }
        self.check()
    }

    /// For example "4812 items of 31 types".
    pub fn summary(&self) -> String {
        format!(
            "{} of {}",
            counted(self.stored, "item"),
            counted(self.types.len(), "type")
        )
    }

    /// Whether names of the list are needed for sentences.
    pub fn needs_names(&self) -> bool {
        self.items
            .values()
            .any(|flags| self.is_missing(*flags) || self.is_half(*flags))
    }

    fn is_missing(&self, flags: u8) -> bool {
        self.has_list && flags & (PLAIN | PREFERRED | OTHER) == 0
    }

    /// Whether only one of two copies exists: the preferred version is stored with and without the
    /// version in the path. The first layout had no versions.
    fn is_half(&self, flags: u8) -> bool {
        let has_both = self.version.as_deref() != Some("1");
        let is_one = (flags & PLAIN == 0) != (flags & PREFERRED == 0);
        has_both && is_one
    }

    /// Compares an item of the list with the tarball. An item that is among the `excused` words may
    /// be missing: see [`error_words`].
    pub fn compare(&mut self, kind: &str, item: &str, excused: &BTreeSet<&str>) {
        let key = hash(kind, item);
        let Some(flags) = self.items.get(&key).copied() else {
            return;
        };
        if flags & COUNTED != 0 {
            return;
        }
        if self.is_missing(flags) {
            let name = item.rsplit('/').next().unwrap_or(item);
            if !excused.contains(name) {
                self.missing.add(&title(kind, item));
            }
        } else if self.is_half(flags) {
            self.half.add(&title(kind, item));
        }
        self.items.insert(key, flags | COUNTED);
    }

    /// The findings, one sentence each.
    pub fn findings(mut self) -> Vec<String> {
        let items = self.items.values();
        // Items that the list does not name.
        let unnamed = items
            .filter(|flags| **flags & COUNTED == 0 && self.is_half(**flags))
            .count();
        self.half.count += unnamed;
        let version = match &self.version {
            Some(_) => None,
            None => {
                Some("it does not say which version its layout has (metadata/version)".to_owned())
            }
        };
        let sentences = [
            (
                &self.unreadable,
                "is no JSON of an object",
                "are no JSON of an object",
            ),
            (
                &self.misplaced,
                "lies at the path of another",
                "lie at paths of others",
            ),
            (
                &self.half,
                "is there in one of its two forms only",
                "are there in one of their two forms only",
            ),
            (
                &self.missing,
                "is listed and not in it",
                "are listed and not in it",
            ),
            (
                &self.extra,
                "is in it and not listed",
                "are in it and not listed",
            ),
        ];
        version
            .into_iter()
            .chain(
                sentences
                    .into_iter()
                    .filter_map(|(names, one, many)| names.sentence(one, many)),
            )
            .collect()
    }
}

fn title(kind: &str, item: &str) -> String {
    format!("{kind} {item}")
}

/// The words of all errors of a backup. A Velero server lists an item before saving it, and if that
/// fails reports an error with its name.
pub fn error_words(results: &Results) -> BTreeSet<&str> {
    let errors = &results.errors;
    let all = errors
        .velero
        .iter()
        .chain(&errors.cluster)
        .chain(errors.namespaces.values().flatten());
    all.flat_map(|text| text.split(separates_words))
        .map(|word| word.trim_matches('.'))
        .collect()
}

fn separates_words(c: char) -> bool {
    !(c.is_alphanumeric() || matches!(c, '-' | '.' | '_'))
}

/// Names for a sentence: the first few in their order, and the total number.
#[derive(Debug, Default)]
struct Names {
    first: BTreeSet<String>,
    count: usize,
}

impl Names {
    fn add(&mut self, name: &str) {
        // An item has two entries.
        if !self.first.insert(plain(name)) {
            return;
        }
        self.count += 1;
        if self.first.len() > MAX_NAMES {
            self.first.pop_last();
        }
    }

    fn sentence(&self, one: &str, many: &str) -> Option<String> {
        let first: Vec<&str> = self.first.iter().map(String::as_str).collect();
        let named = first.join(", ");
        let more = self.count.saturating_sub(self.first.len());
        match (self.first.len(), more) {
            (0, 0) => None,
            (1, 0) => Some(format!("{named} {one}")),
            (_, 0) => Some(format!("{named} {many}")),
            (0, 1) => Some(format!("1 item {one}")),
            (0, more) => Some(format!("{more} items {many}")),
            (_, more) => Some(format!("{named} and {more} more {many}")),
        }
    }
}

#[cfg(test)]
mod tests;
