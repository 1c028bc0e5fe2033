//! What to do with an object that is already there. Pure.
//!
//! Velero `pkg/restore/restore.go`, v1.18: equal objects are skipped silently, different ones give a warning or are
//! patched, service accounts are merged. Here the object of the cluster is rewritten by the same rules as the item
//! before the two are compared, so that what the cluster fills in is no difference.

use backup_core::{api::Restore, labels};
use serde_json::{Value, json};

use super::{
    json::{self, Object},
    links::{self, Link, LinkAction, OtherEnd},
    rules::RestoreRules,
    transform, volume,
};

mod modified;

const VOLUMES: &str = "persistentvolumes";
pub(super) const OURS: [&str; 2] = [labels::BACKUP_NAME, labels::RESTORE_NAME];

#[derive(Clone, Debug, PartialEq)]
pub enum Existing {
    Equal,
    /// It differs, and the policy says to leave it.
    Differs,
    /// A volume that differs, and that no claim can bind to, as it still belongs to one that is gone.
    Released,
    /// A volume that another claim holds, by its namespace and name. It is never changed.
    Held(String),
    /// It differs; this merge patch makes it what the backup holds.
    Patch(Object),
}

/// What was made of an item of the backup.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    pub wanted: &'a Object,
    /// The same without the changes of resource modifiers, if there are any.
    pub unmodified: Option<&'a Object>,
}

/// When a Restore was created, as objects say it of themselves.
pub fn created(restore: &Restore) -> Option<String> {
    let at = restore.metadata.creation_timestamp.as_ref();
    at.map(|at| at.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Compares `in_cluster` with what was made of an item.
pub fn compare(
    Made { wanted, unmodified }: Made<'_>,
    in_cluster: &Object,
    group_resource: &str,
    namespace: Option<&str>,
    rules: &RestoreRules,
    update: bool,
) -> Existing {
    if group_resource == "serviceaccounts" {
        return merge_account(wanted, in_cluster);
    }
    if group_resource == VOLUMES
        && let Some(holder) = volume::holder(in_cluster)
    {
        let other_end = if volume::holder(wanted).as_ref() == Some(&holder) {
            OtherEnd::Ours
        } else {
            OtherEnd::Anothers
        };
        let mapped = !rules.namespaces.is_empty();
        if links::action(Link::ClaimOfVolume, other_end, update, mapped) == LinkAction::Leave {
            return Existing::Held(holder);
        }
    }
    let mut seen = transform::rewritten(in_cluster, group_resource, namespace, &rules.in_place());
    if let Some(unmodified) = unmodified {
        modified::accept(&mut seen, in_cluster, wanted, unmodified);
    }
    if group_resource == "persistentvolumeclaims" {
        volume::keep_bound(&mut seen, in_cluster, wanted);
    }
    let released = group_resource == VOLUMES && volume::is_released(in_cluster);
    let mut patch = match (same_objects(&seen, wanted), update) {
        (true, _) if !released => return Existing::Equal,
        (true, _) => at_version(Object::new(), in_cluster),
        (false, false) if released => return Existing::Released,
        (false, false) => return Existing::Differs,
        (false, true) => patch_from(&seen, wanted, in_cluster),
    };
    if released {
        // The claim that comes back has another uid.
        for field in ["uid", "resourceVersion"] {
            json::set(&mut patch, &["spec", "claimRef"], field, Value::Null);
        }
    }
    Existing::Patch(patch)
}

/// Whether an object is being deleted.
pub fn is_going(object: &Object) -> bool {
    json::text(object, &["metadata"], "deletionTimestamp").is_some()
}

/// Semantic equality: a field that is null, or an empty list or object, is as good as absent.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => same_objects(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same(x, y)),
        _ => a == b || (is_nothing(a) && is_nothing(b)),
    }
}

/// Whether two objects that were rewritten by the same rules are the same; what is null or empty is as good as absent.
pub fn same_objects(a: &Object, b: &Object) -> bool {
    a.iter().all(|(k, v)| b.get(k).map_or_else(|| is_nothing(v), |w| same(v, w)))
        && b.iter().all(|(k, w)| a.contains_key(k) || is_nothing(w))
}

