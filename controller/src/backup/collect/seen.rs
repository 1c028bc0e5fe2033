//! What has been taken up, so that nothing is written twice: a list may begin again, selectors may overlap, and items come
//! along with others, ahead of their turn or long after it.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
};

/// Names by type, as 16 bytes each (about 40 in memory at worst). Two names of one backup share them with a probability
/// far below that of a broken disk.
#[derive(Debug, Default)]
pub struct Seen {
    hashers: [RandomState; 2],
    types: HashMap<String, HashSet<u128>>,
}

impl Seen {
    /// Remembers a name; false if it was there before.
    pub fn insert(&mut self, group_resource: &str, namespace: Option<&str>, name: &str) -> bool {
        let hash = self.hash(namespace, name);
        match self.types.get_mut(group_resource) {
            Some(names) => names.insert(hash),
            None => self.types.entry(group_resource.to_owned()).or_default().insert(hash),
        }
    }

    /// Whether a name was there before.
    pub fn contains(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> bool {
        self.types.get(group_resource).is_some_and(|names| names.contains(&self.hash(namespace, name)))
    }

    fn hash(&self, namespace: Option<&str>, name: &str) -> u128 {
        let [high, low] =
            self.hashers.each_ref().map(|hasher| u128::from(hasher.hash_one((namespace, name))));
        high << 64 | low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_new_once_in_each_type_and_namespace() {
        let mut seen = Seen::default();
        assert!(seen.insert("pods", Some("a"), "x"));
        assert!(!seen.insert("pods", Some("a"), "x"));
        assert!(seen.contains("pods", Some("a"), "x") && !seen.contains("secrets", Some("a"), "x"));
        assert!(seen.insert("secrets", Some("a"), "x"));
        assert!(seen.insert("pods", Some("b"), "x"));
        assert!(seen.insert("pods", None, "x"));
        assert!(seen.insert("pods", Some("ab"), "c") && seen.insert("pods", Some("a"), "bc"));
    }
}
