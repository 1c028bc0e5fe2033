//! Restores into the volume of a claim that exists (`spec.restoreType`). Pure.
//!
//! Pods of the data mover can use claims of our namespace only. So the volume is taken over from the
//! target claim, and given back when the data is restored, or when that has failed: both by the
//! `claimRef` of the PersistentVolume, which is `Retain` meanwhile. The claim itself stays: it is
//! `Lost` while its volume is ours, and `Bound` again afterwards.
//!
//! - Nothing else writes to the volume meanwhile: neither the scheduler nor a kubelet lets a pod have
//!   a claim that is `Lost`, or that is not the one in the `claimRef`. Pods that were scheduled
//!   before are looked for before the volume is taken over, and again before the mover's pod is
//!   created.
//! - Nothing is deleted, so no crash loses data: the volume is found by its name in the spec, and is
//!   never released. Its reclaim policy comes back once the volume is bound to the target claim.
//!
//! Not done: a second PersistentVolume for the same volume of the driver. Nothing would keep pods of
//! the application away; the controller would need the right to delete PersistentVolumes; and
//! drivers that keep records by PersistentVolume (vSphere) forget a volume when one is deleted.
//! Deleting the claim, as Velero does, loses its metadata, and operators may create it again first.

use backup_core::api::DataDownload;

use super::{
    Attempts, Ending, Facts, Fill, Found, Holder, OwnClaim, Step,
    endings::{failed, target_name, too_late},
    patches,
};
use crate::volumes::data_mover::download::users::{self, ClaimUser};

/// Name of the volume, if the data is restored in place.
pub(super) fn volume(download: &DataDownload) -> Option<&str> {
    patches::in_place(download).map(|_| download.spec.target_volume.pv.as_str())
}

/// Whether the volume is ours for now.
pub(super) fn has_taken_over(download: &DataDownload, facts: &Facts) -> bool {
    let volume = facts.volume.as_ref();
    patches::in_place(download).is_some()
        && volume.is_some_and(|volume| volume.holder == Holder::Ours)
}

/// Why it does not begin yet, or never; `None`: nothing prevents it.
pub(super) fn prevented(download: &DataDownload, facts: &Facts, is_late: bool) -> Option<Step> {
    if let Some(problem) = problem(download, facts) {
        return Some(failed(problem));
    }
    let users: Vec<_> = facts.users.iter().collect();
    used(download, &users, is_late)
}

/// The next step until the volume is bound to our claim and no pod of the application has it;
/// `None`: a pod of the mover may write to it.
pub(super) fn take_over(
    download: &DataDownload,
    facts: &Facts,
    claim: &OwnClaim,
    is_late: bool,
) -> Option<Step> {
    let volume = facts.volume.as_ref()?;
    if volume.holder == Holder::Target {
        if Attempts::of(download).count > 0 {
            return Some(failed(format!(
                "PersistentVolume {} was given back to {} by another client before the data was \
                 restored; restore it again",
                volume.name,
                target_name(download)
            )));
        }
        let users: Vec<_> = facts.users.iter().collect();
        if let Some(step) = used(download, &users, is_late) {
            return Some(step);
        }
        return Some(if is_late {
            too_late("the volume was not taken over", facts)
        } else if volume.is_retained {
            Step::TakeOver
        } else {
            Step::Retain
        });
    }
    if !matches!(facts.pod, Found::Missing) {
        return None;
    }
    // One that is not scheduled is kept waiting.
    let users = facts.users.iter().filter(|user| user.is_scheduled);
    let users: Vec<_> = users.collect();
    if let Some(step) = used(download, &users, is_late) {
        return Some(step);
    }
    if claim.is_bound {
        None
    } else if is_late {
        Some(too_late("its claim was not bound to the volume", facts))
    } else {
        Some(Step::Wait("its claim is not bound yet".to_owned()))
    }
}

/// After the end, until nothing of it is in the cluster, and the volume is the target claim's.
pub(super) fn give_back(download: &DataDownload, facts: &Facts) -> Step {
    if let Some(volume) = &facts.volume {
        let accepted = patches::target_uid(download);
        let target = facts.target.as_ref();
        let has_target = target.is_some_and(|target| target.uid == accepted);
        match volume.holder {
            Holder::Ours if !volume.is_retained => return Step::Retain,
            Holder::Ours => return Step::HandOver,
            Holder::Target if volume.is_marked && has_target && volume.is_bound => {
                return Step::Settle;
            }
            Holder::Target if volume.is_marked && has_target => {
                return Step::Wait("the volume is not bound to its claim yet".to_owned());
            }
            Holder::Target | Holder::Unclaimed if volume.is_marked => return Step::Keep,
            _ => {}
        }
    }
    if matches!(facts.claim, Found::Ours(_)) {
        Step::RemoveClaim
    } else {
        Step::Release
    }
}

/// Adds to a failure what has become of the volume.
pub(super) fn with_warning(download: &DataDownload, step: Step) -> Step {
    let is_begun = patches::in_place(download).is_some() && Attempts::of(download).count > 0;
    match step {
        Step::End(Ending { phase, message }) if is_begun && Fill::of(download).is_none() => {
            let message = format!(
                "{message}; the volume of {} may hold a part of the restored data: restore it again \
                 before pods use it",
                target_name(download)
            );
            Step::End(Ending { phase, message })
        }
        step => step,
    }
}

/// Why the volume is not, or no longer, one that data can be restored into; `None` also if the data
/// is restored into a new one.
pub(super) fn problem(download: &DataDownload, facts: &Facts) -> Option<String> {
    patches::in_place(download)?;
    let name = target_name(download);
    let wanted = &download.spec.target_volume.pv;
    let target = facts.target.as_ref()?;
    if target.is_deleting {
        return Some(format!("{name} is being deleted; restore it again"));
    }
    if target.volume.as_ref() != Some(wanted) {
        return Some(format!(
            "{name} does not have PersistentVolume {wanted} any longer, which it had when the \
             restore began; restore it again"
        ));
    }
    let Some(volume) = &facts.volume else {
        return Some(format!(
            "PersistentVolume {wanted} of {name} does not exist"
        ));
    };
    if !volume.is_csi {
        return Some(format!(
            "PersistentVolume {wanted} of {name} is not one of a CSI driver, and data is restored \
             into such volumes only: delete the claim and restore it again, or restore it into \
             another namespace (namespaceMapping)"
        ));
    }
    if volume.is_deleting {
        return Some(format!(
            "PersistentVolume {wanted} of {name} is being deleted; restore it again"
        ));
    }
    if volume.has_other_mark {
        return Some(format!(
            "another DataDownload uses PersistentVolume {wanted} of {name}; restore it again once \
             that has ended"
        ));
    }
    match &volume.holder {
        Holder::Ours | Holder::Target => None,
        Holder::Unclaimed => Some(format!(
            "PersistentVolume {wanted} was released from {name} by another client; restore it again \
             once the two are bound"
        )),
        Holder::Other(claim) => Some(format!(
            "PersistentVolume {wanted} of {name} belongs to PersistentVolumeClaim {claim}; restore \
             it again once it has its volume"
        )),
    }
}

/// The step while pods use the claim. Those that are being deleted are waited for.
fn used(download: &DataDownload, users: &[&ClaimUser], is_late: bool) -> Option<Step> {
    if users.is_empty() {
        return None;
    }
    let name = target_name(download);
    if users::all_are_ending(users) && !is_late {
        let pods = users::names(users.iter().copied());
        return Some(Step::Wait(format!("{name} is still used by {pods}")));
    }
    Some(failed(users::in_use(&name, users)))
}
