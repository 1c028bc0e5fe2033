//! The PersistentVolume of a DataDownload on its way from our claim to the target claim: its holder
//! and its patches. Pure.
//!
//! Each patch is made from the state of the volume that it applies to, and is `None` for a volume
//! that has another holder than the patch expects. So a volume that another claim has got meanwhile
//! is never changed. The reclaim policy is `Retain` from before our claim is deleted
//! until the target claim is bound. A volume that exists is taken over from the target claim first,
//! and is `Retain` from before that on.

use backup_core::{
    api::DataDownload, data_movement::TRANSFER_LABEL, volume_info::VolumeProperties,
};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{claim::is_of_topology, patches};
use crate::volumes::data_mover::objects::is_made_for_claim;

/// Annotation of a volume that is handed over: the reclaim policy that it gets back.
pub(super) const RECLAIM_POLICY: &str = "backup-controller/reclaim-policy";
const RETAIN: &str = "Retain";
const DELETE: &str = "Delete";

/// The claims between which a volume is handed over.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claims {
    /// Our namespace.
    pub(super) namespace: String,
    /// Name of our claim, and of the DataDownload.
    pub(super) name: String,
    /// Uid of our claim; `None` once it is gone.
    pub(super) uid: Option<String>,
    pub(super) target_namespace: String,
    pub(super) target: String,
    /// Uid that the target claim had when the DataDownload was accepted.
    pub(super) target_uid: String,
    /// Whether the volume was the target claim's before, and is only taken over for a while.
    pub(super) is_in_place: bool,
    /// Properties of the volume in the backup, which the target claim's volume gets.
    pub(super) properties: Option<VolumeProperties>,
}

/// Which claim holds a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Our claim, also after it is gone.
    Ours,
    Target,
    /// None: the volume is reserved for the name of the target claim at most.
    Unclaimed,
    /// Another claim: namespace and name.
    Other(String),
}

impl Claims {
    /// `uid`: uid of our claim, if it exists.
    pub(super) fn of(download: &DataDownload, uid: Option<String>) -> Self {
        let target = &download.spec.target_volume;
        Self {
            namespace: download.namespace().unwrap_or_default(),
            name: download.name_any(),
            uid,
            target_namespace: target.namespace.clone(),
            target: target.pvc.clone(),
            target_uid: patches::target_uid(download).to_owned(),
            is_in_place: patches::in_place(download).is_some(),
            properties: patches::volume_properties(download),
        }
    }

    fn holder(&self, volume: &PersistentVolume) -> Holder {
        let spec = volume.spec.as_ref();
        let Some(reference) = spec.and_then(|spec| spec.claim_ref.as_ref()) else {
            return Holder::Unclaimed;
        };
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let name = reference.name.as_deref().unwrap_or_default();
        let uid = reference.uid.as_deref().unwrap_or_default();
        if (namespace, name) == (&*self.namespace, &*self.name) {
            // One that was taken over is given back, whatever became of our claim.
            let is_taken = self.is_in_place && self.have_marked(volume);
            if is_taken || self.uid.as_deref().is_none_or(|own| own == uid) {
                return Holder::Ours;
            }
        } else if (namespace, name) == (&*self.target_namespace, &*self.target) {
            if uid.is_empty() {
                return Holder::Unclaimed;
            }
            if uid == self.target_uid {
                return Holder::Target;
            }
        }
        Holder::Other(format!("{namespace}/{name}"))
    }

    /// Whether the volume has the label of this handover.
    fn have_marked(&self, volume: &PersistentVolume) -> bool {
        volume.labels().get(TRANSFER_LABEL) == Some(&self.name)
    }

    /// Whether the volume has the label of another handover.
    fn have_other_mark(&self, volume: &PersistentVolume) -> bool {
        let mark = volume.labels().get(TRANSFER_LABEL);
        mark.is_some_and(|mark| *mark != self.name)
    }

