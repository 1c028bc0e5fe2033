//! Leftovers of a Backup that will not be stored: snapshots, running operations, and files.

use backup_actions::{
    backup::UploadApi,
    csi::{SnapshotApi, tidy},
};
use backup_client::errors::{is_transient, plain};
use backup_core::{
    api::{Backup, BackupPhase, BackupSpec},
    event_reason::EventReason,
    operation::BackupOperation,
    phase::Phase as _,
};
use backup_store::{Abandonment, Claimant, FoundJob, Location, StoreError, crash};
use kube::ResourceExt as _;
use serde_json::Value;

use super::{Backups, actions, journal::BackupJournal, patches, volume_snapshots};
use crate::{
    error::ReconcileError,
    job::{
        JobContext,
        cancellation::StopReason,
        lifecycle::{Cleanup, JobWork as _},
        operations::{call, records},
        worker::{Worker, WorkerError},
    },
    location::LocationError,
    volumes::{
        moved_snapshots::{self, BackupSnapshots},
        snapshot_locations::SnapshotLocations,
    },
};

/// Removes the leftovers of a Backup that has begun and will not be stored: it fails, is deleted,
/// or is gone.
#[derive(Clone)]
pub(crate) struct Leftovers {
    pub(crate) ctx: JobContext,
    pub(crate) snapshot_locations: SnapshotLocations,
    pub(crate) installation: String,
}

impl Cleanup for Backups {
    /// The snapshots or their data are stored, so they are removed from the cluster. Idempotent.
    async fn before_end(worker: &Worker<Self>, stored: &Backup) -> Result<(), WorkerError> {
        let ended = matches!(
            stored.phase(),
            BackupPhase::Completed | BackupPhase::PartiallyFailed
        );
        // Snapshots whose data is moved are not counted.
        let has_snapshots = stored.status.csi_volume_snapshots_attempted > 0 || moves_data(stored);
        if !ended || !has_snapshots {
            return Ok(());
        }
        worker.cancellation.check()?;
        worker
            .kind
            .leftovers(&worker.ctx)
            .release_snapshots(stored)
            .await
    }

    async fn after_adoption(worker: &Worker<Self>, backup: &Backup, location: &Location) {
        if Self::may_write(worker, backup).await.is_ok()
            && let Err(error) = location.tidy_backup(&worker.name).await
        {
            tracing::debug!(name = worker.name, %error, "private files of a finished backup stay");
        }
    }

    async fn abandon(worker: &Worker<Self>, backup: &Backup) -> Result<(), WorkerError> {
        worker.run_pending_hooks(backup).await?;
        if backup.status.start_timestamp.is_none() {
            return Ok(());
        }
        let leftovers = worker.kind.leftovers(&worker.ctx);
        let location = backup.spec.storage_location.as_deref().unwrap_or_default();
        let opened = worker.ctx.locations.open(location).await;
        let store = opened.as_ref().map(|(_, store)| store);
        leftovers
            .remove(backup, store.map_err(LocationError::to_string), worker.lost)
            .await
            .map(|_| ())
    }

    /// Moves InProgress to Finalizing, which frees the slot. Items can be collected again from
    /// there.
    async fn leave_slot(worker: &Worker<Self>, backup: &Backup) -> Result<Backup, WorkerError> {
        if backup.phase() != BackupPhase::InProgress {
            return Ok(backup.clone());
        }
        let next = BackupPhase::finalizing(false);
        worker
            .publish(backup, |now| patches::announce(now, &next, None))
            .await
    }
}

impl Leftovers {
    /// The claimant of the folder of a Backup.
    pub(crate) fn claimant(&self, uid: &str) -> Claimant {
        Claimant {
            uid: uid.to_owned(),
            installation: self.installation.clone(),
        }
    }

    /// A Backup that is gone; only its uid is known. Its end may be recorded, and it may have moved
    /// data of volumes.
    pub(crate) fn gone(namespace: &str, name: &str, uid: &str) -> Backup {
        let spec = BackupSpec {
            snapshot_move_data: Some(true),
            ..BackupSpec::default()
        };
        let mut backup = Backup::new(name, spec);
        backup.metadata.namespace = Some(namespace.to_owned());
        backup.metadata.uid = Some(uid.to_owned());
        backup.status.phase = Some(BackupPhase::Finalizing);
        backup
    }

