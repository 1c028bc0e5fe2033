//! What to type next.

use backup_core::api::{BackupPhase, RestorePhase};

use super::{
    description::Description,
    part::{HolderView, LocationView, LockView},
};
use crate::print::style::Tone;

/// Commands that make sense for a backup in this state, the most likely first.
pub fn for_backup(description: &Description, phase: &BackupPhase) -> Vec<String> {
    let Description { name, namespace, tone, location, .. } = description;
    let location = location.known().and_then(Option::as_ref);
    let unavailable = location.is_some_and(LocationView::is_unavailable);
    let finalizing = matches!(phase, BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed);
    let log = format!("kubectl backup logs {name}");
    let of_controller = format!("kubectl -n {namespace} logs deployment/backup-controller | grep {name}");
    let restore = format!("kubectl backup restore --from-backup={name} --wait");

    let mut next = Vec::new();
    if unavailable || finalizing && *tone == Tone::Warn {
        let one = location.map(|location| format!("kubectl backup locations describe {}", location.name));
        next.push(one.unwrap_or_else(|| "kubectl backup locations".to_owned()));
    }
    match phase {
        BackupPhase::Completed if !unavailable => next.push(restore),
        BackupPhase::PartiallyFailed if unavailable => next.push(of_controller),
        BackupPhase::PartiallyFailed => next.extend([log, restore]),
        BackupPhase::Failed => next.push(of_controller),
        BackupPhase::FailedValidation => next.push(format!("kubectl backup delete {name}")),
        BackupPhase::Deleting if *tone == Tone::Bad => {
            next.push(format!("kubectl backup delete {name} --wait"));
        }
        BackupPhase::New if *tone == Tone::Warn => {
            next.push(format!("kubectl -n {namespace} get deployments,pods"));
        }
        _ => {}
    }
    if phase.is_active() {
        next.extend(blockers(description));
    }
    next
}

/// Commands that make sense for a restore in this state.
pub fn for_restore(description: &Description, phase: &RestorePhase, backup: Option<&str>) -> Vec<String> {
    let Description { name, namespace, tone, .. } = description;
    let mut next = Vec::new();
    match phase {
        RestorePhase::PartiallyFailed => next.push(format!("kubectl backup restore logs {name}")),
        RestorePhase::Failed => {
            next.push(format!("kubectl -n {namespace} logs deployment/backup-controller | grep {name}"));
        }
        RestorePhase::FailedValidation => {
            next.extend(backup.map(|backup| format!("kubectl backup describe {backup}")));
            next.push(format!("kubectl backup restore delete {name}"));
        }
        RestorePhase::New if *tone == Tone::Warn => {
            next.push(format!("kubectl -n {namespace} get deployments,pods"));
        }
        _ => {}
    }
    if phase.is_active() {
        next.extend(blockers(description));
    }
    next
}

/// Those that it waits for.
fn blockers(description: &Description) -> Vec<String> {
    let waits = |lock: &&LockView| !lock.is_active();
    let Some(lock) = description.lock.known().filter(waits) else { return Vec::new() };
    let command = |other: &HolderView| match other.kind.as_str() {
        "Restore" => format!("kubectl backup restore describe {}", other.name),
        "Backup" => format!("kubectl backup describe {}", other.name),
        _ => "kubectl backup locks".to_owned(),
    };
    let mut all: Vec<String> = lock.in_the_way.iter().take(2).map(command).collect();
    all.dedup();
    all
}