    /// The reclaim policy from before the handover.
    fn original_policy<'a>(&self, volume: &'a PersistentVolume) -> &'a str {
        let kept = volume.annotations().get(RECLAIM_POLICY);
        kept.filter(|_| self.have_marked(volume))
            .map_or_else(|| policy(volume), String::as_str)
    }

    /// The reclaim policy for a volume whose data is not wanted: one that was made for us is
    /// deleted whatever its class says, as it holds nothing but parts of the repository. One that
    /// an administrator made is never deleted by us.
    fn discarding_policy<'a>(&self, volume: &'a PersistentVolume) -> &'a str {
        if is_made_for_claim(volume) {
            DELETE
        } else {
            self.original_policy(volume)
        }
    }

    /// Keeps a volume of our claim when that is deleted, or one that is about to be taken over, and
    /// remembers its reclaim policy.
    pub(super) fn retain(&self, volume: &PersistentVolume) -> Option<Value> {
        let is_kept = match self.holder(volume) {
            Holder::Ours => true,
            Holder::Target => self.is_in_place && !self.have_other_mark(volume),
            Holder::Unclaimed | Holder::Other(_) => false,
        };
        is_kept.then(|| {
            json!({
                "metadata": {
                    "labels": { TRANSFER_LABEL: self.name },
                    "annotations": { RECLAIM_POLICY: self.original_policy(volume) },
                },
                "spec": { "persistentVolumeReclaimPolicy": RETAIN },
            })
        })
    }

    /// Gives a retained volume of the target claim to our claim. Until it is given back, no pod
    /// gets it by the target claim: kubelets compare the uid of the claim with that of `claimRef`.
    pub(super) fn take_over(&self, volume: &PersistentVolume) -> Option<Value> {
        let uid = self.uid.as_ref()?;
        let is_kept = self.have_marked(volume) && policy(volume) == RETAIN;
        let is_taken = self.is_in_place && self.holder(volume) == Holder::Target && is_kept;
        is_taken.then(|| claim_ref(&self.namespace, &self.name, uid))
    }

    /// Reserves a retained volume of our claim for the target claim, which is then bound to it.
    pub(super) fn hand_over(&self, volume: &PersistentVolume) -> Option<Value> {
        let is_kept = self.have_marked(volume) && policy(volume) == RETAIN;
        (self.holder(volume) == Holder::Ours && is_kept)
            .then(|| claim_ref(&self.target_namespace, &self.target, &self.target_uid))
    }

    /// Ends the handover of a volume that is no longer ours: it gets its reclaim policy back, or
    /// that of the volume in the backup.
    pub(super) fn settle(&self, volume: &PersistentVolume) -> Option<Value> {
        let holder = self.holder(volume);
        let is_given = matches!(holder, Holder::Target | Holder::Unclaimed);
        if !is_given || !self.have_marked(volume) {
            return None;
        }
        let properties = self
            .properties
            .as_ref()
            .filter(|_| holder == Holder::Target);
        let policy = properties
            .and_then(wanted_policy)
            .unwrap_or_else(|| self.original_policy(volume));
        let mut patch = ended(policy);
        for (label, value) in properties.into_iter().flat_map(|of| &of.labels) {
            // Labels set by the provisioner describe the new volume.
            let is_new = label != TRANSFER_LABEL && !volume.labels().contains_key(label);
            if is_new && !is_of_topology(label) {
                patch["metadata"]["labels"][label] = json!(value);
            }
        }
        Some(patch)
    }

    /// Ends the handover of a volume that was taken over from a claim that is gone, or that does not
    /// hold it any longer: the volume is never deleted.
    pub(super) fn keep(&self, volume: &PersistentVolume) -> Option<Value> {
        let is_given = matches!(self.holder(volume), Holder::Target | Holder::Unclaimed);
        (self.is_in_place && is_given && self.have_marked(volume)).then(|| ended(RETAIN))
    }

    /// Has a volume of our claim deleted with that claim, or as soon as that is gone. Never one
    /// that was taken over.
    pub(super) fn discard(&self, volume: &PersistentVolume) -> Option<Value> {
        let is_unwanted = !self.is_in_place && self.holder(volume) == Holder::Ours;
        is_unwanted.then(|| ended(self.discarding_policy(volume)))
    }
}

fn claim_ref(namespace: &str, name: &str, uid: &str) -> Value {
    json!({ "spec": { "claimRef": {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": name,
        "uid": uid,
        "resourceVersion": null,
        "fieldPath": null,
    }}})
}

/// Removes the marks of a handover, and sets the reclaim policy.
fn ended(policy: &str) -> Value {
    json!({
        "metadata": {
            "labels": { TRANSFER_LABEL: null },
            "annotations": { RECLAIM_POLICY: null },
        },
        "spec": { "persistentVolumeReclaimPolicy": policy },
    })
}

/// The reclaim policy that the volume in the backup had; `None` if it is not known.
fn wanted_policy(properties: &VolumeProperties) -> Option<&str> {
    let policy = properties.reclaim_policy.as_str();
    [DELETE, RETAIN].contains(&policy).then_some(policy)
}

/// The reclaim policy; the API server's default for a volume without one.
fn policy(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
        .unwrap_or(RETAIN)
}

/// What a decision needs to know of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HandedVolume {
    pub(super) name: String,
    pub(super) holder: Holder,
    pub(super) is_deleting: bool,
    /// Whether it is bound to the claim that holds it. One that is not may count as released, and
    /// would be deleted if its reclaim policy said so.
    pub(super) is_bound: bool,
    /// Whether it has the marks of this handover.
    pub(super) is_marked: bool,
    /// Whether it has the mark of another handover.
    pub(super) has_other_mark: bool,
    /// Whether it is one of a CSI driver.
    pub(super) is_csi: bool,
    /// Whether it stays when our claim is deleted, and its own policy is remembered.
    pub(super) is_retained: bool,
    /// Whether it was made for our claim, so that it holds nothing else.
    pub(super) is_made_for_claim: bool,
    /// Whether there is nothing to do before our claim is deleted with it.
    pub(super) is_discarded: bool,
}

impl HandedVolume {
    pub(super) fn of(volume: &PersistentVolume, claims: &Claims) -> Self {
        let is_marked = claims.have_marked(volume);
        let is_remembered = volume.annotations().contains_key(RECLAIM_POLICY);
        let status = volume.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        Self {
            name: volume.name_any(),
            holder: claims.holder(volume),
            is_deleting: volume.metadata.deletion_timestamp.is_some(),
            is_bound: phase == Some("Bound"),
            is_marked,
            has_other_mark: claims.have_other_mark(volume),
            is_csi: volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some()),
            is_retained: is_marked && is_remembered && policy(volume) == RETAIN,
            is_made_for_claim: is_made_for_claim(volume),
            is_discarded: !is_marked && policy(volume) == claims.discarding_policy(volume),
        }
    }
}

#[cfg(test)]
mod tests;
