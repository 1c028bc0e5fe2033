//! Objects to which actions or resource modifiers have given another name or type than their items
//! have: the backup has them, although not under this name.

use std::collections::HashSet;

use parking_lot::Mutex;

/// Maximum number of names that are kept; with more, nothing is removed.
const MAX_RENAMED_ITEMS: usize = 100_000;

#[derive(Debug, Default)]
pub(in crate::restore::work) struct RenamedItems {
    names: Mutex<HashSet<String>>,
}

impl RenamedItems {
    /// Records an object by its type, namespace and name in the cluster.
    pub(in crate::restore::work) fn add(&self, group_resource: &str, namespace: &str, name: &str) {
        let mut names = self.names.lock();
        if names.len() < MAX_RENAMED_ITEMS {
            names.insert(key(group_resource, namespace, name));
        }
    }

    pub(super) fn contains(&self, group_resource: &str, namespace: &str, name: &str) -> bool {
        let names = self.names.lock();
        !names.is_empty() && names.contains(&key(group_resource, namespace, name))
    }

    /// Whether some names may not have been recorded.
    pub(super) fn is_full(&self) -> bool {
        self.names.lock().len() >= MAX_RENAMED_ITEMS
    }
}

fn key(group_resource: &str, namespace: &str, name: &str) -> String {
    format!("{group_resource}/{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_is_known_in_its_place_and_the_number_is_bounded() {
        let renamed = RenamedItems::default();
        renamed.add("configmaps", "shop", "b");
        assert!(renamed.contains("configmaps", "shop", "b"));
        for (group_resource, namespace, name) in [
            ("secrets", "shop", "b"),
            ("configmaps", "bank", "b"),
            ("configmaps", "shop", "c"),
        ] {
            assert!(!renamed.contains(group_resource, namespace, name));
        }
        assert!(!renamed.is_full());
        (0..MAX_RENAMED_ITEMS).for_each(|n| renamed.add("pods", "shop", &n.to_string()));
        assert!(renamed.is_full());
    }
}
