//! Items that after a restore differ from the backup: existing items that were left unchanged, and
//! items that the API server has stored without some of their fields. Also counts objects that the
//! restore has removed. Pure.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::text::{counted, listed};

/// Maximum number of items that are named; the others are only counted.
const MAX_NAMED_ITEMS: usize = 8;

/// The content of our annotation of a Restore, as Velero's status has no field for it: its results
/// have a warning for each item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftItems {
    /// Number of items left unchanged.
    pub left: usize,
    /// Some of them: `ConfigMap shop/settings`, `ClusterRole view`.
    pub items: BTreeSet<String>,
    /// Number of items that were stored without some of their fields.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incomplete: usize,
    /// Some of them, in the same form.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub incomplete_items: BTreeSet<String>,
    /// Number of objects that were removed because the backup does not have them (`spec.prune`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed: usize,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn add(items: &mut BTreeSet<String>, kind: &str, namespace: Option<&str>, name: &str) {
    if items.len() < MAX_NAMED_ITEMS {
        let namespace = namespace
            .map(|namespace| format!("{namespace}/"))
            .unwrap_or_default();
        items.insert(format!("{kind} {namespace}{name}"));
    }
}

impl LeftItems {
    /// Adds an item, by its namespace and name in the cluster.
    pub fn add(&mut self, kind: &str, namespace: Option<&str>, name: &str) {
        self.left += 1;
        add(&mut self.items, kind, namespace, name);
    }

    /// Adds an item that was stored without some of its fields.
    pub fn add_incomplete(&mut self, kind: &str, namespace: Option<&str>, name: &str) {
        self.incomplete += 1;
        add(&mut self.incomplete_items, kind, namespace, name);
    }

    /// Reads the annotation; `None` if it is missing or unreadable.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        serde_json::from_str(annotation?).ok()
    }

    /// Whether an item differs from the backup.
    pub fn differ(&self) -> bool {
        self.left + self.incomplete > 0
    }

    /// The annotation; `None` if every item equals the backup, and nothing was removed.
    pub fn annotation(&self) -> Option<String> {
        (self.differ() || self.removed > 0).then(|| serde_json::to_string(self).unwrap_or_default())
    }
}

impl fmt::Display for LeftItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            left,
            items,
            incomplete,
            incomplete_items,
            removed: _,
        } = self;
        let mut sentences = Vec::new();
        if *left > 0 {
            let (differ, were) = if *left == 1 {
                ("differs", "was left unchanged")
            } else {
                ("differ", "were left as they are")
            };
            let items = names(items, *left);
            sentences.push(format!(
                "{} that {differ} from the backup {were}: {items}",
                counted(*left, "item")
            ));
        }
        if *incomplete > 0 {
            let were = if *incomplete == 1 {
                "was stored without some of its fields"
            } else {
                "were stored without some of their fields"
            };
            let items = names(incomplete_items, *incomplete);
            sentences.push(format!("{} {were}: {items}", counted(*incomplete, "item")));
        }
        f.write_str(&sentences.join(", and "))
    }
}

fn names(items: &BTreeSet<String>, total: usize) -> String {
    let names: Vec<&str> = items.iter().map(String::as_str).collect();
    listed(&names, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_were_left_are_counted_and_the_first_named() {
        let mut left = LeftItems::default();
        assert_eq!(left.annotation(), None);
        left.add("ConfigMap", Some("shop"), "settings");
        assert_eq!(
            left.to_string(),
            "1 item that differs from the backup was left unchanged: ConfigMap shop/settings"
        );
        assert_eq!(
            LeftItems::read(left.annotation().as_deref()),
            Some(left.clone())
        );
        assert_eq!(LeftItems::read(Some("[]")), None);
        let mut incomplete = LeftItems::default();
        incomplete.add_incomplete("Gateway", Some("shop"), "public");
        assert_eq!(
            incomplete.to_string(),
            "1 item was stored without some of its fields: Gateway shop/public"
        );
        assert_eq!(
            LeftItems::read(incomplete.annotation().as_deref()),
            Some(incomplete)
        );
        let removed = LeftItems {
            removed: 2,
            ..LeftItems::default()
        };
        assert_eq!(
            (removed.differ(), removed.to_string()),
            (false, String::new())
        );
        assert_eq!(
            LeftItems::read(removed.annotation().as_deref()),
            Some(removed)
        );
        (0..30).for_each(|n| left.add("ClusterRole", None, &format!("role-{n:02}")));
        let text = left.to_string();
        assert!(
            text.starts_with("31 items that differ from the backup were left as they are: "),
            "{text}"
        );
        assert!(
            text.ends_with("ConfigMap shop/settings and 23 more"),
            "{text}"
        );
    }
}
