//! DeleteBackupRequests: a backup is deleted with its files, its restores and their files.
//!
//! Everything is checked before anything is deleted, and a deletion that has begun is continued
//! after a restart: the request stays InProgress and the Backup Deleting until the last step, and
//! every step can be repeated. Because of the order of the steps a half-deleted backup never looks
//! complete: phase, data of plugins and drivers (`external_data`), volume data in repositories
//! (`volume_data`), copies in other locations (`copies`), metadata, other files, versions of them,
//! restores (`data`), the Backup, the request. Files that a store locks are hidden, and the deletion
//! waits for the end of the lock (`object_lock`).

mod copies;
mod data;
mod decide;
mod external_data;
mod object_lock;
mod observe;
mod repository_data;
mod volume_data;

use std::{sync::Arc, time::Duration};

use backup_client::errors::found;
use backup_core::{
    api::{Backup, BackupPhase, DeleteBackupRequest, DeleteBackupRequestPhase as Phase},
    event_reason::EventReason,
    labels,
};
use backup_lock::{ActivateError, ObjectKey, ObjectKind, lease::LedgerStore};
use backup_plugins::Host;
use backup_runtime::{
    Cluster, delete,
    health::Health,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch,
};
use backup_store::Limits;
use kube::ResourceExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    copies::RunningCopies,
    error::ReconcileError,
    location::Locations,
    metrics::{Metrics, Outcome},
    recent_deletions::RecentDeletions,
    restores_of_backup, retention,
    volumes::snapshot_locations::SnapshotLocations,
};
use decide::{Plan, waits};

/// Maximum number of backups that are deleted concurrently.
const CONCURRENCY: usize = 2;
/// Delay before a waiting deletion is checked again.
const REQUEUE_LATER: Action = Action::RequeueAfter(Duration::from_secs(5));
/// Reconcile again at once, through the queue.
const REQUEUE_NOW: Action = Action::RequeueAfter(Duration::from_millis(100));

pub(crate) struct DeletionController {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    pub(crate) snapshot_locations: SnapshotLocations,
    pub(crate) plugins: Host,
    /// Ledger of Velero's profile.
    pub(crate) ledger: LedgerStore,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) recent: RecentDeletions,
    pub(crate) copies: RunningCopies,
    /// Limits on a backup's contents when its items are read.
    pub(crate) limits: Limits,
}

impl DeletionController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health, stop: CancellationToken) {
        let keys =
            watch::keys::<DeleteBackupRequest>(&self.cluster, &health, "delete backup requests");
        let controller = Arc::new(self);
        run_queue("deletion", keys, CONCURRENCY, stop, move |key| {
            Arc::clone(&controller).reconcile(key)
        })
        .await;
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Action, ReconcileError> {
        let request = found(
            self.cluster
                .api::<DeleteBackupRequest>()
                .get(&key.name)
                .await,
            &key.name,
        )?;
        let Some(request) = request else {
            return Ok(Action::AwaitChange);
        };
        let facts = observe::facts(&self.cluster, &self.locations, &request).await?;
        match decide::decide(&request, &facts) {
            Plan::Nothing => Ok(Action::AwaitChange),
            Plan::Wait(reason) => Ok(self.wait(&request, &reason)),
            Plan::Sleep(left) => {
                // The process that began to wait may have been killed before it released the claim.
                self.suspend(&request).await?;
                Ok(Action::RequeueAfter(left))
            }
            Plan::Refuse(errors) => self.answer(&request, facts.backup.as_ref(), errors).await,
            Plan::Begin(backup) => Box::pin(self.begin(&request, backup)).await,
            Plan::Continue(backup) => Box::pin(self.delete(&request, backup)).await,
            Plan::Finish => self.answer(&request, None, Vec::new()).await,
            Plan::Sweep => self.sweep(&request).await,
        }
    }

    fn wait(&self, request: &DeleteBackupRequest, reason: &str) -> Action {
        tracing::info!(
            backup = request.spec.backup_name,
            reason,
            "the deletion waits"
        );
        self.cluster
            .events
            .normal(request, EventReason::Waiting, reason);
        REQUEUE_LATER
    }

