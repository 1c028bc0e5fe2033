//! Copies of backups in other locations.
//!
//! `spec.copies` of a Backup names them, and `status.copies` has the state of each. A copy is made
//! once the backup has ended: its state becomes InProgress with the uid of the stored backup, then
//! the files are copied, and then it becomes Completed. After a crash at any point the copy is
//! resumed from its beginning, which skips what is there. When its time is over, and
//! nothing else keeps it ([`backup_core::retention`]), its state becomes Deleting, its files are
//! removed, and it becomes Expired.
//!
//! A deletion of the backup stops its copy first (`RunningCopies`), and removes the copies that the
//! states name: a state has its uid before anything is written.

mod decide;
mod patches;
mod running;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_client::errors::found;
use backup_core::{
    api::{
        Backup, BackupStorageLocation,
        backup::{BackupCopy, BackupCopyStatus, CopyPhase},
    },
    event_reason::EventReason,
    text::counted,
    time::whole_seconds,
};
use backup_lock::server_time;
use backup_runtime::{
    Cluster,
    health::Health,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch,
};
use backup_store::{Claimant, CopiedFile, CopyNote, Location, PendingCopy, RetainedVersions};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    error::ReconcileError,
    location::{LocationError, Locations, is_available, is_read_only},
    metrics::{Metrics, Outcome},
    restore::is_another,
    restores_of_backup, retention,
};

pub(crate) use decide::of_deletion;
pub(crate) use patches::{added, renewed};
pub(crate) use running::RunningCopies;

/// Maximum number of backups that are copied concurrently.
const CONCURRENCY: usize = 2;
/// Maximum number of small files of a backup that are copied concurrently; each is in memory.
const MAX_CONCURRENT_FILES: usize = 4;
/// Interval between checks of a copy that waits for a location or for restores.
const WAIT_INTERVAL: Duration = Duration::from_mins(5);
/// Interval between attempts to remove versions under a legal hold, which has no date.
const HOLD_INTERVAL: Duration = Duration::from_hours(6);

pub(crate) struct CopyController {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    pub(crate) metrics: Arc<Metrics>,
    /// Unique name of this installation.
    pub(crate) installation: String,
    pub(crate) running: RunningCopies,
    pub(crate) stop: CancellationToken,
}

/// Actions for Backups seen by the watch, and not reconciled since, with nothing to do: nearly all.
type IdleBackups = Arc<Mutex<HashMap<Key, Action>>>;

