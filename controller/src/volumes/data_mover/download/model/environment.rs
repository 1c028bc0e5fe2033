//! What the cluster and its users do in the model.

use backup_core::data_movement::MoverResult;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::json;

use super::{Model, Work, is_older, merged, phase, policy, reference};
use crate::volumes::data_mover::download::{
    patches::{self, Fill},
    users::user,
};

impl Model {
    /// A turn of kubelet, provisioner, binder or garbage collection.
    pub(super) fn environment(&mut self) {
        match self.rng.u8(..7) {
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
            5 => self.start_application(),
            _ => self.bind(),
        }
    }

    /// A class with `WaitForFirstConsumer`: the volume is made when there is a pod. Sometimes the
    /// claim is bound to one that existed before.
    fn provision(&mut self) {
        if self.volume.is_some() || self.pod.is_none() || self.is_in_place() {
            return;
        }
        // Of files, the mover finds out by itself.
        let is_older = self.is_block && self.rng.u8(..8) == 0;
        let Some(claim) = self.claim.as_mut().filter(|claim| !claim.is_deleting) else {
            return;
        };
        claim.volume = Some("pv".to_owned());
        let mut volume = json!({
            "metadata": {
                "name": "pv",
                "annotations": {"pv.kubernetes.io/provisioned-by": "csi.example.com"},
            },
            "spec": {
                "persistentVolumeReclaimPolicy": self.class_policy,
                "claimRef": {"namespace": "velero", "name": "d", "uid": claim.uid},
            },
            "status": {"phase": "Bound"},
        });
        if is_older {
            volume["metadata"]["annotations"] = json!({});
            volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        }
        self.volume = Some(serde_json::from_value(volume).unwrap());
    }

    fn work(&mut self) {
        let is_bound = self.has_volume();
        let choice = self.rng.u8(..16);
        let is_older = !self.is_in_place() && self.volume.as_ref().is_some_and(is_older);
        let is_used = self.is_application_running;
        let Some(pod) = self.pod.as_mut().filter(|_| is_bound) else {
            return;
        };
        pod.work = match (pod.work, choice) {
            (Work::Waiting, _) if pod.is_probe => Work::Ended(MoverResult::Failed),
            (Work::Waiting, _) => {
                assert!(!is_older, "an older volume is written to");
                assert!(!is_used, "a volume in use is written to");
                Work::Running
            }
            (Work::Running, 0) => Work::Ended(MoverResult::Failed),
            (Work::Running, 1) => Work::Ended(MoverResult::Cancelled),
            (Work::Running, 2 | 3) => Work::Ended(MoverResult::Incomplete),
            (Work::Running, 4) => Work::Lost,
            (Work::Running, _) => Work::Ended(MoverResult::Complete),
            (ended, _) => ended,
        };
    }

    /// Scheduler and kubelet of a pod of the application.
    fn start_application(&mut self) {
        let Some(target) = self.target.as_ref().filter(|target| target.is_bound) else {
            return;
        };
        let claim = ("data".to_owned(), target.uid.clone());
        let volume = self.volume.as_ref();
        let has_volume = volume.is_some_and(|volume| reference(volume) == claim);
        let Some(application) = &mut self.application else {
            return;
        };
        if application.is_scheduled {
            self.is_application_running |= has_volume;
        } else {
            application.is_scheduled = true;
        }
    }

    /// A volume whose claim is gone becomes released, and is deleted then, if its policy says so:
    /// also if it was given to another claim in between.
    fn reclaim(&mut self) {
        let Some(volume) = &self.volume else {
            return;
        };
        let (_, uid) = reference(volume);
        let has_own = self.claim.as_ref().is_some_and(|claim| claim.uid == uid);
        let has_target = self.target.as_ref().is_some_and(|target| target.uid == uid);
        let has_lost_claim = !uid.is_empty() && !has_own && !has_target;
        if phase(volume) == "Released" && policy(volume) == "Delete" {
            let has_target = self.target.as_ref().is_some_and(|target| {
                target.uid == patches::target_uid(&self.last)
                    && target.volume.as_deref().is_none_or(|name| name == "pv")
            });
            let has_data = Fill::of(&self.last).is_some() && !patches::has_ended(&self.last);
            assert!(
                !has_target || !has_data && !self.is_in_place(),
                "the data was deleted: {self:?}"
            );
            self.volume = None;
        } else if has_lost_claim {
            let released = json!({"status": {"phase": "Released"}});
            self.volume = Some(merged(volume, &released));
        }
    }

    /// A volume that is reserved for the target claim is bound to it.
    fn bind(&mut self) {
        let Some(volume) = &self.volume else {
            return;
        };
        let (name, uid) = reference(volume);
        let is_in_place = self.is_in_place();
        if let Some(target) = &mut self.target
            && name == "data"
            && target.uid == uid
        {
            let is_free = target.volume.as_deref().is_none_or(|name| name == "pv");
            if is_free {
                target.volume = Some("pv".to_owned());
                target.is_bound = true;
                let bound = json!({"status": {"phase": "Bound"}});
                self.volume = Some(merged(volume, &bound));
            } else {
                // It is bound elsewhere, so the volume is unbound.
                let unbound = json!({"spec": {"claimRef": {"uid": null}}});
                self.volume = Some(merged(volume, &unbound));
            }
        } else if let Some(target) = self.target.as_mut().filter(|_| is_in_place) {
            // Lost.
            target.is_bound = false;
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
            4 if !self.is_in_place() => {
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
            7 | 8 if self.is_in_place() && self.application.is_none() => {
                self.application = Some(user("web-1", false));
            }
            9..12 => {
                self.application = None;
                self.is_application_running = false;
            }
            12 if self.is_in_place() => {
                if let Some(claim) = &mut self.claim {
                    claim.is_deleting = true;
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
