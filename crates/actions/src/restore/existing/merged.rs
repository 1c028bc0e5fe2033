//! Objects that the cluster makes itself, so that they are there before they are restored: what the backup holds is merged into
//! them, and nothing is taken away.
//!
//! Velero adds what a service account lacks and is silent about what differs (`pkg/restore/merge_service_account.go`, v1.18). It
//! does not compare namespaces.

use serde_json::{Value, json};

use super::{Existing, OURS, at_version};
use crate::restore::{
    cluster::METADATA_NAME,
    json::{self, Object},
};

/// Labels and annotations that the cluster sets to values of its own: the namespace's name, and the Secret that OpenShift makes for
/// each account.
const OF_CLUSTER: [&str; 2] = [METADATA_NAME, "openshift.io/internal-registry-pull-secret-ref"];
const MOUNTS_TOKEN: &str = "automountServiceAccountToken";

/// Compares a service account: what it lacks is added, whatever the policy; what differs is changed with `update`.
pub(super) fn account(wanted: &Object, in_cluster: &Object, update: bool) -> Existing {
    let mut merge = Merge { adds: true, changes: update, ..Merge::default() };
    merge.metadata(wanted, in_cluster);
    for list in ["secrets", "imagePullSecrets"] {
        let seen = in_cluster.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut merged = seen.clone();
        for reference in wanted.get(list).and_then(Value::as_array).into_iter().flatten() {
            if !merged.iter().any(|m| m.get("name") == reference.get("name")) {
                merged.push(reference.clone());
            }
        }
        if merged.len() != seen.len() {
            merge.patch.insert(list.to_owned(), json!(merged));
        }
    }
    if let Some(value) = wanted.get(MOUNTS_TOKEN)
        && merge.takes(value, in_cluster.get(MOUNTS_TOKEN))
    {
        merge.patch.insert(MOUNTS_TOKEN.to_owned(), value.clone());
    }
    merge.end(in_cluster)
}

/// Compares the labels and annotations of a namespace, which are changed with `update` only.
pub fn namespace(wanted: &Object, in_cluster: &Object, update: bool) -> Existing {
    let mut merge = Merge { adds: update, changes: update, ..Merge::default() };
    merge.metadata(wanted, in_cluster);
    merge.end(in_cluster)
}

#[derive(Default)]
struct Merge {
    /// Whether what is missing is added.
    adds: bool,
    /// Whether what differs is changed.
    changes: bool,
    patch: Object,
    /// Something is left that is not as the backup has it.
    differs: bool,
}

impl Merge {
    fn metadata(&mut self, wanted: &Object, in_cluster: &Object) {
        for map in ["labels", "annotations"] {
            let seen = json::object(in_cluster, &["metadata", map]);
            let mut patch = Object::new();
            for (key, value) in json::object(wanted, &["metadata", map]).into_iter().flatten() {
                let seen = seen.and_then(|seen| seen.get(key));
                let key = key.as_str();
                let is_label_of_restore = map == "labels" && OURS.contains(&key);
                if OF_CLUSTER.contains(&key) || is_label_of_restore && !(self.adds && seen.is_none()) {
                    continue;
                }
                if self.takes(value, seen) {
                    patch.insert(key.to_owned(), value.clone());
                }
            }
            if !patch.is_empty() {
                json::set(&mut self.patch, &["metadata"], map, Value::Object(patch));
            }
        }
    }

    /// Whether a value goes into the patch.
    fn takes(&mut self, wanted: &Value, seen: Option<&Value>) -> bool {
        let takes = match seen {
            Some(seen) if seen == wanted => return false,
            Some(_) => self.changes,
            None => self.adds,
        };
        self.differs |= !takes;
        takes
    }

    fn end(self, in_cluster: &Object) -> Existing {
        match (is_worth_a_write(&self.patch), self.differs) {
            (true, true) => Existing::Complete(at_version(self.patch, in_cluster)),
            (true, false) => Existing::Patch(at_version(self.patch, in_cluster)),
            (false, true) => Existing::Differs,
            (false, false) => Existing::Equal,
        }
    }
}

/// When only the labels of the restore itself are missing, that is no difference worth a write.
fn is_worth_a_write(patch: &Object) -> bool {
    patch.iter().any(|(key, value)| {
        key != "metadata"
            || value.as_object().into_iter().flatten().any(|(key, value)| {
                key != "labels"
                    || value.as_object().is_some_and(|l| l.keys().any(|k| !OURS.contains(&k.as_str())))
            })
    })
}
