//! A deletion that has to wait because the store locks versions of the files. All files are hidden
//! by then; the request stays InProgress and the Backup Deleting, and an annotation of the Backup
//! records until when, for users and the next process.

use std::time::Duration;

use backup_core::{
    api::{
        Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest,
        DeleteBackupRequestPhase as Phase,
    },
    deletion::Waits,
    event_reason::EventReason,
    labels::{DELETION_RESTS_ANNOTATION, DELETION_WAITS_ANNOTATION},
};
use backup_runtime::retry::{self, PatchOutcome};
use backup_store::RetainedVersions;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;

use super::{DeletionController, data::DeletedData, decide};
use crate::error::ReconcileError;

impl DeletionController {
    /// Publishes what the deletion waits for. Returns how long, `None` if the Backup has changed
    /// meanwhile.
    pub(super) async fn publish_wait(
        &self,
        request: &DeleteBackupRequest,
        backup: &Backup,
        before: Option<Waits>,
        deleted: DeletedData,
    ) -> Result<Option<Duration>, ReconcileError> {
        let now = Timestamp::now();
        let RetainedVersions {
            kept,
            until,
            held,
            refused,
        } = deleted.retained;
        let since = before.as_ref().map_or(now, |before| before.since);
        let mut waits = Waits {
            since,
            again: now,
            kept,
            until,
            held,
            refused,
            owner: deleted.owner,
            snapshots: deleted.snapshots,
        };
        waits.plan(now);
        let outcome = retry::status_patch(&self.cluster, backup, |current| {
            (current.phase() == BackupPhase::Deleting).then(
                || json!({"metadata": {"annotations": {DELETION_WAITS_ANNOTATION: waits.annotation()}}}),
            )
        })
        .await?;
        if !matches!(outcome, PatchOutcome::Written(_)) {
            return Ok(None);
        }
        tracing::info!(backup = backup.name_any(), again = %waits.again, "{waits}");
        if before.is_none_or(|before| before.to_string() != waits.to_string()) {
            let note = waits.to_string();
            self.cluster
                .events
                .normal(backup, EventReason::ObjectLock, &note);
            self.cluster
                .events
                .normal(request, EventReason::ObjectLock, &note);
        }
        Ok(Some(decide::left(&waits, now).unwrap_or_default()))
    }

    /// Releases the claim of the request until [`Self::resume`], as it may wait for years. May be
    /// repeated.
    pub(super) async fn suspend(
        &self,
        request: &DeleteBackupRequest,
    ) -> Result<(), ReconcileError> {
        let outcome = retry::status_patch(&self.cluster, request, |current| {
            (current.status.phase == Some(Phase::InProgress) && !is_suspended(current))
                .then(|| json!({"metadata": {"annotations": {DELETION_RESTS_ANNOTATION: "true"}}}))
        })
        .await?;
        if let PatchOutcome::Written(request) = outcome {
            self.release(&request).await;
        }
        Ok(())
    }

    /// Returns the request in the state in which it needs a claim, `None` if it has changed
    /// meanwhile.
    pub(super) async fn resume(
        &self,
        request: &DeleteBackupRequest,
    ) -> Result<Option<DeleteBackupRequest>, ReconcileError> {
        if !is_suspended(request) {
            return Ok(Some(request.clone()));
        }
        let outcome = retry::status_patch(&self.cluster, request, |current| {
            is_suspended(current)
                .then(|| json!({"metadata": {"annotations": {DELETION_RESTS_ANNOTATION: null}}}))
        })
        .await?;
        Ok(if let PatchOutcome::Written(request) = outcome {
            Some(request)
        } else {
            None
        })
    }

    /// Emits an event about retained versions at the location, where users look once the backup is
    /// gone.
    pub(super) fn emit_retained(
        &self,
        backup: &Backup,
        location: &BackupStorageLocation,
        kept: u64,
        why: &str,
    ) {
        let name = backup.name_any();
        let versions = if kept == 0 {
            "versions".to_owned()
        } else {
            format!("{kept} versions")
        };
        let note = format!(
            "{versions} of the files of backup {name}, which is deleted, stay in the bucket: {why}"
        );
        tracing::warn!(backup = name, location = location.name_any(), "{note}");
        self.cluster
            .events
            .warning(location, EventReason::OldVersionsKept, &note);
        self.cluster
            .events
            .warning(backup, EventReason::OldVersionsKept, &note);
    }
}

fn is_suspended(request: &DeleteBackupRequest) -> bool {
    request
        .annotations()
        .contains_key(DELETION_RESTS_ANNOTATION)
}
