//! The pod that has a claim bound before another one writes to it. Pure.
//!
//! With the mode `WaitForFirstConsumer` a claim is bound for a pod only, and then also to a volume
//! that existed before (kubernetes#101878). The mover refuses to write to a volume that has files,
//! but a device shows no files. So the claim of a block volume is bound by a pod that writes nothing,
//! and the pod of the mover is created once the volume is known to be a new one.

use crate::volumes::data_mover::pod_state::PodState;

use super::{Attempts, Facts, Found, Step, endings::too_late};

/// The next step until the volume is known; `None`: it is, or does not have to be.
pub(super) fn step(facts: &Facts, attempts: &Attempts, is_late: bool) -> Option<Step> {
    // An older volume has ended the DataDownload already.
    let is_known = !facts.is_block || facts.volume.is_some();
    match &facts.pod {
        Found::Ours(pod) if pod.is_probe => Some(match &pod.state {
            PodState::Waiting(reason) if is_late => too_late(reason, facts),
            _ if is_late => too_late("the pod that has its claim bound was not removed", facts),
            PodState::Waiting(reason) if !is_known => Step::Wait(reason.clone()),
            PodState::Running if !is_known => Step::Wait("its claim is not bound yet".to_owned()),
            _ => Step::RemovePod,
        }),
        Found::Missing if is_known || attempts.count > 0 || !facts.has_location => None,
        Found::Missing if is_late => Some(too_late("its claim was not bound", facts)),
        Found::Missing => Some(Step::CreateProbe),
        Found::Ours(_) | Found::Foreign => None,
    }
}
