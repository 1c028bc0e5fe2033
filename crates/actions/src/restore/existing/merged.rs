//! Objects that the cluster creates automatically, so that they exist before they are restored: the
//! backup's values are merged into them, and nothing is removed.
//!
//! Velero adds what a service account lacks and does not report differences
//! (`pkg/restore/merge_service_account.go`, v1.18). It does not compare namespaces.

use serde_json::{Value, json};

use super::{Existing, OURS, at_version};
use crate::restore::{
    json::{self, Object},
    mapped_links::METADATA_NAME,
};

/// Labels and annotations whose values the cluster sets itself: the namespace's name, and the
/// Secret that OpenShift creates for each account.
const OF_CLUSTER: [&str; 2] = [
    METADATA_NAME,
    "openshift.io/internal-registry-pull-secret-ref",
];
const MOUNTS_TOKEN: &str = "automountServiceAccountToken";

/// Compares a service account: missing values are added regardless of the policy; different values
/// are changed only with `update`.
pub(super) fn account(wanted: &Object, in_cluster: &Object, update: bool) -> Existing {
    let mut merge = Merge {
        adds: true,
        changes: update,
        ..Merge::default()
    };
    merge.metadata(wanted, in_cluster);
    for list in ["secrets", "imagePullSecrets"] {
        let seen = in_cluster
            .get(list)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let mut merged = seen.clone();
        for reference in wanted
            .get(list)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if !merged
                .iter()
                .any(|m| m.get("name") == reference.get("name"))
            {
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
    let mut merge = Merge {
        adds: update,
        changes: update,
        ..Merge::default()
    };
    merge.metadata(wanted, in_cluster);
    merge.end(in_cluster)
}

#[derive(Default)]
struct Merge {
    /// Whether missing values are added.
    adds: bool,
    /// Whether different values are changed.
    changes: bool,
    patch: Object,
    /// A difference from the backup remains.
    differs: bool,
}

impl Merge {
    fn metadata(&mut self, wanted: &Object, in_cluster: &Object) {
        for map in ["labels", "annotations"] {
            let seen = json::object(in_cluster, &["metadata", map]);
            let mut patch = Object::new();
            for (key, value) in json::object(wanted, &["metadata", map])
                .into_iter()
                .flatten()
            {
                let seen = seen.and_then(|seen| seen.get(key));
                let key = key.as_str();
                let is_label_of_restore = map == "labels" && OURS.contains(&key);
                if OF_CLUSTER.contains(&key)
                    || is_label_of_restore && !(self.adds && seen.is_none())
                {
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

    /// Whether a value is added to the patch.
    fn takes(&mut self, wanted: &Value, seen: Option<&Value>) -> bool {
        if seen == Some(wanted) {
            return false;
        }
        let takes = if seen.is_some() {
            self.changes
        } else {
            self.adds
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

/// If only the labels of the restore itself are missing, no write is needed.
fn is_worth_a_write(patch: &Object) -> bool {
    patch.iter().any(|(key, value)| {
        key != "metadata"
            || value.as_object().into_iter().flatten().any(|(key, value)| {
                key != "labels"
                    || value
                        .as_object()
                        .is_some_and(|l| l.keys().any(|k| !OURS.contains(&k.as_str())))
            })
    })
}
