//! What a history has to keep, and what happened in it. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::repository::RepositoryFiles;

/// A promise about the data of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum VolumePromise {
    /// The repository holds the snapshots of completed backups that were not deleted. Killed
    /// uploads may leave more until the next maintenance.
    SnapshotsOfBackups,
    /// After a maintenance it holds no others.
    NoSnapshotIsLeft,
    /// Each completed backup can be restored at any time.
    Restorable,
    /// Each completed backup can be restored after two more maintenances.
    NeverLost,
    /// A restore brings back what was saved.
    SameFiles,
    /// No check finds damage.
    NoDamage,
    /// Nothing is left of data that no snapshot needs, after two maintenances.
    SpaceIsFreed,
    /// A program that nothing disturbs succeeds.
    Success,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VolumeViolation {
    pub(super) promise: VolumePromise,
    pub(super) detail: String,
}

impl fmt::Display for VolumeViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.detail)
    }
}

/// What happens in histories, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum VolumeEvent {
    BackupCompleted,
    BackupGivenUp,
    BackupDeleted,
    BackupsSideBySide,
    UploadKilledBeforePacks,
    UploadKilledWithPacks,
    UploadKilledWithSnapshot,
    UploadKilledBesideAnother,
    UploadEndedBeforeKill,
    OutcomeLost,
    UnnamedSnapshotRemoved,
    Restored,
    RestoreKilled,
    Maintained,
    MaintenanceAwaitedUpload,
    MaintenanceKilledBeforeWrites,
    MaintenanceKilledWithPacks,
    MaintenanceKilledBetweenIndexes,
    MaintenanceKilledWithNewIndex,
    MaintenanceEndedBeforeKill,
    PackMarked,
    PackRemoved,
    PackRecovered,
    OrphanMarked,
    Checked,
    CheckedByRestic,
}

impl VolumeEvent {
    /// The events that a run of many histories has to have.
    pub(super) const EXPECTED: [Self; 17] = [
        Self::BackupCompleted,
        Self::BackupGivenUp,
        Self::BackupDeleted,
        Self::BackupsSideBySide,
        Self::UploadKilledWithPacks,
        Self::UploadKilledWithSnapshot,
        Self::UploadKilledBesideAnother,
        Self::OutcomeLost,
        Self::UnnamedSnapshotRemoved,
        Self::Restored,
        Self::RestoreKilled,
        Self::MaintenanceAwaitedUpload,
        Self::MaintenanceKilledBetweenIndexes,
        Self::MaintenanceKilledWithNewIndex,
        Self::PackMarked,
        Self::PackRemoved,
        Self::OrphanMarked,
    ];

    /// How far an upload had come when it was killed.
    pub(super) fn of_killed_upload(before: &RepositoryFiles, after: &RepositoryFiles) -> Self {
        if has_more(&after.snapshots, &before.snapshots) {
            Self::UploadKilledWithSnapshot
        } else if has_more(&after.packs, &before.packs) {
            Self::UploadKilledWithPacks
        } else {
            Self::UploadKilledBeforePacks
        }
    }

    /// How far a maintenance had come when it was killed. It writes new packs and a new index,
    /// removes the old indexes, then packs.
    pub(super) fn of_killed_maintenance(before: &RepositoryFiles, after: &RepositoryFiles) -> Self {
        let is_old_there = !before.index.is_disjoint(&after.index);
        if has_more(&after.index, &before.index) {
            if is_old_there {
                Self::MaintenanceKilledBetweenIndexes
            } else {
                Self::MaintenanceKilledWithNewIndex
            }
        } else if has_more(&after.packs, &before.packs) {
            Self::MaintenanceKilledWithPacks
        } else {
            Self::MaintenanceKilledBeforeWrites
        }
    }
}

fn has_more(names: &BTreeSet<String>, than: &BTreeSet<String>) -> bool {
    !names.is_subset(than)
}

/// A history that was played.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryRecord {
    pub(super) events: BTreeMap<VolumeEvent, u64>,
    pub(super) violations: Vec<VolumeViolation>,
    /// The steps, and what came of them.
    pub(super) log: Vec<String>,
}

