//! What is changed in an item before it is created. Pure.
//!
//! Source of the rules: Velero `pkg/restore/restore.go` (`resetMetadata`, labels) and its built-in restore item actions,
//! v1.18.

use backup_core::labels;
use serde_json::Value;

use super::{
    built_in,
    json::{self, Object},
    rules::RestoreRules,
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

/// Rewrites an object as an item is rewritten on its way through [`strip`], the built-in actions and [`place`].
pub fn rewrite(item: &mut Object, group_resource: &str, namespace: Option<&str>, rules: &RestoreRules) {
    let from = item.clone();
    strip(item);
    built_in::rewrite(item, &from, group_resource, rules);
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
pub fn place(item: &mut Object, namespace: Option<&str>, rules: &RestoreRules) {
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
