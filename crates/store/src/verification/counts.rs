//! Compares the counts in a backup's status with its files. Each difference is a sentence.

use backup_core::{
    api::{Backup, BackupStatus},
    operation::{BackupOperation, Operation as _, OperationPhase},
    results::Results,
    text::counted,
};

fn difference(what: &str, status: i64, file: usize) -> Option<String> {
    let same = usize::try_from(status).is_ok_and(|status| status == file);
    (!same).then(|| {
        format!(
            "the status of the backup says {}, the file has {file}",
            counted(status, what)
        )
    })
}

/// Compares the number of listed items.
pub fn list(backup: &Backup, listed: usize) -> Vec<String> {
    let progress = backup.status.progress.as_ref();
    progress
        .and_then(|progress| difference("item", progress.items_backed_up, listed))
        .into_iter()
        .collect()
}

/// Compares errors and warnings. A Velero server counts failed operations as errors, but does not
/// write them into the file.
pub fn results(status: &BackupStatus, results: &Results) -> Vec<String> {
    let errors = results.errors();
    let warnings = results.warnings();
    let explained =
        (errors..=errors + status.backup_item_operations_failed).contains(&status.errors);
    let errors = if explained {
        None
    } else {
        difference("error", status.errors, as_count(errors))
    };
    errors
        .into_iter()
        .chain(difference("warning", status.warnings, as_count(warnings)))
        .collect()
}

fn as_count(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

/// Compares the operations, and checks that all of them have ended.
pub fn operations(status: &BackupStatus, operations: &[BackupOperation]) -> Vec<String> {
    let going = operations
        .iter()
        .filter(|one| !one.status().phase.has_ended())
        .count();
    [
        difference(
            "operation",
            status.backup_item_operations_attempted,
            operations.len(),
        ),
        difference(
            "completed operation",
            status.backup_item_operations_completed,
            count_in(operations, &OperationPhase::Completed),
        ),
        difference(
            "failed operation",
            status.backup_item_operations_failed,
            count_in(operations, &OperationPhase::Failed),
        ),
        (going > 0).then(|| {
            let have = if going == 1 { "has" } else { "have" };
            format!(
                "{} {have} not ended, though the backup has",
                counted(going, "operation")
            )
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The number of operations in a phase.
fn count_in(operations: &[BackupOperation], phase: &OperationPhase) -> usize {
    operations
        .iter()
        .filter(|one| one.status().phase == *phase)
        .count()
}

/// Compares volumes, of which `entries` are about CSI snapshots: each completed one has an entry.
/// Failed and moved snapshots may have entries, too.
pub fn volumes(status: &BackupStatus, entries: usize) -> Vec<String> {
    let completed = status.csi_volume_snapshots_completed;
    let is_enough = i64::try_from(entries).is_ok_and(|entries| entries >= completed);
    if is_enough {
        Vec::new()
    } else {
        difference("CSI snapshot", completed, entries)
            .into_iter()
            .collect()
    }
}

/// Compares the number of native snapshots; the file has `count` of them.
pub fn snapshots(status: &BackupStatus, count: usize) -> Vec<String> {
    difference("native snapshot", status.volume_snapshots_attempted, count)
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(value: Value) -> BackupStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn differing_counts_are_findings_that_name_both() {
        let operation = |phase: &str| json!({ "spec": {}, "status": { "phase": phase } });
        let all: Vec<BackupOperation> =
            serde_json::from_value(json!([operation("Completed"), operation("Failed")])).unwrap();
        let counts = |attempted: i64, completed: i64, failed: i64| {
            status(
                json!({ "backupItemOperationsAttempted": attempted, "backupItemOperationsCompleted": completed, "backupItemOperationsFailed": failed }),
            )
        };
        assert_eq!(operations(&counts(2, 1, 1), &all), Vec::<String>::new());
        assert_eq!(
            operations(&counts(3, 2, 1), &all),
            [
                "the status of the backup says 3 operations, the file has 2",
                "the status of the backup says 2 completed operations, the file has 1"
            ]
        );
        let going: Vec<BackupOperation> =
            serde_json::from_value(json!([operation("InProgress")])).unwrap();
        assert_eq!(
            operations(&counts(1, 0, 0), &going),
            ["1 operation has not ended, though the backup has"]
        );
    }

    #[test]
    fn errors_of_failed_operations_may_be_counted_and_not_written() {
        let written: Results = serde_json::from_value(
            json!({ "errors": { "velero": ["a"] }, "warnings": { "cluster": ["b"] } }),
        )
        .unwrap();
        for (errors, failed, good) in [
            (1, 0, true),
            (2, 1, true),
            (2, 0, false),
            (0, 0, false),
            (0, 5, false),
        ] {
            let status = status(
                json!({ "errors": errors, "warnings": 1, "backupItemOperationsFailed": failed }),
            );
            assert_eq!(
                results(&status, &written).is_empty(),
                good,
                "{errors} errors, {failed} failed"
            );
        }
        let status = status(json!({ "errors": 1 }));
        assert_eq!(
            results(&status, &written),
            ["the status of the backup says 0 warnings, the file has 1"]
        );
    }

    #[test]
    fn every_completed_snapshot_has_its_entry() {
        let completed = |count: i64| status(json!({ "csiVolumeSnapshotsCompleted": count }));
        assert_eq!(volumes(&completed(1), 1), Vec::<String>::new());
        assert_eq!(volumes(&completed(0), 1), Vec::<String>::new());
        assert_eq!(
            volumes(&completed(2), 1),
            ["the status of the backup says 2 CSI snapshots, the file has 1"]
        );
    }

    #[test]
    fn items_are_counted_where_the_status_counts_them() {
        let mut backup = Backup::new("b", backup_core::api::BackupSpec::default());
        assert_eq!(list(&backup, 3), Vec::<String>::new());
        for (count, good) in [(3, true), (4, false), (2, false)] {
            backup.status =
                status(json!({ "progress": { "totalItems": 3, "itemsBackedUp": count } }));
            assert_eq!(list(&backup, 3).is_empty(), good, "{count}");
        }
    }
}
