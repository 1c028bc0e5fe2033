//! How a DataDownload ends, with messages that say what to do. Pure.

use backup_core::{
    api::{DataDownload, GoDuration, transfer::MovePhase},
    data_movement::MoverOutcome,
    text::{counted, listed},
};

use super::{Attempts, Ending, Facts, Step};
use crate::volumes::data_mover::{download::users::claim_name, pod::REDUCED};

pub(super) fn target_name(download: &DataDownload) -> String {
    let target = &download.spec.target_volume;
    claim_name(&target.namespace, &target.pvc)
}

/// What an incomplete restore has left out.
pub(super) fn missing(outcome: &MoverOutcome) -> String {
    let failures = &outcome.failures;
    let named: Vec<String> = failures
        .first
        .iter()
        .map(|failure| format!("{} ({})", failure.path, failure.reason))
        .collect();
    let total = usize::try_from(failures.count).unwrap_or(usize::MAX);
    format!(
        "the claim has its volume, but {} could not be restored completely: {}",
        counted(failures.count, "file"),
        listed(&named, total)
    )
}

pub(super) fn failed(message: String) -> Step {
    Step::End(Ending {
        phase: MovePhase::Failed,
        message,
    })
}

pub(super) fn cancelled(message: &str) -> Step {
    Step::End(Ending {
        phase: MovePhase::Canceled,
        message: message.to_owned(),
    })
}

pub(super) fn too_late(reason: &str, facts: &Facts) -> Step {
    let warning = facts.warning.as_ref();
    let warning = warning.map_or_else(String::new, |text| format!(" (the claim: {text})"));
    failed(format!(
        "the pod that restores the data did not start within {} (--data-mover-prepare-timeout): \
         {reason}{warning}; correct that and restore the claim again",
        GoDuration::from(facts.prepare_timeout)
    ))
}

pub(super) fn lost(attempts: &Attempts, reason: &str) -> Step {
    let first = attempts.first_loss.as_deref().unwrap_or("it was deleted");
    failed(format!(
        "the pod that restores the data was lost {} times: the first time because {first}, the \
         last time, {REDUCED}, because {reason}; restore the claim again",
        attempts.count
    ))
}

pub(super) fn occupied(kind: &str, name: &str) -> Step {
    failed(format!(
        "{kind} {name} exists and belongs to something else; delete it and restore the claim again"
    ))
}

pub(super) fn no_location(download: &DataDownload) -> Step {
    failed(format!(
        "BackupStorageLocation {}, which has the data, does not exist; create it and restore the \
         claim again",
        download.spec.backup_storage_location
    ))
}
