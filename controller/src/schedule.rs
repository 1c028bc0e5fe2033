//! Schedules: a backup is created from a template at each time of a cron expression.
//!
//! A time that has come is a slot. The name of its backup is derived from it, so that a creation
//! whose answer was lost, or that two replicas try, makes one backup. Of several missed slots only
//! the latest counts, and no backup is made while an earlier one of the schedule has not ended. A
//! backup that is refused (mostly by the lock) is retried until the next slot has come; then the
//! slot is skipped, and the Schedule says why.

mod decide;

use std::{collections::HashMap, future::ready, sync::Arc, time::Duration};

use backup_client::{
    backoff::Backoff,
    errors::{found, is_conflict, is_final, plain},
};
use backup_core::{
    api::{Backup, BackupPhase, Schedule, schedule::SchedulePhase as Phase},
    cron::{Cron, Dialect, Reading},
    event_reason::EventReason,
    labels::{self, CRON_ANNOTATION, SKIPPED_ANNOTATION},
    names, scheduled_backup, validate,
};
use backup_runtime::{
    Cluster,
    health::Health,
    list,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch::{self, WatchEvent},
};
use backup_store::crash;
use futures::StreamExt as _;
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, PostParams},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{error::ReconcileError, metrics::Metrics};
use decide::Due;

/// Maximum number of schedules that are reconciled concurrently.
const CONCURRENCY: usize = 4;
/// Maximum sleep of a schedule, as the clock may be set.
const MAX_SLEEP: Duration = Duration::from_mins(1);
/// Delay before an unfinished backup is checked again.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Reconcile again at once, through the queue.
const REQUEUE_NOW: Action = Action::RequeueAfter(Duration::from_millis(100));
/// Backoff between attempts to create a refused backup.
const RETRY_BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(2),
    cap: Duration::from_mins(1),
};
/// Number of slots in the event about a valid schedule.
const MAX_SLOTS_IN_EVENT: usize = 3;
/// Name of this controller in the health of the process.
const COMPONENT_NAME: &str = "schedules";

pub(crate) struct ScheduleController {
    pub(crate) cluster: Cluster,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) dialect: Dialect,
    /// Whether schedules without their own setting skip a slot that is due at once.
    pub(crate) skip_immediately: bool,
    /// The time zone of expressions that name none.
    pub(crate) zone: TimeZone,
    /// By name of the schedule.
    pub(crate) refused_slots: Mutex<HashMap<String, RefusedSlot>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RefusedSlot {
    /// Uid of the Schedule.
    uid: Option<String>,
    slot: Timestamp,
    tries: u32,
    reason: String,
}

impl ScheduleController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health, stop: CancellationToken) {
        health.expect(COMPONENT_NAME);
        // Schedules that cannot be decoded are reconciled, too: their status lists the errors.
        let keys = watch::objects::<Schedule>(&self.cluster).filter_map(move |event| {
            if matches!(event, WatchEvent::Listed(_)) {
                health.ready(COMPONENT_NAME);
            }
            ready(event.key())
        });
        let dialect = self.dialect;
        let zone = self.zone.iana_name().unwrap_or("UTC");
        tracing::info!(%dialect, zone, "the reading of cron expressions");
        let controller = Arc::new(self);
        run_queue("schedule", keys, CONCURRENCY, stop, move |key| {
            Arc::clone(&controller).reconcile(key)
        })
        .await;
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Action, ReconcileError> {
        let Some(object) = found(self.raw_schedules().get(&key.name).await, &key.name)? else {
            self.set_refused(&key.name, None);
            self.metrics.forget_schedule(&key.name);
            return Ok(Action::AwaitChange);
        };
        let schedule = match list::decode::<Schedule>(&object) {
            Ok(schedule) => schedule,
            Err(error) => {
                // The last due time is kept: an alert about it must not end because of a mistake in
                // the spec.
                self.metrics.schedule_state(&key.name, false, false);
                self.refuse(&object, &self.undecodable(&object, &error))
                    .await?;
                return Ok(Action::AwaitChange);
            }
        };
        self.metrics.show_schedule(&key.name);
        let cron = match decide::check(&schedule.spec, self.dialect, &self.zone) {
            Ok(cron) => cron,
            Err(errors) => {
                let again = self.measure_refused(&schedule);
                if self.refuse(&object, &errors).await? {
                    self.cluster.events.warning(
                        &schedule,
                        EventReason::FailedValidation,
                        &errors.join("; "),
                    );
                }
                return Ok(again);
            }
        };
        let Some(schedule) = self.enable(schedule, &cron).await? else {
            return Ok(REQUEUE_NOW);
        };
        let now = Timestamp::now();
        self.metrics
            .schedule_state(&key.name, cron.next(now).is_some(), schedule.spec.paused);
        if schedule.spec.paused {
            self.metrics.schedule_due(&key.name, None, None);
            return Ok(Action::AwaitChange);
        }
        let due = decide::due(&schedule, &cron, now);
        let interval = decide::interval(&cron, now);
        self.metrics
            .schedule_due(&key.name, interval, decide::last_due(&schedule, due));
        match due {
            Due::Never => Ok(Action::AwaitChange),
            Due::At(at) => Ok(sleep_until(at, now)),
            Due::Now(slot) => self.run_slot(&schedule, &cron, slot).await,
        }
    }

