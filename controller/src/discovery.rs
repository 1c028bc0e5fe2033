//! API groups without anything to back up, as learned from discovery.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use backup_client::discovery::{ReadError, ServedTypes};
use parking_lot::Mutex;

/// API groups without creatable types, learned from discovery.
#[derive(Debug)]
pub(crate) struct KnownGroups {
    /// Whether a group has creatable types, by name.
    seen: Mutex<BTreeMap<String, bool>>,
    /// Groups assumed to have none until discovered.
    named: BTreeSet<String>,
}

impl KnownGroups {
    pub(crate) fn new(named: impl IntoIterator<Item = String>) -> Self {
        Self {
            seen: Mutex::default(),
            named: named.into_iter().collect(),
        }
    }

    /// Records the groups that have answered.
    pub(crate) fn note(&self, served: &ServedTypes) {
        let mut now: BTreeMap<&str, bool> = BTreeMap::new();
        for resource in served.all() {
            let creatable = resource.verbs.iter().any(|verb| verb == "create");
            *now.entry(&resource.group).or_default() |= creatable;
        }
        let mut seen = self.seen.lock();
        for (group, creatable) in now {
            match seen.get_mut(group) {
                Some(known) => *known = creatable,
                None => drop(seen.insert(group.to_owned(), creatable)),
            }
        }
    }

    /// Whether a backup is complete without this `group/version`.
    pub(crate) fn has_nothing_to_back_up(&self, group_version: &str) -> bool {
        let group = group_version.split('/').next().unwrap_or_default();
        self.seen
            .lock()
            .get(group)
            .map_or_else(|| self.named.contains(group), |creatable| !creatable)
    }
}

#[cfg(test)]
mod tests;
