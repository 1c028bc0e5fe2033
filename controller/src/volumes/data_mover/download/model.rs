//! A small model of the cluster: the decisions and patches of the module run against it, with
//! crashes, outdated reads and users in any order.

mod environment;
mod in_place;

use std::time::Duration;

use backup_core::{
    api::{
        DataDownload,
        transfer::{DataDownloadSpec, MovePhase},
    },
    data_movement::{MoverOutcome, MoverResult, TRANSFER_LABEL},
};
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::PersistentVolume, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt as _;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    decide::{Facts, Found, OwnClaim, OwnPod, Step, Target, decide},
    handover::{Claims, HandedVolume, RECLAIM_POLICY},
    patches::{self, Fill},
    users::ClaimUser,
};
use crate::volumes::data_mover::{
    objects::is_made_for_claim, pod_state::PodState, repository::RepositoryState,
};

const SEEDS: u64 = 2000;
/// Turns during which users and faults disturb.
const DISTURBED_TURNS: u32 = 150;
/// Turns after which everything must have ended.
const MAX_TURNS: u32 = 3000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Waiting,
    Running,
    Ended(MoverResult),
    Lost,
}

#[derive(Debug)]
struct ModelPod {
    uid: String,
    is_probe: bool,
    work: Work,
    is_deleting: bool,
}

#[derive(Debug)]
struct ModelClaim {
    uid: String,
    volume: Option<String>,
    is_deleting: bool,
}

#[derive(Debug)]
struct Model {
    seed: u64,
    rng: Rng,
    now: Timestamp,
    /// Reclaim policy of the storage class.
    class_policy: &'static str,
    download: Option<DataDownload>,
    /// Its last state before it was removed.
    last: DataDownload,
    target: Option<Target>,
    claim: Option<ModelClaim>,
    pod: Option<ModelPod>,
    volume: Option<PersistentVolume>,
    /// Whether the volume is a device.
    is_block: bool,
    /// A pod of the application that uses the target claim, if the data is restored in place.
    application: Option<ClaimUser>,
    /// Whether the kubelet of that pod has found the volume to be the claim's.
    is_application_running: bool,
    /// Number of uids that were given out.
    uids: u32,
}