    /// Publishes that a schedule makes no backups, and when they would be due: the alert about a
    /// missing backup lasts until there is one. Returns when to reconcile again.
    fn measure_refused(&self, schedule: &Schedule) -> Action {
        let name = schedule.name_any();
        let paused = schedule.spec.paused;
        self.metrics.schedule_state(&name, false, paused);
        let cron = Cron::parse(&schedule.spec.schedule, self.dialect, &self.zone).ok();
        let now = Timestamp::now();
        let due = cron
            .as_ref()
            .map_or(Due::Never, |cron| decide::due(schedule, cron, now));
        if paused {
            self.metrics.schedule_due(&name, None, None);
            return Action::AwaitChange;
        }
        let interval = cron.as_ref().and_then(|cron| decide::interval(cron, now));
        self.metrics
            .schedule_due(&name, interval, decide::last_due(schedule, due));
        match cron.and_then(|cron| cron.next(now)) {
            Some(next) => sleep_until(next, now),
            None => Action::AwaitChange,
        }
    }

    /// The validation errors of a Schedule that cannot be decoded.
    fn undecodable(&self, object: &DynamicObject, error: &serde_json::Error) -> Vec<String> {
        let found = validate::raw_schedule(&object.data, &[self.dialect]);
        let errors: Vec<String> = found.iter().map(ToString::to_string).collect();
        if errors.is_empty() {
            vec![format!("the Schedule cannot be read: {error}")]
        } else {
            errors
        }
    }

