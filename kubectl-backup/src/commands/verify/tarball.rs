//! Compares the contents of a tarball with the list of items that is stored beside it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io::Read,
};

use backup_core::{results::Results, text::counted};
use backup_store::{
    StoreError,
    tarball::{Entry, MAX_TOTAL, walk},
};
use serde::Deserialize;

use crate::{print::plain, view::ResourceList};

/// Maximum number of names in a sentence; the others are counted.
const MAX_NAMES: usize = 5;

/// The items of a tarball, by `group/version/Kind namespace/name`. Keeps only names, not the
/// contents of items.
#[derive(Debug, Default)]
pub(super) struct Tarball {
    items: HashMap<String, Forms>,
    version: Option<String>,
    unreadable: Names,
    misplaced: Names,
}

/// The paths under which an item is stored.
#[derive(Debug, Default)]
struct Forms {
    plain: bool,
    preferred: bool,
    other: bool,
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

/// Reads a tarball to its end. Fails if it cannot be read; the error says where.
pub(super) fn read(name: &str, source: impl Read) -> Result<Tarball, StoreError> {
    let mut tarball = Tarball::default();
    walk(
        &format!("the tarball of {name}"),
        source,
        MAX_TOTAL,
        |entry, json| {
            tarball.see(entry, json);
            Ok(())
        },
    )?;
    Ok(tarball)
}

impl Tarball {
    fn see(&mut self, entry: &Entry<'_>, json: &[u8]) {
        let (namespace, name) = match *entry {
            Entry::Item {
                namespace, name, ..
            }
            | Entry::Versioned {
                namespace, name, ..
            } => (namespace, name),
            Entry::Version => {
                self.version = Some(String::from_utf8_lossy(json).trim().to_owned());
                return;
            }
            Entry::Other => return,
        };
        let path = namespace.map_or_else(
            || name.to_owned(),
            |namespace| format!("{namespace}/{name}"),
        );
        let head: Head = match serde_json::from_slice(json) {
            Ok(head) => head,
            Err(error) => return self.unreadable.add(&format!("{path}: {error}")),
        };
        let key = format!("{}/{} {path}", head.api_version, head.kind);
        if head.metadata.name != name || head.metadata.namespace.as_deref() != namespace {
            self.misplaced.add(&key);
        }
        let forms = self.items.entry(key).or_default();
        match *entry {
            Entry::Versioned {
                preferred: true, ..
            } => forms.preferred = true,
            Entry::Versioned { .. } => forms.other = true,
            _ => forms.plain = true,
        }
    }

    /// For example "4812 items of 31 types".
    pub(super) fn summary(&self) -> String {
        let types: BTreeSet<&str> = self
            .items
            .keys()
            .filter_map(|key| key.split(' ').next())
            .collect();
        format!(
            "{} of {}",
            counted(self.items.len(), "item"),
            counted(types.len(), "type")
        )
    }

    /// Findings, one sentence each. An item that an error of the backup names may be missing.
    pub(super) fn findings(
        &self,
        list: Option<&ResourceList>,
        results: Option<&Results>,
    ) -> Vec<String> {
        let version = match &self.version {
            Some(_) => None,
            None => {
                Some("it does not say which version its layout has (metadata/version)".to_owned())
            }
        };
        let half = self.half();
        let (missing, extra) = list
            .map(|list| self.compared(list, results))
            .unwrap_or_default();
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
                &half,
                "is there in one of its two forms only",
                "are there in one of their two forms only",
            ),
            (
                &missing,
                "is listed and not in it",
                "are listed and not in it",
            ),
            (
                &extra,
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

    /// Items of which only one of two copies exists: the preferred version is stored with and
    /// without the version in the path. The first layout had no versions.
    fn half(&self) -> Names {
        let both = self.version.as_deref() != Some("1");
        let halves = self
            .items
            .iter()
            .filter(|(_, forms)| both && forms.plain != forms.preferred);
        Names::sorted(halves.map(|(key, _)| key.as_str()))
    }

    /// Items that are listed but missing, and items that exist but are not listed.
    fn compared(&self, list: &ResourceList, results: Option<&Results>) -> (Names, Names) {
        let listed: HashSet<String> = list
            .iter()
            .flat_map(|(kind, all)| all.iter().map(move |name| format!("{kind} {name}")))
            .collect();
        let named = results.map(words).unwrap_or_default();
        let missing = listed
            .iter()
            .map(String::as_str)
            .filter(|key| !self.items.contains_key(*key) && !is_named(key, &named));
        let extra = self
            .items
            .keys()
            .map(String::as_str)
            .filter(|key| !listed.contains(*key));
        (Names::sorted(missing), Names::sorted(extra))
    }
}

/// Whether the name of the item is one of the words.
fn is_named(key: &str, words: &HashSet<&str>) -> bool {
    key.rsplit(['/', ' '])
        .next()
        .is_some_and(|name| words.contains(name))
}

/// The words of all errors. A Velero server lists an item before saving it, and if that fails
/// reports an error with its name.
fn words(results: &Results) -> HashSet<&str> {
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

/// Names for a sentence: the first few, and the total number.
#[derive(Debug, Default)]
struct Names {
    first: Vec<String>,
    count: usize,
}

impl Names {
    fn add(&mut self, name: &str) {
        self.count += 1;
        if self.first.len() < MAX_NAMES {
            self.first.push(plain(name));
        }
    }

    fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut all: Vec<&str> = names.collect();
        all.sort_unstable();
        let mut sorted = Self::default();
        for name in all {
            sorted.add(name);
        }
        sorted
    }

    fn sentence(&self, one: &str, many: &str) -> Option<String> {
        let named = self.first.join(", ");
        let more = self.count - self.first.len();
        if more > 0 {
            return Some(format!("{named} and {more} more {many}"));
        }
        match self.count {
            0 => None,
            1 => Some(format!("{named} {one}")),
            _ => Some(format!("{named} {many}")),
        }
    }
}

#[cfg(test)]
mod tests;
