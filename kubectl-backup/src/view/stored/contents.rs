//! Items by type, from the list of resources that is stored beside the contents.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;

use crate::print::table::plain;

/// What a restore may have done with an item, as the list says behind its name (Velero `pkg/restore/restore.go`, v1.18).
const OUTCOMES: [&str; 4] = ["created", "updated", "failed", "skipped"];

/// The list as it is stored: names by `group/version/Kind`.
pub type ResourceList = BTreeMap<String, Vec<String>>;

/// All items.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Contents {
    /// The type with the most items first.
    pub kinds: Vec<Kind>,
    /// How often a restore did what; empty for a backup.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub outcomes: BTreeMap<&'static str, usize>,
}

/// Items of a type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kind {
    /// `apps/v1/Deployment`.
    pub kind: String,
    /// How many.
    pub count: usize,
    /// `namespace/name`, or `name`; of a restore with what was done behind it, in parentheses.
    pub items: Vec<String>,
}

impl From<ResourceList> for Contents {
    fn from(list: ResourceList) -> Self {
        let mut contents = Self::default();
        for (kind, items) in list {
            for item in &items {
                let outcome = item.strip_suffix(')').and_then(|item| item.rsplit_once('('));
                let known = outcome.and_then(|(_, what)| OUTCOMES.into_iter().find(|known| *known == what));
                if let Some(outcome) = known {
                    *contents.outcomes.entry(outcome).or_default() += 1;
                }
            }
            let items: Vec<String> = items.iter().map(|item| plain(item)).collect();
            contents.kinds.push(Kind { kind: plain(&kind), count: items.len(), items });
        }
        contents.kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
        contents
    }
}

impl Contents {
    /// "12 Pod, 10 Secret, 8 ConfigMap and 7 items of 4 other types"; so many types are named, or one more.
    pub fn summary(&self, most: usize) -> String {
        let named = if self.kinds.len() == most + 1 { most + 1 } else { most };
        let one =
            |kind: &Kind| format!("{} {}", kind.count, kind.kind.rsplit('/').next().unwrap_or_default());
        let mut text = self.kinds.iter().take(named).map(one).collect::<Vec<_>>().join(", ");
        let rest = || self.kinds.iter().skip(named);
        if rest().next().is_some() {
            let items: usize = rest().map(|kind| kind.count).sum();
            let _ = write!(text, " and {items} of {} other types", rest().count());
        }
        text
    }

    /// "40 created, 8 skipped"; empty for a backup.
    pub fn outcomes(&self) -> String {
        let one = |outcome: &&str| self.outcomes.get(*outcome).map(|count| format!("{count} {outcome}"));
        OUTCOMES.iter().filter_map(one).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_counted_by_type_and_by_what_was_done() {
        let list = |kind: &str, items: &[&str]| {
            (kind.to_owned(), items.iter().map(|item| (*item).to_owned()).collect())
        };
        let restored = Contents::from(ResourceList::from([
            list("v1/Namespace", &["a(created)"]),
            list("v1/Pod", &["a/x(created)", "a/y(failed)", "a/z(2)"]),
            list("apps/v1/Deployment", &["a/d(skipped)", "a/e(created)"]),
        ]));
        assert_eq!(restored.summary(1), "3 Pod and 3 of 2 other types");
        assert_eq!(restored.summary(3), "3 Pod, 2 Deployment, 1 Namespace");
        assert_eq!(restored.outcomes(), "3 created, 1 failed, 1 skipped");
        assert_eq!(Contents::default().outcomes() + &Contents::default().summary(3), "");
    }
}
