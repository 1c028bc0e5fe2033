//! Resource types: which are backed up and restored, and the order.

mod builtin;
mod filter;
mod prune;
mod restore_order;
mod version_order;

pub use builtin::{BuiltinType, builtin_types};
pub(crate) use filter::uses_scoped_fields;
pub use filter::{ResourceFilter, full_names, uses_combined_fields};
pub use prune::{DATA_TYPES, holds_data, is_never_pruned};
pub use restore_order::RestoreOrder;
pub use version_order::{TypeVersions, VersionPriorities, VersionRule};

/// A resource type as discovery describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceType {
    /// API group; empty is the core group.
    pub group: String,
    pub version: String,
    /// Plural name, such as `deployments`.
    pub plural: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    pub namespaced: bool,
    /// Supported verbs, such as `list`.
    pub verbs: Vec<String>,
    /// It has no status subresource: its `status` field is ordinary data.
    pub status_is_data: bool,
}

impl ResourceType {
    /// Name without the version: `pods`, `deployments.apps`.
    pub fn group_resource(&self) -> String {
        group_resource(&self.plural, &self.group)
    }

    /// Version with its group as in `apiVersion`: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether it can be backed up: listed, created, read and deleted (Velero
    /// `pkg/discovery/helper.go`, v1.18).
    pub fn can_be_backed_up(&self) -> bool {
        ["list", "create", "get", "delete"]
            .iter()
            .all(|verb| self.verbs.iter().any(|own| own == verb))
            && !self.plural.contains('/')
    }
}

/// `plural.group`, or `plural` alone in the core group.
pub fn group_resource(plural: &str, group: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// Namespaces, which filters and restores handle specially.
pub const NAMESPACES: &str = "namespaces";
/// The type of pods.
pub const PODS: &str = "pods";
/// The type of PersistentVolumeClaims.
pub const CLAIMS: &str = "persistentvolumeclaims";
/// The type of PersistentVolumes.
pub const VOLUMES: &str = "persistentvolumes";
/// The type of custom resource definitions.
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Types that are never restored: they describe the old cluster, or would start work.
///
/// Velero: `pkg/controller/restore_controller.go`, v1.18. We add IP addresses, because the
/// allocator of Services creates them and removes unknown ones.
pub const NON_RESTORABLE: &[&str] = &[
    IP_ADDRESSES,
    "nodes",
    "events",
    "events.events.k8s.io",
    "backups.velero.io",
    "restores.velero.io",
    "resticrepositories.velero.io",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "backuprepositories.velero.io",
];

const IP_ADDRESSES: &str = "ipaddresses.networking.k8s.io";

/// Types that no filter of a backup selects: snapshots are added with the volumes they belong to,
/// and IP addresses are never restored.
///
/// Velero since 1.17: `pkg/controller/backup_controller.go` adds the snapshot types to the excludes
/// of every backup.
pub const NEVER_SELECTED: &[&str] = &[
    "volumesnapshots.snapshot.storage.k8s.io",
    "volumesnapshotcontents.snapshot.storage.k8s.io",
    IP_ADDRESSES,
];

/// Types that two groups serve for the same objects: plural and both groups. Only the first one
/// found is backed up (Velero `pkg/backup/item_collector.go`, v1.18).
pub(crate) const COHABITING: &[(&str, [&str; 2])] = &[
    ("deployments", ["extensions", "apps"]),
    ("daemonsets", ["extensions", "apps"]),
    ("replicasets", ["extensions", "apps"]),
    ("networkpolicies", ["extensions", "networking.k8s.io"]),
    ("events", ["", "events.k8s.io"]),
];

/// The group resource with the same objects as this one, if there is one.
pub fn cohabitant(plural: &str, group: &str) -> Option<String> {
    let (_, [one, other]) = COHABITING.iter().find(|(name, _)| *name == plural)?;
    if group == *one {
        Some(group_resource(plural, other))
    } else if group == *other {
        Some(group_resource(plural, one))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_named_by_plural_and_group() {
        let pods = ResourceType {
            version: "v1".into(),
            plural: "pods".into(),
            ..ResourceType::default()
        };
        assert_eq!(
            (pods.group_resource(), pods.api_version()),
            ("pods".into(), "v1".into())
        );
        let deployments = ResourceType {
            group: "apps".into(),
            plural: "deployments".into(),
            ..pods
        };
        assert_eq!(
            (deployments.group_resource(), deployments.api_version()),
            ("deployments.apps".into(), "apps/v1".into())
        );
    }

    #[test]
    fn only_what_can_be_listed_read_made_and_deleted_is_backed_up() {
        let verbs = |list: &[&str]| list.iter().map(|v| (*v).to_owned()).collect();
        let full = ResourceType {
            plural: "pods".into(),
            verbs: verbs(&["create", "delete", "get", "list", "watch"]),
            ..ResourceType::default()
        };
        assert!(full.can_be_backed_up());
        assert!(
            !ResourceType {
                verbs: verbs(&["get", "list"]),
                ..full.clone()
            }
            .can_be_backed_up()
        );
        assert!(
            !ResourceType {
                plural: "pods/log".into(),
                ..full
            }
            .can_be_backed_up()
        );
    }

    #[test]
    fn cohabiting_types_know_their_twin() {
        assert_eq!(
            cohabitant("deployments", "apps").as_deref(),
            Some("deployments.extensions")
        );
        assert_eq!(
            cohabitant("events", "events.k8s.io").as_deref(),
            Some("events")
        );
        assert_eq!(
            cohabitant("events", "").as_deref(),
            Some("events.events.k8s.io")
        );
        assert_eq!(cohabitant("deployments", "example.com"), None);
        assert_eq!(cohabitant("pods", ""), None);
    }
}
