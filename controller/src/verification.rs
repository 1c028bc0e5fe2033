//! Scheduled verifications: the stored files of a schedule's backups are read again and again
//! (`spec.verify`), one backup at a time.
//!
//! A verification takes no place in the lock, and writes nothing into the bucket. Its result is in
//! our annotation of the Backup, then in that of the Schedule, which says when the next one is due.
//! One that was cut before that is begun again. A backup that is deleted meanwhile has no result.

use std::{future::ready, sync::Arc, time::Duration};

use backup_client::errors::found;
use backup_core::{
    api::{Backup, Schedule},
    event_reason::EventReason,
    labels::{VERIFICATION_ANNOTATION, VERIFIED_ANNOTATION, annotation},
    text::{counted, plain, shortened},
    time::whole_seconds,
    verification::{ScheduleVerification, Verification},
};
use backup_runtime::{
    Cluster,
    health::Health,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch::{self, WatchEvent},
};
use backup_store::{Limits, Throttle, verification::VerifiedFiles};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    backup_turns::{self, Candidate, Plan, RETRY_INTERVAL, Terms, has_files, sleep_until},
    error::ReconcileError,
    location::Locations,
    metrics::Metrics,
};

/// Number of backups that are verified at the same time.
const CONCURRENCY: usize = 1;
/// Reconcile again at once, through the queue.
const REQUEUE_NOW: Action = Action::RequeueAfter(Duration::from_millis(100));
/// Maximum length of the error that annotation and event quote (characters).
const MAX_QUOTED_CHARS: usize = 400;
/// Name of this controller in the health of the process.
const COMPONENT_NAME: &str = "verification of backups";

pub(crate) struct VerificationController {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    pub(crate) metrics: Arc<Metrics>,
    /// Limits on a backup that can be restored.
    pub(crate) limits: Limits,
    /// Rate of reading from stores.
    pub(crate) throttle: Arc<Throttle>,
    /// Ends a verification that runs.
    pub(crate) stop: CancellationToken,
}

impl VerificationController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health) {
        health.expect(COMPONENT_NAME);
        // The controller of schedules reports those that cannot be decoded.
        let keys = watch::objects::<Schedule>(&self.cluster).filter_map(move |event| {
            if matches!(event, WatchEvent::Listed(_)) {
                health.ready(COMPONENT_NAME);
            }
            ready(event.key())
        });
        let stop = self.stop.clone();
        let controller = Arc::new(self);
        run_queue("verification", keys, CONCURRENCY, stop, move |key| {
            Arc::clone(&controller).reconcile(key)
        })
        .await;
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Action, ReconcileError> {
        let schedule = backup_turns::read_schedule(&self.cluster, &key.name).await?;
        let asked = schedule.as_ref().and_then(|one| one.spec.verify.as_ref());
        let terms = asked.and_then(|verify| Terms::of(verify.every, verify.which.as_ref()));
        let Some((schedule, terms)) = schedule.as_ref().zip(terms) else {
            self.metrics.forget_verification(&key.name);
            return Ok(Action::AwaitChange);
        };
        let now = Timestamp::now();
        let last = ScheduleVerification::read(annotation(schedule, VERIFICATION_ANNOTATION))
            .filter(|last| backup_turns::is_credible(last.at, now));
        let whole = last.as_ref().and_then(|last| last.whole);
        let next = terms.next(last.as_ref().map(|last| last.at));
        if let Some(next) = next.filter(|next| *next > now) {
            self.metrics.verification_due(&key.name, Some(next), whole);
            return Ok(sleep_until(next, now));
        }
        let plan = backup_turns::plan(
            &self.cluster,
            &self.locations,
            schedule,
            &terms,
            next,
            VERIFICATION_ANNOTATION,
            Candidate::of,
        );
        match plan.await? {
            Plan::Nothing => {
                self.metrics.verification_due(&key.name, None, whole);
                Ok(Action::RequeueAfter(terms.retry_interval()))
            }
            Plan::Unreadable(due) => {
                self.metrics.verification_due(&key.name, Some(due), whole);
                tracing::info!(
                    schedule = key.name,
                    "no location with backups of the schedule is available, so none is verified"
                );
                Ok(Action::RequeueAfter(terms.retry_interval()))
            }
            Plan::Chosen(due, chosen) => {
                self.metrics.verification_due(&key.name, Some(due), whole);
                tokio::select! {
                    action = Box::pin(self.verify(schedule, last.as_ref(), &chosen)) => action,
                    () = self.stop.cancelled() => Ok(Action::AwaitChange),
                }
            }
        }
    }

