//! The items that a backup or restore has handled, as listed in `-resource-list.json.gz`.
//!
//! Velero: `pkg/backup/backup.go` and `pkg/restore/request.go`, v1.18.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};

/// Names of items by `<apiVersion>/<Kind>`. Costs about one short string per item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ResourceList {
    kinds: BTreeMap<String, Vec<Box<str>>>,
}

impl ResourceList {
    /// Adds an item. `suffix` is what a restore did with it: `created`, `updated`, `failed`,
    /// `skipped`, or `removed` for an object that the backup does not have.
    pub fn add(
        &mut self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        suffix: Option<&str>,
    ) {
        let namespace = namespace
            .map(|namespace| format!("{namespace}/"))
            .unwrap_or_default();
        let suffix = suffix
            .map(|suffix| format!("({suffix})"))
            .unwrap_or_default();
        let entry = format!("{namespace}{name}{suffix}");
        self.kinds
            .entry(format!("{api_version}/{kind}"))
            .or_default()
            .push(entry.into_boxed_str());
    }

    /// Adds all items of another list; items in both are listed once.
    pub fn append(&mut self, other: Self) {
        for (kind, mut names) in other.kinds {
            let all = self.kinds.entry(kind).or_default();
            all.append(&mut names);
            all.sort_unstable();
            all.dedup();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Whether all of its items have this type, such as `v1/Namespace`.
    pub fn holds_only(&self, kind: &str) -> bool {
        self.kinds.keys().all(|held| held == kind)
    }

    pub fn len(&self) -> usize {
        self.kinds.values().map(Vec::len).sum()
    }
}

/// A map with sorted keys and sorted lists, each name once.
impl Serialize for ResourceList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.kinds.len()))?;
        for (kind, names) in &self.kinds {
            let mut names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
            names.sort_unstable();
            names.dedup();
            map.serialize_entry(kind, &names)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_whatever_the_order_of_adding() {
        let mut list = ResourceList::default();
        list.add("v1", "Pod", Some("b"), "x", None);
        list.add("apps/v1", "Deployment", Some("a"), "web", Some("created"));
        list.add("v1", "Pod", Some("a"), "z", None);
        list.add("v1", "Pod", Some("a"), "z", None);
        list.add("v1", "Namespace", None, "a", Some("skipped"));
        assert_eq!(
            serde_json::to_string(&list).unwrap(),
            r#"{"apps/v1/Deployment":["a/web(created)"],"v1/Namespace":["a(skipped)"],"v1/Pod":["a/z","b/x"]}"#
        );
        assert_eq!(list.len(), 5);
    }

    #[test]
    fn what_is_in_two_lists_counts_once() {
        let (mut list, mut again) = (ResourceList::default(), ResourceList::default());
        for name in ["b", "a"] {
            list.add("v1", "Pod", Some("n"), name, None);
        }
        for name in ["a", "c"] {
            again.add("v1", "Pod", Some("n"), name, None);
        }
        list.append(again);
        assert_eq!(list.len(), 3);
    }
}
