//! The end of a backup, in the one order that keeps what is published true: the decision, contents, side files, metadata,
//! and only then the resource. Every step can be done again.

use backup_core::time::whole_seconds;
use backup_core::{
    api::{Backup, backup::BackupProgress},
    labels::BLOCKED_ANNOTATION,
    snapshot,
};
use backup_store::{BackupFiles, CommittedBackup, PendingBackup, StoreError};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{decide, finalizer};
use crate::job::operations::records;

/// A backup that has only its end to be written.
#[derive(Debug)]
pub enum Unfinished {
    /// Nothing is decided yet. Lost with the process: then it is collected again.
    Collected {
        /// The contents.
        contents: Box<PendingBackup>,
        /// What belongs beside them.
        files: Box<BackupFiles>,
        /// Made once: a try whose answer was lost is repeated with the same bytes.
        metadata: Option<Box<Backup>>,
        /// Counts of items.
        progress: BackupProgress,
    },
    /// Every byte is decided; any process can write what is missing.
    Committed(Box<CommittedBackup>),
}

impl Unfinished {
    /// After everything is collected.
    pub fn new(contents: PendingBackup, files: BackupFiles, progress: BackupProgress) -> Self {
        Self::Collected { contents: Box::new(contents), files: Box::new(files), metadata: None, progress }
    }

    /// Size of the contents (bytes).
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Collected { contents, .. } => contents.bytes(),
            Self::Committed(plan) => plan.bytes(),
        }
    }

    /// Number of the record, once there is one.
    pub fn record(&self) -> Option<u64> {
        match self {
            Self::Collected { .. } => None,
            Self::Committed(plan) => Some(plan.number()),
        }
    }

    /// Decides, then writes what is missing. What comes back is the metadata as it stands in the store.
    pub async fn store(&mut self, backup: &Backup, now: Timestamp) -> Result<Backup, StoreError> {
        loop {
            match self {
                Self::Collected { contents, files, metadata: made, progress } => {
                    let results = &files.results;
                    let counts = (results.warnings(), results.errors());
                    // Counts of operations are those of the list that is stored beside them.
                    let operations = records::decode(&files.item_operations).map_err(|error| {
                        StoreError::Io { action: "count operations".to_owned(), detail: error.to_string() }
                    })?;
                    let metadata = made.get_or_insert_with(|| {
                        let mut metadata = metadata(backup, progress, counts, now);
                        records::count(&mut metadata.status, &operations);
                        let (attempted, completed) = snapshot::counts(&files.volume_snapshots);
                        metadata.status.volume_snapshots_attempted = attempted;
                        metadata.status.volume_snapshots_completed = completed;
                        Box::new(metadata)
                    });
                    let plan = contents.commit(files, metadata).await?;
                    *self = Self::Committed(Box::new(plan));
                }
                Self::Committed(plan) => return plan.publish().await,
            }
        }
    }
}

/// The Backup as it is stored: ended, and without what only concerns this cluster's work on it.
pub fn metadata(backup: &Backup, progress: &BackupProgress, counts: (i64, i64), now: Timestamp) -> Backup {
    let mut stored = backup.clone();
    let (warnings, errors) = counts;
    stored.status.phase = Some(decide::ended(errors));
    stored.status.completion_timestamp = Some(Time(whole_seconds(now)));
    (stored.status.warnings, stored.status.errors) = (warnings, errors);
    stored.status.progress = Some(progress.clone());
    stored.metadata.finalizers = finalizer::without(&stored);
    if let Some(annotations) = &mut stored.metadata.annotations {
        annotations.remove(BLOCKED_ANNOTATION);
    }
    stored
}

/// The patch that publishes what is stored; none if the resource can't go there from where it is.
pub fn terminal_patch(current: &Backup, stored: &Backup) -> Option<Value> {
    if !stored.phase().is_terminal() || !current.phase().can_become(&stored.phase()) {
        return None;
    }
    let mut patch = json!({ "status": stored.status });
    // Counted by us while it waited; what is stored has no place in a queue.
    patch["status"]["queuePosition"] = Value::Null;
    patch["metadata"] = ended_metadata(current);
    Some(patch)
}

/// What a terminal patch of any kind does to the metadata: nobody works on it, nothing blocks it.
pub fn ended_metadata(current: &Backup) -> Value {
    let mut metadata = json!({ "annotations": { BLOCKED_ANNOTATION: null } });
    if finalizer::is_on(current) {
        metadata["finalizers"] = json!(finalizer::without(current).unwrap_or_default());
    }
    metadata
}

#[cfg(test)]
mod tests {
    use backup_core::api::{BackupPhase, BackupSpec};

    use super::*;

    fn backup(phase: BackupPhase) -> Backup {
        let mut backup = Backup::new("b", BackupSpec::default());
        backup.status.phase = Some(phase);
        backup.metadata.finalizers = Some(vec!["other".to_owned(), finalizer::NAME.to_owned()]);
        backup.metadata.annotations = Some(
            [(BLOCKED_ANNOTATION.to_owned(), "store down".to_owned()), ("a".to_owned(), "b".to_owned())]
                .into(),
        );
        backup
    }

    fn stored(errors: i64) -> Backup {
        let progress = BackupProgress { total_items: 3, items_backed_up: 3, ..BackupProgress::default() };
        let now = "2026-03-01T12:00:00.5Z".parse().unwrap();
        metadata(&backup(BackupPhase::Finalizing), &progress, (2, errors), now)
    }

    #[test]
    fn what_is_stored_has_ended_and_carries_no_trace_of_the_work() {
        let stored = stored(1);
        assert_eq!(stored.phase(), BackupPhase::PartiallyFailed);
        assert_eq!(stored.metadata.finalizers, Some(vec!["other".to_owned()]));
        assert_eq!(stored.metadata.annotations.unwrap().len(), 1);
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
        assert_eq!(patch["status"]["completionTimestamp"], "2026-03-01T12:00:00Z");
        assert_eq!(patch["status"]["warnings"], 2);
        assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
        assert_eq!(patch["metadata"]["annotations"], json!({ BLOCKED_ANNOTATION: null }));
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
        assert_eq!(terminal_patch(&backup(BackupPhase::FinalizingPartiallyFailed), &stored(0)), None);
        assert!(terminal_patch(&backup(BackupPhase::InProgress), &stored(0)).is_some());
    }

    #[test]
    fn what_is_stored_unfinished_is_not_published() {
        let mut unfinished = stored(0);
        unfinished.status.phase = Some(BackupPhase::Finalizing);
        assert_eq!(terminal_patch(&backup(BackupPhase::InProgress), &unfinished), None);
    }
}