    /// Publishes the deletion in the request, then begins it.
    async fn begin(
        &self,
        request: &DeleteBackupRequest,
        backup: &Backup,
    ) -> Result<Action, ReconcileError> {
        if let Some(why) = self.keeps_for_its_data(request, backup).await? {
            return self.answer(request, Some(backup), vec![why]).await;
        }
        // Only a user may delete the last good one.
        if request.name_any() == retention::request_name(backup)
            && let Some(why) = retention::kept(&self.cluster, &self.locations, backup).await?
        {
            return self.answer(request, Some(backup), vec![why]).await;
        }
        let labels = json!({
            labels::BACKUP_NAME: labels::valid_value(&backup.name_any()),
            labels::BACKUP_UID: backup.uid(),
        });
        let outcome = retry::status_patch(&self.cluster, request, |current| {
            matches!(current.status.phase, None | Some(Phase::New)).then(|| {
                json!({"metadata": {"labels": labels}, "status": {"phase": Phase::InProgress, "errors": null}})
            })
        })
        .await?;
        let PatchOutcome::Written(request) = outcome else {
            return Ok(REQUEUE_NOW);
        };
        self.metrics
            .deletion(Outcome::Attempt, backup.schedule().unwrap_or_default());
        tracing::info!(
            backup = backup.name_any(),
            uid = backup.uid(),
            "deleting the backup"
        );
        Box::pin(self.delete(&request, backup)).await
    }

    /// Deletes the backup's data, then the backup, then answers the request.
    async fn delete(
        &self,
        request: &DeleteBackupRequest,
        backup: &Backup,
    ) -> Result<Action, ReconcileError> {
        let Some(request) = &self.resume(request).await? else {
            return Ok(REQUEUE_NOW);
        };
        if let Some(wait) = self.claim(request).await? {
            return Ok(wait);
        }
        if backup.phase() != BackupPhase::Deleting {
            // From now on no restore from the backup begins.
            let outcome = retry::status_patch(&self.cluster, backup, |current| {
                let ended =
                    current.phase().is_terminal() && current.phase() != BackupPhase::Deleting;
                ended.then(|| json!({"status": {"phase": BackupPhase::Deleting}}))
            })
            .await?;
            if !matches!(outcome, PatchOutcome::Written(_)) {
                return Ok(REQUEUE_NOW);
            }
        }
        // Read again after the phase was published: a restore that saw the old phase is in this
        // list, a later one sees the new phase.
        let users = restores_of_backup::unfinished(&self.cluster, backup).await?;
        if !users.is_empty() {
            tracing::info!(
                backup = backup.name_any(),
                ?users,
                "the deletion waits for restores"
            );
            return Ok(REQUEUE_LATER);
        }
        // A copy that begins from now on sees the phase.
        if self.copies.stop(&backup.name_any()) {
            return Ok(REQUEUE_NOW);
        }
        self.recent.record(&backup.name_any());
        let waits = waits(backup);
        let deleted = match Box::pin(self.delete_data(request, backup, waits.as_ref())).await {
            Ok(deleted) => deleted,
            Err(StepError::Final(errors)) => {
                return self.answer(request, Some(backup), errors).await;
            }
            Err(StepError::Retry(error)) => return Err(error),
        };
        if deleted.retained.is_locked() {
            let Some(left) = self.publish_wait(request, backup, waits, deleted).await? else {
                return Ok(REQUEUE_NOW);
            };
            self.suspend(request).await?;
            return Ok(Action::RequeueAfter(left));
        }
        if let (Some(location), Some(why)) = (&deleted.location, &deleted.retained.refused) {
            self.emit_retained(backup, location, deleted.retained.kept, why);
        }
        self.cluster.leadership.check()?;
        self.recent.record(&backup.name_any());
        delete::delete(&self.cluster, backup).await?;
        self.answer(request, Some(backup), Vec::new()).await
    }

