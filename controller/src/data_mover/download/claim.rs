//! Our claim of a DataDownload: the pod fills it, and its volume is then given to the target claim.
//! Pure.

use std::collections::BTreeMap;

use backup_core::{api::DataDownload, data_movement::TRANSFER_LABEL, labels::EXCLUDE_FROM_BACKUP};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::ResourceExt as _;

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
fn is_of_topology(label: &str) -> bool {
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
}
