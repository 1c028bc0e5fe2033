//! Decides the next step of a DataDownload from what is in the cluster. Pure.
//!
//! Each step is one effect that can be repeated, and nothing is remembered but in the cluster: so a
//! controller that is killed between two steps continues. The order keeps the data: what the pod
//! has filled is recorded before the pod is removed, the volume is retained before our claim is
//! deleted, and its reclaim policy comes back when the target claim is bound to it. A volume is
//! discarded only when the DataDownload has ended. `in_place` has what differs if the volume exists.

mod endings;
mod in_place;
mod probe;

use std::time::Duration;

use backup_core::{
    api::{DataDownload, transfer::MovePhase},
    data_movement::{MoverOutcome, MoverResult},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::{
    handover::{HandedVolume, Holder},
    patches::{self, Attempts, Fill},
    users::ClaimUser,
};
use crate::volumes::data_mover::{
    objects::REMOVAL_TIMEOUT, pod_state::PodState, repository::RepositoryState, repository_wait,
};
use endings::{cancelled, failed, lost, missing, no_location, occupied, target_name, too_late};

/// Maximum number of pods that are started for a DataDownload; the second one works
/// [`REDUCED`](crate::volumes::data_mover::pod::REDUCED).
const MAX_ATTEMPTS: u32 = 2;

/// What is in the cluster.
pub(super) struct Facts {
    /// The claim that waits for the data.
    pub(super) target: Option<Target>,
    /// The claim in our namespace that is filled.
    pub(super) claim: Found<OwnClaim>,
    pub(super) pod: Found<OwnPod>,
    /// The volume that holds the data, or that our claim is bound to. In place: the volume of the
    /// target claim.
    pub(super) volume: Option<HandedVolume>,
    /// Whether the target claim is for a device.
    pub(super) is_block: bool,
    /// The pods that use the target claim; read only if the data is restored in place.
    pub(super) users: Vec<ClaimUser>,
    /// Whether the BackupStorageLocation exists; true where it is not needed.
    pub(super) has_location: bool,
    /// `None` where it is not needed.
    pub(super) repository: Option<RepositoryState>,
    /// Why our claim has no volume, as its Events say; read when its time is over.
    pub(super) warning: Option<String>,
    /// Timeout of each wait, except for the work of the pod.
    pub(super) prepare_timeout: Duration,
}

/// An object with the name of the DataDownload in our namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<T> {
    Missing,
    /// It has another owner.
    Foreign,
    Ours(T),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) uid: String,
    pub(super) is_deleting: bool,
    /// Whether its data source is this DataDownload, so that nothing else fills it.
    pub(super) waits_for_us: bool,
    /// Name of its PersistentVolume, also if it is not bound to it yet.
    pub(super) volume: Option<String>,
    pub(super) is_bound: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnClaim {
    /// Name of its PersistentVolume.
    pub(super) volume: Option<String>,
    pub(super) is_bound: bool,
}

pub(super) struct OwnPod {
    pub(super) uid: String,
    /// Whether it only has the claim bound, and writes nothing.
    pub(super) is_probe: bool,
    pub(super) created: Option<Time>,
    /// When it was deleted, while it still exists.
    pub(super) deleted: Option<Time>,
    pub(super) state: PodState,
}