    async fn verify(
        &self,
        schedule: &Schedule,
        last: Option<&ScheduleVerification>,
        chosen: &Candidate,
    ) -> Result<Action, ReconcileError> {
        let name = &chosen.name;
        let Some(backup) = self.current(chosen).await? else {
            return Ok(REQUEUE_NOW);
        };
        let (_, store) = self.locations.open(&chosen.location).await?;
        tracing::info!(backup = name, "the stored files of a backup are verified");
        let files = match store.verify(&backup, self.limits, &self.throttle).await {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(backup = name, %error, "a backup could not be verified; it is tried again");
                return Ok(Action::RequeueAfter(RETRY_INTERVAL));
            }
        };
        // Of a backup that is deleted meanwhile files are missing.
        let Some(backup) = self.current(chosen).await? else {
            tracing::info!(backup = name, "it was deleted while it was verified");
            return Ok(REQUEUE_NOW);
        };
        let Some(verification) = self.publish(&backup, &files).await? else {
            return Ok(REQUEUE_NOW);
        };
        self.record(schedule, last, name, &verification).await?;
        self.metrics
            .verified(&schedule.name_any(), files.findings.is_empty());
        Ok(REQUEUE_NOW)
    }

    /// The chosen backup; `None` if it has no files any longer, or another one has its name.
    async fn current(&self, chosen: &Candidate) -> Result<Option<Backup>, ReconcileError> {
        let backups = self.cluster.api::<Backup>();
        let backup = found(backups.get(&chosen.name).await, &chosen.name)?;
        Ok(backup.filter(|backup| {
            backup.metadata.uid.as_ref() == Some(&chosen.uid) && has_files(backup)
        }))
    }

    /// Writes the result into the Backup, only forwards. Returns `None` if the backup has changed so
    /// that the result no longer applies.
    async fn publish(
        &self,
        backup: &Backup,
        files: &VerifiedFiles,
    ) -> Result<Option<Verification>, ReconcileError> {
        let first = files.findings.first();
        let quoted = first.map(|first| {
            let text = plain(&format!("{}: {}", first.file, first.message));
            shortened(&text, MAX_QUOTED_CHARS)
        });
        let verification = Verification {
            at: whole_seconds(Timestamp::now()),
            findings: files.findings.len(),
            first: quoted.clone().unwrap_or_default(),
            compared: files.compared,
        };
        let value = verification.annotation();
        let outcome = retry::status_patch(&self.cluster, backup, |current| {
            let known = Verification::read(annotation(current, VERIFIED_ANNOTATION));
            let is_newer = known.is_none_or(|known| known.at < verification.at);
            (is_newer && has_files(current))
                .then(|| json!({ "metadata": { "annotations": { VERIFIED_ANNOTATION: value } } }))
        })
        .await?;
        let PatchOutcome::Written(backup) = outcome else {
            return Ok(None);
        };
        let name = backup.name_any();
        let VerifiedFiles {
            bytes, compared, ..
        } = files;
        if let (Some(first), Some(quoted)) = (first, &quoted) {
            let faults = counted(files.findings.len(), "fault");
            let note = format!("{faults} in its stored files: {quoted}. {}", first.remedy);
            let events = &self.cluster.events;
            events.warning(&backup, EventReason::VerificationFailed, &note);
            tracing::error!(backup = name, faults, first = quoted, "a backup is damaged");
        } else {
            tracing::info!(backup = name, bytes, compared, "a backup is whole");
        }
        Ok(Some(verification))
    }

    /// Writes the result into the Schedule, only forwards: from then on the next one is due later.
    async fn record(
        &self,
        schedule: &Schedule,
        last: Option<&ScheduleVerification>,
        backup: &str,
        verification: &Verification,
    ) -> Result<(), ReconcileError> {
        let Verification { at, findings, .. } = *verification;
        let is_whole = findings == 0;
        let record = ScheduleVerification {
            backup: backup.to_owned(),
            at,
            findings,
            whole: is_whole.then_some(at).or(last.and_then(|last| last.whole)),
        };
        let value = record.annotation();
        let known = annotation(schedule, VERIFICATION_ANNOTATION);
        retry::status_patch(&self.cluster, schedule, |current| {
            // Another value was written meanwhile, by another replica or a user.
            (annotation(current, VERIFICATION_ANNOTATION) == known).then(
                || json!({ "metadata": { "annotations": { VERIFICATION_ANNOTATION: value } } }),
            )
        })
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
