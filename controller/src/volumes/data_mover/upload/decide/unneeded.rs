//! Decides which snapshots of an ended upload no backup will name. Pure.
//!
//! | backup | recorded snapshot | other snapshots with a note |
//! | --- | --- | --- |
//! | may still be stored, or is | needed | unneeded: the outcome of their pod was not read, or did not count |
//! | abandoned | unneeded | unneeded |
//!
//! A backup counts as abandoned only if the store says so ([`crate::backup::Leftovers`]), and has no
//! metadata of it.

use std::time::Duration;

use backup_core::{
    api::DataUpload,
    data_movement::{ABANDONED_ANNOTATION, ATTEMPTS_ANNOTATION},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::is_over;

/// Time from the end of an upload during which the removal of its snapshots is tried again.
const FORGET_TIMEOUT: Duration = Duration::from_hours(1);

/// Whether the backup of an upload may name its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackupState {
    /// It is stored, or may still be.
    MayBeStored,
    /// Nothing of it will ever be stored.
    Abandoned,
}

/// Whether the backup of an upload was found to be abandoned.
pub(crate) fn is_marked(upload: &DataUpload) -> bool {
    upload.annotations().contains_key(ABANDONED_ANNOTATION)
}

/// The snapshot that the backup names once it is stored.
pub(crate) fn recorded(upload: &DataUpload) -> Option<&str> {
    let id = upload.status.stored.snapshot_id.as_deref();
    id.filter(|id| !id.is_empty())
}

/// Whether there may be unneeded snapshots: the only pod of an upload writes one at most, which is
/// recorded if its outcome was read.
pub(crate) fn may_have_unneeded(upload: &DataUpload) -> bool {
    let is_repeated = upload.annotations().contains_key(ATTEMPTS_ANNOTATION);
    is_marked(upload) || is_repeated || recorded(upload).is_none()
}

/// Whether no backup will name this snapshot of an upload.
pub(crate) fn is_unneeded(upload: &DataUpload, backup: BackupState, snapshot: &str) -> bool {
    backup == BackupState::Abandoned || recorded(upload) != Some(snapshot)
}

/// Whether the removal of unneeded snapshots has failed for too long.
pub(crate) fn is_given_up(upload: &DataUpload, now: Timestamp) -> bool {
    let ended = upload.status.transfer.completion_timestamp.as_ref();
    ended.is_none_or(|ended| is_over(ended.0, FORGET_TIMEOUT, now))
}

#[cfg(test)]
mod tests {
    use backup_core::api::transfer::{DataUploadSpec, MovePhase};
    use jiff::SignedDuration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;

    use super::*;

    fn upload(phase: MovePhase, snapshot: Option<&str>) -> DataUpload {
        let mut upload = DataUpload::new("upload-data-1", DataUploadSpec::default());
        upload.status.transfer.phase = Some(phase);
        upload.status.stored.snapshot_id = snapshot.map(str::to_owned);
        upload
    }

    fn annotated(mut upload: DataUpload, annotation: &str, value: &str) -> DataUpload {
        let annotations = upload.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation.to_owned(), value.to_owned());
        upload
    }

    #[rstest]
    #[case::recorded(Some("abc"), BackupState::MayBeStored, "abc", false)]
    #[case::of_an_earlier_pod(Some("abc"), BackupState::MayBeStored, "def", true)]
    #[case::of_a_pod_that_was_lost(None, BackupState::MayBeStored, "abc", true)]
    #[case::nothing_recorded(Some(""), BackupState::MayBeStored, "abc", true)]
    #[case::recorded_of_an_abandoned_one(Some("abc"), BackupState::Abandoned, "abc", true)]
    #[case::other_of_an_abandoned_one(Some("abc"), BackupState::Abandoned, "def", true)]
    fn a_snapshot_is_needed_if_a_backup_may_name_it(
        #[case] recorded: Option<&str>,
        #[case] backup: BackupState,
        #[case] snapshot: &str,
        #[case] expected: bool,
    ) {
        for phase in [MovePhase::Completed, MovePhase::Failed] {
            let upload = upload(phase, recorded);
            assert_eq!(is_unneeded(&upload, backup, snapshot), expected);
        }
    }

    #[test]
    fn the_store_is_not_asked_about_an_upload_whose_only_snapshot_is_needed() {
        let complete = || upload(MovePhase::Completed, Some("abc"));
        assert!(!may_have_unneeded(&complete()));
        assert!(!may_have_unneeded(&upload(MovePhase::Failed, Some("abc"))));
        let again = annotated(complete(), ATTEMPTS_ANNOTATION, "2");
        assert!(may_have_unneeded(&again));
        let abandoned = annotated(complete(), ABANDONED_ANNOTATION, "true");
        assert!(is_marked(&abandoned) && may_have_unneeded(&abandoned));
        for phase in [MovePhase::Completed, MovePhase::Failed, MovePhase::Canceled] {
            assert!(may_have_unneeded(&upload(phase, None)));
        }
    }

    #[test]
    fn the_removal_of_snapshots_is_given_up_after_an_hour() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let mut upload = upload(MovePhase::Canceled, None);
        assert!(is_given_up(&upload, now), "its end is not known");
        for (minutes, expected) in [(0, false), (59, false), (60, true), (-5, false)] {
            let ended = now.checked_sub(SignedDuration::from_mins(minutes)).unwrap();
            upload.status.transfer.completion_timestamp = Some(Time(ended));
            assert_eq!(is_given_up(&upload, now), expected, "{minutes}");
        }
    }
}
