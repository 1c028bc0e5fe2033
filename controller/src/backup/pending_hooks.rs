//! Commands that must still run in pods when their backup is abandoned.

use std::{sync::Arc, time::Duration};

use backup_client::backoff::Backoff;
use backup_core::{
    api::{Backup, BackupPhase},
    event_reason::EventReason,
};
use backup_store::{Location, StoreError};
use tokio::time::Instant;

use super::{Backups, hooks::Hooks, journal::BackupJournal, progress::Progress};
use crate::{
    hooks::exec::InCluster,
    job::{
        cancellation::StopReason,
        journal::JournalWriter,
        worker::{Worker, WorkerError},
    },
};

const RETRY_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    cap: Duration::from_secs(10),
};

impl Worker<Backups> {
    pub(super) fn hooks(&self, journal: Arc<dyn JournalWriter>, progress: Progress) -> Hooks {
        let executor = InCluster::new(
            self.kind.silent_client.clone(),
            self.ctx.cluster.leadership.clone(),
        );
        Hooks::new(Arc::new(executor), journal, progress)
    }

    /// Called before a Backup that has begun to collect is released, or fails. Retried for
    /// `--resource-timeout`, or tried once if everything was collected: after that it is reported,
    /// and no longer awaited, as the store may have been removed.
    pub(super) async fn run_pending_hooks(&self, backup: &Backup) -> Result<(), WorkerError> {
        if !matches!(
            backup.phase(),
            BackupPhase::InProgress
                | BackupPhase::Finalizing
                | BackupPhase::FinalizingPartiallyFailed
        ) {
            return Ok(());
        }
        let started = Instant::now();
        let mut tries = 0;
        let problems = loop {
            self.ctx
                .cluster
                .leadership
                .check()
                .map_err(StopReason::from)?;
            let reason = match self.run_pending(backup).await {
                Ok(problems) => break problems,
                Err(reason) => reason,
            };
            if backup.phase() != BackupPhase::InProgress
                || started.elapsed() >= self.ctx.resource_timeout
            {
                break vec![format!(
                    "whether post hooks of pods are pending is not known: {reason}"
                )];
            }
            tries += 1;
            tokio::select! {
                () = tokio::time::sleep(RETRY_BACKOFF.delay(tries)) => {}
                () = self.ctx.stop.cancelled() => return Err(StopReason::ShuttingDown.into()),
            }
        };
        for problem in problems {
            tracing::warn!(backup = self.name, problem, "a pending post hook");
            self.ctx
                .cluster
                .events
                .warning(backup, EventReason::PostHookNotRun, &problem);
        }
        Ok(())
    }

    pub(super) async fn journal(&self, location: &Location) -> Result<BackupJournal, StoreError> {
        BackupJournal::open(
            &self.ctx.cluster.leadership,
            location,
            &self.name,
            &self.uid,
        )
        .await
    }

    async fn run_pending(&self, backup: &Backup) -> Result<Vec<String>, String> {
        let location = backup.spec.storage_location.as_deref().unwrap_or_default();
        let opened = self.ctx.locations.open(location).await;
        let (_, store) = opened.map_err(|error| error.to_string())?;
        let journal = self.journal(&store).await;
        let BackupJournal { writer, entries } = journal.map_err(|error| error.to_string())?;
        let hooks = self.hooks(writer, Progress::default());
        Ok(hooks
            .take_over(&entries)
            .await
            .map_err(|error| error.to_string())?
            .errors)
    }
}
