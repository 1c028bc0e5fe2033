//! The input of conditions: a volume, and the claim that it is bound to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Conditions, CsiCondition, NfsCondition};
use crate::quantity;

/// Kinds of volume sources that conditions may name (Velero
/// `internal/resourcepolicies/volume_types_conditions.go`, after 1.18: sources of PersistentVolumes
/// and of pod volumes).
pub(crate) const TYPES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// Bytes; zero for the volume of a pod.
    pub capacity: u128,
    /// Empty if it has none.
    pub storage_class: String,
    /// Kind of its source; empty if unknown.
    pub kind: String,
    /// Server and path of an NFS volume.
    pub nfs: Option<(String, String)>,
    /// Driver and attributes of a CSI volume.
    pub csi: Option<(String, BTreeMap<String, String>)>,
    /// Labels of its claim; `None` without a claim.
    pub claim_labels: Option<BTreeMap<String, String>>,
    /// Phase of its claim; `None` without a claim.
    pub claim_phase: Option<String>,
    /// `spec.volumeMode` of its claim; empty without a claim.
    pub claim_volume_mode: String,
    /// `spec.accessModes` of its claim; empty without a claim.
    pub claim_access_modes: BTreeSet<String>,
}

impl Volume {
    /// From a PersistentVolume, and its claim if known. Without a volume (a pending claim), from
    /// the claim alone.
    pub fn persistent(volume: Option<&Value>, claim: Option<&Value>) -> Self {
        let mut seen = volume
            .and_then(|volume| volume.get("spec"))
            .map(Self::of_source)
            .unwrap_or_default();
        let capacity = volume.and_then(|volume| volume.pointer("/spec/capacity/storage"));
        seen.capacity = capacity
            .and_then(Value::as_str)
            .and_then(quantity::bytes)
            .unwrap_or_default();
        seen.storage_class = storage_class(volume)
            .or_else(|| storage_class(claim))
            .unwrap_or_default();
        if let Some(claim) = claim {
            seen.claim_labels = Some(
                claim
                    .pointer("/metadata/labels")
                    .map(texts)
                    .unwrap_or_default(),
            );
            seen.claim_volume_mode = claim
                .pointer("/spec/volumeMode")
                .map(text)
                .unwrap_or_default();
            let modes = claim.pointer("/spec/accessModes").and_then(Value::as_array);
            seen.claim_access_modes = modes.into_iter().flatten().map(text).collect();
            seen.claim_phase = Some(claim.pointer("/status/phase").map(text).unwrap_or_default());
        }
        seen
    }

    /// From a pod's volume without a claim, or from the spec of a PersistentVolume.
    pub fn of_source(source: &Value) -> Self {
        let kind = TYPES
            .iter()
            .find(|kind| source.get(**kind).is_some_and(|value| !value.is_null()));
        Self {
            kind: kind.copied().unwrap_or_default().to_owned(),
            nfs: source
                .get("nfs")
                .map(|nfs| (member(nfs, "server"), member(nfs, "path"))),
            csi: source.get("csi").map(|csi| {
                (
                    member(csi, "driver"),
                    csi.get("volumeAttributes").map(texts).unwrap_or_default(),
                )
            }),
            ..Self::default()
        }
    }
}

impl Conditions {
    pub fn hold(&self, volume: &Volume) -> bool {
        let (least, most) = self.capacity;
        least.is_none_or(|least| least <= volume.capacity)
            && most.is_none_or(|most| volume.capacity <= most)
            && allows(&self.storage_classes, &volume.storage_class)
            && self.nfs.as_ref().is_none_or(|wanted| wanted.holds(volume))
            && self.csi.as_ref().is_none_or(|wanted| wanted.holds(volume))
            && allows(&self.volume_types, &volume.kind)
            && self.claim_labels.iter().all(|(key, value)| {
                volume.claim_labels.as_ref().and_then(|all| all.get(key)) == Some(value)
            })
            && allows(
                &self.claim_phases,
                volume.claim_phase.as_deref().unwrap_or_default(),
            )
            && (self.claim_volume_mode.is_empty()
                || self.claim_volume_mode == volume.claim_volume_mode)
            && (self.claim_access_modes.is_empty()
                || self.claim_access_modes == volume.claim_access_modes)
    }
}

impl NfsCondition {
    fn holds(&self, volume: &Volume) -> bool {
        volume.nfs.as_ref().is_some_and(|(server, path)| {
            (self.server.is_empty() || self.server == *server)
                && (self.path.is_empty() || self.path == *path)
        })
    }
}

impl CsiCondition {
    fn holds(&self, volume: &Volume) -> bool {
        volume.csi.as_ref().is_some_and(|(driver, attributes)| {
            (self.driver.is_empty() || self.driver == *driver)
                && self
                    .volume_attributes
                    .iter()
                    .all(|(key, value)| attributes.get(key) == Some(value))
        })
    }
}

/// Whether a list in a policy has a value, or is empty.
fn allows(list: &[String], value: &str) -> bool {
    list.is_empty() || list.iter().any(|one| one == value)
}

fn storage_class(object: Option<&Value>) -> Option<String> {
    object?.pointer("/spec/storageClassName").map(text)
}

/// The text of a field; empty if the field is missing.
fn member(object: &Value, name: &str) -> String {
    object.get(name).map(text).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}