    fn raw_schedules(&self) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<Schedule>(&());
        Api::namespaced_with(self.cluster.client.clone(), &self.cluster.namespace, &kind)
    }

    /// Publishes that a schedule is invalid, or cannot even be decoded. Returns whether that is
    /// new.
    async fn refuse(
        &self,
        object: &DynamicObject,
        errors: &[String],
    ) -> Result<bool, ReconcileError> {
        let Cluster {
            leadership,
            patch_budget,
            ..
        } = &self.cluster;
        let wanted = json!({"phase": Phase::FailedValidation, "validationErrors": errors});
        let outcome = retry::status_patch_in(
            &self.raw_schedules(),
            leadership,
            *patch_budget,
            object,
            |current| {
                let status = &current.data["status"];
                let is_new = status["phase"] != wanted["phase"]
                    || status["validationErrors"] != wanted["validationErrors"];
                (current.data["spec"] == object.data["spec"] && is_new)
                    .then(|| json!({ "status": wanted }))
            },
        )
        .await?;
        Ok(matches!(outcome, PatchOutcome::Written(_)))
    }

    /// Publishes that a schedule is valid, and skips the slots that it asks to skip. Returns the
    /// updated Schedule, `None` if it has changed meanwhile.
    ///
    /// As with Velero, an unset `spec.skipImmediately` is set to the server's default, and it is
    /// set back to false once it was followed. It is not followed while a schedule is paused.
    async fn enable(
        &self,
        schedule: Schedule,
        cron: &Cron,
    ) -> Result<Option<Schedule>, ReconcileError> {
        let skip = schedule
            .spec
            .skip_immediately
            .unwrap_or(self.skip_immediately);
        let settles = !schedule.spec.paused && (skip || schedule.spec.skip_immediately.is_none());
        let reading = Reading::of(self.dialect, &self.zone).map(|reading| reading.to_string());
        let is_new = schedule.status.phase != Some(Phase::Enabled)
            || !schedule.status.validation_errors.is_empty()
            || schedule.annotations().get(CRON_ANNOTATION) != reading.as_ref();
        if !settles && !is_new {
            return Ok(Some(schedule));
        }
        let mut patch = json!({
            "metadata": {"annotations": {CRON_ANNOTATION: reading}},
            "status": {"phase": Phase::Enabled, "validationErrors": null},
        });
        if settles {
            patch["spec"] = json!({"skipImmediately": false});
        }
        if settles && skip {
            patch["status"]["lastSkipped"] = json!(Time(Timestamp::now()));
        }
        let outcome = retry::status_patch(&self.cluster, &schedule, |current| {
            (current.spec == schedule.spec).then(|| patch.clone())
        })
        .await?;
        let PatchOutcome::Written(schedule) = outcome else {
            return Ok(None);
        };
        if is_new {
            self.emit_enabled(&schedule, cron);
        }
        if settles && skip {
            let note = "spec.skipImmediately: what was due before now is left out";
            self.cluster
                .events
                .normal(&schedule, EventReason::Skipped, note);
        }
        Ok(Some(schedule))
    }

    /// Emits an event with the next slots: users mean different times by one expression.
    fn emit_enabled(&self, schedule: &Schedule, cron: &Cron) {
        let slots = std::iter::successors(cron.next(Timestamp::now()), |last| cron.next(*last));
        let slots: Vec<String> = slots
            .take(MAX_SLOTS_IN_EVENT)
            .map(|slot| slot.to_string())
            .collect();
        let due = if slots.is_empty() {
            "it is never due".to_owned()
        } else {
            format!("due at {}", slots.join(", "))
        };
        self.cluster
            .events
            .normal(schedule, EventReason::Enabled, &due);
        let ambiguity = decide::ambiguity(
            &schedule.spec.schedule,
            self.dialect,
            &self.zone,
            Timestamp::now(),
        );
        if let Some(note) = ambiguity {
            self.cluster
                .events
                .warning(schedule, EventReason::AmbiguousSchedule, &note);
        }
    }

    async fn run_slot(
        &self,
        schedule: &Schedule,
        cron: &Cron,
        slot: Timestamp,
    ) -> Result<Action, ReconcileError> {
        let refused = self.refused(schedule);
        if let Some(earlier) = refused.as_ref().filter(|refused| refused.slot < slot) {
            return self.skip(schedule, earlier.slot, &earlier.reason).await;
        }
        if let Some(unfinished) = self.unfinished_backup(schedule).await? {
            if refused.is_none() {
                let schedule = &schedule.metadata.name;
                tracing::debug!(
                    schedule,
                    unfinished,
                    "a backup of the schedule has not ended"
                );
            }
            return Ok(Action::RequeueAfter(RECHECK_INTERVAL));
        }
        self.create_backup(schedule, cron, slot, refused).await
    }

    /// The name and phase of a backup of the schedule that has not ended, if there is one. An
    /// unknown phase has not ended.
    async fn unfinished_backup(&self, schedule: &Schedule) -> Result<Option<String>, kube::Error> {
        let label = format!(
            "{}={}",
            labels::SCHEDULE_NAME,
            labels::valid_value(&schedule.name_any())
        );
        let unfinished = list::raw::<Backup, _>(&self.cluster, &label, |backup| {
            let phase = match backup.data["status"]["phase"].as_str() {
                None | Some("") => BackupPhase::New,
                Some(phase) => phase.into(),
            };
            phase
                .is_active()
                .then(|| format!("{} ({phase})", backup.name_any()))
        })
        .await?;
        Ok(unfinished.into_iter().next())
    }

    /// Records in the Schedule that a slot is skipped, and why.
    async fn skip(
        &self,
        schedule: &Schedule,
        slot: Timestamp,
        reason: &str,
    ) -> Result<Action, ReconcileError> {
        let name = schedule.name_any();
        let note = format!("{slot}: {reason}");
        // Only forwards, unless a wrong clock has written the old time.
        let now = Timestamp::now();
        let outcome = retry::status_patch(&self.cluster, schedule, |current| {
            (decide::noted(current.status.last_skipped.as_ref(), now) < Some(slot)).then(|| {
                json!({"metadata": {"annotations": {SKIPPED_ANNOTATION: note}}, "status": {"lastSkipped": Time(slot)}})
            })
        })
        .await?;
        self.set_refused(&name, None);
        if matches!(outcome, PatchOutcome::Written(_)) {
            self.metrics.schedule_skipped(&name);
            self.cluster.events.warning(
                schedule,
                EventReason::Skipped,
                &format!("no backup was made for {note}"),
            );
            tracing::warn!(schedule = name, %slot, reason, "a scheduled backup was skipped");
        }
        Ok(REQUEUE_NOW)
    }

    /// Creates the backup of a slot. Its name is derived from the slot, so a retry finds it.
    async fn create_backup(
        &self,
        schedule: &Schedule,
        cron: &Cron,
        slot: Timestamp,
        refused: Option<RefusedSlot>,
    ) -> Result<Action, ReconcileError> {
        let name = names::timestamped(&schedule.name_any(), slot);
        let backup = scheduled_backup::backup_of(schedule, &name);
        self.cluster.leadership.check()?;
        let api = self.cluster.api::<Backup>();
        let params = PostParams::default();
        let create = api.create(&params, &backup);
        let Err(error) = self
            .cluster
            .leadership
            .write(retry::WRITE_TIMEOUT, create)
            .await
        else {
            tracing::info!(
                schedule = schedule.name_any(),
                backup = name,
                "a scheduled backup is made"
            );
            self.cluster.events.normal(
                schedule,
                EventReason::BackupCreated,
                &format!("backup {name}"),
            );
            return self.publish_created(schedule, slot).await;
        };
        if is_conflict(&error) {
            return match found(api.get(&name).await, &name)? {
                Some(existing) => {
                    if scheduled_backup::is_of(&existing, schedule) {
                        return self.publish_created(schedule, slot).await;
                    }
                    let reason = format!("there is a backup {name} that is not of this schedule");
                    self.skip(schedule, slot, &reason).await
                }
                None => Ok(REQUEUE_NOW),
            };
        }
        let reason = plain(&error);
        if is_final(&error) {
            return self.skip(schedule, slot, &reason).await;
        }
        let tries = refused.map_or(0, |refused| refused.tries).saturating_add(1);
        if tries == 1 {
            let note = format!("backup {name} is tried again until the next one is due: {reason}");
            self.cluster
                .events
                .warning(schedule, EventReason::Refused, &note);
        }
        tracing::info!(
            backup = name,
            tries,
            reason,
            "a scheduled backup is refused; it is tried again"
        );
        let refused = RefusedSlot {
            uid: schedule.uid(),
            slot,
            tries,
            reason,
        };
        self.set_refused(&schedule.name_any(), Some(refused));
        let now = Timestamp::now();
        let until_next = cron
            .next(slot)
            .map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default());
        let delay = RETRY_BACKOFF.delay(tries);
        Ok(Action::RequeueAfter(
            until_next.map_or(delay, |left| delay.min(left)),
        ))
    }

    /// Records in the Schedule that the backup of a slot exists.
    async fn publish_created(
        &self,
        schedule: &Schedule,
        slot: Timestamp,
    ) -> Result<Action, ReconcileError> {
        crash::point(crash::SCHEDULE_POINT);
        // Only forwards, unless a wrong clock has written the old time.
        let now = Timestamp::now();
        retry::status_patch(&self.cluster, schedule, |current| {
            let last = decide::noted(current.status.last_backup.as_ref(), now);
            (last < Some(slot)).then(|| json!({"status": {"lastBackup": Time(slot)}}))
        })
        .await?;
        self.set_refused(&schedule.name_any(), None);
        Ok(sleep_until(slot, slot))
    }

    fn refused(&self, schedule: &Schedule) -> Option<RefusedSlot> {
        let name = schedule.metadata.name.as_deref().unwrap_or_default();
        let slots = self.refused_slots.lock();
        slots
            .get(name)
            .filter(|refused| refused.uid == schedule.metadata.uid)
            .cloned()
    }

    fn set_refused(&self, name: &str, refused: Option<RefusedSlot>) {
        match refused {
            Some(refused) => _ = self.refused_slots.lock().insert(name.to_owned(), refused),
            None => _ = self.refused_slots.lock().remove(name),
        }
    }
}

fn sleep_until(at: Timestamp, now: Timestamp) -> Action {
    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Action::RequeueAfter(left.min(MAX_SLEEP))
}
