//! The outcomes of backups and restores: P4 to P9.

use std::time::Duration;

use super::{Promise, Rules, Violation, broken, landed_late};
use crate::history::{
    plan::{Kind, is_foreign},
    record::{Life, Record},
};

/// The order of phases, of Backups and Restores (Velero `pkg/apis/velero/v1`, v1.18). Other phases
/// are unknown.
const ORDER: [(&str, u8); 15] = [
    ("", 0),
    ("New", 0),
    ("Queued", 1),
    ("ReadyToStart", 2),
    ("InProgress", 3),
    ("WaitingForPluginOperations", 4),
    ("WaitingForPluginOperationsPartiallyFailed", 5),
    ("Finalizing", 6),
    ("FinalizingPartiallyFailed", 7),
    ("Completed", END),
    ("PartiallyFailed", END),
    ("Failed", END),
    ("FailedValidation", END),
    ("Deleting", 9),
    ("Unknown", 10),
];
const END: u8 = 8;

fn place(phase: &str) -> u8 {
    ORDER
        .iter()
        .find(|(known, _)| *known == phase)
        .map_or(10, |(_, place)| *place)
}

fn of_the_engine(record: &Record) -> impl Iterator<Item = &Life> {
    record.lives.values().filter(|life| !life.guarded)
}

/// P4: a backup that ended with contents is in the bucket, with the same final phase as in the
/// cluster.
pub(super) fn ends_are_stored(record: &Record, found: &mut Vec<Violation>) {
    for life in of_the_engine(record).filter(|life| !life.is_imported()) {
        let Some(stored) = &life.stored else { continue };
        let end = life
            .phases
            .iter()
            .map(|(phase, _)| phase.as_str())
            .find(|phase| place(phase) >= END);
        let Some(end @ ("Completed" | "PartiallyFailed")) = end else {
            continue;
        };
        if stored.uid != life.uid || stored.phase != end || !stored.contents {
            found.push(broken(Promise::EndIsStored, format!("{life:?}")));
        }
    }
}

/// P5: each phase comes after the one before it; a partially failed object does not become
/// Completed.
pub(super) fn phases_move_forward(record: &Record, found: &mut Vec<Violation>) {
    for life in of_the_engine(record) {
        let phases: Vec<&str> = life
            .phases
            .iter()
            .map(|(phase, _)| phase.as_str())
            .collect();
        let back = phases.windows(2).any(|pair| match pair {
            [one, next] => {
                let (from, to) = (place(one), place(next));
                to < from || from == END && *next != "Deleting" || to > 9
            }
            _ => false,
        });
        let failed = phases
            .iter()
            .any(|phase| place(phase) < END && phase.ends_with("PartiallyFailed"));
        if back || failed && phases.contains(&"Completed") {
            found.push(broken(
                Promise::PhasesForward,
                format!("{phases:?}: {life:?}"),
            ));
        }
    }
}

/// P6 and P7: neither an outage nor a crash is a reason to fail. Reasons are: a user released the
/// claim by force, deleted or cancelled the object; its name was in the bucket already; or it was
/// stored after its claim had been collected.
pub(super) fn failed_for_a_reason(record: &Record, rules: Rules, found: &mut Vec<Violation>) {
    // The engine that the kit plays ends every object that lost its claim as Failed.
    if !rules.controllers {
        return;
    }
    for life in of_the_engine(record).filter(|life| life.phase == "Failed" && !life.is_imported()) {
        let name = &life.object.name;
        let by_a_person = record.releases.contains_key(&life.uid)
            || record.cancellations.contains(name)
            || record.deletions.contains(name)
            || life.deleted.is_some();
        let same =
            |other: &&Life| other.object.name == *name && other.object.kind == life.object.kind;
        let taken = record.lives.values().filter(same).count() > 1;
        if !by_a_person && !taken && !landed_late(record, life, rules) {
            found.push(broken(Promise::FailedForAReason, format!("{life:?}")));
        }
    }
}

/// P8: operations end by their deadline, plus the time that stopped programs may take to come back.
pub(super) fn operations_end(record: &Record, rules: Rules, found: &mut Vec<Violation>) {
    for life in of_the_engine(record) {
        let waits = |phase: &str| phase.starts_with("WaitingForPluginOperations");
        let times = |pick: fn(&str) -> bool| {
            life.phases
                .iter()
                .find(|(phase, _)| pick(phase))
                .map(|(_, at)| at.time)
        };
        let Some(begin) = times(|phase| phase.starts_with("WaitingForPluginOperations")) else {
            continue;
        };
        let after = life
            .phases
            .iter()
            .find(|(phase, at)| at.time >= begin && !waits(phase))
            .map(|(_, at)| at.time);
        let end = after
            .or(life.gone.map(|at| at.time))
            .unwrap_or(record.closed);
        if end.saturating_sub(begin) > OPERATIONS + rules.freed_within {
            found.push(broken(
                Promise::OperationsEnd,
                format!("{life:?} waited for operations from {begin:?} to {end:?}"),
            ));
        }
    }
}

/// Deadline that the kit gives to operations.
pub(crate) const OPERATIONS: Duration = Duration::from_secs(10);

/// P9: a backup imported from a bucket has ended, does not come back after its deletion was carried
/// out, and stays while it is in the bucket.
pub(super) fn synchronisation_is_safe(record: &Record, found: &mut Vec<Violation>) {
    for life in of_the_engine(record).filter(|life| life.object.kind == Kind::Backup) {
        let name = &life.object.name;
        let deleted = record.lives.values().any(|other| {
            let carried_out = other.object.name == *name
                && other.phases.iter().any(|(phase, _)| phase == "Deleting");
            carried_out
                && other
                    .gone
                    .is_some_and(|gone| gone.revision < life.created.revision)
        });
        let what = if is_foreign(name) && !life.is_imported() {
            "was imported as one that would run"
        } else if is_foreign(name) && deleted {
            "came back after its deletion"
        } else if is_foreign(name)
            && !record.deletions.contains(name)
            && !record.cancellations.contains(name)
            && life
                .gone
                .is_some_and(|gone| record.swept.is_none_or(|swept| gone.time < swept))
        {
            "was removed although it is in the bucket"
        } else {
            continue;
        };
        found.push(broken(Promise::SafeSync, format!("{what}: {life:?}")));
    }
}
