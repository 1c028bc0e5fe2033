//! What is changed in an item before it is created. Pure.
//!
//! Source of the rules: Velero `pkg/restore/restore.go` (`resetMetadata`, labels) and its built-in restore item actions,
//! v1.18. The same rewriting is applied to an object of the cluster before the two are compared, so that what the
//! cluster itself fills in (a cluster IP, a node name) is no difference.

use std::collections::{BTreeMap, BTreeSet};

use backup_core::labels;
use serde_json::Value;

use super::{
    actions,
    json::{self, Object},
};

/// Fields of `metadata` that belong to the life the object had, not to what it is.
const STRIPPED: [&str; 10] = [
    "generateName",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "managedFields",
];

/// What the rewriting of every item of one restore depends on.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Value of the label `velero.io/backup-name`.
    pub backup_label: String,
    /// Value of the label `velero.io/restore-name`.
    pub restore_label: String,
    /// Namespace of the backup to the namespace it is restored into.
    pub namespaces: BTreeMap<String, String>,
    /// Whether services keep node ports that the cluster chose.
    pub preserve_node_ports: bool,
    /// Volumes of the backup that are restored as they are; a claim on any other is provisioned anew.
    pub kept_volumes: BTreeSet<String>,
}

impl Rules {
    /// The namespace that `source` is restored into.
    pub fn target<'a>(&'a self, source: &'a str) -> &'a str {
        self.namespaces.get(source).map_or(source, String::as_str)
    }

    /// The same rules for an object that already is where it should be.
    pub fn in_place(&self) -> Self {
        Self { namespaces: BTreeMap::new(), ..self.clone() }
    }
}

/// Rewrites an object as an item is rewritten on its way through [`strip`], the built-in actions and [`place`].
pub fn rewrite(item: &mut Object, group_resource: &str, namespace: Option<&str>, rules: &Rules) {
    let from = item.clone();
    strip(item);
    actions::rewrite(item, &from, group_resource, rules);
    place(item, namespace, rules);
}

/// Takes off what the item's old cluster gave it; before any action sees it.
pub fn strip(item: &mut Object) {
    item.remove("status");
    if let Some(metadata) = json::object_mut(item, &["metadata"]) {
        metadata.retain(|field, value| !STRIPPED.contains(&field.as_str()) && !value.is_null());
    }
}

/// Puts the item where it is created; after all actions.
pub fn place(item: &mut Object, namespace: Option<&str>, rules: &Rules) {
    if let Some(metadata) = json::object_mut(item, &["metadata"]) {
        metadata.remove("namespace");
    }
    if let Some(namespace) = namespace {
        json::set(item, &["metadata"], "namespace", Value::from(namespace));
    }
    for (label, value) in
        [(labels::BACKUP_NAME, &rules.backup_label), (labels::RESTORE_NAME, &rules.restore_label)]
    {
        json::set(item, &["metadata", "labels"], label, Value::from(value.as_str()));
    }
}

#[cfg(test)]
mod tests;
