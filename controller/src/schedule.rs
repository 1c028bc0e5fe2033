//! Schedules: a backup is made from a template at each time of a cron expression.
//!
//! A time that has come is a slot. The backup of a slot has a name that follows from it, so that a creation whose answer was lost,
//! or that two replicas try, makes one backup. Of several slots that were missed only the latest counts, and no backup is made
//! while an earlier one of the schedule has not ended. One that is refused (by the lock, most of all) is tried again until the
//! next slot has come; then the slot is skipped, and the Schedule says why.

mod act;
mod decide;
mod make;
mod observe;

use std::{
    collections::HashMap,
    future::ready,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backup_core::{
    api::Schedule,
    cron::{Cron, Dialect},
};
use backup_runtime::{
    ReconcileError,
    queue::{Action, Key, run_queue},
    watch::{self, WatchEvent},
};
use futures::StreamExt as _;
use jiff::{Timestamp, tz::TimeZone};

use crate::context::Context;
use decide::Due;
use observe::Found;

/// Schedules that are looked at at the same time.
const CONCURRENCY: usize = 4;
/// The clock may be set, so no schedule sleeps for longer.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);
/// Until an unfinished backup is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const PART: &str = "schedules";

/// What all schedules share.
struct Desk {
    ctx: Context,
    /// The zone of expressions that name none.
    zone: TimeZone,
    dialect: Dialect,
    /// Slots whose backup was refused, by schedule.
    refused: Mutex<HashMap<String, Refused>>,
}

/// A slot whose backup was refused.
#[derive(Clone, Debug, PartialEq)]
struct Refused {
    /// Of the Schedule.
    uid: Option<String>,
    slot: Timestamp,
    tries: u32,
    reason: String,
}

impl Desk {
    fn refused(&self, schedule: &Schedule) -> Option<Refused> {
        let name = schedule.metadata.name.as_deref().unwrap_or_default();
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(name).filter(|refused| refused.uid == schedule.metadata.uid).cloned()
    }

    fn remember(&self, name: &str, refused: Option<Refused>) {
        let mut all = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match refused {
            Some(refused) => drop(all.insert(name.to_owned(), refused)),
            None => drop(all.remove(name)),
        }
    }
}

/// Runs until the process is asked to end.
///
/// # Errors
/// None at present; the signature is that of all controllers.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    ctx.health.expect(PART);
    let health = ctx.health.clone();
    // Those that can't be decoded are told so, and wait for a change.
    let keys = watch::objects::<Schedule>(&ctx.cluster).filter_map(move |touched| {
        if matches!(touched, WatchEvent::Listed) {
            health.ready(PART);
        }
        ready(touched.key())
    });
    let (stop, dialect, zone) = (ctx.stop.clone(), ctx.args.cron_dialect, TimeZone::system());
    tracing::info!(%dialect, zone = zone.iana_name().unwrap_or("UTC"), "cron expressions are read so");
    let desk = Arc::new(Desk { ctx, zone, dialect, refused: Mutex::default() });
    run_queue("schedule", keys, CONCURRENCY, stop, move |key| reconcile(Arc::clone(&desk), key)).await;
    Ok(())
}

async fn reconcile(desk: Arc<Desk>, key: Key) -> Result<Action, ReconcileError> {
    let schedule = match observe::schedule(&desk.ctx, &key.name).await? {
        Found::Schedule(schedule) => *schedule,
        Found::Undecodable(object, errors) => {
            return act::refuse_undecodable(&desk.ctx, &object, &errors).await;
        }
        Found::Nothing => {
            desk.remember(&key.name, None);
            desk.ctx.metrics.forget_schedule(&key.name);
            return Ok(Action::AwaitChange);
        }
    };
    desk.ctx.metrics.know_schedule(&key.name);
    let cron = match decide::check(&schedule.spec, desk.dialect, &desk.zone) {
        Ok(cron) => cron,
        Err(errors) => {
            desk.ctx.metrics.forget_schedule_interval(&key.name);
            return act::refuse(&desk.ctx, &schedule, &errors).await;
        }
    };
    let Some(schedule) = act::enable(&desk, schedule, &cron).await? else { return Ok(act::AT_ONCE) };
    if schedule.spec.paused {
        return Ok(Action::AwaitChange);
    }
    let now = Timestamp::now();
    desk.ctx.metrics.schedule_interval(&key.name, decide::interval(&cron, now));
    match decide::due(&schedule, &cron, now) {
        Due::Never => Ok(Action::AwaitChange),
        Due::At(at) => Ok(sleep_until(at, now)),
        Due::Now(slot) => run_slot(&desk, &schedule, &cron, slot).await,
    }
}

/// Makes the backup of a slot.
async fn run_slot(
    desk: &Desk,
    schedule: &Schedule,
    cron: &Cron,
    slot: Timestamp,
) -> Result<Action, ReconcileError> {
    let refused = desk.refused(schedule);
    if let Some(earlier) = refused.as_ref().filter(|refused| refused.slot < slot) {
        act::skip(desk, schedule, earlier.slot, &earlier.reason).await?;
        return Ok(act::AT_ONCE);
    }
    if let Some(unfinished) = observe::unfinished(&desk.ctx, schedule).await? {
        if refused.is_none() {
            tracing::debug!(
                schedule = schedule.metadata.name,
                unfinished,
                "a backup of the schedule has not ended"
            );
        }
        return Ok(Action::RequeueAfter(LOOK_AGAIN));
    }
    act::make(desk, schedule, cron, slot, refused).await
}

fn sleep_until(at: Timestamp, now: Timestamp) -> Action {
    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Action::RequeueAfter(left.min(LONGEST_SLEEP))
}
