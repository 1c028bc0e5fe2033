//! Our claim of a DataDownload: the pod fills it, and its volume is then given to the target claim.
//! Pure.

use std::collections::BTreeMap;

use backup_actions::restore::stored::{LostFields, WriteRequest};
use backup_core::{
    api::DataDownload, data_movement::TRANSFER_LABEL, labels::EXCLUDE_FROM_BACKUP,
    resources::CLAIMS,
};
use k8s_openapi::{
    api::core::v1::{
        PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
        VolumeResourceRequirements,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::ResourceExt as _;
use serde_json::Value;

/// Annotation of a claim by the scheduler, if its class has the mode `WaitForFirstConsumer`.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The claim to create: whatever binds a volume to the target claim has to accept a volume that was
/// made for this one, so it asks for the same.
pub(super) fn claim_to_fill(
    download: &DataDownload,
    target: &PersistentVolumeClaim,
    owner: OwnerReference,
) -> PersistentVolumeClaim {
    let wanted = target.spec.clone().unwrap_or_default();
    let mut labels: BTreeMap<String, String> = target
        .labels()
        .iter()
        .filter(|(label, _)| is_of_topology(label))
        .map(|(label, value)| (label.clone(), value.clone()))
        .collect();
    labels.insert(TRANSFER_LABEL.to_owned(), download.name_any());
    labels.insert(EXCLUDE_FROM_BACKUP.to_owned(), "true".to_owned());
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(download.name_any()),
            namespace: download.namespace(),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: wanted.access_modes,
            resources: wanted.resources,
            storage_class_name: wanted.storage_class_name,
            volume_attributes_class_name: wanted.volume_attributes_class_name,
            volume_mode: wanted.volume_mode,
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// Our claim for a volume that is taken over from the target claim. It asks for exactly that volume,
/// and waits until the volume's `claimRef` names it.
pub(super) fn claim_in_place(
    download: &DataDownload,
    volume: &PersistentVolume,
    owner: OwnerReference,
) -> PersistentVolumeClaim {
    let offered = volume.spec.clone().unwrap_or_default();
    let labels = [
        (TRANSFER_LABEL.to_owned(), download.name_any()),
        (EXCLUDE_FROM_BACKUP.to_owned(), "true".to_owned()),
    ];
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(download.name_any()),
            namespace: download.namespace(),
            labels: Some(labels.into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: offered.access_modes,
            resources: Some(VolumeResourceRequirements {
                // Not what the target claim asks for: that may be more, while it is enlarged.
                requests: offered.capacity,
                ..VolumeResourceRequirements::default()
            }),
            // An empty name: without one, the default class would be set.
            storage_class_name: Some(offered.storage_class_name.unwrap_or_default()),
            volume_attributes_class_name: offered.volume_attributes_class_name,
            volume_mode: offered.volume_mode,
            volume_name: Some(volume.name_any()),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// What a claim of ours lacks that was asked for: a webhook may have taken it away.
pub(super) fn lost_fields(
    wanted: &PersistentVolumeClaim,
    stored: &PersistentVolumeClaim,
) -> LostFields {
    let (Ok(Value::Object(body)), Ok(Value::Object(answer))) =
        (serde_json::to_value(wanted), serde_json::to_value(stored))
    else {
        return LostFields::default();
    };
    let request = WriteRequest {
        group_resource: CLAIMS,
        body: &body,
        unmodified: None,
    };
    request.lost(&answer)
}

/// The node that the scheduler has chosen for a pod with the target claim: its volume should be
/// accessible there.
pub(super) fn selected_node(target: &PersistentVolumeClaim) -> Option<&str> {
    let node = target.annotations().get(SELECTED_NODE)?.as_str();
    (!node.is_empty()).then_some(node)
}

/// Whether a claim is for a device and not for a file system.
pub(super) fn is_block(claim: &PersistentVolumeClaim) -> bool {
    let mode = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_mode.as_ref());
    mode.is_some_and(|mode| mode == "Block")
}

/// Whether a label may tell a provisioner where the volume has to be. Other labels are not copied:
/// by some of them operators find objects that they manage, and would remove our claim.
pub(super) fn is_of_topology(label: &str) -> bool {
    label.split_once('/').is_some_and(|(domain, _)| {
        domain.starts_with("topology.") || domain == "failure-domain.beta.kubernetes.io"
    })
}

#[cfg(test)]
mod tests {
    use backup_core::api::transfer::DataDownloadSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn our_claim_asks_for_the_same_volume_and_names_no_source() {
        let target: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {
                "name": "data", "namespace": "shop", "uid": "uid-t",
                "labels": {"app": "shop", "topology.kubernetes.io/zone": "a",
                    "velero.io/restore-name": "r"},
                "annotations": {"volume.kubernetes.io/selected-node": "n1"},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "volumeMode": "Block", "volumeAttributesClassName": "gold",
                "volumeName": "pv-0", "selector": {"matchLabels": {"a": "b"}},
                "resources": {"requests": {"storage": "1Gi"}},
                "dataSource": {"apiGroup": "velero.io", "kind": "DataDownload", "name": "d"},
                "dataSourceRef": {"apiGroup": "velero.io", "kind": "DataDownload", "name": "d"},
            },
            "status": {"phase": "Pending"},
        }))
        .unwrap();
        let mut download = DataDownload::new("d", DataDownloadSpec::default());
        download.metadata.namespace = Some("velero".to_owned());
        let owner = OwnerReference {
            uid: "uid-d".to_owned(),
            ..OwnerReference::default()
        };
        assert_eq!(selected_node(&target), Some("n1"));
        let claim = claim_to_fill(&download, &target, owner);
        assert!(is_block(&claim));
        let claim = serde_json::to_value(&claim).unwrap();
        let expected = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Block",
            "volumeAttributesClassName": "gold", "resources": {"requests": {"storage": "1Gi"}},
        });
        assert_eq!(claim["spec"], expected);
        let metadata = &claim["metadata"];
        assert_eq!(
            (&metadata["name"], &metadata["namespace"]),
            (&json!("d"), &json!("velero"))
        );
        let labels = json!({
            TRANSFER_LABEL: "d",
            EXCLUDE_FROM_BACKUP: "true",
            "topology.kubernetes.io/zone": "a",
        });
        assert_eq!(metadata["labels"], labels);
        assert_eq!(metadata["ownerReferences"][0]["uid"], "uid-d");
        assert!(metadata.get("annotations").is_none());
    }

    #[test]
    fn our_claim_for_a_volume_that_exists_asks_for_that_one() {
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": "pv-1", "labels": {"topology.kubernetes.io/zone": "a"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "volumeMode": "Filesystem", "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": {"driver": "disk.example.com", "volumeHandle": "h"},
            },
        }))
        .unwrap();
        let mut download = DataDownload::new("d", DataDownloadSpec::default());
        download.metadata.namespace = Some("velero".to_owned());
        let claim = claim_in_place(&download, &volume, OwnerReference::default());
        let claim = serde_json::to_value(&claim).unwrap();
        let expected = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "volumeMode": "Filesystem", "volumeName": "pv-1",
            "resources": {"requests": {"storage": "1Gi"}},
        });
        assert_eq!(claim["spec"], expected);
        let labels = json!({ TRANSFER_LABEL: "d", EXCLUDE_FROM_BACKUP: "true" });
        assert_eq!(claim["metadata"]["labels"], labels);
        let without_class = PersistentVolume::default();
        let claim = claim_in_place(&download, &without_class, OwnerReference::default());
        assert_eq!(claim.spec.unwrap().storage_class_name.as_deref(), Some(""));
    }

    #[test]
    fn a_claim_that_is_stored_as_another_one_is_found_out() {
        let claim = |class: &str, labels: &Value| -> PersistentVolumeClaim {
            serde_json::from_value(json!({
                "metadata": {"name": "d", "namespace": "velero", "labels": labels},
                "spec": {"storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}},
            }))
            .unwrap()
        };
        let wanted = claim("fast", &json!({ TRANSFER_LABEL: "d" }));
        let mut stored = claim("fast", &json!({ TRANSFER_LABEL: "d", "more": "x" }));
        stored.metadata.uid = Some("u".to_owned());
        assert!(lost_fields(&wanted, &stored).is_empty());
        let other_class = claim("slow", &json!({ TRANSFER_LABEL: "d" }));
        let lost = lost_fields(&wanted, &other_class).to_string();
        assert!(lost.contains("spec.storageClassName"), "{lost}");
        let lost = lost_fields(&wanted, &claim("fast", &json!({}))).to_string();
        assert!(lost.contains("metadata.labels"), "{lost}");
    }
}
