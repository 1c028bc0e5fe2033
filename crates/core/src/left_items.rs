//! Items of a restore that were there, differ from the backup, and were left as they are. Pure.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::text::{counted, listed};

/// Items that are named; the others are counted.
const NAMED: usize = 8;

/// What lies in our annotation of a Restore, as Velero's status has no field for it: its results have a warning for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftItems {
    /// How many there are.
    pub left: usize,
    /// Some of them: `ConfigMap shop/settings`, `ClusterRole view`.
    pub items: BTreeSet<String>,
}

impl LeftItems {
    /// One more item, by its namespace and name in the cluster.
    pub fn add(&mut self, kind: &str, namespace: Option<&str>, name: &str) {
        self.left += 1;
        if self.items.len() < NAMED {
            let namespace = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
            self.items.insert(format!("{kind} {namespace}{name}"));
        }
    }

    /// What is in the annotation; none if there is none, or it cannot be read.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        serde_json::from_str(annotation?).ok()
    }

    /// None where no item was left.
    pub fn annotation(&self) -> Option<String> {
        (self.left > 0).then(|| serde_json::to_string(self).unwrap_or_default())
    }
}

impl fmt::Display for LeftItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { left, items } = self;
        let named: Vec<&str> = items.iter().map(String::as_str).collect();
        let (differ, were) =
            if *left == 1 { ("differs", "was left as it is") } else { ("differ", "were left as they are") };
        write!(
            f,
            "{} that {differ} from the backup {were}: {}",
            counted(*left, "item"),
            listed(&named, *left)
        )
    }
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
            "1 item that differs from the backup was left as it is: ConfigMap shop/settings"
        );
        assert_eq!(LeftItems::read(left.annotation().as_deref()), Some(left.clone()));
        assert_eq!(LeftItems::read(Some("[]")), None);
        (0..30).for_each(|n| left.add("ClusterRole", None, &format!("role-{n:02}")));
        let text = left.to_string();
        assert!(text.starts_with("31 items that differ from the backup were left as they are: "), "{text}");
        assert!(text.ends_with("ConfigMap shop/settings and 23 more"), "{text}");
    }
}
