//! Implements the `Lifecycle` of `job` for Restores; the patches are in `patches`, the work is in
//! `runner`, and `leftovers` has the cleanup.

use std::fmt::Write as _;

use backup_core::{
    api::{Restore, RestorePhase},
    event_reason::EventReason,
    phase::{Phase as _, Stage},
    text::counted,
};
use backup_store::{Claimant, Location, Scope, StoreError};
use jiff::Timestamp;

use super::{
    Restores,
    kind::Summary,
    observe, operations, patches,
    report::Report,
    validate::{self, Facts},
};
use crate::{
    job::{
        JobContext,
        kind::JobKind as _,
        lifecycle::{Failure, JobPreparation, Lifecycle},
        pending_end::{CompletedWork, PendingEnd},
        worker::{InterruptedWork, Worker, WorkerError},
    },
    metrics::{Metrics, Outcome, stored::StoredRestores},
};

impl Restores {
    /// Reads everything that a restore depends on.
    pub(super) async fn facts(
        &self,
        ctx: &JobContext,
        restore: &Restore,
    ) -> Result<Facts, WorkerError> {
        let mut facts = observe::facts(ctx, restore, self.default_modifier.as_deref()).await?;
        if self.api_group_versions {
            facts.version_priorities = Some(observe::version_priorities(ctx).await?);
        }
        Ok(facts)
    }

    /// The claimant of the folder of a Restore.
    pub(super) fn claimant(&self, restore: &Restore) -> Claimant {
        let uid = restore.metadata.uid.clone().unwrap_or_default();
        Claimant {
            uid,
            installation: self.installation.clone(),
        }
    }
}

impl Lifecycle for Restores {
    type Gauges = StoredRestores;

    fn slots(&self) -> usize {
        self.slots
    }

    async fn prepare(
        &self,
        ctx: &JobContext,
        restore: &Restore,
    ) -> Result<JobPreparation<Facts>, WorkerError> {
        let facts = self.facts(ctx, restore).await?;
        let mut findings: Vec<String> = Vec::new();
        match (&facts.backup, restore.phase().stage()) {
            (_, Stage::New) => {
                findings.extend(
                    validate::findings(&restore.spec, &facts)
                        .iter()
                        .map(ToString::to_string),
                );
            }
            (Some(_), _) => {}
            (None, stage) => {
                let name = restore.spec.backup_name.as_deref().unwrap_or_default();
                if matches!(stage, Stage::WaitingForOperations { .. }) {
                    let reason = format!(
                        "backup {name:?} is not there, so where the operations of this restore are recorded is not known; \
                         it continues once the backup exists again"
                    );
                    return Err(WorkerError::Blocked {
                        reason,
                        retryable: false,
                    });
                }
                findings.push(format!(
                    "backup {name:?} was deleted while it was being restored; what was restored so far remains"
                ));
            }
        }
        Ok(JobPreparation {
            location: facts.location_name().to_owned(),
            facts,
            findings,
        })
    }

    fn started(worker: &Worker<Self>, restore: &Restore, facts: &Facts) {
        let backup = facts
            .backup
            .as_ref()
            .map(kube::ResourceExt::name_any)
            .unwrap_or_default();
        let mut note = format!("restoring from backup {backup}");
        if let Some(copy) = facts.copy_location() {
            let _ = write!(
                note,
                ": from its copy in location {copy}, as its own location cannot be read"
            );
        }
        worker
            .ctx
            .cluster
            .events
            .normal(restore, EventReason::Started, &note);
    }

    /// Stores a log with the reason if the location accepts it. A restore that is past its items
    /// ends as PartiallyFailed: the phase only moves forward.
    async fn fail(
        worker: &mut Worker<Self>,
        restore: &Restore,
        reason: &str,
        location: Option<&Location>,
    ) -> Result<Failure<Restore>, WorkerError> {
        let may_fail = Self::KIND.may_fail(restore.phase().stage());
        let progress = restore.status.progress.clone().unwrap_or_default();
        let begun = i64::from(restore.phase() != RestorePhase::New);
        let summary = Summary {
            progress,
            ..Summary::default()
        };
        let mut counts = patches::Counts {
            errors: begun,
            summary,
            ..patches::Counts::default()
        };
        let mut interrupted = worker.interrupted.take();
        if let Some(InterruptedWork { files, summary }) = &mut interrupted {
            operations::give_up_data(&mut files.volume_info);
            counts.warnings = files.results.warnings();
            counts.errors = files.results.errors();
            counts.summary = summary.clone();
        } else if !may_fail {
            counts.warnings = restore.status.warnings;
            counts.errors = restore.status.errors.max(1);
        }
        let phase = if may_fail {
            RestorePhase::Failed
        } else {
            RestorePhase::ended(true)
        };
        let mut status = patches::outcome(restore, phase, &counts, Timestamp::now());
        status.failure_reason = Some(reason.to_owned());
        let volumes = interrupted
            .as_ref()
            .map_or(&[][..], |one| one.files.volume_info.as_slice());
        let outcome = patches::end(status, volumes, &counts.summary.left);
        if let Some(location) = location {
            worker.cancellation.check()?;
            let files = if let Some(interrupted) = interrupted {
                interrupted.files
            } else {
                let report = Report::new()?;
                report.error(Scope::Velero, reason.to_owned());
                report.into_files()
            };
            let stored = async {
                let upload = location
                    .open_restore(&worker.name, &worker.kind.claimant(restore))
                    .await?;
                let done = CompletedWork {
                    upload,
                    files,
                    summary: counts.summary.clone(),
                };
                let mut pending = PendingEnd::new(done, may_fail.then(|| outcome.clone()));
                if may_fail {
                    pending.store(restore, Timestamp::now()).await?;
                }
                Ok::<_, StoreError>(pending)
            };
            match stored.await {
                Ok(pending) => {
                    worker.pending = Some(pending);
                    if !may_fail {
                        return Ok(Failure::Store);
                    }
                }
                Err(error) => {
                    if !may_fail {
                        return Err(error.into());
                    }
                    tracing::warn!(restore = worker.name, %error, "the log of a failed restore was not stored");
                }
            }
        }
        Ok(Failure::Publish(Box::new(move |now| {
            patches::terminal(now, &outcome)
        })))
    }

    fn end_note(restore: &Restore) -> String {
        let status = &restore.status;
        if restore.phase() == RestorePhase::FailedValidation {
            return status.validation_errors.join("; ");
        }
        let progress = status.progress.clone().unwrap_or_default();
        status.failure_reason.clone().unwrap_or_else(|| {
            format!(
                "{} of {}, {}, {}",
                progress.items_restored,
                counted(progress.total_items, "item"),
                counted(status.warnings, "warning"),
                counted(status.errors, "error")
            )
        })
    }

    fn count(metrics: &Metrics, restore: Option<&Restore>, outcome: Outcome) {
        let schedule = restore.and_then(|restore| restore.spec.schedule_name.as_deref());
        metrics.restore(outcome, schedule.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests;
