//! Which object a reconcile is about.

use std::fmt;

use kube::{Resource, ResourceExt};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Empty for objects without one.
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn of<K: Resource>(object: &K) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