/// A patch, as the API server applies it.
fn merged<K: Serialize + DeserializeOwned>(object: &K, patch: &Value) -> K {
    let mut value = serde_json::to_value(object).unwrap();
    json_patch::merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

fn reference(volume: &PersistentVolume) -> (String, String) {
    let spec = volume.spec.clone().unwrap_or_default();
    let reference = spec.claim_ref.unwrap_or_default();
    (
        reference.name.unwrap_or_default(),
        reference.uid.unwrap_or_default(),
    )
}

/// Whether it existed before our claim.
fn is_older(volume: &PersistentVolume) -> bool {
    !is_made_for_claim(volume)
}

fn phase(volume: &PersistentVolume) -> String {
    let status = volume.status.clone().unwrap_or_default();
    status.phase.unwrap_or_default()
}

fn policy(volume: &PersistentVolume) -> String {
    let spec = volume.spec.clone().unwrap_or_default();
    spec.persistent_volume_reclaim_policy.unwrap_or_default()
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let mut download = DataDownload::new("d", DataDownloadSpec::default());
        download.metadata.namespace = Some("velero".to_owned());
        download.metadata.uid = Some("uid-d".to_owned());
        download.metadata.creation_timestamp = Some(Time(now));
        download.spec.target_volume.namespace = "shop".to_owned();
        download.spec.target_volume.pvc = "data".to_owned();
        Self {
            seed,
            now,
            class_policy: if rng.bool() { "Delete" } else { "Retain" },
            is_block: rng.bool(),
            application: None,
            is_application_running: false,
            rng,
            last: download.clone(),
            download: Some(download),
            target: Some(Target {
                uid: "uid-t".to_owned(),
                is_deleting: false,
                waits_for_us: true,
                volume: None,
                is_bound: false,
            }),
            claim: None,
            pod: None,
            volume: None,
            uids: 0,
        }
    }

    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    fn claims(&self, download: &DataDownload) -> Claims {
        Claims::of(download, self.claim.as_ref().map(|claim| claim.uid.clone()))
    }

    fn is_in_place(&self) -> bool {
        patches::in_place(&self.last).is_some()
    }

    /// Whether our claim has the volume.
    fn has_volume(&self) -> bool {
        let claim = self.claim.as_ref();
        let volume = self.volume.as_ref();
        claim
            .zip(volume)
            .is_some_and(|(claim, volume)| reference(volume) == ("d".to_owned(), claim.uid.clone()))
    }

    /// What `observe` would read.
    fn facts(&self, download: &DataDownload) -> Facts {
        let bound = self.claim.as_ref().and_then(|claim| claim.volume.clone());
        let wanted = Fill::of(download).map(|fill| fill.volume).or(bound);
        let volume = self.volume.as_ref();
        let volume =
            volume.filter(|volume| Some(volume.name_any()) == wanted || self.is_in_place());
        let mut claims = self.claims(download);
        if patches::is_new(download)
            && let Some(target) = &self.target
        {
            claims.target_uid.clone_from(&target.uid);
        }
        Facts {
            target: self.target.clone(),
            claim: self.claim.as_ref().map_or(Found::Missing, |claim| {
                Found::Ours(OwnClaim {
                    volume: claim.volume.clone(),
                    is_bound: self.has_volume(),
                })
            }),
            pod: self.pod.as_ref().map_or(Found::Missing, |pod| {
                Found::Ours(OwnPod {
                    uid: pod.uid.clone(),
                    is_probe: pod.is_probe,
                    created: None,
                    deleted: None,
                    state: match pod.work {
                        Work::Waiting => PodState::Waiting("starting".to_owned()),
                        Work::Running => PodState::Running,
                        Work::Ended(result) => PodState::Ended(MoverOutcome {
                            result,
                            ..MoverOutcome::default()
                        }),
                        Work::Lost => PodState::Lost("it was evicted".to_owned()),
                    },
                })
            }),
            volume: volume.map(|volume| HandedVolume::of(volume, &claims)),
            is_block: self.is_block,
            users: self.application.iter().cloned().collect(),
            has_location: true,
            repository: Some(RepositoryState::Ready),
            warning: None,
            prepare_timeout: Duration::from_mins(30),
        }
    }

    /// A turn of the controller. It may be killed before the effect of its step, and the cluster
    /// may change between what it reads and what it writes.
    fn control(&mut self, is_disturbed: bool) {
        let Some(download) = self.download.clone() else {
            return;
        };
        let step = decide(&download, &self.facts(&download), self.now);
        let claims = self.claims(&download);
        if is_disturbed {
            match self.rng.u8(..4) {
                0 => return,
                1 => self.environment(),
                2 => self.user(),
                _ => {}
            }
        }
        self.apply(step, &claims);
    }

    /// The effect of a step, as `Work::act` has it.
    fn apply(&mut self, step: Step, claims: &Claims) {
        let now = self.now;
        match step {
            Step::Nothing | Step::Wait(_) | Step::AwaitRepository(_) | Step::Progress => {}
            Step::Accept(uid) => self.record(|current| patches::accepted(current, &uid, now)),
            Step::CreateClaim => {
                let uid = self.uid();
                let volume = self.is_in_place().then(|| "pv".to_owned());
                self.claim.get_or_insert(ModelClaim {
                    uid,
                    volume,
                    is_deleting: false,
                });
            }
            Step::CreateProbe => self.create_pod(true),
            Step::CreatePod => self.create_pod(false),
            Step::Start(pod) => {
                self.record(|current| patches::started(current, &pod, None, now));
            }
            Step::NoteLoss(why) => self.record(|current| patches::first_loss(current, &why)),
            Step::Record(filling) => self.record(|current| {
                patches::filled(current, &filling.fill, &filling.message, filling.bytes)
            }),
            Step::RemovePod => {
                if let Some(pod) = &mut self.pod {
                    pod.is_deleting = true;
                }
            }
            Step::RemoveClaim => {
                if let Some(claim) = &mut self.claim {
                    claim.is_deleting = true;
                }
            }
            Step::Retain => self.change_volume(|volume| claims.retain(volume)),
            Step::TakeOver => self.change_volume(|volume| claims.take_over(volume)),
            Step::Keep => self.change_volume(|volume| claims.keep(volume)),
            Step::HandOver => {
                let before = self.volume.as_ref().map(reference);
                self.change_volume(|volume| claims.hand_over(volume));
                let after = self.volume.as_ref().map(reference);
                let was_ours = before.as_ref().is_some_and(|(name, _)| name == "d");
                assert!(before == after || was_ours, "{self:?}");
            }
            Step::Settle => self.change_volume(|volume| claims.settle(volume)),
            Step::Discard => {
                assert!(patches::has_ended(&self.last), "{self:?}");
                self.change_volume(|volume| claims.discard(volume));
            }
            Step::End(ending) => {
                self.record(|current| patches::ended(current, &ending.phase, &ending.message, now));
            }
            Step::Release => self.record(patches::released),
        }
    }

    fn create_pod(&mut self, is_probe: bool) {
        let uid = self.uid();
        self.pod.get_or_insert(ModelPod {
            uid,
            is_probe,
            work: Work::Waiting,
            is_deleting: false,
        });
    }

    fn record(&mut self, patch: impl Fn(&DataDownload) -> Option<Value>) {
        let Some(current) = &self.download else {
            return;
        };
        if let Some(patch) = patch(current) {
            self.last = merged(current, &patch);
            let is_deleting = self.last.metadata.deletion_timestamp.is_some();
            let is_gone = is_deleting && self.last.finalizers().is_empty();
            self.download = (!is_gone).then(|| self.last.clone());
        }
    }

    fn change_volume(&mut self, patch: impl Fn(&PersistentVolume) -> Option<Value>) {
        if let Some(volume) = &self.volume
            && let Some(patch) = patch(volume)
        {
            self.volume = Some(merged(volume, &patch));
        }
    }

    fn is_over(&self) -> bool {
        let download = self.download.as_ref();
        download.is_none_or(|download| {
            patches::has_ended(download) && !patches::has_finalizer(download)
        })
    }

    fn run(&mut self) {
        for turn in 0..MAX_TURNS {
            let is_disturbed = turn < DISTURBED_TURNS;
            self.now = self
                .now
                .checked_add(SignedDuration::from_secs(self.rng.i64(1..15)))
                .unwrap();
            if self.rng.bool() {
                self.control(is_disturbed);
            } else {
                self.environment();
            }
            if self.is_over() && turn >= DISTURBED_TURNS {
                break;
            }
        }
        assert!(
            self.is_over(),
            "seed {}: it has not ended: {self:?}",
            self.seed
        );
    }

    /// Checks what is left when the cluster has done its part, too.
    fn check(&mut self) {
        for _ in 0..200 {
            self.environment();
        }
        assert!(self.pod.is_none() && self.claim.is_none(), "{self:?}");
        if let Some(volume) = self.volume.as_ref().filter(|volume| is_older(volume)) {
            assert_eq!(policy(volume), "Retain", "{self:?}");
        } else if let Some(volume) = &self.volume {
            let (name, _) = reference(volume);
            assert_eq!(name, "data", "our volume is left: {self:?}");
            assert_eq!(policy(volume), self.class_policy, "{self:?}");
            assert!(!volume.labels().contains_key(TRANSFER_LABEL), "{self:?}");
            assert!(
                !volume.annotations().contains_key(RECLAIM_POLICY),
                "{self:?}"
            );
        }
        let target = self.target.as_ref();
        let has_data = target.is_some_and(|target| target.volume.as_deref() == Some("pv"));
        if has_data {
            assert!(
                self.volume.is_some(),
                "the claim has lost its volume: {self:?}"
            );
        }
    }
}

