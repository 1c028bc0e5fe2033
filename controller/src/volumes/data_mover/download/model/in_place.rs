//! The volume of a claim that exists, which is taken over and given back.

use backup_core::{api::transfer::MovePhase, data_movement::TRANSFER_LABEL};
use kube::ResourceExt as _;
use serde_json::json;

use super::{Model, RECLAIM_POLICY, SEEDS, policy, reference};

impl Model {
    /// A target claim with its volume.
    fn in_place(seed: u64) -> Self {
        let mut model = Self::new(seed);
        if let Some(download) = &mut model.download {
            download.spec.restore_type = Some("incremental".to_owned());
            download.spec.target_volume.pv = "pv".to_owned();
            model.last = download.clone();
        }
        if let Some(target) = &mut model.target {
            target.waits_for_us = false;
            target.volume = Some("pv".to_owned());
            target.is_bound = true;
        }
        let volume = json!({
            "metadata": {
                "name": "pv",
                "annotations": {"pv.kubernetes.io/provisioned-by": "csi.example.com"},
            },
            "spec": {
                "persistentVolumeReclaimPolicy": model.class_policy,
                "claimRef": {"namespace": "shop", "name": "data", "uid": "uid-t"},
                "csi": {"driver": "csi.example.com", "volumeHandle": "h"},
            },
            "status": {"phase": "Bound"},
        });
        model.volume = Some(serde_json::from_value(volume).unwrap());
        model
    }

    /// Whether the claim is the one that existed.
    fn has_target(&self) -> bool {
        let target = self.target.as_ref();
        target.is_some_and(|target| target.uid == "uid-t")
    }

    /// Checks what is left when the cluster has done its part, too.
    fn check_in_place(&mut self) {
        for _ in 0..200 {
            self.environment();
        }
        assert!(self.pod.is_none() && self.claim.is_none(), "{self:?}");
        if let Some(volume) = &self.volume {
            assert!(!volume.labels().contains_key(TRANSFER_LABEL), "{self:?}");
            let annotations = volume.annotations();
            assert!(!annotations.contains_key(RECLAIM_POLICY), "{self:?}");
        }
        if self.has_target() {
            let Some(volume) = &self.volume else {
                panic!("the claim has lost its volume: {self:?}")
            };
            let expected = ("data".to_owned(), "uid-t".to_owned());
            assert_eq!(reference(volume), expected, "{self:?}");
            assert_eq!(policy(volume), self.class_policy, "{self:?}");
            let target = self.target.as_ref();
            assert!(target.is_some_and(|target| target.is_bound), "{self:?}");
        }
    }
}

#[test]
fn in_any_order_the_claim_has_its_volume_again_and_no_two_pods_write_to_it() {
    let mut completed = 0;
    let mut others = 0;
    for seed in 0..SEEDS {
        let mut model = Model::in_place(seed);
        model.run();
        model.check_in_place();
        let phase = model.last.status.transfer.phase.clone();
        if phase == Some(MovePhase::Completed) {
            completed += 1;
        } else {
            others += 1;
        }
    }
    assert!(completed > SEEDS / 20, "{completed} have completed");
    assert!(others > SEEDS / 10, "{others} have not");
}

#[test]
fn undisturbed_the_data_is_restored_and_the_volume_given_back() {
    for seed in 0..SEEDS {
        let mut model = Model::in_place(seed);
        while !model.is_over() {
            if model.rng.bool() {
                model.control(false);
            } else {
                model.environment();
            }
        }
        model.check_in_place();
        let phase = model.last.status.transfer.phase.clone();
        let has_data = super::Fill::of(&model.last).is_some();
        assert!(has_data || phase == Some(MovePhase::Failed), "{model:?}");
    }
}
