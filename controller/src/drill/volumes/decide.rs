//! Decides what becomes of the volumes of a drill when its scratch namespaces are removed. Pure.

use backup_core::{
    api::Restore,
    drill::{DrillState, id_of_scratch},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::{ResourceExt as _, core::DynamicObject};

use crate::volumes::data_mover::{is_made_for_claim, is_provisioned};

/// Reclaim policies of volumes.
const DELETE: &str = "Delete";
const RETAIN: &str = "Retain";
/// Maximum time after the result of a drill for which its namespaces wait for volumes that are
/// being provisioned.
const MAX_PROVISIONING_WAIT: SignedDuration = SignedDuration::from_mins(5);
/// Annotations of a claim by which Kubernetes asks a provisioner for its volume.
const PROVISIONER_ANNOTATIONS: [&str; 2] = [
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
];

/// A change of the reclaim policy of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyChange {
    /// Name of the PersistentVolume.
    pub(super) volume: String,
    /// The version of the volume for which this was decided.
    pub(super) resource_version: String,
    pub(super) policy: &'static str,
}

impl PolicyChange {
    /// Whether a volume keeps its data when the claim is gone.
    pub(super) fn keeps_data(&self) -> bool {
        self.policy == RETAIN
    }

    /// Whether the volume has the policy.
    pub(super) fn is_done(&self, volume: &PersistentVolume) -> bool {
        policy(volume) == self.policy
    }
}

/// What a volume needs before these scratch namespaces are removed; `None`: nothing. A volume that
/// was provisioned for a claim of the drill is deleted with it, whatever its class says. One that
/// existed before, and that the claim was bound to all the same (kubernetes#101878), keeps its data.
pub(super) fn policy_change(
    volume: &PersistentVolume,
    namespaces: &[&Namespace],
) -> Option<PolicyChange> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let of_claim = claim.namespace.as_deref()?;
    let namespace = namespaces.iter().find(|one| one.name_any() == of_claim)?;
    let is_younger = volume.metadata.creation_timestamp >= namespace.metadata.creation_timestamp;
    let wanted = if is_made_for_claim(volume) && is_younger {
        DELETE
    } else if !is_provisioned(volume) || !is_younger {
        RETAIN
    } else {
        // Old provisioners mark new volumes in the same way as the binder marks free ones.
        return None;
    };
    let is_going = volume.metadata.deletion_timestamp.is_some();
    (policy(volume) != wanted && !is_going).then(|| PolicyChange {
        volume: volume.name_any(),
        resource_version: volume.resource_version().unwrap_or_default(),
        policy: wanted,
    })
}

/// The reclaim policy; the API server's default for a volume without one.
fn policy(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
        .unwrap_or(RETAIN)
}

/// Whether a namespace of a drill may still wait for volumes that are being provisioned: a volume
/// that appears when its claim is gone is kept if its class says so. `restore` is `None` if it is
/// gone.
pub(super) fn may_wait(restore: Option<&Restore>, now: Timestamp) -> bool {
    let Some(restore) = restore.filter(|restore| {
        let drill = restore.spec.drill.as_ref();
        drill.is_some_and(|drill| drill.settings.volumes)
    }) else {
        return false;
    };
    let Some(result) = DrillState::of(restore).result else {
        return false;
    };
    now.duration_since(result.at) < MAX_PROVISIONING_WAIT
}

/// Whether a provisioner was asked for the volume of a claim. A claim that waits for a DataDownload
/// gets none of a provisioner.
pub(super) fn is_being_provisioned(claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = &claim.spec else {
        return false;
    };
    let source = spec.data_source_ref.as_ref();
    let is_filled_by_mover = source.is_some_and(|source| source.kind == "DataDownload");
    let has_volume = spec
        .volume_name
        .as_ref()
        .is_some_and(|name| !name.is_empty());
    let annotations = claim.annotations();
    let is_asked = PROVISIONER_ANNOTATIONS
        .iter()
        .any(|annotation| annotations.contains_key(*annotation));
    is_asked && !has_volume && !is_filled_by_mover
}

