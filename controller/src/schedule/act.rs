//! Writing what was decided: the state of a Schedule, and the backup of a slot.

use std::time::Duration;

use backup_core::{
    api::{Backup, Schedule, schedule::SchedulePhase as Phase},
    cron::{Cron, Reading},
    labels::{CRON_ANNOTATION, SKIPPED_ANNOTATION},
};
use backup_runtime::{
    ReconcileError,
    backoff::Backoff,
    errors::{is_conflict, is_final, is_gone, plain},
    queue::Action,
    retry::{self, PatchOutcome},
};
use backup_store::crash;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::json;

use super::{Desk, Refused, make, sleep_until};
use crate::context::Context;

/// Look again at once, through the queue.
pub(super) const AT_ONCE: Action = Action::RequeueAfter(Duration::from_millis(100));
/// Between tries of a backup that is refused.
const TRIES: Backoff = Backoff { first: Duration::from_secs(2), cap: Duration::from_mins(1) };
/// Slots that are told when a schedule becomes valid.
const TOLD: usize = 3;

/// Publishes that a schedule is not valid.
pub(super) async fn refuse(
    ctx: &Context,
    schedule: &Schedule,
    errors: &[String],
) -> Result<Action, ReconcileError> {
    let refused = |schedule: &Schedule| {
        schedule.status.phase == Some(Phase::FailedValidation) && schedule.status.validation_errors == errors
    };
    if refused(schedule) {
        return Ok(Action::AwaitChange);
    }
    // Conditional on the resourceVersion, and for this spec only.
    let outcome = retry::status_patch(&ctx.cluster, schedule, |current| {
        (current.spec == schedule.spec && !refused(current))
            .then(|| json!({"status": {"phase": Phase::FailedValidation, "validationErrors": errors}}))
    })
    .await?;
    if matches!(outcome, PatchOutcome::Written(_)) {
        ctx.cluster.events.warning(schedule, "FailedValidation", &errors.join("; "));
    }
    Ok(Action::AwaitChange)
}

/// The same for one that can't be decoded.
pub(super) async fn refuse_undecodable(
    ctx: &Context,
    object: &DynamicObject,
    errors: &[String],
) -> Result<Action, ReconcileError> {
    let kind = ApiResource::erase::<Schedule>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(ctx.cluster.client.clone(), &ctx.cluster.namespace, &kind);
    let budget = ctx.args.resource_timeout.as_std();
    let wanted = json!({"phase": Phase::FailedValidation, "validationErrors": errors});
    // Conditional on the resourceVersion, and for this spec only.
    retry::status_patch_in(&api, &ctx.cluster.leadership, budget, object, |current| {
        let status = &current.data["status"];
        let is_new =
            status["phase"] != wanted["phase"] || status["validationErrors"] != wanted["validationErrors"];
        (current.data["spec"] == object.data["spec"] && is_new).then(|| json!({ "status": wanted }))
    })
    .await?;
    Ok(Action::AwaitChange)
}

/// Publishes that a schedule is valid, and skips what it is told to skip; the Schedule as it is then. None: look again.
///
/// As with Velero, `spec.skipImmediately` is set to what the server does where it is not set, and back to false once it was
/// followed. Nothing is followed while a schedule is paused.
pub(super) async fn enable(
    desk: &Desk,
    schedule: Schedule,
    cron: &Cron,
) -> Result<Option<Schedule>, ReconcileError> {
    let ctx = &desk.ctx;
    let skip = schedule.spec.skip_immediately.unwrap_or(ctx.args.schedule_skip_immediately);
    let settles = !schedule.spec.paused && (skip || schedule.spec.skip_immediately.is_none());
    let reading = Reading::of(desk.dialect, &desk.zone).map(|reading| reading.to_string());
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
    // Conditional on the resourceVersion, and for this spec only.
    let outcome = retry::status_patch(&ctx.cluster, &schedule, |current| {
        (current.spec == schedule.spec).then(|| patch.clone())
    })
    .await?;
    let PatchOutcome::Written(schedule) = outcome else { return Ok(None) };
    if is_new {
        tell(desk, &schedule, cron);
    }
    if settles && skip {
        ctx.cluster.events.normal(
            &schedule,
            "Skipped",
            "spec.skipImmediately: what was due before now is left out",
        );
    }
    Ok(Some(schedule))
}

