//! Describes whose turn comes before a Backup or Restore. Pure.

use kube::ResourceExt as _;

use super::{HolderView, LockView, Stage, Tone, Verdict, Workload, list, moment, related};

pub(crate) fn has_not_begun(stage: Stage) -> bool {
    matches!(stage, Stage::New | Stage::Queued | Stage::ReadyToStart)
}

/// The verdict on an object that has not begun because its turn has not come, or was given to a
/// restore.
pub(super) fn waits_for_turn(lock: Option<&LockView>, stage: Stage) -> Option<Verdict> {
    let lock = lock.filter(|lock| has_not_begun(stage) && lock.is_waiting())?;
    let behind: Vec<String> = lock
        .in_the_way
        .iter()
        .map(|other| format!("{} {}/{}", other.kind, other.namespace, other.name))
        .collect();
    let behind = if behind.is_empty() {
        String::new()
    } else {
        format!(" behind {}", list(&behind))
    };
    Some(Verdict::new(
        Tone::Busy,
        format!("It waits for its turn{behind}."),
    ))
}

/// What an unstarted object waits for, by its entry in the ledger.
pub(crate) fn turn<W: Workload>(work: &W, ledger: Option<&backup_lock::Ledger>) -> Option<String> {
    let namespace = work.namespace().unwrap_or_default();
    let name = work.name_any();
    let uid = work.uid().unwrap_or_default();
    let lock = related::lock(
        ledger,
        &W::key(&namespace, &name),
        &uid,
        &work.footprint(None),
    );
    waits_for_turn(Some(&lock), work.status().stage).map(|verdict| verdict.sentence)
}

/// One sentence for each claim that it conflicts with.
pub(super) fn in_the_way(lock: Option<&LockView>) -> Vec<String> {
    let Some(lock) = lock.filter(|lock| !lock.is_active()) else {
        return Vec::new();
    };
    lock.in_the_way.iter().map(conflict_sentence).collect()
}

fn conflict_sentence(holder: &HolderView) -> String {
    let HolderView {
        kind,
        namespace,
        name,
        state,
        since,
    } = holder;
    let since = since.parse().map_or_else(|_| since.clone(), moment);
    format!("{kind} {namespace}/{name} is in the way ({state} since {since}).")
}
