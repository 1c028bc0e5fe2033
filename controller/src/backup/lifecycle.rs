//! Implements the `Lifecycle` of `job` for Backups; the patches are in `patches`, the work is in
//! `collection`, and `leftovers` has the cleanup.

use backup_core::{
    api::{Backup, BackupPhase},
    event_reason::EventReason,
    text::counted,
};
use backup_lock::Footprint;
use backup_store::Location;
use jiff::Timestamp;

use super::{
    Backups,
    kind::StartFacts,
    leftovers::Leftovers,
    observe, patches,
    prepare::prepare,
    queue::{self, Turn},
};
use crate::{
    job::{
        JobContext,
        lifecycle::{Failure, JobPreparation, Lifecycle, Ticket},
        pending_end::PendingEnd,
        worker::{Worker, WorkerError},
    },
    metrics::{Metrics, Outcome, stored::StoredBackups},
};

impl Backups {
    pub(crate) fn leftovers(&self, ctx: &JobContext) -> Leftovers {
        Leftovers {
            ctx: ctx.clone(),
            snapshot_locations: self.snapshot_locations.clone(),
            installation: self.installation.clone(),
        }
    }
}

impl Lifecycle for Backups {
    type Gauges = StoredBackups;

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

    fn started(worker: &Worker<Self>, backup: &Backup, _: &StartFacts) {
        worker
            .ctx
            .cluster
            .events
            .normal(backup, EventReason::Started, "the backup collects items");
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

    fn end_note(backup: &Backup) -> String {
        let status = &backup.status;
        match backup.phase() {
            BackupPhase::Completed => "everything is stored".to_owned(),
            BackupPhase::PartiallyFailed => {
                format!(
                    "stored; its results have {}",
                    counted(status.errors, "error")
                )
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
