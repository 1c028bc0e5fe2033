//! Changes to an item before it is created. Pure.
//!
//! Source of the rules: Velero `pkg/restore/restore.go` (`resetMetadata`, labels) and its built-in
//! restore item actions, v1.18.

use backup_core::labels;
use serde_json::Value;

use super::{
    built_in,
    json::{self, Object},
    mapped_links,
    rules::RestoreRules,
};

/// Fields of `metadata` that belong to the old instance of the object.
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

/// Rewrites an object like an item of the backup: [`stripped`], the built-in actions and [`place`].
pub fn rewritten(
    from: &Object,
    group_resource: &str,
    namespace: Option<&str>,
    rules: &RestoreRules,
) -> Object {
    let mut item = prepared(from, rules);
    built_in::rewrite(&mut item, from, group_resource, rules);
    place(&mut item, namespace, rules);
    item
}

/// The item as the first action gets it: [`stripped`], with mapped namespace selectors.
pub fn prepared(item: &Object, rules: &RestoreRules) -> Object {
    let mut item = stripped(item);
    if !rules.namespaces.is_empty() {
        mapped_links::map_selectors(&mut item, rules);
    }
    item
}

/// The item without the fields that its old cluster set; before any action. Removed fields are not
/// copied: `managedFields` may be longer than everything else.
pub fn stripped(item: &Object) -> Object {
    item.iter()
        .filter(|(field, _)| *field != "status")
        .map(|(field, value)| {
            let copy = match (field.as_str(), value) {
                ("metadata", Value::Object(metadata)) => Value::Object(stripped_metadata(metadata)),
                _ => value.clone(),
            };
            (field.clone(), copy)
        })
        .collect()
}

fn stripped_metadata(metadata: &Object) -> Object {
    metadata
        .iter()
        .filter(|(field, value)| !STRIPPED.contains(&field.as_str()) && !value.is_null())
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect()
}

/// Sets the target namespace and labels of the item; after all actions.
pub fn place(item: &mut Object, namespace: Option<&str>, rules: &RestoreRules) {
    if let Some(metadata) = json::object_mut(item, &["metadata"]) {
        metadata.remove("namespace");
    }
    if let Some(namespace) = namespace {
        json::set(item, &["metadata"], "namespace", Value::from(namespace));
    }
    for (label, value) in [
        (labels::BACKUP_NAME, &rules.backup_label),
        (labels::RESTORE_NAME, &rules.restore_label),
    ] {
        json::set(
            item,
            &["metadata", "labels"],
            label,
            Value::from(value.as_str()),
        );
    }
}

#[cfg(test)]
mod tests;
