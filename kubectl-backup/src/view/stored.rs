//! The contents of a backup's or restore's stored files.

pub(crate) mod operations;
pub(crate) mod volumes;

use std::{collections::BTreeMap, fmt::Write as _};

use backup_core::results::{ResultSet, Results};
use serde::{Deserialize, Serialize};

use self::{operations::OperationView, volumes::VolumeView};
use crate::{fetched::FetchResult, print::plain};

/// The files in the form in which they are shown; null if there is nothing to read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileContents {
    pub(crate) messages: FetchResult<Option<Messages>>,
    /// Asynchronous operations, the ones that need attention first.
    pub(crate) item_operations: FetchResult<Option<Vec<OperationView>>>,
    pub(crate) contents: FetchResult<Option<Contents>>,
    /// The outcome for the data of volumes.
    pub(crate) volumes: FetchResult<Option<Vec<VolumeView>>>,
    #[serde(skip)]
    pub(crate) files: FilesState,
}

/// Whether the files of a backup existed when they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FilesState {
    #[default]
    Unread,
    Found,
    Missing,
    /// They are not in the expected format.
    Bad,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Results")]
pub(crate) struct Messages {
    pub(crate) errors: Vec<Message>,
    pub(crate) warnings: Vec<Message>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) count: usize,
    /// Namespaces that it concerns, sorted; empty if it concerns something else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) namespaces: Vec<String>,
}

impl Messages {
    /// Whether an error says this.
    pub(crate) fn say(&self, text: &str) -> bool {
        self.say_first(text, usize::MAX)
    }

    /// The same, for the first `count` errors.
    pub(crate) fn say_first(&self, text: &str, count: usize) -> bool {
        let text = plain(text);
        // Long reasons are shortened.
        let text = text.trim_end_matches('…');
        let mut errors = self.errors.iter().take(count);
        !text.is_empty() && errors.any(|error| error.text.contains(text))
    }
}

impl From<Results> for Messages {
    fn from(results: Results) -> Self {
        Self {
            errors: grouped(&results.errors),
            warnings: grouped(&results.warnings),
        }
    }
}

/// Groups messages: the most frequent first, then in the order of the file; messages about the
/// whole come before those about namespaces.
fn grouped(set: &ResultSet) -> Vec<Message> {
    let whole = set
        .velero
        .iter()
        .chain(&set.cluster)
        .map(|text| (None, text));
    let namespaced = set
        .namespaces
        .iter()
        .flat_map(|(name, all)| all.iter().map(move |text| (Some(name), text)));
    let mut messages: Vec<Message> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (namespace, text) in whole.chain(namespaced) {
        let place = *places.entry(text).or_insert(messages.len());
        if place == messages.len() {
            messages.push(Message {
                text: plain(text),
                count: 0,
                namespaces: Vec::new(),
            });
        }
        let Some(message) = messages.get_mut(place) else {
            continue;
        };
        message.count += 1;
        if let Some(name) = namespace.filter(|name| message.namespaces.last() != Some(*name)) {
            message.namespaces.push(plain(name));
        }
    }
    messages.sort_by_key(|message| std::cmp::Reverse(message.count));
    messages
}

/// Outcomes of items in a restore's list, which follow the item's name (Velero
/// `pkg/restore/restore.go`, v1.18); the last one is ours.
const OUTCOMES: [&str; 5] = ["created", "updated", "failed", "skipped", REMOVED];
/// The outcome of an object that the backup does not have.
const REMOVED: &str = "removed";

/// The stored form of the list: names by `group/version/Kind`.
pub(crate) type ResourceList = BTreeMap<String, Vec<String>>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "ResourceList")]
pub(crate) struct Contents {
    pub(crate) kinds: Vec<ItemType>,
    /// Number of items by outcome; empty for a backup.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) outcomes: BTreeMap<&'static str, usize>,
    /// Objects that the restore has removed, or in a plan would remove: "ConfigMap shop/extra". They
    /// are no items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) removed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ItemType {
    pub(crate) kind: String,
    pub(crate) count: usize,
    /// `namespace/name` or `name`; for a restore followed by the outcome in parentheses.
    pub(crate) items: Vec<String>,
}

impl ItemType {
    /// "12 Pod".
    fn summary(&self) -> String {
        let kind = self.kind.rsplit('/').next().unwrap_or_default();
        format!("{} {kind}", self.count)
    }
}

