//! What a Backup leaves in the cluster besides itself: snapshots, and operations that run.

use backup_actions::csi::{SnapshotApi, tidy};
use backup_core::{
    api::{Backup, BackupPhase},
    operation::BackupOperation,
};
use backup_runtime::{errors::is_transient, errors::plain};
use backup_store::FoundJob;

use super::{Backups, actions, journal::BackupJournal, volume_snapshots};
use crate::job::{
    cancellation::StopReason,
    operations::{call, records},
    worker::{Worker, WorkerError},
};

impl Worker<Backups> {
    /// Before the end is published: the snapshots are stored, so they leave the cluster. Idempotent.
    pub(super) async fn remove_stored_snapshots(&self, stored: &Backup) -> Result<(), WorkerError> {
        let ended = matches!(stored.phase(), BackupPhase::Completed | BackupPhase::PartiallyFailed);
        if !ended || stored.status.csi_volume_snapshots_attempted == 0 || !self.kind.settings.csi {
            return Ok(());
        }
        self.cancellation.check()?;
        self.told(stored, tidy::stored(&self.snapshots(), stored).await)
    }

    /// Of a backup that will not end: cancels its operations and removes its snapshots.
    pub(super) async fn remove_leftovers(&self, backup: &Backup) -> Result<(), WorkerError> {
        self.ctx.cluster.leadership.check().map_err(StopReason::from)?;
        let operations = self.known_operations(backup).await;
        call::cancel_all(&self.ctx.polling.registry, &operations, backup).await;
        self.remove_snapshots(backup).await?;
        if !self.kind.settings.csi || backup.status.start_timestamp.is_none() {
            return Ok(());
        }
        self.told(backup, tidy::abandoned(&self.snapshots(), backup).await)
    }

    fn snapshots(&self) -> SnapshotApi {
        SnapshotApi::new(&self.ctx.cluster.client, &self.ctx.cluster.leadership)
    }

    /// What the API server refuses for good keeps no backup from ending: people are told what is left.
    fn told(&self, backup: &Backup, done: Result<usize, kube::Error>) -> Result<(), WorkerError> {
        match done {
            Ok(0) => {}
            Ok(count) => tracing::info!(backup = self.name, count, "snapshots were taken out of the cluster"),
            Err(error) if is_transient(&error) => return Err(error.into()),
            Err(error) => {
                let note = format!(
                    "VolumeSnapshots with the label velero.io/backup-uid={} stay in the cluster: {}",
                    self.uid,
                    plain(&error)
                );
                tracing::warn!(backup = self.name, note, "snapshots could not be taken out of the cluster");
                self.ctx.cluster.events.warning(backup, "SnapshotsLeft", &note);
            }
        }
        Ok(())
    }

    /// Snapshots that plugins have taken, by the notes about them: nobody else knows of them. What is left is told, and waited for
    /// no more.
    async fn remove_snapshots(&self, backup: &Backup) -> Result<(), WorkerError> {
        if backup.spec.volume_snapshot_locations.is_empty() || backup.status.start_timestamp.is_none() {
            return Ok(());
        }
        let location = backup.spec.storage_location.as_deref().unwrap_or_default();
        let Ok((_, location)) = self.ctx.locations.open(location).await else { return Ok(()) };
        let journal = BackupJournal::open(self, &location).await;
        let prior = journal.ok().and_then(|journal| volume_snapshots::prior_snapshots(&journal.entries).ok());
        let (taken, open): (Vec<_>, Vec<_>) =
            prior.unwrap_or_default().into_values().partition(|snapshot| snapshot.usable().is_some());
        let mut problems = self.kind.snapshot_locations.delete(&taken).await.map_err(StopReason::from)?;
        problems.extend(open.iter().map(|snapshot| {
            format!(
                "whether there is a snapshot of PersistentVolume {} in VolumeSnapshotLocation {} is not known",
                snapshot.spec.persistent_volume_name, snapshot.spec.location
            )
        }));
        for problem in problems {
            tracing::warn!(backup = self.name, problem, "a snapshot of a backup that came to nothing");
            self.ctx.cluster.events.warning(backup, "SnapshotsLeft", &problem);
        }
        Ok(())
    }

    /// Operations of a backup that has not come to its end, as far as they are known: while items are collected from the
    /// notes about them, later from what was kept.
    async fn known_operations(&self, backup: &Backup) -> Vec<BackupOperation> {
        use BackupPhase as P;
        let phase = backup.phase();
        let collecting = phase == P::InProgress;
        if !collecting
            && !matches!(phase, P::WaitingForPluginOperations | P::WaitingForPluginOperationsPartiallyFailed)
        {
            return Vec::new();
        }
        let location = backup.spec.storage_location.as_deref().unwrap_or_default();
        let Ok((_, location)) = self.ctx.locations.open(location).await else { return Vec::new() };
        match location.find_job::<Backup>(&self.name, &self.uid).await {
            Ok(FoundJob::Awaiting(waiting)) => {
                records::decode(&waiting.files().item_operations).unwrap_or_default()
            }
            Ok(_) if collecting => {
                let journal = BackupJournal::open(self, &location).await;
                journal
                    .ok()
                    .and_then(|journal| actions::started_operations(backup, &journal.entries).ok())
                    .unwrap_or_default()
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }
}
