//! The Backup as stored at its end, `velero-backup.json`. Pure.

use backup_core::{
    api::{Backup, BackupPhase, backup::BackupProgress},
    labels::{BLOCKED_ANNOTATION, MISSING_DATA_ANNOTATION},
    phase::Phase as _,
    snapshot,
    time::whole_seconds,
    volume_data::MissingData,
};
use backup_store::{JobFiles, StoreError};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Backups;
use crate::job::{finalizers, operations::records};

/// The ended Backup, with the counts of the files stored beside it, and without data that only
/// concerns this cluster's work.
pub(super) fn metadata(
    backup: &Backup,
    files: &JobFiles,
    progress: &BackupProgress,
    now: Timestamp,
) -> Result<Backup, StoreError> {
    let operations = records::decode(&files.item_operations)?;
    let mut stored = backup.clone();
    let status = &mut stored.status;
    status.warnings = files.results.warnings();
    status.errors = files.results.errors();
    status.phase = Some(BackupPhase::ended(status.errors > 0));
    status.completion_timestamp = Some(Time(whole_seconds(now)));
    status.progress = Some(progress.clone());
    records::count(status, &operations);
    (
        status.volume_snapshots_attempted,
        status.volume_snapshots_completed,
    ) = snapshot::counts(&files.volume_snapshots);
    let others = finalizers::without(backup, &[finalizers::work::<Backups>()]);
    stored.metadata.finalizers = Some(others).filter(|others| !others.is_empty());
    let annotations = stored.metadata.annotations.get_or_insert_default();
    annotations.remove(BLOCKED_ANNOTATION);
    // Also if nothing is missing: an absent annotation means that it is unknown.
    let missing = MissingData::counted(&files.volume_info);
    annotations.insert(MISSING_DATA_ANNOTATION.to_owned(), missing.annotation());
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use backup_store::{Results, Scope};
    use serde_json::json;

    use backup_core::{labels::STORED_SCOPE_ANNOTATION, volume_info::VolumeInfo};

    use super::*;
    use crate::{backup::patches::terminal as terminal_patch, testing};

    fn backup(phase: BackupPhase) -> Backup {
        let mut backup = testing::backup(phase);
        backup.metadata.finalizers = Some(vec![
            "other".to_owned(),
            finalizers::work::<Backups>().to_owned(),
        ]);
        backup.metadata.annotations = Some(
            [
                (BLOCKED_ANNOTATION.to_owned(), "store down".to_owned()),
                ("a".to_owned(), "b".to_owned()),
            ]
            .into(),
        );
        backup
    }

    fn stored(errors: i64) -> Backup {
        let progress = BackupProgress {
            total_items: 3,
            items_backed_up: 3,
            ..BackupProgress::default()
        };
        let now = "2026-03-01T12:00:00.5Z".parse().unwrap();
        let mut results = Results::default();
        (0..2).for_each(|n| results.warn(Scope::Velero, format!("warning {n}")));
        (0..errors).for_each(|n| results.error(Scope::Velero, format!("error {n}")));
        let files = JobFiles {
            results,
            ..testing::no_files()
        };
        metadata(&backup(BackupPhase::Finalizing), &files, &progress, now).unwrap()
    }

    #[test]
    fn what_is_stored_has_ended_and_carries_no_trace_of_the_work() {
        let stored = stored(1);
        assert_eq!(stored.phase(), BackupPhase::PartiallyFailed);
        assert_eq!(stored.metadata.finalizers, Some(vec!["other".to_owned()]));
        let annotations = stored.metadata.annotations.unwrap();
        let names: Vec<&str> = annotations.keys().map(String::as_str).collect();
        assert_eq!(names, ["a", MISSING_DATA_ANNOTATION]);
        assert_eq!(
            serde_json::to_value(&stored.status).unwrap(),
            json!({
                "phase": "PartiallyFailed", "warnings": 2, "errors": 1,
                "completionTimestamp": "2026-03-01T12:00:00Z",
                "progress": { "totalItems": 3, "itemsBackedUp": 3 },
            })
        );
    }

    #[test]
    fn the_resource_gets_phase_times_and_counts_from_what_is_stored() {
        let patch = terminal_patch(&backup(BackupPhase::Finalizing), &stored(0)).unwrap();
        assert_eq!(patch["status"]["phase"], "Completed");
        assert_eq!(
            patch["status"]["completionTimestamp"],
            "2026-03-01T12:00:00Z"
        );
        assert_eq!(patch["status"]["warnings"], 2);
        assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({ BLOCKED_ANNOTATION: null, MISSING_DATA_ANNOTATION: r#"{"missing":0,"of":0,"volumes":{}}"#,
                STORED_SCOPE_ANNOTATION: "{}" })
        );
    }

    #[test]
    fn volumes_without_their_data_are_named_in_the_bucket_and_in_the_cluster() {
        let volume_info = VolumeInfo::all(&[
            json!({ "pvName": "pv-1", "skipped": true, "skippedReason": "no driver" }),
        ]);
        let files = JobFiles {
            volume_info,
            ..testing::no_files()
        };
        let current = backup(BackupPhase::Finalizing);
        let stored = metadata(
            &current,
            &files,
            &BackupProgress::default(),
            Timestamp::UNIX_EPOCH,
        )
        .unwrap();
        let said = MissingData::of(&files.volume_info).unwrap().annotation();
        assert_eq!(
            stored.metadata.annotations.as_ref().unwrap()[MISSING_DATA_ANNOTATION],
            said
        );
        let patch = terminal_patch(&current, &stored).unwrap();
        assert_eq!(
            patch["metadata"]["annotations"][MISSING_DATA_ANNOTATION],
            said
        );
    }

    #[test]
    fn a_resource_that_has_ended_is_not_patched_again() {
        for phase in [
            BackupPhase::Completed,
            BackupPhase::Failed,
            BackupPhase::Deleting,
            BackupPhase::FailedValidation,
        ] {
            assert_eq!(terminal_patch(&backup(phase), &stored(0)), None);
        }
        assert_eq!(
            terminal_patch(&backup(BackupPhase::FinalizingPartiallyFailed), &stored(0)),
            None
        );
        assert!(terminal_patch(&backup(BackupPhase::InProgress), &stored(0)).is_some());
    }

    #[test]
    fn what_is_stored_unfinished_is_not_published() {
        let mut unfinished = stored(0);
        unfinished.status.phase = Some(BackupPhase::Finalizing);
        assert_eq!(
            terminal_patch(&backup(BackupPhase::InProgress), &unfinished),
            None
        );
    }
}
