//! Expired backups are deleted: each gets one DeleteBackupRequest, which the deletion controller
//! carries out with all its checks.
//!
//! The backups of a location are looked at together. One that has expired stays if its schedule
//! keeps it, or if it is the last good one of what it protects ([`backup_core::retention`]). If the
//! others are too many at once, all stay until a user agrees ([`RetentionRecord`]). If the location
//! cannot be written, a label of the Backup says why it is kept (Velero's `velero.io/gc-failure`).
//! Backups that stay are looked at again later.

mod decide;
mod index;
mod observe;

use std::{collections::BTreeMap, future::ready, sync::Arc, time::Duration};

use backup_client::errors::{found, is_conflict};
use backup_core::{
    api::{
        Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest,
        delete_backup_request::DeleteBackupRequestSpec,
    },
    brake::Brake,
    event_reason::EventReason,
    labels::{self, RETENTION_ANNOTATION, RETENTION_REQUEST_ANNOTATION, annotation},
    names,
    retention::{Retention, RetentionFacts, RetentionRecord},
};
use backup_lock::server_time;
use backup_runtime::{
    Cluster,
    clock::Clock,
    delete,
    health::Health,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch,
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::PostParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    error::ReconcileError,
    location::{LocationError, Locations, is_available, is_read_only},
    location_requests,
    metrics::Metrics,
};
use decide::{Case, Failure, Next, Step};
use index::{CheckedExpiries, ExpiryIndex};
use observe::RetentionData;

/// Maximum number of locations that are looked at concurrently.
const CONCURRENCY: usize = 4;
/// Number of backups that a location may lose within an hour, whatever their share.
const FREE_REMOVALS: u64 = 5;
/// Reconcile again at once, through the queue.
const REQUEUE_NOW: Action = Action::RequeueAfter(Duration::from_millis(100));

pub(crate) struct RetentionController {
    cluster: Cluster,
    locations: Locations,
    metrics: Arc<Metrics>,
    /// Interval between checks of expired backups that stay.
    period: Duration,
    /// Limit on the backups that a location loses within an hour.
    brake: Brake,
    index: Arc<ExpiryIndex>,
}

/// The location of expired backups, and why nothing can be deleted there.
struct RetentionPlace {
    location: Option<BackupStorageLocation>,
    failure: Option<Failure>,
}

impl RetentionController {
    pub(crate) fn new(
        cluster: Cluster,
        locations: Locations,
        metrics: Arc<Metrics>,
        period: Duration,
        brake: Brake,
    ) -> Self {
        Self {
            cluster,
            locations,
            metrics,
            period,
            brake,
            index: Arc::default(),
        }
    }