impl CopyController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health) {
        let idle = IdleBackups::default();
        let watched = Arc::clone(&idle);
        let keys = watch::keys_with::<Backup>(
            &self.cluster,
            &health,
            "copies of backups",
            move |key, backup| {
                let action =
                    backup.and_then(|backup| decide::plan(&backup, Timestamp::now()).idle());
                match action {
                    Some(action) => _ = watched.lock().insert(key.clone(), action),
                    None => _ = watched.lock().remove(key),
                }
            },
        );
        let stop = self.stop.clone();
        let controller = Arc::new(self);
        run_queue("copies", keys, CONCURRENCY, stop, move |key| {
            let idle = idle.lock().remove(&key);
            Arc::clone(&controller).reconcile(key, idle)
        })
        .await;
    }

    async fn reconcile(
        self: Arc<Self>,
        key: Key,
        idle: Option<Action>,
    ) -> Result<Action, ReconcileError> {
        if let Some(action) = idle {
            return Ok(action);
        }
        // The time is the API server's, so that no copy expires because the local clock is wrong.
        let now = server_time::now(&self.cluster.client).await?;
        let backup = found(self.cluster.api::<Backup>().get(&key.name).await, &key.name)?;
        let Some(backup) = backup else {
            return Ok(Action::AwaitChange);
        };
        let mut plan = decide::plan(&backup, now);
        if !plan.expired.is_empty() {
            let kept = retention::kept_copies(&self.cluster, &self.locations, &backup);
            for (location, why) in plan.remove_expired(&Box::pin(kept).await?) {
                let mut state = decide::state(&backup, &location);
                why.clone_into(&mut state.message);
                self.publish(&backup, &state).await?;
            }
        }
        // A problem with one copy does not stop the others.
        let mut problem = None;
        for location in std::mem::take(&mut plan.remove) {
            match Box::pin(self.remove(&backup, &location)).await {
                Ok(None) => {}
                Ok(Some(wait)) => plan.check_after(wait),
                Err(error) => problem = Some(error),
            }
        }
        for wanted in std::mem::take(&mut plan.make) {
            match Box::pin(self.make(&backup, &wanted)).await {
                Ok(None) => {}
                Ok(Some(wait)) => plan.check_after(wait),
                Err(error) => problem = Some(error),
            }
        }
        problem.map_or_else(|| Ok(plan.wait()), Err)
    }

    /// Makes or resumes a copy. Returns when to check it again, `None` if it has ended.
    async fn make(
        &self,
        backup: &Backup,
        wanted: &BackupCopy,
    ) -> Result<Option<Duration>, ReconcileError> {
        let running = self.running.begin(&backup.name_any());
        let Some(backup) = self.current(backup).await? else {
            return Ok(None);
        };
        let mut state = decide::state(&backup, &wanted.location);
        let copied = tokio::select! {
            copied = Box::pin(self.copy(&backup, wanted, &mut state)) => copied,
            // The deletion removes what was copied, or the next process resumes.
            () = running.stopped() => return Ok(None),
            () = self.stop.cancelled() => return Ok(None),
        };
        // The state that was published has changed it.
        let Some(backup) = self.current(&backup).await? else {
            return Ok(None);
        };
        match copied {
            Ok(()) => self.publish_copied(&backup, state).await.map(|()| None),
            Err(error) => self.publish_problem(&backup, state, error).await,
        }
    }

    /// The current Backup; `None` if it is gone, or is no longer to be copied.
    async fn current(&self, backup: &Backup) -> Result<Option<Backup>, kube::Error> {
        let name = backup.name_any();
        let current = found(self.cluster.api::<Backup>().get(&name).await, &name)?;
        Ok(current.filter(|now| now.uid() == backup.uid() && now.has_copyable_files()))
    }

    /// Copies all files. Changes `state` as far as it comes.
    async fn copy(
        &self,
        backup: &Backup,
        wanted: &BackupCopy,
        state: &mut BackupCopyStatus,
    ) -> Result<(), ReconcileError> {
        let name = backup.name_any();
        let own = self.locations.of_backup(backup).await?;
        let source = self.usable(&own).await?;
        let target = self.locations.get(&wanted.location).await;
        let target = target.map_err(LocationError::of_copy)?;
        refuse_read_only(&target)?;
        let target = self.usable(&target).await?;
        let stored = source.read_metadata(&name).await?;
        let stored = stored.filter(|stored| !is_another(backup, stored));
        let Some(uid) = stored.and_then(|stored| stored.uid()) else {
            let own = own.name_any();
            return Err(ReconcileError::Impossible(format!(
                "location {own} has no metadata of this backup (velero-backup.json): `kubectl backup verify {name}` says more"
            )));
        };
        let is_resumed = state.phase == Some(CopyPhase::InProgress) && state.uid == uid;
        if !is_resumed {
            *state = BackupCopyStatus {
                location: wanted.location.clone(),
                phase: Some(CopyPhase::InProgress),
                start_timestamp: Some(Time(whole_seconds(Timestamp::now()))),
                expiration: wanted.expiration(backup).map(Time),
                uid: uid.clone(),
                ..BackupCopyStatus::default()
            };
            self.publish(backup, state).await?;
            self.metrics.copy(Outcome::Attempt, &wanted.location);
        }
        tracing::info!(
            backup = name,
            location = wanted.location,
            is_resumed,
            "copying the backup"
        );
        self.cluster.leadership.check()?;
        let note = CopyNote {
            uid: uid.clone(),
            source: source.url(),
            expiration: wanted.expiration(backup),
        };
        let claimant = Claimant {
            uid,
            installation: self.installation.clone(),
        };
        let copy = target.begin_copy(&source, &name, &claimant, &note).await?;
        self.copy_files(&copy).await?;
        state.expiration = copy.note().expiration.map(Time);
        state.bytes = i64::try_from(copy.bytes()).unwrap_or(i64::MAX);
        Ok(())
    }

    async fn copy_files(&self, copy: &PendingCopy) -> Result<(), ReconcileError> {
        let mut small = stream::iter(copy.small_files())
            .map(|file| self.copy_file(copy, file))
            .buffer_unordered(MAX_CONCURRENT_FILES);
        while let Some(copied) = small.next().await {
            copied?;
        }
        for file in copy.large_files() {
            self.copy_file(copy, file).await?;
        }
        self.cluster.leadership.check()?;
        Ok(copy.finish().await?)
    }

    async fn copy_file(&self, copy: &PendingCopy, file: CopiedFile) -> Result<(), ReconcileError> {
        self.cluster.leadership.check()?;
        Ok(Box::pin(copy.copy_file(&file)).await?)
    }

    /// Opens a location. Errors: [`ReconcileError::Postponed`] while it is unavailable.
    async fn usable(&self, location: &BackupStorageLocation) -> Result<Location, ReconcileError> {
        if is_available(location) {
            return Ok(self.locations.store(location).await?);
        }
        let name = location.name_any();
        let why = location.status.message.as_deref();
        let why = why.unwrap_or("it was not validated yet");
        Err(ReconcileError::Postponed(format!(
            "location {name} is not available: {why}"
        )))
    }

    /// Writes the state of a copy, unless the Backup has it. Errors: [`ReconcileError::Changed`] if
    /// the Backup is gone, or is being deleted.
    async fn publish(
        &self,
        backup: &Backup,
        state: &BackupCopyStatus,
    ) -> Result<(), ReconcileError> {
        if backup.copy_in(&state.location) == Some(state) {
            return Ok(());
        }
        let written = retry::status_patch(&self.cluster, backup, |current| {
            patches::state(current, state)
        });
        match written.await? {
            PatchOutcome::Written(_) => Ok(()),
            PatchOutcome::Gone | PatchOutcome::Stale => {
                let why = "the Backup has changed while it was copied; it is read again";
                Err(ReconcileError::Changed(why.to_owned()))
            }
        }
    }

    async fn publish_copied(
        &self,
        backup: &Backup,
        mut state: BackupCopyStatus,
    ) -> Result<(), ReconcileError> {
        let location = state.location.clone();
        state.phase = Some(CopyPhase::Completed);
        state.message = String::new();
        state.completion_timestamp = Some(Time(whole_seconds(Timestamp::now())));
        self.publish(backup, &state).await?;
        self.metrics.copy(Outcome::Success, &location);
        let note = format!("it was copied into location {location}");
        self.cluster
            .events
            .normal(backup, EventReason::Copied, &note);
        tracing::info!(
            backup = backup.name_any(),
            location,
            bytes = state.bytes,
            "the backup was copied"
        );
        Ok(())
    }

    /// Records why a copy is not complete. Returns when it is tried again, or the error if that is
    /// soon.
    async fn publish_problem(
        &self,
        backup: &Backup,
        mut state: BackupCopyStatus,
        error: ReconcileError,
    ) -> Result<Option<Duration>, ReconcileError> {
        let is_about_copy = matches!(
            error,
            ReconcileError::Store(_)
                | ReconcileError::Location(_)
                | ReconcileError::Postponed(_)
                | ReconcileError::Impossible(_)
        );
        if !is_about_copy {
            return Err(error);
        }
        state.message = error.to_string();
        if error.is_transient() {
            self.publish(backup, &state).await?;
            return if matches!(error, ReconcileError::Postponed(_)) {
                Ok(Some(WAIT_INTERVAL))
            } else {
                Err(error)
            };
        }
        let location = state.location.clone();
        state.phase = Some(CopyPhase::Failed);
        state.completion_timestamp = Some(Time(whole_seconds(Timestamp::now())));
        self.publish(backup, &state).await?;
        self.metrics.copy(Outcome::Failure, &location);
        let note = format!(
            "it could not be copied into location {location}, which is tried again in an hour: {error}"
        );
        self.cluster
            .events
            .warning(backup, EventReason::CopyFailed, &note);
        tracing::warn!(backup = backup.name_any(), location, %error, "the backup could not be copied");
        Ok(Some(decide::RETRY_INTERVAL))
    }

    /// Removes a copy whose time is over. Returns when to check it again, `None` if it is gone.
    async fn remove(
        &self,
        backup: &Backup,
        location: &str,
    ) -> Result<Option<Duration>, ReconcileError> {
        let mut state = decide::state(backup, location);
        if state.uid.is_empty() {
            // Nothing was written.
            return self.publish_expired(backup, state).await.map(|()| None);
        }
        if state.phase != Some(CopyPhase::Deleting) {
            state.phase = Some(CopyPhase::Deleting);
            state.message = String::new();
            self.publish(backup, &state).await?;
        }
        // After that was published: a restore that saw the copy is in this list, a later one does
        // not choose the copy.
        let users = restores_of_backup::unfinished(&self.cluster, backup).await?;
        if !users.is_empty() {
            state.message = format!("its removal waits for restores: {}", users.join(", "));
            self.publish(backup, &state).await?;
            return Ok(Some(WAIT_INTERVAL));
        }
        let retained = match self.delete_files(backup, &state).await {
            Ok(retained) => retained,
            Err(ReconcileError::Location(LocationError::NotFound { .. })) => {
                "the location does not exist; files in it stay".clone_into(&mut state.message);
                return self.publish_expired(backup, state).await.map(|()| None);
            }
            Err(error @ (ReconcileError::Store(_) | ReconcileError::Postponed(_))) => {
                state.message = error.to_string();
                self.publish(backup, &state).await?;
                return Ok(Some(WAIT_INTERVAL));
            }
            Err(error) => return Err(error),
        };
        if retained.is_locked() {
            let (message, wait) = locked(&retained, Timestamp::now());
            state.message = message;
            self.publish(backup, &state).await?;
            return Ok(Some(wait));
        }
        state.message = retained.refused.unwrap_or_default();
        self.publish_expired(backup, state).await.map(|()| None)
    }

    /// Deletes the files of a copy. Returns the versions that the store keeps.
    async fn delete_files(
        &self,
        backup: &Backup,
        state: &BackupCopyStatus,
    ) -> Result<RetainedVersions, ReconcileError> {
        let location = self.locations.get(&state.location).await?;
        refuse_read_only(&location)?;
        let store = self.usable(&location).await?;
        self.cluster.leadership.check()?;
        let keeps_versions = store.may_keep_versions(&location);
        let deleted = store
            .delete_copy(&backup.name_any(), &state.uid, keeps_versions)
            .await?;
        tracing::info!(
            backup = backup.name_any(),
            location = state.location,
            keys = deleted.keys,
            "the files of a copy were deleted"
        );
        Ok(deleted.retained)
    }

    async fn publish_expired(
        &self,
        backup: &Backup,
        mut state: BackupCopyStatus,
    ) -> Result<(), ReconcileError> {
        state.phase = Some(CopyPhase::Expired);
        self.publish(backup, &state).await?;
        let note = format!(
            "its copy in location {} was removed: its time is over",
            state.location
        );
        self.cluster
            .events
            .normal(backup, EventReason::CopyRemoved, &note);
        Ok(())
    }
}

fn refuse_read_only(location: &BackupStorageLocation) -> Result<(), ReconcileError> {
    if !is_read_only(location) {
        return Ok(());
    }
    let name = location.name_any();
    Err(ReconcileError::Postponed(format!(
        "location {name} is read-only: set spec.accessMode to ReadWrite"
    )))
}

/// Why the versions of a removed copy stay, and when they are tried again.
fn locked(retained: &RetainedVersions, now: Timestamp) -> (String, Duration) {
    let versions = counted(retained.kept, "version");
    let until = retained.until.filter(|until| *until > now);
    let wait = until.and_then(|until| Duration::try_from(until.duration_since(now)).ok());
    let end = until.map_or_else(
        || "a legal hold is taken off".to_owned(),
        |until| until.to_string(),
    );
    (
        format!("the store keeps {versions} of its files until {end} (object lock)"),
        wait.unwrap_or(HOLD_INTERVAL),
    )
}