/// One effect, or none.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing to do until the DataDownload changes.
    Nothing,
    /// Look again in a while; why.
    Wait(String),
    /// Publish why it waits for its repository, and since when.
    AwaitRepository(String),
    /// Accept it for the target claim with this uid, if there is a free slot.
    Accept(String),
    CreateClaim,
    /// Create a pod that has the claim bound, and writes nothing.
    CreateProbe,
    CreatePod,
    /// Record that the pod with this uid has started.
    Start(String),
    /// Record why the first pod was lost.
    NoteLoss(String),
    /// Show how far the pod is.
    Progress,
    /// Record that the volume holds the data.
    Record(Filling),
    /// Keep the volume when our claim is deleted.
    Retain,
    /// Give the target claim's volume to our claim, until the data is restored.
    TakeOver,
    RemovePod,
    RemoveClaim,
    /// Give the volume to the target claim.
    HandOver,
    /// Give the volume its reclaim policy back.
    Settle,
    /// Have the volume deleted with our claim.
    Discard,
    /// End the handover of a volume whose claim is gone, without deleting it.
    Keep,
    End(Ending),
    /// Remove the finalizer.
    Release,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filling {
    pub(super) fill: Fill,
    /// What is missing; empty: nothing.
    pub(super) message: String,
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ending {
    pub(super) phase: MovePhase,
    pub(super) message: String,
}

pub(super) fn decide(download: &DataDownload, facts: &Facts, now: Timestamp) -> Step {
    if patches::is_new(download) {
        arrive(download, facts, now)
    } else if patches::is_working(download) {
        in_place::with_warning(download, work(download, facts, now))
    } else if patches::has_ended(download) {
        clean(download, facts)
    } else {
        // A phase of a newer version.
        Step::Nothing
    }
}

/// Before it is accepted: nothing of it is in the cluster.
fn arrive(download: &DataDownload, facts: &Facts, now: Timestamp) -> Step {
    if download.metadata.deletion_timestamp.is_some() {
        return Step::Nothing;
    }
    if download.spec.mover.cancel {
        return cancelled("it was cancelled before it began");
    }
    let created = download.metadata.creation_timestamp.as_ref();
    let is_late = is_over(created, facts.prepare_timeout, now);
    let name = target_name(download);
    // One that is being deleted is restored again by the same restore, as another claim.
    let target = facts.target.as_ref().filter(|target| !target.is_deleting);
    let Some(target) = target else {
        return if is_late {
            failed(format!(
                "{name}, which the data is for, does not exist; restore it again"
            ))
        } else {
            Step::Wait(format!("{name} does not exist yet"))
        };
    };
    if patches::in_place(download).is_some() {
        if let Some(step) = in_place::prevented(download, facts, is_late) {
            return step;
        }
    } else if !target.waits_for_us {
        return failed(format!(
            "{name} does not have this DataDownload as its data source, so it may get another \
             volume; delete the claim and restore it again"
        ));
    } else if let Some(problem) = unusable(&name, target) {
        return failed(problem);
    }
    if !facts.has_location {
        return no_location(download);
    }
    match &facts.repository {
        Some(RepositoryState::Ready) => Step::Accept(target.uid.clone()),
        Some(RepositoryState::Unusable(reason)) => failed(reason.clone()),
        Some(RepositoryState::Busy(reason)) => Step::Wait(reason.clone()),
        Some(RepositoryState::Waiting(reason)) => {
            let timeout = facts.prepare_timeout;
            if repository_wait::is_over(download.annotations(), timeout, now) {
                failed(repository_wait::too_late(timeout, reason))
            } else {
                Step::AwaitRepository(reason.clone())
            }
        }
        None => Step::Wait("the repository was not looked at".to_owned()),
    }
}

/// From its acceptance to its end.
fn work(download: &DataDownload, facts: &Facts, now: Timestamp) -> Step {
    if let Some(fill) = Fill::of(download) {
        return hand_over(download, &fill, facts, now);
    }
    if is_unwanted(download) {
        return stopped(download);
    }
    let problem = target_problem(download, facts, in_place::volume(download));
    if let Some(problem) = problem.or_else(|| in_place::problem(download, facts)) {
        return failed(problem);
    }
    fill(download, facts, now)
}

/// Until the volume holds the data.
fn fill(download: &DataDownload, facts: &Facts, now: Timestamp) -> Step {
    let attempts = Attempts::of(download);
    let name = download.name_any();
    let accepted = download.status.transfer.accepted_timestamp.as_ref();
    let is_late = attempts.count == 0 && is_over(accepted, facts.prepare_timeout, now);
    let claim = match &facts.claim {
        Found::Ours(claim) => claim,
        Found::Foreign => return occupied("PersistentVolumeClaim", &name),
        Found::Missing if attempts.count > 0 || in_place::has_taken_over(download, facts) => {
            return failed(format!(
                "PersistentVolumeClaim {name}, which was filled, was deleted by another client; \
                 restore {} again",
                target_name(download)
            ));
        }
        Found::Missing if is_late => return too_late("its claim could not be created", facts),
        Found::Missing => return Step::CreateClaim,
    };
    if patches::in_place(download).is_some() {
        if let Some(step) = in_place::take_over(download, facts, claim, is_late) {
            return step;
        }
    } else if let Some(volume) = facts
        .volume
        .as_ref()
        .filter(|volume| !volume.is_made_for_claim)
    {
        return failed(format!(
            "PersistentVolumeClaim {name}, which is to be filled, was bound to PersistentVolume {}, \
             which existed before: reserve that one for its own claim (spec.claimRef), and restore \
             {} again",
            volume.name,
            target_name(download)
        ));
    } else if let Some(step) = probe::step(facts, &attempts, is_late) {
        return step;
    }
    match &facts.pod {
        Found::Foreign => occupied("Pod", &name),
        Found::Missing if attempts.count >= MAX_ATTEMPTS => lost(&attempts, "it was deleted"),
        Found::Missing if is_late => too_late("its pod could not be created", facts),
        Found::Missing if !facts.has_location => no_location(download),
        Found::Missing => Step::CreatePod,
        Found::Ours(pod) => match &pod.state {
            PodState::Waiting(reason) => {
                let is_late = if attempts.count == 0 {
                    is_late
                } else {
                    is_over(pod.created.as_ref(), facts.prepare_timeout, now)
                };
                if is_late {
                    too_late(reason, facts)
                } else {
                    Step::Wait(reason.clone())
                }
            }
            PodState::Running if is_over(pod.deleted.as_ref(), REMOVAL_TIMEOUT, now) => failed(
                "its pod was deleted, and its node does not answer: remove the node, or delete the \
                 pod with --force; then restore the claim again"
                    .to_owned(),
            ),
            PodState::Running if attempts.pod.as_ref() == Some(&pod.uid) => Step::Progress,
            PodState::Running => Step::Start(pod.uid.clone()),
            PodState::Lost(reason) => replace(pod, &attempts, reason),
            PodState::Ended(outcome) => ended(pod, &attempts, claim, outcome, now),
        },
    }
}

/// A pod that was stopped from outside is made once more.
fn replace(pod: &OwnPod, attempts: &Attempts, reason: &str) -> Step {
    if attempts.pod.as_ref() != Some(&pod.uid) {
        Step::Start(pod.uid.clone())
    } else if attempts.count >= MAX_ATTEMPTS {
        lost(attempts, reason)
    } else if attempts.first_loss.is_none() {
        Step::NoteLoss(reason.to_owned())
    } else {
        Step::RemovePod
    }
}

fn ended(
    pod: &OwnPod,
    attempts: &Attempts,
    claim: &OwnClaim,
    outcome: &MoverOutcome,
    now: Timestamp,
) -> Step {
    let message = match outcome.result {
        MoverResult::Complete => String::new(),
        MoverResult::Incomplete => missing(outcome),
        MoverResult::Cancelled => return replace(pod, attempts, "it was stopped"),
        MoverResult::Failed => {
            return failed(format!("the data was not restored: {}", outcome.message));
        }
    };
    let Some(volume) = &claim.volume else {
        return failed("the claim that was filled has no volume; restore it again".to_owned());
    };
    Step::Record(Filling {
        fill: Fill {
            volume: volume.clone(),
            result: outcome.result,
            at: now,
        },
        message,
        bytes: outcome.bytes,
    })
}

/// From the filled volume to the end. Once the volume is the target claim's, nothing stops this.
fn hand_over(download: &DataDownload, fill: &Fill, facts: &Facts, now: Timestamp) -> Step {
    let is_late = is_over(Some(&Time(fill.at)), facts.prepare_timeout, now);
    let Some(volume) = &facts.volume else {
        return failed(format!(
            "PersistentVolume {}, which held the data, is gone; restore {} again",
            fill.volume,
            target_name(download)
        ));
    };
    match &volume.holder {
        Holder::Ours => give(download, volume, facts, is_late),
        Holder::Target => receive(download, fill, volume, facts, is_late),
        Holder::Unclaimed => failed(format!(
            "PersistentVolume {}, which holds the data, was released by another client; bind a \
             claim to it, or delete it and restore {} again",
            volume.name,
            target_name(download)
        )),
        Holder::Other(claim) => failed(format!(
            "PersistentVolume {}, which holds the data, belongs to PersistentVolumeClaim {claim} \
             now; delete {} and restore it again",
            volume.name,
            target_name(download)
        )),
    }
}

/// While the volume is ours.
fn give(download: &DataDownload, volume: &HandedVolume, facts: &Facts, is_late: bool) -> Step {
    if is_unwanted(download) {
        return stopped(download);
    }
    if let Some(problem) = target_problem(download, facts, Some(&volume.name)) {
        return failed(problem);
    }
    if volume.is_deleting {
        return failed(format!(
            "PersistentVolume {}, which holds the data, is being deleted; restore {} again",
            volume.name,
            target_name(download)
        ));
    }
    if is_late {
        return failed(format!(
            "pod and claim of this DataDownload were not removed in time, so its volume could not \
             be given to {}; restore it again",
            target_name(download)
        ));
    }
    if !volume.is_retained {
        return Step::Retain;
    }
    if matches!(facts.pod, Found::Ours(_)) {
        return Step::RemovePod;
    }
    // One that was taken over is given back first, so that it is released at no time.
    if matches!(facts.claim, Found::Ours(_)) && in_place::volume(download).is_none() {
        return Step::RemoveClaim;
    }
    Step::HandOver
}

/// Once the volume is the target claim's.
fn receive(
    download: &DataDownload,
    fill: &Fill,
    volume: &HandedVolume,
    facts: &Facts,
    is_late: bool,
) -> Step {
    let name = target_name(download);
    let accepted_uid = patches::target_uid(download);
    let target = facts.target.as_ref();
    let Some(target) = target.filter(|target| target.uid == accepted_uid) else {
        return failed(format!(
            "{name} was deleted before it was bound to PersistentVolume {}; restore it again",
            volume.name
        ));
    };
    match &target.volume {
        Some(other) if *other != volume.name => failed(format!(
            "{name} is bound to PersistentVolume {other} and not to {}, which holds the data; \
             delete the claim and restore it again",
            volume.name
        )),
        Some(_) if target.is_bound && volume.is_bound && volume.is_marked => Step::Settle,
        Some(_) if target.is_bound && volume.is_bound => match fill.result {
            MoverResult::Complete => Step::End(Ending {
                phase: MovePhase::Completed,
                message: String::new(),
            }),
            _ => failed(download.status.transfer.message.clone().unwrap_or_default()),
        },
        _ if is_late => failed(format!(
            "{name} was not bound in time to PersistentVolume {}, which holds the data and is \
             reserved for it; `kubectl describe` of both may say why",
            volume.name
        )),
        _ => Step::Wait(format!("{name} is not bound yet")),
    }
}

/// After the end, until nothing of it is in the cluster.
fn clean(download: &DataDownload, facts: &Facts) -> Step {
    if !patches::has_finalizer(download) {
        return Step::Nothing;
    }
    if matches!(facts.pod, Found::Ours(_)) {
        return Step::RemovePod;
    }
    if patches::in_place(download).is_some() {
        return in_place::give_back(download, facts);
    }
    if let Some(volume) = &facts.volume {
        match volume.holder {
            Holder::Ours if !volume.is_discarded => return Step::Discard,
            Holder::Target | Holder::Unclaimed if volume.is_marked => return Step::Settle,
            _ => {}
        }
    }
    if matches!(facts.claim, Found::Ours(_)) {
        return Step::RemoveClaim;
    }
    Step::Release
}

/// How it ends when it is not wanted any longer.
fn stopped(download: &DataDownload) -> Step {
    cancelled(if patches::in_place(download).is_some() {
        "it was cancelled"
    } else {
        "it was cancelled; its volume is removed"
    })
}

/// Whether it is to be stopped.
fn is_unwanted(download: &DataDownload) -> bool {
    download.spec.mover.cancel
        || download.metadata.deletion_timestamp.is_some()
        || download.status.transfer.phase == Some(MovePhase::Canceling)
}

/// Why the target claim cannot get a volume of ours. `volume` is the name of the filled one.
fn target_problem(download: &DataDownload, facts: &Facts, volume: Option<&str>) -> Option<String> {
    let name = target_name(download);
    let Some(target) = &facts.target else {
        return Some(format!(
            "{name}, which the data is for, was deleted; restore it again"
        ));
    };
    if target.uid != patches::target_uid(download) {
        return Some(format!(
            "{name} was deleted and created again during the restore; delete it and restore it \
             again"
        ));
    }
    // The volume of a claim is in its spec before the two are bound.
    let is_reserved = volume.is_some() && target.volume.as_deref() == volume;
    if is_reserved && !target.is_deleting {
        return None;
    }
    unusable(&name, target)
}

fn unusable(name: &str, target: &Target) -> Option<String> {
    if target.is_deleting {
        return Some(format!(
            "{name}, which the data is for, is being deleted; restore it again"
        ));
    }
    let other = target.volume.as_ref()?;
    Some(format!(
        "{name} has PersistentVolume {other} already, so it cannot get the restored data; delete \
         the claim and restore it again"
    ))
}

pub(super) fn is_over(since: Option<&Time>, timeout: Duration, now: Timestamp) -> bool {
    since.is_some_and(|since| {
        // A time in the future, from a wrong clock, counts as now.
        Duration::try_from(now.duration_since(since.0)).is_ok_and(|age| age > timeout)
    })
}

#[cfg(test)]
mod tests;
