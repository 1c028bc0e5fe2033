//! What the cluster and its users do in the model.

use backup_core::data_movement::MoverResult;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::json;

use super::{Model, Work, merged, policy, reference};
use crate::data_mover::download::patches::{self, Fill};

impl Model {
    /// A turn of kubelet, provisioner, binder or garbage collection.
    pub(super) fn environment(&mut self) {
        match self.rng.u8(..6) {
            0 => self.provision(),
            1 => self.work(),
            2 => {
                if self.pod.as_ref().is_some_and(|pod| pod.is_deleting) {
                    self.pod = None;
                }
            }
            3 => {
                let is_deleting = self.claim.as_ref().is_some_and(|claim| claim.is_deleting);
                if is_deleting && self.pod.is_none() {
                    self.claim = None;
                }
            }
            4 => self.reclaim(),
            _ => self.bind(),
        }
    }

    /// A class with `WaitForFirstConsumer`: the volume is made when there is a pod.
    fn provision(&mut self) {
        if self.volume.is_some() || self.pod.is_none() {
            return;
        }
        let Some(claim) = self.claim.as_mut().filter(|claim| !claim.is_deleting) else {
            return;
        };
        claim.volume = Some("pv".to_owned());
        let volume = json!({
            "metadata": {
                "name": "pv",
                "annotations": {"pv.kubernetes.io/provisioned-by": "csi.example.com"},
            },
            "spec": {
                "persistentVolumeReclaimPolicy": self.class_policy,
                "claimRef": {"namespace": "velero", "name": "d", "uid": claim.uid},
            },
        });
        self.volume = Some(serde_json::from_value(volume).unwrap());
    }

    fn work(&mut self) {
        let is_bound = self
            .claim
            .as_ref()
            .is_some_and(|claim| claim.volume.is_some());
        let choice = self.rng.u8(..16);
        let Some(pod) = self.pod.as_mut().filter(|_| is_bound) else {
            return;
        };
        pod.work = match (pod.work, choice) {
            (Work::Waiting, _) => Work::Running,
            (Work::Running, 0) => Work::Ended(MoverResult::Failed),
            (Work::Running, 1) => Work::Ended(MoverResult::Cancelled),
            (Work::Running, 2 | 3) => Work::Ended(MoverResult::Incomplete),
            (Work::Running, 4) => Work::Lost,
            (Work::Running, _) => Work::Ended(MoverResult::Complete),
            (ended, _) => ended,
        };
    }

    /// A volume whose claim is gone is deleted, if its policy says so.
    fn reclaim(&mut self) {
        let Some(volume) = &self.volume else {
            return;
        };
        let (_, uid) = reference(volume);
        let has_own = self.claim.as_ref().is_some_and(|claim| claim.uid == uid);
        let has_target = self.target.as_ref().is_some_and(|target| target.uid == uid);
        let is_released = !uid.is_empty() && !has_own && !has_target;
        if is_released && policy(volume) == "Delete" {
            let can_complete = self.target.as_ref().is_some_and(|target| {
                target.uid == patches::target_uid(&self.last)
                    && target.volume.as_deref().is_none_or(|name| name == "pv")
            });
            let has_data = Fill::of(&self.last).is_some() && !patches::has_ended(&self.last);
            assert!(
                !(can_complete && has_data),
                "the data was deleted: {self:?}"
            );
            self.volume = None;
        }
    }

    /// A volume that is reserved for the target claim is bound to it.
    fn bind(&mut self) {
        let Some(volume) = &self.volume else {
            return;
        };
        let (name, uid) = reference(volume);
        if let Some(target) = &mut self.target
            && name == "data"
            && target.uid == uid
        {
            let is_free = target.volume.as_deref().is_none_or(|name| name == "pv");
            if is_free {
                target.volume = Some("pv".to_owned());
                target.is_bound = true;
            } else {
                // It is bound elsewhere, so the volume is unbound.
                let unbound = json!({"spec": {"claimRef": {"uid": null}}});
                self.volume = Some(merged(volume, &unbound));
            }
        }
    }

    /// Something that a user does, seldom.
    pub(super) fn user(&mut self) {
        match self.rng.u8(..80) {
            0 => {
                if let Some(download) = &mut self.download {
                    download.spec.mover.cancel = true;
                    self.last = download.clone();
                }
            }
            1 => self.delete_download(),
            2 => self.target = None,
            3 => {
                let uid = self.uid();
                if let Some(target) = &mut self.target {
                    target.uid = uid;
                    target.volume = None;
                    target.is_bound = false;
                }
            }
            4 => {
                if let Some(target) = self.target.as_mut().filter(|target| !target.is_bound) {
                    target.volume = Some("pv-0".to_owned());
                    target.is_bound = true;
                }
            }
            // The namespace is deleted.
            5 => {
                if let Some(target) = &mut self.target {
                    target.is_deleting = true;
                }
            }
            6 => {
                if let Some(pod) = &mut self.pod {
                    pod.is_deleting = true;
                }
            }
            _ => {}
        }
    }

    fn delete_download(&mut self) {
        if let Some(download) = &mut self.download {
            download.metadata.deletion_timestamp = Some(Time(self.now));
            self.last = download.clone();
            if self.last.finalizers().is_empty() {
                self.download = None;
            }
        }
    }
}