    /// Records that nothing of a backup will be stored, then cancels its operations and removes its
    /// snapshots and its stored files. If its end is recorded already, or that is unknown,
    /// everything is kept: it belongs to a stored backup.
    ///
    /// `store` is its location, or why that cannot be used; `lost` a record whose contents were
    /// found to be gone. Leftovers that cannot be removed are reported, and not awaited.
    /// Idempotent.
    pub(crate) async fn remove(
        &self,
        backup: &Backup,
        store: Result<&Location, String>,
        lost: Option<u64>,
    ) -> Result<Abandonment, WorkerError> {
        self.ctx
            .cluster
            .leadership
            .check()
            .map_err(StopReason::from)?;
        let name = backup.name_any();
        let uid = backup.uid().unwrap_or_default();
        crash::point("before-abandonment");
        let given_up = match &store {
            Ok(store) => self
                .abandon(store, backup, lost)
                .await
                .map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        };
        let recorded = match given_up {
            Ok((Abandonment::Committed, _)) => {
                tracing::info!(
                    backup = name,
                    uid,
                    "its end is recorded in the store, so what it stands for stays"
                );
                return Ok(Abandonment::Committed);
            }
            Ok((Abandonment::Abandoned, operations)) => operations,
            Err(reason) => {
                if may_be_committed(backup) {
                    let note = format!(
                        "whether this backup is stored is not known, so its snapshots stay: {reason}"
                    );
                    self.tell(backup, &note);
                    return Ok(Abandonment::Committed);
                }
                let note = format!(
                    "what plugins have made for this backup is not known, and may stay: {reason}"
                );
                self.tell(backup, &note);
                None
            }
        };
        crash::point("after-abandonment");
        let entries = match &store {
            Ok(store) => self.journal(backup, store).await,
            Err(_) => None,
        };
        let operations = recorded
            .or_else(|| {
                actions::started_operations(backup, entries.as_deref().unwrap_or_default()).ok()
            })
            .unwrap_or_default();
        // Before the snapshots are looked for: those that are written later are removed with their
        // DataUploads.
        self.abandon_uploads(backup).await?;
        call::cancel_all(&self.ctx.polling.registry, &operations, backup).await;
        if let Ok(store) = &store {
            self.forget_volume_data(backup, store).await?;
        }
        let none_left = match &entries {
            Some(entries) => self.remove_native_snapshots(backup, entries).await?,
            None => false,
        };
        self.told(backup, tidy::abandoned(&self.snapshots(), backup).await)?;
        crash::point("after-snapshots-removed");
        if let Ok(store) = store
            && none_left
            && let Err(error) = store.clear_abandoned(&name, &uid).await
        {
            tracing::info!(backup = name, uid, %error, "files of an abandoned backup stay");
        }
        Ok(Abandonment::Abandoned)
    }

    /// Abandons the backup in the store. Also returns the recorded operations, if any.
    async fn abandon(
        &self,
        store: &Location,
        backup: &Backup,
        lost: Option<u64>,
    ) -> Result<(Abandonment, Option<Vec<BackupOperation>>), StoreError> {
        let name = backup.name_any();
        let uid = backup.uid().unwrap_or_default();
        let recorded = match store.find_job::<Backup>(&name, &uid).await? {
            FoundJob::Awaiting(waiting) => records::decode(&waiting.files().item_operations).ok(),
            _ => None,
        };
        Ok((
            store
                .abandon_backup(&name, &self.claimant(&uid), lost)
                .await?,
            recorded,
        ))
    }

    /// Removes data of volumes that was moved into repositories: only the DataUploads in the cluster
    /// and the notes in the repositories name its snapshots.
    async fn forget_volume_data(
        &self,
        backup: &Backup,
        store: &Location,
    ) -> Result<(), WorkerError> {
        if !moves_data(backup) {
            return Ok(());
        }
        match self.forget_snapshots(backup, store).await {
            Ok(()) => {}
            Err(ReconcileError::Api(error)) if is_transient(&error) => return Err(error.into()),
            Err(ReconcileError::NotLeader(error)) => return Err(StopReason::from(error).into()),
            Err(error) => self.tell(
                backup,
                &format!("data of its volumes may stay in their repositories: {error}"),
            ),
        }
        Ok(())
    }

    async fn forget_snapshots(
        &self,
        backup: &Backup,
        store: &Location,
    ) -> Result<(), ReconcileError> {
        let cluster = &self.ctx.cluster;
        let uid = backup.uid().unwrap_or_default();
        let mut snapshots = BackupSnapshots::default();
        snapshots.add_uploads(cluster, &uid).await?;
        // DataUploads may be deleted, and are gone with a Backup that was removed by force.
        snapshots.may_be_in(store.repository_namespaces().await?);
        snapshots.add_noted(store, &uid).await?;
        moved_snapshots::forget(&cluster.leadership, store, snapshots, true).await?;
        Ok(())
    }