/// Whether a content with the label of a drill was created for it: its VolumeSnapshot is, or was, in
/// a scratch namespace.
pub(super) fn is_of_drill(content: &DynamicObject) -> bool {
    let namespace = content.data["spec"]["volumeSnapshotRef"]["namespace"].as_str();
    namespace.and_then(id_of_scratch).is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)] // tables read better with values

    use backup_core::{drill::DrillResult, labels::DRILL_STATE_ANNOTATION};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const SHOP: &str = "drill-0123abcd-shop";

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    /// A scratch namespace that was created at 10:00.
    fn namespace() -> Namespace {
        let metadata = json!({ "name": SHOP, "creationTimestamp": at("10:00:00") });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    /// A volume that was provisioned at 10:01 for a claim in the namespace, with these changes.
    fn volume(change: &Value) -> PersistentVolume {
        let mut volume = json!({
            "metadata": { "name": "pv", "resourceVersion": "7", "creationTimestamp": at("10:01:00"),
                "annotations": { "pv.kubernetes.io/provisioned-by": "disk" } },
            "spec": { "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": { "namespace": SHOP, "name": "data", "uid": "u" } },
        });
        json_patch::merge(&mut volume, change);
        serde_json::from_value(volume).unwrap()
    }

    #[rstest]
    #[case::new_and_retained(json!({}), Some(DELETE))]
    #[case::new_and_deleted(json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } }), None)]
    #[case::released(json!({ "status": { "phase": "Released" } }), Some(DELETE))]
    #[case::in_the_same_second(json!({ "metadata": { "creationTimestamp": at("10:00:00") } }), Some(DELETE))]
    #[case::older(
        json!({ "metadata": { "creationTimestamp": at("09:59:59") }, "spec": { "persistentVolumeReclaimPolicy": "Delete" } }),
        Some(RETAIN)
    )]
    #[case::older_and_retained(json!({ "metadata": { "creationTimestamp": at("09:59:59") } }), None)]
    #[case::made_by_hand(
        json!({ "metadata": { "annotations": null }, "spec": { "persistentVolumeReclaimPolicy": "Delete" } }),
        Some(RETAIN)
    )]
    #[case::recycled(
        json!({ "metadata": { "annotations": null }, "spec": { "persistentVolumeReclaimPolicy": "Recycle" } }),
        Some(RETAIN)
    )]
    #[case::bound_by_the_controller(
        json!({ "metadata": { "annotations": { "pv.kubernetes.io/bound-by-controller": "yes" } } }),
        None
    )]
    #[case::of_another_namespace(json!({ "spec": { "claimRef": { "namespace": "shop" } } }), None)]
    #[case::of_another_drill(json!({ "spec": { "claimRef": { "namespace": "drill-89abcdef-shop" } } }), None)]
    #[case::without_a_claim(json!({ "spec": { "claimRef": null } }), None)]
    #[case::being_deleted(json!({ "metadata": { "deletionTimestamp": at("10:02:00") } }), None)]
    fn only_volumes_of_the_drill_are_deleted_with_it(
        #[case] change: Value,
        #[case] expected: Option<&'static str>,
    ) {
        let namespace = namespace();
        let found = policy_change(&volume(&change), &[&namespace]);
        let expected = expected.map(|policy| PolicyChange {
            volume: "pv".to_owned(),
            resource_version: "7".to_owned(),
            policy,
        });
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case::new(json!({ "volumes": true }), Some("10:00:00"), "10:04:59", true)]
    #[case::late(json!({ "volumes": true }), Some("10:00:00"), "10:05:00", false)]
    #[case::without_volumes(json!({}), Some("10:00:00"), "10:00:01", false)]
    #[case::without_a_result(json!({ "volumes": true }), None, "10:00:01", false)]
    fn volumes_that_are_being_provisioned_are_waited_for(
        #[case] drill: Value,
        #[case] result: Option<&str>,
        #[case] now: &str,
        #[case] expected: bool,
    ) {
        let result = result.map(|time| DrillResult::of_nothing("r", String::new(), at(time)));
        let state = DrillState {
            result,
            ..DrillState::default()
        };
        let spec = json!({ "drill": drill });
        let mut restore = Restore::new("r", serde_json::from_value(spec).unwrap());
        let annotations = [(DRILL_STATE_ANNOTATION.to_owned(), state.annotation())];
        restore.metadata.annotations = Some(annotations.into());
        assert_eq!(may_wait(Some(&restore), at(now)), expected);
        assert!(!may_wait(None, at(now)));
    }

    #[rstest]
    #[case::asked(json!({}), true)]
    #[case::bound(json!({ "spec": { "volumeName": "pv" } }), false)]
    #[case::waits_for_a_pod(json!({ "metadata": { "annotations": null } }), false)]
    #[case::waits_for_a_download(
        json!({ "spec": { "dataSourceRef": { "apiGroup": "velero.io", "kind": "DataDownload", "name": "d" } } }),
        false
    )]
    fn a_claim_is_provisioned_once_kubernetes_has_asked_for_it(
        #[case] change: Value,
        #[case] expected: bool,
    ) {
        let mut claim = json!({
            "metadata": { "name": "data", "annotations": { "volume.kubernetes.io/storage-provisioner": "disk" } },
            "spec": { "dataSourceRef": { "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" } },
        });
        json_patch::merge(&mut claim, &change);
        let claim = serde_json::from_value(claim).unwrap();
        assert_eq!(is_being_provisioned(&claim), expected);
    }

    #[test]
    fn a_content_of_a_drill_belongs_to_a_snapshot_in_a_scratch_namespace() {
        for (spec, expected) in [
            (json!({ "volumeSnapshotRef": { "namespace": SHOP } }), true),
            (
                json!({ "volumeSnapshotRef": { "namespace": "shop" } }),
                false,
            ),
            (json!({}), false),
        ] {
            let content = json!({ "metadata": { "name": "c" }, "spec": spec });
            let content: DynamicObject = serde_json::from_value(content).unwrap();
            assert_eq!(is_of_drill(&content), expected);
        }
    }
}