#[test]
fn in_any_order_the_claim_gets_the_volume_or_nothing_is_left() {
    let mut completed = 0;
    let mut others = 0;
    for seed in 0..SEEDS {
        let mut model = Model::new(seed);
        model.run();
        model.check();
        let phase = model.last.status.transfer.phase.clone();
        if phase == Some(MovePhase::Completed) {
            completed += 1;
        } else {
            others += 1;
        }
    }
    assert!(completed > SEEDS / 10, "{completed} have completed");
    assert!(others > SEEDS / 10, "{others} have not");
}

#[test]
fn undisturbed_a_filled_volume_always_reaches_its_claim() {
    for seed in 0..SEEDS {
        let mut model = Model::new(seed);
        while !model.is_over() {
            if model.rng.bool() {
                model.control(false);
            } else {
                model.environment();
            }
        }
        let phase = model.last.status.transfer.phase.clone();
        let is_bound = model.target.as_ref().is_some_and(|target| target.is_bound);
        assert_eq!(Fill::of(&model.last).is_some(), is_bound, "{model:?}");
        let is_complete =
            Fill::of(&model.last).is_some_and(|fill| fill.result == MoverResult::Complete);
        assert_eq!(
            phase == Some(MovePhase::Completed),
            is_complete,
            "{model:?}"
        );
        model.check();
    }
}