impl HistoryRecord {
    pub(super) fn note(&mut self, line: String) {
        self.log.push(line);
    }

    /// Counts an event, also in the log.
    pub(super) fn count(&mut self, event: VolumeEvent) {
        self.note(format!("    {event:?}"));
        self.add(event, 1);
    }

    pub(super) fn add(&mut self, event: VolumeEvent, count: u64) {
        if count > 0 {
            *self.events.entry(event).or_default() += count;
        }
    }

    pub(super) fn violate(&mut self, promise: VolumePromise, detail: String) {
        let violation = VolumeViolation { promise, detail };
        self.note(format!("    VIOLATION {violation}"));
        self.violations.push(violation);
    }
}

/// Compares the snapshots in the repository with the snapshots of completed backups. `unnamed` are
/// the snapshots that killed uploads have left since the last maintenance. Returns what is wrong.
pub(super) fn compare_snapshots(
    stored: &BTreeSet<String>,
    completed: &BTreeSet<String>,
    unnamed: &BTreeSet<String>,
) -> Vec<String> {
    let missing = completed
        .difference(stored)
        .map(|id| format!("snapshot {id} of a completed backup is gone"));
    let more = stored
        .iter()
        .filter(|id| !completed.contains(*id) && !unnamed.contains(*id))
        .map(|id| format!("snapshot {id} is of no completed backup, and no upload was killed"));
    missing.chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn files(snapshots: &[&str], index: &[&str], packs: &[&str]) -> RepositoryFiles {
        RepositoryFiles {
            snapshots: names(snapshots),
            index: names(index),
            packs: names(packs),
        }
    }

    #[test]
    fn a_snapshot_is_of_a_completed_backup_or_of_a_killed_upload() {
        let compare = |stored: &[&str], completed: &[&str], unnamed: &[&str]| {
            compare_snapshots(&names(stored), &names(completed), &names(unnamed)).len()
        };
        assert_eq!(compare(&["a", "b"], &["a", "b"], &[]), 0);
        assert_eq!(compare(&["a", "b"], &["a"], &["b"]), 0);
        assert_eq!(compare(&["a"], &["a"], &["b"]), 0, "it may be removed");
        assert_eq!(compare(&["a"], &["a", "b"], &[]), 1, "b is lost");
        assert_eq!(compare(&["a", "b"], &["a"], &[]), 1, "b was deleted");
        assert_eq!(compare(&["a", "c"], &["b"], &["c"]), 2);
    }

    #[test]
    fn the_files_tell_how_far_a_killed_program_had_come() {
        let before = files(&["s"], &["i"], &["p"]);
        for (after, expected) in [
            (before.clone(), VolumeEvent::UploadKilledBeforePacks),
            (
                files(&["s"], &["i"], &["p", "q"]),
                VolumeEvent::UploadKilledWithPacks,
            ),
            (
                files(&["s", "t"], &["i", "j"], &["p", "q"]),
                VolumeEvent::UploadKilledWithSnapshot,
            ),
        ] {
            assert_eq!(VolumeEvent::of_killed_upload(&before, &after), expected);
        }
        for (after, expected) in [
            (before.clone(), VolumeEvent::MaintenanceKilledBeforeWrites),
            (
                files(&["s"], &["i"], &["p", "q"]),
                VolumeEvent::MaintenanceKilledWithPacks,
            ),
            (
                files(&["s"], &["i", "j"], &["p"]),
                VolumeEvent::MaintenanceKilledBetweenIndexes,
            ),
            (
                files(&["s"], &["j"], &["p"]),
                VolumeEvent::MaintenanceKilledWithNewIndex,
            ),
            (
                files(&["s"], &["j"], &[]),
                VolumeEvent::MaintenanceKilledWithNewIndex,
            ),
        ] {
            assert_eq!(
                VolumeEvent::of_killed_maintenance(&before, &after),
                expected
            );
        }
    }
}
