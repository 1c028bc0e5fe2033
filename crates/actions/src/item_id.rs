//! An object by its type and name.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemId {
    /// `plural`, or `plural.group`.
    pub group_resource: String,
    /// None for a cluster-scoped object.
    pub namespace: Option<String>,
    pub name: String,
}

impl ItemId {
    /// The object of this type and name; one without a namespace is cluster-scoped.
    pub fn new(group_resource: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            group_resource: group_resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.group_resource, self.name),
            None => write!(f, "{} {}", self.group_resource, self.name),
        }
    }
}