    /// Journal entries about work outside of the store; `None` if they cannot be read.
    async fn journal(&self, backup: &Backup, store: &Location) -> Option<Vec<Value>> {
        let name = backup.name_any();
        let uid = backup.uid().unwrap_or_default();
        match BackupJournal::open(&self.ctx.cluster.leadership, store, &name, &uid).await {
            Ok(journal) => Some(journal.entries),
            Err(error) => {
                self.tell(
                    backup,
                    &format!("what plugins have made for it is not known, and may stay: {error}"),
                );
                None
            }
        }
    }

    /// Cancels the DataUploads of a backup, also of operations that are not recorded, and has the
    /// data mover remove what their pods still write.
    async fn abandon_uploads(&self, backup: &Backup) -> Result<(), WorkerError> {
        if !moves_data(backup) {
            return Ok(());
        }
        let cluster = &self.ctx.cluster;
        let uploads = UploadApi::new(&cluster.client, &cluster.namespace, &cluster.leadership);
        let uid = backup.uid().unwrap_or_default();
        match uploads.abandon_all(&uid).await {
            Ok(()) => {}
            // The kind is not served: there are none.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) if is_transient(&error) => return Err(error.into()),
            Err(error) => self.tell(
                backup,
                &format!(
                    "DataUploads with the label velero.io/backup-uid={uid} may continue; delete them: {}",
                    plain(&error)
                ),
            ),
        }
        Ok(())
    }

    /// Removes the snapshots of a stored backup from the cluster.
    pub(crate) async fn release_snapshots(&self, stored: &Backup) -> Result<(), WorkerError> {
        self.told(stored, tidy::stored(&self.snapshots(), stored).await)
    }

    fn snapshots(&self) -> SnapshotApi {
        SnapshotApi::new(&self.ctx.cluster.client, &self.ctx.cluster.leadership)
    }

    /// A permanent refusal of the API server does not keep a backup from ending: leftovers are
    /// reported to users.
    fn told(&self, backup: &Backup, done: Result<usize, kube::Error>) -> Result<(), WorkerError> {
        match done {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!(backup = backup.name_any(), count, "snapshots were taken out of the cluster");
            }
            Err(error) if is_transient(&error) => return Err(error.into()),
            Err(error) => self.tell(
                backup,
                &format!(
                    "VolumeSnapshots with the label velero.io/backup-uid={} stay in the cluster: {}",
                    backup.uid().unwrap_or_default(),
                    plain(&error)
                ),
            ),
        }
        Ok(())
    }

    fn tell(&self, backup: &Backup, problem: &str) {
        tracing::warn!(
            backup = backup.name_any(),
            problem,
            "what a backup leaves that came to nothing"
        );
        self.ctx
            .cluster
            .events
            .warning(backup, EventReason::SnapshotsNotRemoved, problem);
    }

    /// Removes snapshots that plugins have taken, which only the journal records. Returns whether
    /// none is left.
    async fn remove_native_snapshots(
        &self,
        backup: &Backup,
        entries: &[Value],
    ) -> Result<bool, WorkerError> {
        let prior = match volume_snapshots::prior_snapshots(entries) {
            Ok(prior) => prior,
            Err(error) => {
                self.tell(
                    backup,
                    &format!("its snapshots by plugins are not known, and may stay: {error}"),
                );
                return Ok(false);
            }
        };
        let (taken, open): (Vec<_>, Vec<_>) = prior
            .into_values()
            .partition(|snapshot| snapshot.usable().is_some());
        let mut problems = self
            .snapshot_locations
            .delete(&taken)
            .await
            .map_err(StopReason::from)?;
        problems.extend(open.iter().map(|snapshot| {
            format!(
                "whether there is a snapshot of PersistentVolume {} in VolumeSnapshotLocation {} is not known",
                snapshot.spec.persistent_volume_name, snapshot.spec.location
            )
        }));
        for problem in &problems {
            self.tell(backup, problem);
        }
        Ok(problems.is_empty())
    }
}

/// Whether the data of snapshots is moved into a repository.
fn moves_data(backup: &Backup) -> bool {
    backup.spec.snapshot_move_data == Some(true)
}

/// Whether the end may be recorded. It is announced before, by the phase, and not after a deletion
/// was requested.
fn may_be_committed(backup: &Backup) -> bool {
    patches::is_finalizing(&backup.phase())
}

#[cfg(test)]
mod tests;
