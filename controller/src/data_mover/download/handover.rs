//! The PersistentVolume of a DataDownload on its way from our claim to the target claim: its holder
//! and its patches. Pure.
//!
//! Each patch is made from the state of the volume that it applies to, and is `None` for a volume
//! that has another holder than the patch expects. So a volume that another claim has got meanwhile
//! is never changed. The reclaim policy is `Retain` from before our claim is deleted
//! until the target claim is bound.

use backup_core::{api::DataDownload, data_movement::TRANSFER_LABEL};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::patches;
use crate::data_mover::objects::is_made_for_claim;

/// Annotation of a volume that is handed over: the reclaim policy that it gets back.
pub(super) const RECLAIM_POLICY: &str = "backup-controller/reclaim-policy";
const RETAIN: &str = "Retain";
const DELETE: &str = "Delete";

/// The claims between which a volume is handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
            if self.uid.as_deref().is_none_or(|own| own == uid) {
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

    /// Keeps a volume of our claim when that is deleted, and remembers its reclaim policy.
    pub(super) fn retain(&self, volume: &PersistentVolume) -> Option<Value> {
        (self.holder(volume) == Holder::Ours).then(|| {
            json!({
                "metadata": {
                    "labels": { TRANSFER_LABEL: self.name },
                    "annotations": { RECLAIM_POLICY: self.original_policy(volume) },
                },
                "spec": { "persistentVolumeReclaimPolicy": RETAIN },
            })
        })
    }

    /// Reserves a retained volume of our claim for the target claim, which is then bound to it.
    pub(super) fn hand_over(&self, volume: &PersistentVolume) -> Option<Value> {
        let is_kept = self.have_marked(volume) && policy(volume) == RETAIN;
        (self.holder(volume) == Holder::Ours && is_kept).then(|| {
            json!({ "spec": { "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": self.target_namespace,
                "name": self.target,
                "uid": self.target_uid,
                "resourceVersion": null,
                "fieldPath": null,
            }}})
        })
    }

    /// Ends the handover of a volume that is no longer ours: it gets its reclaim policy back.
    pub(super) fn settle(&self, volume: &PersistentVolume) -> Option<Value> {
        let is_given = matches!(self.holder(volume), Holder::Target | Holder::Unclaimed);
        (is_given && self.have_marked(volume)).then(|| ended(self.original_policy(volume)))
    }

    /// Has a volume of our claim deleted with that claim, or as soon as that is gone.
    pub(super) fn discard(&self, volume: &PersistentVolume) -> Option<Value> {
        (self.holder(volume) == Holder::Ours).then(|| ended(self.discarding_policy(volume)))
    }
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
    /// Whether it has the marks of this handover.
    pub(super) is_marked: bool,
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
        Self {
            name: volume.name_any(),
            holder: claims.holder(volume),
            is_deleting: volume.metadata.deletion_timestamp.is_some(),
            is_marked,
            is_retained: is_marked && is_remembered && policy(volume) == RETAIN,
            is_made_for_claim: is_made_for_claim(volume),
            is_discarded: !is_marked && policy(volume) == claims.discarding_policy(volume),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(uid: Option<&str>) -> Claims {
        Claims {
            namespace: "velero".to_owned(),
            name: "d".to_owned(),
            uid: uid.map(str::to_owned),
            target_namespace: "shop".to_owned(),
            target: "data".to_owned(),
            target_uid: "uid-t".to_owned(),
        }
    }

    fn volume(policy: &str, reference: &Value) -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": {"name": "pv", "annotations": {"pv.kubernetes.io/provisioned-by": "csi.example.com"}},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": reference},
        }))
        .unwrap()
    }

    fn reference(namespace: &str, name: &str, uid: &str) -> Value {
        json!({"namespace": namespace, "name": name, "uid": uid, "resourceVersion": "7"})
    }

    fn patched(volume: &PersistentVolume, patch: &Value) -> PersistentVolume {
        let mut object = serde_json::to_value(volume).unwrap();
        json_patch::merge(&mut object, patch);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn whose_a_volume_is_follows_from_names_and_uid() {
        let other = |name: &str| Holder::Other(name.to_owned());
        for (reference, own, expected) in [
            (
                reference("velero", "d", "uid-c"),
                Some("uid-c"),
                Holder::Ours,
            ),
            (reference("velero", "d", "uid-c"), None, Holder::Ours),
            (
                reference("velero", "d", "uid-old"),
                Some("uid-c"),
                other("velero/d"),
            ),
            (reference("velero", "e", "uid-c"), None, other("velero/e")),
            (reference("shop", "data", "uid-t"), None, Holder::Target),
            (reference("shop", "data", ""), None, Holder::Unclaimed),
            (
                reference("shop", "data", "uid-new"),
                None,
                other("shop/data"),
            ),
            (reference("shop", "d", "uid-c"), None, other("shop/d")),
            (Value::Null, None, Holder::Unclaimed),
        ] {
            let volume = volume(DELETE, &reference);
            assert_eq!(claims(own).holder(&volume), expected, "{reference} {own:?}");
        }
    }

    #[test]
    fn a_volume_of_another_claim_is_never_patched() {
        for reference in [
            reference("shop", "data", "uid-new"),
            reference("shop", "other", "uid-t"),
            reference("velero", "d", "uid-old"),
        ] {
            let mut volume = volume(RETAIN, &reference);
            let mark = [(TRANSFER_LABEL.to_owned(), "d".to_owned())];
            volume.metadata.labels = Some(mark.into());
            let claims = claims(Some("uid-c"));
            for patch in [
                claims.retain(&volume),
                claims.hand_over(&volume),
                claims.settle(&volume),
                claims.discard(&volume),
            ] {
                assert_eq!(patch, None, "{reference}");
            }
        }
    }

    #[rstest::rstest]
    #[case(DELETE)]
    #[case(RETAIN)]
    fn a_handover_keeps_the_volume_and_gives_it_its_policy_back(#[case] class: &str) {
        let own = claims(Some("uid-c"));
        let mut volume = volume(class, &reference("velero", "d", "uid-c"));
        assert_eq!(own.hand_over(&volume), None, "it is not retained");
        assert_eq!(own.settle(&volume), None, "it is ours");
        for _ in 0..2 {
            volume = patched(&volume, &own.retain(&volume).unwrap());
            assert!(HandedVolume::of(&volume, &own).is_retained);
            assert_eq!(volume.annotations()[RECLAIM_POLICY], class);
        }
        let gone = claims(None);
        volume = patched(&volume, &gone.hand_over(&volume).unwrap());
        let seen = HandedVolume::of(&volume, &gone);
        assert_eq!((seen.holder, seen.is_marked), (Holder::Target, true));
        let kept = volume.spec.clone().unwrap().claim_ref.unwrap();
        assert_eq!(kept.resource_version, None);
        assert_eq!(gone.hand_over(&volume), None, "it is handed over");
        assert_eq!(gone.discard(&volume), None, "it is handed over");
        volume = patched(&volume, &gone.settle(&volume).unwrap());
        assert_eq!(policy(&volume), class);
        assert!(!HandedVolume::of(&volume, &gone).is_marked);
        assert!(!volume.annotations().contains_key(RECLAIM_POLICY));
        assert_eq!(gone.settle(&volume), None, "it is settled");
    }

    #[rstest::rstest]
    #[case(DELETE, true, DELETE)]
    #[case(RETAIN, true, DELETE)]
    #[case(RETAIN, false, RETAIN)]
    fn a_volume_that_is_not_wanted_is_deleted_if_it_was_made_for_us(
        #[case] class: &str,
        #[case] is_provisioned: bool,
        #[case] expected: &str,
    ) {
        let own = claims(Some("uid-c"));
        let mut volume = volume(class, &reference("velero", "d", "uid-c"));
        if !is_provisioned {
            volume.metadata.annotations = None;
        }
        let retained = patched(&volume, &own.retain(&volume).unwrap());
        for volume in [volume, retained] {
            let discarded = patched(&volume, &own.discard(&volume).unwrap());
            assert_eq!(policy(&discarded), expected);
            assert!(HandedVolume::of(&discarded, &own).is_discarded);
        }
    }
}
