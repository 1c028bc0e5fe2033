//! Scheduled verifications: the stored files of a schedule's backups are read again and again
//! (`spec.verify`), one backup at a time.
//!
//! A verification takes no place in the lock, and writes nothing into the bucket. Its result is in
//! our annotation of the Backup, then in that of the Schedule, which says when the next one is due.
//! One that was cut before that is begun again. A backup that is deleted meanwhile has no result.

pub(crate) mod decide;

use std::{collections::BTreeSet, future::ready, sync::Arc, time::Duration};

use backup_client::errors::found;
use backup_core::{
    api::{Backup, Schedule},
    event_reason::EventReason,
    labels::{self, VERIFICATION_ANNOTATION, VERIFIED_ANNOTATION, annotation},
    text::{counted, plain, shortened},
    time::whole_seconds,
    verification::{ScheduleVerification, Verification},
};
use backup_runtime::{
    Cluster,
    health::Health,
    list,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch::{self, WatchEvent},
};
use backup_store::{Limits, Throttle, verification::VerifiedFiles};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    error::ReconcileError,
    location::{Locations, is_available},
    metrics::Metrics,
};
use decide::{Candidate, Plan, Terms};

/// Number of backups that are verified at the same time.
const CONCURRENCY: usize = 1;
/// Maximum sleep of a schedule, as the clock may be set.
const MAX_SLEEP: Duration = Duration::from_mins(15);
/// Delay before a verification that is due, and not possible now, is tried again.
const RETRY_INTERVAL: Duration = Duration::from_mins(5);
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
        let schedule = found(self.raw_schedules().get(&key.name).await, &key.name)?;
        let schedule = schedule.and_then(|object| list::decode::<Schedule>(&object).ok());
        let terms = schedule
            .as_ref()
            .and_then(|schedule| decide::terms(&schedule.spec));
        let Some((schedule, terms)) = schedule.zip(terms) else {
            self.metrics.forget_verification(&key.name);
            return Ok(Action::AwaitChange);
        };
        let last = ScheduleVerification::read(annotation(&schedule, VERIFICATION_ANNOTATION));
        let whole = last.as_ref().and_then(|last| last.whole);
        let now = Timestamp::now();
        let next = decide::next(&terms, last.as_ref(), now);
        if let Some(next) = next.filter(|next| *next > now) {
            self.metrics.verification_due(&key.name, Some(next), whole);
            return Ok(sleep_until(next, now));
        }
        match self.plan(&schedule, &terms, next).await? {
            Plan::Nothing => {
                self.metrics.verification_due(&key.name, None, whole);
                Ok(Action::RequeueAfter(RETRY_INTERVAL))
            }
            Plan::Unreadable(due) => {
                self.metrics.verification_due(&key.name, Some(due), whole);
                tracing::info!(
                    schedule = key.name,
                    "no location with backups of the schedule is available, so none is verified"
                );
                Ok(Action::RequeueAfter(RETRY_INTERVAL))
            }
            Plan::Chosen(due, chosen) => {
                self.metrics.verification_due(&key.name, Some(due), whole);
                tokio::select! {
                    action = Box::pin(self.verify(&schedule, last.as_ref(), &chosen)) => action,
                    () = self.stop.cancelled() => Ok(Action::AwaitChange),
                }
            }
        }
    }

    fn raw_schedules(&self) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<Schedule>(&());
        Api::namespaced_with(self.cluster.client.clone(), &self.cluster.namespace, &kind)
    }

    /// Chooses a backup of the schedule.
    async fn plan(
        &self,
        schedule: &Schedule,
        terms: &Terms,
        next: Option<Timestamp>,
    ) -> Result<Plan, ReconcileError> {
        let name = schedule.name_any();
        let label = format!("{}={}", labels::SCHEDULE_NAME, labels::valid_value(&name));
        let candidates = list::raw::<Backup, _>(&self.cluster, &label, |object| {
            Candidate::of(&list::decode::<Backup>(&object).ok()?)
        })
        .await?;
        let locations = self.locations.all().await?;
        let readable: BTreeSet<String> = locations
            .iter()
            .filter(|location| is_available(location))
            .map(ResourceExt::name_any)
            .collect();
        let last = annotation(schedule, VERIFICATION_ANNOTATION).unwrap_or_default();
        let seed = format!("{}/{last}", schedule.uid().unwrap_or_default());
        Ok(decide::decide(terms, next, &seed, candidates, |location| {
            readable.contains(location)
        }))
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
            backup.metadata.uid.as_ref() == Some(&chosen.uid) && decide::has_files(backup)
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
            (is_newer && decide::has_files(current))
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

fn sleep_until(at: Timestamp, now: Timestamp) -> Action {
    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Action::RequeueAfter(left.min(MAX_SLEEP))
}

#[cfg(test)]
mod tests;
