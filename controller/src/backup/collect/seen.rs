//! What has been written of a type, so that nothing is written twice: a list may begin again, selectors may overlap.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

/// Names, as 16 bytes each. Two names of one backup share them with a probability far below that of a broken disk.
#[derive(Debug, Default)]
pub struct Seen {
    hashers: [RandomState; 2],
    names: HashSet<u128>,
}

impl Seen {
    /// Remembers a name; false if it was there before.
    pub fn insert(&mut self, namespace: Option<&str>, name: &str) -> bool {
        let [high, low] =
            self.hashers.each_ref().map(|hasher| u128::from(hasher.hash_one((namespace, name))));
        self.names.insert(high << 64 | low)
    }

    /// Forgets everything: another type begins.
    pub fn clear(&mut self) {
        self.names.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_new_once_in_each_namespace() {
        let mut seen = Seen::default();
        assert!(seen.insert(Some("a"), "x"));
        assert!(!seen.insert(Some("a"), "x"));
        assert!(seen.insert(Some("b"), "x"));
        assert!(seen.insert(None, "x"));
        assert!(seen.insert(Some("ab"), "c") && seen.insert(Some("a"), "bc"));
        seen.clear();
        assert!(seen.insert(Some("a"), "x"));
    }
}