    /// Claims the right to delete, before anything is deleted: then no restore from the backup has
    /// a claim or gets one. If that is refused for now, returns when to try again.
    async fn claim(&self, request: &DeleteBackupRequest) -> Result<Option<Action>, ReconcileError> {
        self.cluster.leadership.check()?;
        let uid = request.uid().unwrap_or_default();
        match backup_lock::activate(&self.ledger, &key_of(request), &uid).await {
            Ok(_) => Ok(None),
            Err(
                error @ (ActivateError::Conflict(_)
                | ActivateError::Waiting(_)
                | ActivateError::Full(_)),
            ) => Ok(Some(self.wait(request, &error.to_string()))),
            Err(error @ ActivateError::Released { .. }) => self
                .answer(request, None, vec![format!("nothing was deleted: {error}")])
                .await
                .map(Some),
            Err(ActivateError::Gone { .. } | ActivateError::Over { .. }) => Ok(Some(REQUEUE_NOW)),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases the claim. A failure is only logged: claims of ended objects are collected anyway.
    async fn release(&self, request: &DeleteBackupRequest) {
        let key = key_of(request);
        if let Err(error) =
            backup_lock::release(&self.ledger, &key, &request.uid().unwrap_or_default()).await
        {
            tracing::debug!(%key, %error, "the claim of the deletion is left to be collected");
        }
    }

    /// Answers the request. With errors it is kept for users to read; without, all requests for the
    /// backup are deleted.
    async fn answer(
        &self,
        request: &DeleteBackupRequest,
        backup: Option<&Backup>,
        errors: Vec<String>,
    ) -> Result<Action, ReconcileError> {
        // An answer is never changed.
        let outcome = retry::status_patch(&self.cluster, request, |current| {
            (current.status.phase != Some(Phase::Processed))
                .then(|| json!({"status": {"phase": Phase::Processed, "errors": errors}}))
        })
        .await?;
        let PatchOutcome::Written(request) = outcome else {
            return Ok(Action::AwaitChange);
        };
        self.release(&request).await;
        let schedule = backup.and_then(Backup::schedule).unwrap_or_default();
        if errors.is_empty() {
            self.metrics.deletion(Outcome::Success, schedule);
            tracing::info!(backup = request.spec.backup_name, "backup deleted");
            return self.sweep(&request).await;
        }
        self.metrics.deletion(Outcome::Failure, schedule);
        let text = errors.join("; ");
        tracing::warn!(
            backup = request.spec.backup_name,
            error = text,
            "backup not deleted"
        );
        self.cluster
            .events
            .warning(&request, EventReason::NotDeleted, &text);
        if let Some(backup) = backup {
            self.cluster
                .events
                .warning(backup, EventReason::NotDeleted, &text);
        }
        Ok(Action::AwaitChange)
    }

    /// Deletes all requests for a backup that is gone, this one last.
    async fn sweep(&self, request: &DeleteBackupRequest) -> Result<Action, ReconcileError> {
        let uid = request.labels().get(labels::BACKUP_UID).map(String::as_str);
        for other in observe::requests_for(&self.cluster, &request.spec.backup_name, uid).await? {
            if other.uid() != request.uid() {
                self.cluster.leadership.check()?;
                delete::delete(&self.cluster, &other).await?;
            }
        }
        self.cluster.leadership.check()?;
        delete::delete(&self.cluster, request).await?;
        Ok(Action::AwaitChange)
    }
}

/// Why a step of a deletion failed.
#[derive(Debug)]
enum StepError {
    /// Not possible until a user changes something: sentences for the answer to the request.
    Final(Vec<String>),
    Retry(ReconcileError),
}

impl<E: Into<ReconcileError>> From<E> for StepError {
    fn from(error: E) -> Self {
        let error = error.into();
        if error.is_transient() {
            Self::Retry(error)
        } else {
            Self::Final(vec![error.to_string()])
        }
    }
}

impl StepError {
    fn unless_empty(problems: Vec<String>) -> Result<(), Self> {
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Self::Final(problems))
        }
    }
}

fn key_of(request: &DeleteBackupRequest) -> ObjectKey {
    let namespace = request.namespace().unwrap_or_default();
    ObjectKey::new(
        ObjectKind::DeleteBackupRequest,
        &namespace,
        &request.name_any(),
    )
}