/// Whether a value is null, or holds nothing but such.
pub fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_nothing),
        _ => false,
    }
}

/// The patch that makes `seen` what is `wanted`, and says so in the labels. It carries the version that was compared.
fn patch_from(seen: &Object, wanted: &Object, in_cluster: &Object) -> Object {
    let mut patch = merge_patch(seen, wanted);
    for label in OURS {
        if let Some(value) = json::text(wanted, &["metadata", "labels"], label) {
            json::set(&mut patch, &["metadata", "labels"], label, Value::from(value));
        }
    }
    at_version(patch, in_cluster)
}

/// Makes a patch fail with a conflict when the object is no longer the one that was compared.
fn at_version(mut patch: Object, in_cluster: &Object) -> Object {
    for field in ["uid", "resourceVersion"] {
        if let Some(value) = json::text(in_cluster, &["metadata"], field) {
            json::set(&mut patch, &["metadata"], field, Value::from(value));
        }
    }
    patch
}

/// The JSON merge patch (RFC 7386) from one object to the other.
fn merge_patch(from: &Object, to: &Object) -> Object {
    let mut patch = Object::new();
    for (key, wanted) in to {
        match (from.get(key), wanted) {
            (Some(Value::Object(a)), Value::Object(b)) => {
                let inner = merge_patch(a, b);
                if !inner.is_empty() {
                    patch.insert(key.clone(), Value::Object(inner));
                }
            }
            (Some(seen), _) if seen == wanted => {}
            _ => {
                patch.insert(key.clone(), wanted.clone());
            }
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}

/// Service accounts are merged, whatever the policy: labels and annotations that are missing, references that are
/// missing. Nothing is taken away.
fn merge_account(wanted: &Object, in_cluster: &Object) -> Existing {
    let mut patch = Object::new();
    for map in ["labels", "annotations"] {
        let seen = json::object(in_cluster, &["metadata", map]);
        let missing: Object = json::object(wanted, &["metadata", map])
            .into_iter()
            .flatten()
            .filter(|(key, _)| seen.is_none_or(|s| !s.contains_key(*key)))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !missing.is_empty() {
            json::set(&mut patch, &["metadata"], map, Value::Object(missing));
        }
    }
    for list in ["secrets", "imagePullSecrets"] {
        let seen = in_cluster.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut merged = seen.clone();
        for reference in wanted.get(list).and_then(Value::as_array).into_iter().flatten() {
            if !merged.iter().any(|m| m.get("name") == reference.get("name")) {
                merged.push(reference.clone());
            }
        }
        if merged.len() != seen.len() {
            patch.insert(list.to_owned(), json!(merged));
        }
    }
    // When only the labels of the restore itself are missing, that is no difference worth a write.
    let worth = patch.iter().any(|(key, value)| {
        key != "metadata"
            || value.as_object().into_iter().flatten().any(|(key, value)| {
                key != "labels"
                    || value.as_object().is_some_and(|l| l.keys().any(|k| !OURS.contains(&k.as_str())))
            })
    });
    if worth { Existing::Patch(at_version(patch, in_cluster)) } else { Existing::Equal }
}

/// Whether the object was made by this very restore: it carries the restore's label and is not older than the restore.
/// True for an item whose creation went through although its answer was lost, and after a restart.
pub fn is_ours(in_cluster: &Object, rules: &RestoreRules, restore_created: Option<&str>) -> bool {
    let label = json::text(in_cluster, &["metadata", "labels"], labels::RESTORE_NAME);
    let made = json::text(in_cluster, &["metadata"], "creationTimestamp");
    // Both times were written by the API server, in one format that sorts as text.
    label == Some(rules.restore_label.as_str())
        && matches!((made, restore_created), (Some(made), Some(restore)) if made >= restore)
}

#[cfg(test)]
mod tests;
