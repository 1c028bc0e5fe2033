//! Implements the `Lifecycle` of `job` for Backups.

use backup_core::{
    api::{Backup, BackupPhase, backup::BackupProgress},
    event_reason::EventReason,
    labels,
    operation::BackupOperation,
    phase::{Phase as _, Stage},
};
use backup_lock::Footprint;
use backup_plugins::Host;
use backup_store::{AwaitingBackup, BackupWriter, JobFiles, Location, PendingBackup, StoreError};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use super::{
    leftovers::Leftovers,
    metadata, observe, patches,
    prepare::{self, Settings, prepare},
    queue::{self, Turn},
};
use crate::{
    discovery::KnownGroups,
    job::{
        JobContext,
        decide::Kind,
        lifecycle::{
            CompletedWork, Failure, JobPreparation, Lifecycle, Ticket, Work, WorkError, WorkResult,
        },
        pending_end::PendingEnd,
        worker::{Worker, WorkerError},
    },
    location::{LocationError, is_read_only},
    metrics::{Metrics, Outcome, stored::StoredBackups},
    snapshot_locations::SnapshotLocations,
};

pub(crate) struct Backups {
    /// For connections that may be silent for hours: commands in pods.
    pub(crate) silent_client: Client,
    pub(crate) plugins: Host,
    pub(crate) snapshot_locations: SnapshotLocations,
    pub(crate) settings: Settings,
    pub(crate) slots: usize,
    /// Unique name of this installation, from its cluster and namespace.
    pub(crate) installation: String,
    pub(crate) only_related_cluster_resources: bool,
    pub(crate) groups: KnownGroups,
    /// Maximum number of blocks of one backup with concurrent snapshots.
    pub(crate) item_block_workers: usize,
}

impl Backups {
    pub(crate) fn leftovers(&self, ctx: &JobContext) -> Leftovers {
        Leftovers {
            ctx: ctx.clone(),
            snapshot_locations: self.snapshot_locations.clone(),
            installation: self.installation.clone(),
        }
    }
}

/// Data read before a Backup starts; empty once it has begun.
#[derive(Debug, Default)]
pub(crate) struct StartFacts {
    pub facts: prepare::Facts,
    pub at: Timestamp,
}

/// Results of a collection that are not in its files.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub progress: BackupProgress,
    pub status: Value,
}

#[cfg(test)]
impl Backups {
    pub(crate) fn fake(ctx: &JobContext) -> Self {
        use clap::Parser as _;
        let mut args = crate::Args::parse_from(["backup-controller"]);
        args.resource_timeout = backup_core::api::GoDuration::from_secs(2);
        Self {
            silent_client: ctx.cluster.client.clone(),
            plugins: Host::none(),
            snapshot_locations: SnapshotLocations {
                cluster: ctx.cluster.clone(),
                plugins: Host::none(),
            },
            settings: Settings::of(&args),
            slots: 1,
            installation: "cluster/velero".to_owned(),
            only_related_cluster_resources: false,
            groups: KnownGroups::new([]),
            item_block_workers: 4,
        }
    }
}

impl Lifecycle for Backups {
    type Object = Backup;
    type Facts = StartFacts;
    type Contents = BackupWriter;
    type Summary = Collection;
    type Turn = Turn;
    type Gauges = StoredBackups;