impl From<ResourceList> for Contents {
    fn from(list: ResourceList) -> Self {
        let mut contents = Self::default();
        for (kind, all) in list {
            let mut items = Vec::new();
            for item in &all {
                let outcome = item
                    .strip_suffix(')')
                    .and_then(|item| item.rsplit_once('('));
                let known = outcome.and_then(|(name, what)| {
                    let outcome = OUTCOMES.into_iter().find(|known| *known == what)?;
                    Some((name, outcome))
                });
                if let Some((_, outcome)) = known {
                    *contents.outcomes.entry(outcome).or_default() += 1;
                }
                if let Some((name, REMOVED)) = known {
                    let kind = kind.rsplit('/').next().unwrap_or_default();
                    contents.removed.push(plain(&format!("{kind} {name}")));
                } else {
                    items.push(plain(item));
                }
            }
            if items.is_empty() && !all.is_empty() {
                continue;
            }
            contents.kinds.push(ItemType {
                kind: plain(&kind),
                count: items.len(),
                items,
            });
        }
        contents
            .kinds
            .sort_by_key(|kind| std::cmp::Reverse(kind.count));
        contents
    }
}

impl Contents {
    /// "12 Pod, 10 Secret, 8 ConfigMap and 7 items of 4 other types"; names up to `most` types, or
    /// one more if that is all.
    pub(crate) fn summary(&self, most: usize) -> String {
        let named = if self.kinds.len() == most + 1 {
            most + 1
        } else {
            most
        };
        let mut text = self
            .kinds
            .iter()
            .take(named)
            .map(ItemType::summary)
            .collect::<Vec<_>>()
            .join(", ");
        let rest = self.kinds.get(named..).unwrap_or_default();
        if !rest.is_empty() {
            let items: usize = rest.iter().map(|kind| kind.count).sum();
            let _ = write!(text, " and {items} of {} other types", rest.len());
        }
        text
    }

    /// "40 created, 8 skipped"; empty for a backup.
    pub(crate) fn outcomes(&self) -> String {
        OUTCOMES
            .iter()
            .filter_map(|outcome| {
                let count = self.outcomes.get(outcome)?;
                Some(format!("{count} {outcome}"))
            })
            .collect::<Vec<_>>()
            .join(", ")
    }
}

#[cfg(test)]
mod tests {
    use backup_core::results::Scope;

    use super::*;

    #[test]
    fn what_was_told_often_is_one_line_that_says_where() {
        let mut results = Results::default();
        results.error(Scope::Namespace("a"), "once");
        for namespace in ["a", "b", "b"] {
            results.error(Scope::Namespace(namespace), "often");
        }
        results.error(Scope::Velero, "whole\u{1b}[2J");
        let Messages { errors, warnings } = Messages::from(results);
        let seen: Vec<_> = errors
            .iter()
            .map(|one| (one.text.as_str(), one.count, one.namespaces.join(",")))
            .collect();
        let expected = [
            ("often", 3, "a,b".to_owned()),
            ("whole [2J", 1, String::new()),
            ("once", 1, "a".to_owned()),
        ];
        assert_eq!(seen, expected);
        assert!(warnings.is_empty());
    }

    #[test]
    fn items_are_counted_by_type_and_by_what_was_done() {
        let list = |kind: &str, items: &[&str]| {
            (
                kind.to_owned(),
                items.iter().map(|item| (*item).to_owned()).collect(),
            )
        };
        let restored = Contents::from(ResourceList::from([
            list("v1/Namespace", &["a(created)"]),
            list("v1/Pod", &["a/x(created)", "a/y(failed)", "a/z(2)"]),
            list("apps/v1/Deployment", &["a/d(skipped)", "a/e(created)"]),
            list("v1/ConfigMap", &["a/extra(removed)"]),
        ]));
        assert_eq!(restored.summary(1), "3 Pod and 3 of 2 other types");
        assert_eq!(restored.summary(3), "3 Pod, 2 Deployment, 1 Namespace");
        assert_eq!(
            restored.outcomes(),
            "3 created, 1 failed, 1 skipped, 1 removed"
        );
        assert_eq!(restored.removed, ["ConfigMap a/extra"]);
        assert_eq!(
            Contents::default().outcomes() + &Contents::default().summary(3),
            ""
        );
    }
}
