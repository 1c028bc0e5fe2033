//! Items that after a restore differ from the backup: existing items that were left unchanged,
//! items that the API server has stored without some of their fields, and items that were left out
//! on purpose. Also counts objects that the restore has removed. Pure.

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
    /// Items that were left out on purpose, such as a Job that had ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutItems>,
    /// Number of further items that were left out, for other reasons.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out_otherwise: usize,
    /// Number of objects that were removed because the backup does not have them (`spec.prune`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed: usize,
    /// Number of items that were not restored, as the errors of the restore say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: usize,
}

/// Items of one kind that a restore has left out for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutItems {
    pub kind: String,
    pub count: usize,
    /// A clause: "the job had completed".
    pub reason: String,
}

impl fmt::Display for LeftOutItems {
    /// "2 Job: the job had completed".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            count,
            reason,
        } = self;
        write!(f, "{count} {kind}: {reason}")
    }
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

    /// The annotation; `None` if every item of the backup was restored, and equals it, and nothing was
    /// removed.
    pub fn annotation(&self) -> Option<String> {
        let has_counts = !self.left_out.is_empty() || self.removed > 0 || self.failed > 0;
        (self.differs() || has_counts).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Whether items in the cluster differ from the backup. Items that were left out do not count:
    /// they would do harm, or the cluster makes them. Nor do removed objects.
    pub fn differs(&self) -> bool {
        self.left + self.incomplete > 0
    }

    /// Number of items that were left out.
    pub fn left_out_items(&self) -> usize {
        let listed: usize = self.left_out.iter().map(|one| one.count).sum();
        listed + self.left_out_otherwise
    }

    /// The items that were left out, a line for each kind and reason.
    pub fn left_out_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.left_out.iter().map(ToString::to_string).collect();
        if self.left_out_otherwise > 0 {
            lines.push(format!("and {} for other reasons", self.left_out_otherwise));
        }
        lines
    }
}

/// The items that differ.
impl fmt::Display for LeftItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            left,
            items,
            incomplete,
            incomplete_items,
            ..
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
            (removed.differs(), removed.to_string()),
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

    #[test]
    fn items_that_were_left_out_are_counted_by_kind_and_reason_and_are_no_difference() {
        let group = |kind: &str, count, reason: &str| LeftOutItems {
            kind: kind.to_owned(),
            count,
            reason: reason.to_owned(),
        };
        let left = LeftItems {
            left_out: vec![
                group("Job", 2, "the job had completed"),
                group("Pod", 1, "the pod had ended"),
            ],
            left_out_otherwise: 7,
            ..LeftItems::default()
        };
        assert_eq!(
            left.left_out_lines(),
            [
                "2 Job: the job had completed",
                "1 Pod: the pod had ended",
                "and 7 for other reasons"
            ]
        );
        assert_eq!(
            LeftItems::read(left.annotation().as_deref()),
            Some(left.clone())
        );
        assert!(!left.differs() && left.to_string().is_empty());
    }
}