    const KIND: Kind = Kind {
        noun: "backup",
        queued: true,
        cancelled: "never started: it was cancelled",
        refused: "never started",
    };
    const FINALIZERS: &'static [&'static str] = &[labels::BACKUP_WORK_FINALIZER];

    fn slots(&self) -> usize {
        self.slots
    }

    fn footprint(backup: &Backup) -> Footprint {
        Footprint::of_backup(&backup.spec)
    }

    fn position(backup: &Backup) -> i64 {
        backup.status.queue_position
    }

    fn turns(tickets: &[Ticket<'_>], slots: usize) -> Vec<(String, Turn)> {
        queue::turns(tickets, slots)
    }

    fn turn_patch(now: &Backup, turn: Turn) -> Option<Value> {
        patches::turn(now, turn)
    }

    async fn prepare(
        &self,
        ctx: &JobContext,
        backup: &Backup,
    ) -> Result<JobPreparation<StartFacts>, WorkerError> {
        if backup.phase() != BackupPhase::ReadyToStart {
            let location = backup.spec.storage_location.clone().unwrap_or_default();
            return Ok(JobPreparation {
                facts: StartFacts::default(),
                location,
                findings: Vec::new(),
            });
        }
        let global = self.settings.global_policies.as_deref();
        let facts = observe::facts(&ctx.cluster, &self.snapshot_locations, &backup.spec, global);
        let facts = Box::pin(facts).await?;
        let start = StartFacts {
            facts,
            at: Timestamp::now(),
        };
        let prepared = prepare(backup, &start.facts, &self.settings, start.at);
        Ok(JobPreparation {
            facts: start,
            location: prepared.backup.spec.storage_location.unwrap_or_default(),
            findings: prepared.findings.iter().map(ToString::to_string).collect(),
        })
    }

    fn begin_patch(&self, now: &Backup, start: &StartFacts) -> Option<Value> {
        patches::begin(now, &start.facts, &self.settings, start.at)
    }

    fn refused_patch(
        &self,
        now: &Backup,
        start: &StartFacts,
        findings: &[String],
    ) -> Option<Value> {
        patches::refuse(now, findings, &start.facts, &self.settings, start.at)
    }

    fn announce_patch(
        now: &Backup,
        next: &BackupPhase,
        _: &JobFiles,
        collection: &Collection,
    ) -> Option<Value> {
        patches::finalizing(now, next, Some(&collection.status))
    }

    fn worked_patch(now: &Backup, status: &Value) -> Option<Value> {
        patches::collected(now, status)
    }

    fn operations_patch(
        now: &Backup,
        next: &BackupPhase,
        operations: &[BackupOperation],
        _: &JobFiles,
    ) -> Option<Value> {
        patches::operations(now, next, operations)
    }

    fn claims_again_patch(now: &Backup) -> Option<Value> {
        patches::claims_again(now)
    }

    fn rests_patch(now: &Backup) -> Option<Value> {
        patches::rests(now)
    }

    fn terminal_patch(now: &Backup, stored: &Backup) -> Option<Value> {
        patches::terminal(now, stored)
    }

    fn outcome(
        backup: &Backup,
        files: &JobFiles,
        collection: &Collection,
        at: Timestamp,
    ) -> Result<Backup, StoreError> {
        metadata::metadata(backup, files, &collection.progress, at)
    }

    fn stored_end(stored: &Backup) -> (String, Stage) {
        (
            stored.metadata.uid.clone().unwrap_or_default(),
            stored.phase().stage(),
        )
    }

    fn started(worker: &Worker<Self>, backup: &Backup, _: &StartFacts) {
        worker
            .ctx
            .cluster
            .events
            .normal(backup, EventReason::Started, "the backup collects items");
    }

    /// A user may have made the location read-only, or deleted it, since it was opened. A failed
    /// read proves neither.
    async fn may_write(worker: &Worker<Self>, backup: &Backup) -> Result<(), WorkerError> {
        let name = backup.spec.storage_location.as_deref().unwrap_or_default();
        let reason = match worker.ctx.locations.get(name).await {
            Ok(location) if is_read_only(&location) => format!(
                "BackupStorageLocation {name} is read-only, so nothing is written there: this backup goes on once its \
                 spec.accessMode is ReadWrite"
            ),
            Err(error @ LocationError::NotFound { .. }) => {
                format!("{error}; this backup goes on once {name} is there again")
            }
            _ => return Ok(()),
        };
        Err(WorkerError::Blocked {
            reason,
            retryable: false,
        })
    }

    async fn work(
        worker: &mut Worker<Self>,
        work: Work<'_, Self>,
    ) -> Result<WorkResult<Self>, WorkError> {
        Box::pin(worker.collect(work)).await
    }

    async fn await_operations(
        _: &mut Worker<Self>,
        _: &Backup,
        collected: WorkResult<Self>,
    ) -> Result<(), WorkError> {
        let WorkResult {
            contents,
            files,
            summary,
        } = collected;
        contents
            .await_operations(files, summary.status)
            .await
            .map(|_| ())
            .map_err(WorkError::Store)
    }

    async fn upload(contents: BackupWriter) -> Result<PendingBackup, StoreError> {
        contents.finish().await
    }

    async fn discard(contents: BackupWriter) {
        contents.abort().await;
    }

    async fn discard_upload(upload: PendingBackup) {
        upload.discard().await;
    }

    async fn complete(
        worker: &mut Worker<Self>,
        backup: &Backup,
        _: &Location,
        awaiting: AwaitingBackup,
        operations: &[BackupOperation],
    ) -> Result<CompletedWork<Self>, WorkError> {
        worker.read_again(backup, awaiting, operations).await
    }

    /// The snapshots are stored, so they are removed from the cluster. Idempotent.
    async fn before_end(worker: &Worker<Self>, stored: &Backup) -> Result<(), WorkerError> {
        worker.remove_stored_snapshots(stored).await
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
        worker.remove_leftovers(backup).await
    }

    async fn fail(
        _: &mut Worker<Self>,
        backup: &Backup,
        reason: &str,
        _: Option<&Location>,
    ) -> Result<Failure<Backup>, WorkerError> {
        let before = backup.phase();
        let reason = reason.to_owned();
        // Not if another replica has advanced the phase meanwhile.
        Ok(Failure::Publish(Box::new(move |now| {
            (now.phase() == before)
                .then(|| patches::fail(now, &reason, Timestamp::now()))
                .flatten()
        })))
    }

    /// Moves InProgress to Finalizing, which frees the slot. Items can be collected again from
    /// there.
    async fn leave_slot(worker: &Worker<Self>, backup: &Backup) -> Result<Backup, WorkerError> {
        if backup.phase() != BackupPhase::InProgress {
            return Ok(backup.clone());
        }
        let next = BackupPhase::finalizing(false);
        worker
            .publish(backup, |now| patches::finalizing(now, &next, None))
            .await
    }

    fn end_note(backup: &Backup) -> String {
        let status = &backup.status;
        match backup.phase() {
            BackupPhase::Completed => "everything is stored".to_owned(),
            BackupPhase::PartiallyFailed => {
                format!("stored, but {} errors are in its results", status.errors)
            }
            BackupPhase::FailedValidation => status.validation_errors.join("; "),
            _ => status.failure_reason.clone().unwrap_or_default(),
        }
    }

    fn count(metrics: &Metrics, backup: Option<&Backup>, outcome: Outcome) {
        let schedule = backup.and_then(Backup::schedule).unwrap_or_default();
        metrics.backup(outcome, schedule);
        if let Some(backup) = backup.filter(|_| outcome != Outcome::Attempt) {
            metrics.backup_ended(
                schedule,
                backup.metadata.name.as_deref().unwrap_or_default(),
                backup,
            );
        }
    }

    fn count_end(metrics: &Metrics, backup: &Backup, pending: Option<&PendingEnd<Self>>) {
        if let Some(pending) = pending {
            metrics.backup_size(backup.schedule().unwrap_or_default(), pending.bytes());
        }
    }
}

#[cfg(test)]
mod tests;