/// When it is due, for whoever has just made it: people mean different things by one expression.
fn tell(desk: &Desk, schedule: &Schedule, cron: &Cron) {
    let slots = std::iter::successors(cron.next(Timestamp::now()), |last| cron.next(*last));
    let slots: Vec<String> = slots.take(TOLD).map(|slot| slot.to_string()).collect();
    let due =
        if slots.is_empty() { "it is never due".to_owned() } else { format!("due at {}", slots.join(", ")) };
    desk.ctx.cluster.events.normal(schedule, "Enabled", &due);
    if cron.is_ambiguous() {
        let note = format!(
            "day of month and day of week are both given: read as {} reads it (--cron-dialect), {due}; with the other one the \
             days are others",
            desk.dialect
        );
        desk.ctx.cluster.events.warning(schedule, "AmbiguousDays", &note);
    }
}

/// Notes that a slot is left out, and why.
pub(super) async fn skip(
    desk: &Desk,
    schedule: &Schedule,
    slot: Timestamp,
    reason: &str,
) -> Result<(), ReconcileError> {
    let name = schedule.name_any();
    let note = format!("{slot}: {reason}");
    // Conditional on the resourceVersion, and only forwards.
    let outcome = retry::status_patch(&desk.ctx.cluster, schedule, |current| {
        let skipped = current.status.last_skipped.as_ref().map(|time| time.0);
        (skipped < Some(slot)).then(|| {
            json!({"metadata": {"annotations": {SKIPPED_ANNOTATION: note}}, "status": {"lastSkipped": Time(slot)}})
        })
    })
    .await?;
    desk.remember(&name, None);
    if matches!(outcome, PatchOutcome::Written(_)) {
        desk.ctx.metrics.schedule_skipped(&name);
        desk.ctx.cluster.events.warning(schedule, "Skipped", &format!("no backup was made for {note}"));
        tracing::warn!(schedule = name, %slot, reason, "a scheduled backup was skipped");
    }
    Ok(())
}

/// Makes the backup of a slot. Create-only, under a name that follows from the slot: done again, it is found.
pub(super) async fn make(
    desk: &Desk,
    schedule: &Schedule,
    cron: &Cron,
    slot: Timestamp,
    refused: Option<Refused>,
) -> Result<Action, ReconcileError> {
    let (ctx, backup) = (&desk.ctx, make::backup(schedule, slot));
    let name = backup.name_any();
    ctx.cluster.leadership.check()?;
    let api: Api<Backup> = ctx.cluster.api();
    let Err(error) = api.create(&PostParams::default(), &backup).await else {
        return made(desk, schedule, &name, slot, true).await;
    };
    if is_conflict(&error) {
        match api.get(&name).await {
            Ok(there) if make::is_of(&there, schedule) => {
                return made(desk, schedule, &name, slot, false).await;
            }
            Ok(_) => {
                let reason = format!("there is a backup {name} that is not of this schedule");
                skip(desk, schedule, slot, &reason).await?;
                return Ok(AT_ONCE);
            }
            Err(gone) if is_gone(&gone, &name) => return Ok(AT_ONCE),
            Err(error) => return Err(error.into()),
        }
    }
    let reason = plain(&error);
    if is_final(&error) {
        skip(desk, schedule, slot, &reason).await?;
        return Ok(AT_ONCE);
    }
    let tries = refused.as_ref().map_or(0, |refused| refused.tries).saturating_add(1);
    if tries == 1 {
        ctx.cluster.events.warning(
            schedule,
            "Refused",
            &format!("backup {name} is tried again until the next one is due: {reason}"),
        );
    }
    tracing::info!(backup = name, tries, reason, "a scheduled backup is refused; it is tried again");
    let uid = schedule.uid();
    desk.remember(&schedule.name_any(), Some(Refused { uid, slot, tries, reason }));
    let now = Timestamp::now();
    let until_next =
        cron.next(slot).map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default());
    let delay = TRIES.delay(tries);
    Ok(Action::RequeueAfter(until_next.map_or(delay, |left| delay.min(left))))
}

/// Notes that the backup of a slot is there.
async fn made(
    desk: &Desk,
    schedule: &Schedule,
    backup: &str,
    slot: Timestamp,
    now: bool,
) -> Result<Action, ReconcileError> {
    let name = schedule.name_any();
    if now {
        tracing::info!(schedule = name, backup, "a scheduled backup is made");
        desk.ctx.cluster.events.normal(schedule, "BackupCreated", &format!("backup {backup}"));
    }
    crash::point(crash::SCHEDULE_POINT);
    // Conditional on the resourceVersion, and only forwards.
    retry::status_patch(&desk.ctx.cluster, schedule, |current| {
        let last = current.status.last_backup.as_ref().map(|time| time.0);
        (last < Some(slot)).then(|| json!({"status": {"lastBackup": Time(slot)}}))
    })
    .await?;
    desk.remember(&name, None);
    Ok(sleep_until(slot, slot))
}