    /// Runs until the process is asked to end. The keys are those of locations.
    pub(crate) async fn run(self, health: Health, stop: CancellationToken) {
        let index = Arc::clone(&self.index);
        let backups = watch::keys_with::<Backup>(
            &self.cluster,
            &health,
            "retention of backups",
            move |key, backup| index.observe_backup(&key.name, backup.as_ref()),
        );
        let index = Arc::clone(&self.index);
        let backups = backups.filter_map(move |key| ready(index.location_of(&key)));
        let index = Arc::clone(&self.index);
        let metrics = Arc::clone(&self.metrics);
        let locations = watch::keys_with::<BackupStorageLocation>(
            &self.cluster,
            &health,
            "retention in locations",
            move |key, location: Option<BackupStorageLocation>| {
                index.observe_location(&key.name, location.as_ref());
                // Also after a restart, so that an alert about it does not end.
                let record = location.as_ref().map(recorded);
                metrics.retention_refused(&key.name, record.map(|record| record.refused));
            },
        );
        let keys = stream::select(backups.boxed(), locations.boxed());
        let controller = Arc::new(self);
        run_queue("retention", keys, CONCURRENCY, stop, move |key| {
            Arc::clone(&controller).reconcile(key)
        })
        .await;
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Action, ReconcileError> {
        let location = &key.name;
        if self.index.is_idle(location) {
            return Ok(Action::AwaitChange);
        }
        let now = match self.index.time(Clock::Boot.now()) {
            Some(now) => now,
            None => self.read_clock().await?,
        };
        if let Next::Wait(action) = self.index.next(location, now, self.period) {
            return Ok(action);
        }
        // Everything is read again: from here on data may be deleted. The time is the API server's,
        // so that no backup expires because the local clock is wrong.
        let now = self.read_clock().await?;
        if let Next::Wait(action) = self.index.next(location, now, self.period) {
            return Ok(action);
        }
        let checked = Box::pin(self.pass(location, now)).await?;
        self.index.passed(location, now, &checked);
        Ok(match self.index.next(location, now, self.period) {
            Next::Wait(action) => action,
            Next::Pass => REQUEUE_NOW,
        })
    }

    async fn read_clock(&self) -> Result<Timestamp, ReconcileError> {
        let now = server_time::now(&self.cluster.client).await?;
        self.index.set_clock(now, Clock::Boot.now());
        Ok(now)
    }

    /// Looks at all backups of a location. Returns their expirations.
    async fn pass(&self, name: &str, now: Timestamp) -> Result<CheckedExpiries, ReconcileError> {
        let RetentionPlace { location, failure } = self.place(name).await;
        let request = match &location {
            Some(location) => {
                location_requests::take(&self.cluster, location, RETENTION_REQUEST_ANNOTATION)
                    .await?
            }
            None => None,
        };
        let data = RetentionData::read(&self.cluster, &self.locations).await?;
        let judged = data.judge();
        let mut verdicts = judged.verdicts(&data.rules);
        let here = data.backups.iter().filter(|facts| facts.location() == name);
        let here: Vec<&RetentionFacts> = here.collect();
        let expired = here.iter().filter(|facts| facts.has_expired(now));
        let steps: Vec<(&RetentionFacts, Step)> = expired
            .map(|facts| {
                let case = Case {
                    verdict: verdicts.remove(facts.name.as_str()).unwrap_or_default(),
                    failure: failure.filter(|_| !facts.was_refused),
                    requests: data.requests_for(facts).cloned().collect(),
                    own_request: own_request(&facts.name, &facts.uid),
                };
                (*facts, decide::decide(&case, now, self.period))
            })
            .collect();
        let staying = here.iter().copied().filter(|facts| !data.leaves(facts));
        let load = decide::load(&staying.collect::<Vec<_>>(), &steps);
        let mut may_remove = true;
        if let Some(location) = &location {
            let before = recorded(location);
            let decision = before.decide(self.brake, &load, request.as_ref(), now);
            may_remove = decision.may_remove;
            let mut record = decision.record;
            if request.is_some() && record.reason.is_none() {
                record.reason = failure.map(|failure| {
                    format!("nothing can be deleted there now ({})", failure.as_str())
                });
            }
            // Written before the requests are made: otherwise a crash would leave losses out.
            self.publish(location, &before, &record).await?;
        }
        let mut result = Ok(());
        for (facts, step) in steps {
            if step == Step::Request && !may_remove {
                continue;
            }
            // A problem with one backup keeps no other, whose removal is recorded already.
            let carried_out = self.carry_out(facts, step, now).await;
            result = result.and(carried_out);
        }
        result?;
        let expiries = here
            .iter()
            .filter_map(|facts| Some((facts.name.clone(), facts.expiration?)));
        Ok(expiries.collect())
    }

    /// The current state of a location; without a name that of the default one.
    async fn place(&self, name: &str) -> RetentionPlace {
        let found = if name.is_empty() {
            match self.locations.default_location().await {
                Ok(default) => self.locations.get(&default).await,
                Err(error) => Err(error),
            }
        } else {
            self.locations.get(name).await
        };
        let failure = match &found {
            Err(LocationError::NotFound { .. } | LocationError::NoDefault { .. }) => {
                Some(Failure::NotFound)
            }
            Err(error) => {
                tracing::info!(location = name, %error, "expired backups stay");
                Some(Failure::CannotGet)
            }
            Ok(location) if is_read_only(location) => Some(Failure::ReadOnly),
            Ok(location) if !is_available(location) => Some(Failure::Unavailable),
            Ok(_) => None,
        };
        RetentionPlace {
            // Backups without a location have no data, and the record is about others.
            location: found.ok().filter(|_| !name.is_empty()),
            failure,
        }
    }

    /// Writes the record, if there is something new in it.
    async fn publish(
        &self,
        location: &BackupStorageLocation,
        before: &RetentionRecord,
        record: &RetentionRecord,
    ) -> Result<(), ReconcileError> {
        let name = location.name_any();
        self.metrics.retention_refused(&name, Some(record.refused));
        if !record.is_news(before) {
            return Ok(());
        }
        let patch =
            json!({ "metadata": { "annotations": { RETENTION_ANNOTATION: record.annotation() } } });
        let outcome = retry::status_patch(&self.cluster, location, |_| Some(patch.clone())).await?;
        if !matches!(outcome, PatchOutcome::Written(_)) {
            let why = "the location was changed meanwhile; its backups are looked at again";
            return Err(ReconcileError::Changed(why.to_owned()));
        }
        if record.refused > 0 && record.refused != before.refused {
            let refused = record.refused;
            let reason = record.reason.as_deref().unwrap_or_default();
            let note = format!(
                "{refused} expired Backups stay: {reason}. If they are to go, run `kubectl backup locations retention \
                 {name} --accept-removals={refused}`"
            );
            tracing::warn!(location = name, refused, reason, "retention has stopped");
            self.cluster
                .events
                .warning(location, EventReason::RetentionStopped, &note);
        }
        Ok(())
    }

    /// Carries out the step for a backup, if it is still there and has still expired.
    async fn carry_out(
        &self,
        facts: &RetentionFacts,
        step: Step,
        now: Timestamp,
    ) -> Result<(), ReconcileError> {
        let label = match &step {
            Step::Label(failure) => Some(failure.as_str()),
            _ => None,
        };
        // Most steps change nothing, and need no further read.
        let is_done =
            matches!(step, Step::Keep | Step::Label(_)) && facts.failure.as_deref() == label;
        if is_done || step == Step::Nothing {
            return Ok(());
        }
        let backup = self.cluster.api::<Backup>().get(&facts.name).await;
        let Some(backup) = found(backup, &facts.name)? else {
            return Ok(());
        };
        let current = RetentionFacts::of(&backup);
        if current.uid != facts.uid || !current.has_expired(now) {
            return Ok(());
        }
        match step {
            Step::Nothing => {}
            Step::Keep => _ = self.set_label(&backup, None).await?,
            Step::Label(failure) => self.label(&backup, failure).await?,
            Step::Renew(request) => {
                self.cluster.leadership.check()?;
                delete::delete_unchanged(&self.cluster, &*request).await?;
                self.request_deletion(&backup).await?;
            }
            Step::Request => self.request_deletion(&backup).await?,
        }
        Ok(())
    }

    /// Sets Velero's label with the reason why an expired backup is kept.
    async fn label(&self, backup: &Backup, failure: Failure) -> Result<(), ReconcileError> {
        if self.set_label(backup, Some(failure.as_str())).await? {
            let note = format!(
                "the backup has expired and cannot be deleted now ({})",
                failure.as_str()
            );
            self.cluster
                .events
                .warning(backup, EventReason::NotDeleted, &note);
            tracing::warn!(
                backup = backup.name_any(),
                reason = failure.as_str(),
                "an expired backup stays"
            );
        }
        Ok(())
    }

    /// Sets or removes the label. Returns whether that was a change.
    async fn set_label(
        &self,
        backup: &Backup,
        value: Option<&str>,
    ) -> Result<bool, ReconcileError> {
        if has_label(backup, value) {
            return Ok(false);
        }
        let outcome = retry::status_patch(&self.cluster, backup, |current| {
            (!has_label(current, value))
                .then(|| json!({"metadata": {"labels": {labels::GC_FAILURE: value}}}))
        })
        .await?;
        Ok(matches!(outcome, PatchOutcome::Written(_)))
    }

    /// Creates the request to delete this very backup: it names the uid, so that it never applies
    /// to another backup of the name.
    async fn request_deletion(&self, backup: &Backup) -> Result<(), ReconcileError> {
        self.set_label(backup, None).await?;
        let name = backup.name_any();
        let spec = DeleteBackupRequestSpec {
            backup_name: name.clone(),
            ..DeleteBackupRequestSpec::default()
        };
        let mut request = DeleteBackupRequest::new(&request_name(backup), spec);
        let labels = [
            (labels::BACKUP_NAME, labels::valid_value(&name)),
            (labels::BACKUP_UID, backup.uid().unwrap_or_default()),
        ];
        request.metadata.labels = Some(
            labels
                .map(|(label, value)| (label.to_owned(), value))
                .into(),
        );
        // Each copy has a time of its own.
        let keep = (labels::KEEP_COPIES_ANNOTATION.to_owned(), "true".to_owned());
        request.metadata.annotations = Some([keep].into());
        let api = self.cluster.api();
        let leadership = &self.cluster.leadership;
        leadership.check()?;
        let params = PostParams::default();
        match leadership
            .write(retry::WRITE_TIMEOUT, api.create(&params, &request))
            .await
        {
            Ok(_) => {
                tracing::info!(
                    backup = name,
                    uid = backup.uid(),
                    "a backup has expired; its deletion is requested"
                );
                self.cluster.events.normal(
                    backup,
                    EventReason::Expired,
                    "its time is over; it is deleted",
                );
                Ok(())
            }
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether Velero's label has this value, or is absent if that is `None`.
fn has_label(backup: &Backup, value: Option<&str>) -> bool {
    backup.labels().get(labels::GC_FAILURE).map(String::as_str) == value
}

/// The limit on the backups that a location loses within an hour.
pub(crate) fn brake(percent: u8) -> Brake {
    Brake {
        free: FREE_REMOVALS,
        percent,
    }
}

/// The record on a location.
fn recorded(location: &BackupStorageLocation) -> RetentionRecord {
    RetentionRecord::read(annotation(location, RETENTION_ANNOTATION))
}

/// The name of retention's own request to delete a backup.
pub(crate) fn request_name(backup: &Backup) -> String {
    own_request(&backup.name_any(), &backup.uid().unwrap_or_default())
}

/// A stable name, so that two replicas create one request.
fn own_request(backup: &str, uid: &str) -> String {
    names::derived("expired", backup, &[uid])
}

/// Why retention keeps a backup now; `None` if it may be deleted. A request may have waited while
/// others were deleted.
pub(crate) async fn kept(
    cluster: &Cluster,
    locations: &Locations,
    backup: &Backup,
) -> Result<Option<String>, ReconcileError> {
    let data = RetentionData::read(cluster, locations).await?;
    let name = backup.name_any();
    let judged = data.judge();
    let verdicts = judged.verdicts(&data.rules);
    let why = verdicts.get(name.as_str()).and_then(|verdict| {
        if verdict.is_last_good {
            Some("it is the last good backup of what it protects")
        } else if verdict.is_kept_by_schedule() {
            Some("its schedule keeps it")
        } else {
            None
        }
    });
    let why = match (why, judged.replacement(&name)) {
        (Some(why), _) => Some(format!("{why} now")),
        (None, Some(replacement)) => not_in_bucket(locations, replacement).await,
        (None, None) => None,
    };
    Ok(why.map(|why| format!("backup {name} has expired and stays: {why}")))
}

/// Why a backup cannot replace another one although its object says so; `None` if the bucket has it.
/// What is removed for it does not come back, so the object alone is not enough.
async fn not_in_bucket(locations: &Locations, replacement: &RetentionFacts) -> Option<String> {
    let (name, location) = (&replacement.name, replacement.location());
    let read = async {
        let (_, store) = locations.open(location).await?;
        Ok::<_, ReconcileError>(store.read_metadata(name).await?)
    };
    match read.await {
        Ok(Some(stored)) if stored.phase() == BackupPhase::Completed => None,
        Ok(_) => Some(format!(
            "backup {name} is to replace it, and location {location} does not have that one as Completed"
        )),
        Err(error) => Some(format!(
            "backup {name} is to replace it, and could not be read: {error}"
        )),
    }
}

/// Copies of a backup that stay beyond their time: the location of each, and why.
pub(crate) type KeptCopies = BTreeMap<String, &'static str>;

/// The complete copies of a backup that stay now although their time is over.
pub(crate) async fn kept_copies(
    cluster: &Cluster,
    locations: &Locations,
    backup: &Backup,
) -> Result<KeptCopies, kube::Error> {
    let data = RetentionData::read(cluster, locations).await?;
    let judged = data.judge();
    let kept = backup.complete_copies().filter_map(|copy| {
        let why = why_copy_stays(&data, &judged, backup, &copy.location)?;
        Some((copy.location.clone(), why))
    });
    Ok(kept.collect())
}

fn why_copy_stays(
    data: &RetentionData,
    judged: &Retention<'_>,
    backup: &Backup,
    location: &str,
) -> Option<&'static str> {
    let name = backup.name_any();
    if judged.is_last_good_copy(&name, location) {
        return Some("it is the last good one, and the backup cannot be read in its own location");
    }
    let verdicts = judged.copies(&data.rules, backup.schedule()?, location)?;
    let verdict = verdicts.get(name.as_str())?;
    verdict
        .is_kept_by_schedule()
        .then_some("the rules of its schedule keep it")
}

#[cfg(test)]
mod tests;
