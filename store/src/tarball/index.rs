//! What a downloaded tarball holds.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    os::unix::fs::FileExt,
};

use sha2::{Digest, Sha256};

use crate::StoreError;

/// Marks a cluster-scoped item.
pub(super) const CLUSTER: u32 = u32::MAX;

/// Where an item is. Names are not kept: the object itself has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemRef {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) namespace: u32,
}

/// The items of a backup, on local disk in an unlinked temporary file. Holds about 40 bytes of memory per item.
#[derive(Debug)]
pub struct Contents {
    pub(super) url: String,
    pub(super) data: File,
    pub(super) namespaces: Vec<Box<str>>,
    pub(super) types: BTreeMap<String, Vec<ItemRef>>,
    /// Where an item is in the list of its type, by a hash of its path.
    pub(super) paths: HashMap<u128, u32>,
}

/// A hash of the path of an item: no two items have the same.
pub(super) fn path_hash(group_resource: &str, namespace: Option<&str>, name: &str) -> u128 {
    let mut hash = Sha256::new();
    for part in [group_resource, "/", namespace.unwrap_or_default(), "/", name] {
        hash.update(part);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&hash.finalize()[..16]);
    u128::from_le_bytes(id)
}

impl Contents {
    /// Resources with at least one item, as `<resource>[.<group>]`, sorted.
    pub fn types(&self) -> Vec<String> {
        self.types.keys().cloned().collect()
    }

    /// Namespaces with at least one item.
    pub fn namespaces(&self) -> BTreeSet<String> {
        self.namespaces.iter().map(ToString::to_string).collect()
    }

    /// The items of a resource, in the order of the tarball; empty if there are none.
    pub fn items(&self, group_resource: &str) -> &[ItemRef] {
        self.types.get(group_resource).map_or(&[], Vec::as_slice)
    }

    /// The item of this resource and name; none if it is not there.
    pub fn find(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> Option<ItemRef> {
        let at = self.paths.get(&path_hash(group_resource, namespace, name))?;
        self.items(group_resource).get(usize::try_from(*at).ok()?).copied()
    }

    /// The namespace of an item, as the tarball's path says; none for cluster-scoped items.
    pub fn namespace_of(&self, item: &ItemRef) -> Option<&str> {
        self.namespaces.get(usize::try_from(item.namespace).ok()?).map(AsRef::as_ref)
    }

    /// The JSON of an item. A short read from local disk; errors: that disk fails.
    pub fn read(&self, item: &ItemRef) -> Result<Vec<u8>, StoreError> {
        let mut json = vec![0; item.len as usize];
        self.data.read_exact_at(&mut json, item.offset).map_err(|error| {
            StoreError::io(&format!("read an item of {} from local disk", self.url), &error)
        })?;
        Ok(json)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.types.values().map(Vec::len).sum()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}
