//! The treatment of existing objects. Pure.
//!
//! Velero `pkg/restore/restore.go`, v1.18: equal objects are skipped silently, different ones give
//! a warning or are patched, service accounts are merged. We rewrite the object of the cluster by
//! the same rules as the item before comparing them, so that values that the cluster sets do not
//! count as differences.

use backup_core::{
    api::Restore,
    labels,
    resources::{CLAIMS, VOLUMES},
};
use serde_json::Value;

use super::{
    equality::same_objects,
    json::{self, Object},
    links::{self, Link, LinkAction, OtherEnd},
    rules::RestoreRules,
    transform, volume,
};

mod merged;
mod modified;

pub use merged::namespace as compare_namespace;

pub(super) const OURS: [&str; 2] = [labels::BACKUP_NAME, labels::RESTORE_NAME];

#[derive(Clone, Debug, PartialEq)]
pub enum Existing {
    Equal,
    /// It differs, and the policy says not to change it.
    Differs,
    /// A volume that differs, and that no claim can bind to, as it still refers to a deleted claim.
    Released,
    /// A volume that another claim holds, by the claim's namespace and name. It is never changed.
    Held(String),
    /// It differs; this merge patch makes it equal to the backup.
    Patch(Object),
    /// It lacks something, which this merge patch adds, and has other differences, which the policy
    /// says not to change.
    Complete(Object),
}

/// The restored form of an item of the backup.
#[derive(Clone, Copy, Debug)]
pub struct RestoredForm<'a> {
    pub wanted: &'a Object,
    /// The same without the changes of resource modifiers, if there are any.
    pub unmodified: Option<&'a Object>,
}

/// Creation time of a Restore, in the format of object metadata.
pub fn created(restore: &Restore) -> Option<String> {
    let at = restore.metadata.creation_timestamp.as_ref();
    at.map(|at| at.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Compares `in_cluster` with the restored form of an item.
pub fn compare(
    RestoredForm { wanted, unmodified }: RestoredForm<'_>,
    in_cluster: &Object,
    group_resource: &str,
    namespace: Option<&str>,
    rules: &RestoreRules,
    update: bool,
) -> Existing {
    if group_resource == "serviceaccounts" {
        return merged::account(wanted, in_cluster, update);
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
    if group_resource == CLAIMS {
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
        // The restored claim has another uid.
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

/// Whether a volume is being deleted, or will be because its claim is gone.
pub fn is_volume_going(volume: &Object) -> bool {
    let deleted_with_claim =
        json::text(volume, &["spec"], "persistentVolumeReclaimPolicy") == Some("Delete");
    is_going(volume) || volume::is_released(volume) && deleted_with_claim
}

/// The patch that makes `seen` equal to `wanted`, and adds the restore's labels. It carries the
/// version that was compared.
fn patch_from(seen: &Object, wanted: &Object, in_cluster: &Object) -> Object {
    let mut patch = merge_patch(seen, wanted);
    for label in OURS {
        if let Some(value) = json::text(wanted, &["metadata", "labels"], label) {
            json::set(
                &mut patch,
                &["metadata", "labels"],
                label,
                Value::from(value),
            );
        }
    }
    at_version(patch, in_cluster)
}

/// Makes a patch fail with a conflict if the object has changed since it was compared.
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

/// Whether the object was created by this restore: it has the restore's label and is not older than
/// the restore. Also true for an item whose creation succeeded although its answer was lost, and
/// after a restart.
pub fn is_ours(in_cluster: &Object, rules: &RestoreRules, restore_created: Option<&str>) -> bool {
    let label = json::text(in_cluster, &["metadata", "labels"], labels::RESTORE_NAME);
    let made = json::text(in_cluster, &["metadata"], "creationTimestamp");
    // Both times were written by the API server, in one format that sorts as text.
    label == Some(rules.restore_label.as_str())
        && matches!((made, restore_created), (Some(made), Some(restore)) if made >= restore)
}

#[cfg(test)]
mod tests;
