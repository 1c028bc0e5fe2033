//! Types of which a Restore with `spec.prune` removes no objects.

use super::{CLAIMS, NON_RESTORABLE};

/// Types whose objects have data that would be lost with them.
pub const DATA_TYPES: &[&str] = &[
    CLAIMS,
    "volumesnapshots.snapshot.storage.k8s.io",
    "volumegroupsnapshots.groupsnapshot.storage.k8s.io",
];

/// Types whose objects the cluster creates and removes itself.
const OF_THE_CLUSTER: &[&str] = &[
    "csistoragecapacities.storage.k8s.io",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "leases.coordination.k8s.io",
];

/// Whether objects of this type have data that would be lost with them.
pub fn holds_data(group_resource: &str) -> bool {
    DATA_TYPES.contains(&group_resource)
}

/// Whether no object of this type is ever removed: it has data, the cluster manages it, no restore
/// creates it, or it belongs to backups and restores themselves.
pub fn is_never_pruned(group_resource: &str) -> bool {
    holds_data(group_resource)
        || OF_THE_CLUSTER.contains(&group_resource)
        || NON_RESTORABLE.contains(&group_resource)
        || group_resource.ends_with(".velero.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::claims("persistentvolumeclaims", true)]
    #[case::snapshots("volumesnapshots.snapshot.storage.k8s.io", true)]
    #[case::group_snapshots("volumegroupsnapshots.groupsnapshot.storage.k8s.io", true)]
    #[case::events("events", true)]
    #[case::events_of_their_group("events.events.k8s.io", true)]
    #[case::leases("leases.coordination.k8s.io", true)]
    #[case::endpoints("endpoints", true)]
    #[case::endpoint_slices("endpointslices.discovery.k8s.io", true)]
    #[case::backups("backups.velero.io", true)]
    #[case::schedules("schedules.velero.io", true)]
    #[case::config_maps("configmaps", false)]
    #[case::pods("pods", false)]
    #[case::custom("widgets.example.com", false)]
    fn data_and_objects_of_the_cluster_are_never_removed(
        #[case] group_resource: &str,
        #[case] never: bool,
    ) {
        assert_eq!(is_never_pruned(group_resource), never);
    }
}
