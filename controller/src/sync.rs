//! Comparing buckets with the cluster: backups that are only in a bucket are brought into the cluster, and those that are
//! gone from their bucket are taken out of it.
//!
//! A pass over a location lists the cluster, then the bucket (`observe`), compares the two (`compare`, pure), brings what is
//! missing (`bring`: what it becomes is said by `arrive`, pure; `stray`: what holds no backup), removes what is gone (`remove`, behind `guard`) and writes what
//! came of it into the location (`publish`). Whatever is not as it should be concerns one backup and is told; the pass goes on.

mod arrive;
mod bring;
mod compare;
mod csi;
mod decide;
mod error;
mod extras;
mod guard;
mod memory;
mod observe;
mod pass;
mod publish;
mod remove;
mod stray;

use std::time::Duration;

use backup_core::{
    api::BackupStorageLocation,
    sync::{Request, Summary},
};
use backup_runtime::{
    clock::Clock,
    queue::{Action, Key, run_queue},
    watch,
};
use kube::ResourceExt as _;

use crate::{
    context::Context,
    location::{choose_default, is_available},
};
use decide::Plan;
use error::Error;
use memory::Memory;

/// Locations that are compared at the same time; one that is slow does not hold the others.
const CONCURRENCY: usize = 16;
/// For how long after the start the other locations let the default one go first.
const COURTESY: Duration = Duration::from_secs(10);
const COURTESY_STEP: Duration = Duration::from_millis(500);

/// Runs until the process is asked to end.
///
/// # Errors
/// None at present; the signature is that of all controllers.
#[allow(clippy::unused_async)] // the same for all controllers
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let memory = Memory::new(Clock::Boot.now());
    let keys = watch::keys::<BackupStorageLocation>(&ctx.cluster, &ctx.health, "backup sync");
    let stop = ctx.stop.clone();
    run_queue("sync", keys, CONCURRENCY, stop, move |key| reconcile(ctx.clone(), memory.clone(), key)).await;
    Ok(())
}

async fn reconcile(ctx: Context, memory: Memory, key: Key) -> Result<Action, Error> {
    let Some(location) = observe::location(&ctx, &key.name).await? else {
        memory.forget(&key.name);
        ctx.metrics.forget_sync(&key.name);
        return Ok(Action::AwaitChange);
    };
    let now = Clock::Boot.now();
    let mut remembered = memory.of(&location);
    let default_period = ctx.args.backup_sync_period;
    match decide::decide(&location, remembered.passed, default_period, now) {
        Plan::Wait(None) => return Ok(Action::AwaitChange),
        Plan::Wait(Some(time)) => return Ok(Action::RequeueAfter(time)),
        Plan::Sync => {}
    }
    if now.saturating_sub(memory.started) < COURTESY && !goes_first(&ctx, &memory, &location).await? {
        return Ok(Action::RequeueAfter(COURTESY_STEP));
    }
    // At most once, whatever happens afterwards: a request may allow removals.
    let request = publish::take_request(&ctx, &location).await?;
    let summary = if is_available(&location) {
        pass::pass(&ctx, &location, &mut remembered, request.as_ref()).await?
    } else {
        unavailable(&location, request.as_ref())
    };
    remembered.passed = Some(now);
    memory.keep(&location, remembered);
    publish::summary(&ctx, &location, &summary).await?;
    Ok(match decide::decide(&location, Some(now), default_period, Clock::Boot.now()) {
        Plan::Wait(Some(time)) => Action::RequeueAfter(time),
        Plan::Wait(None) => Action::AwaitChange,
        Plan::Sync => Action::RequeueAfter(decide::SHORTEST),
    })
}

/// Whether it is this location's turn: of two that hold a backup of one name, the default one has it in the cluster.
async fn goes_first(ctx: &Context, memory: &Memory, location: &BackupStorageLocation) -> Result<bool, Error> {
    let all = observe::locations(ctx).await?;
    let default = choose_default(&all, &ctx.args.default_backup_storage_location);
    let default = all.iter().find(|other| Some(other.name_any()) == default);
    Ok(default.is_none_or(|default| {
        default.name_any() == location.name_any()
            || !is_available(default)
            || decide::is_off(default, ctx.args.backup_sync_period)
            || memory.has_passed(default)
    }))
}

fn unavailable(location: &BackupStorageLocation, request: Option<&Request>) -> Summary {
    let message = location.status.message.clone().unwrap_or_else(|| "it was not validated yet".to_owned());
    Summary {
        started: jiff::Timestamp::now(),
        request: request.map(|request| request.id.clone()),
        error: Some(format!("the location is not available: {message}")),
        ..Summary::default()
    }
}
