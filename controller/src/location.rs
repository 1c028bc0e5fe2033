//! BackupStorageLocations: opening them with their credentials, and keeping their status true.
//!
//! The controller: `observe` reads the location, `decide` says whether to validate it now and how closely, `act` validates and
//! writes phase, message and time, and what is known of the bucket. `secrets` says when credentials have changed, `default` sees
//! to it that one location is the default one.

mod act;
mod decide;
mod default;
mod observe;
mod open;
mod secrets;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use backup_core::api::BackupStorageLocation;
use futures::{StreamExt as _, stream};

pub use open::{LocationError, Locations, choose_default, is_available, is_read_only};

use backup_runtime::{
    queue::{Action, Key, run_queue},
    watch,
};

use crate::context::Context;
use decide::{Last, Plan};
use secrets::Secrets;

/// Locations that are validated at the same time; one that hangs does not hold the others.
const CONCURRENCY: usize = 4;

/// What was validated last, by name. Lost with the process, which then validates all once.
type Memory = Arc<Mutex<HashMap<String, Last>>>;

/// Runs until the process is asked to end.
///
/// # Errors
/// None at present; the signature is that of all controllers.
#[allow(clippy::unused_async)] // the same for all controllers
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let (memory, secrets) = (Memory::default(), Secrets::default());
    let keys = watch::keys::<BackupStorageLocation>(&ctx.cluster, &ctx.health, "backup storage locations");
    let keys = stream::select(keys.boxed(), secrets.changes(&ctx).boxed());
    let stop = ctx.stop.clone();
    run_queue("location", keys, CONCURRENCY, stop, move |key| {
        reconcile(ctx.clone(), Arc::clone(&memory), secrets.clone(), key)
    })
    .await;
    Ok(())
}

async fn reconcile(ctx: Context, memory: Memory, secrets: Secrets, key: Key) -> Result<Action, act::Error> {
    let Some(location) = observe::location(&ctx, &key.name).await? else {
        memory.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.name);
        secrets.forget(&key);
        ctx.metrics.forget_location(&key.name);
        return Ok(Action::AwaitChange);
    };
    if default::settle(&ctx, &location).await? {
        return Ok(Action::AwaitChange); // it has changed
    }
    let last = memory.lock().unwrap_or_else(PoisonError::into_inner).get(&key.name).cloned();
    let plan = |last: Option<&Last>| {
        let changed = last.is_some_and(|last| secrets.have_changed(&last.secrets));
        decide::decide(&location, last, changed, ctx.args.store_validation_frequency, observe::now())
    };
    match plan(last.as_ref()) {
        Plan::Wait(None) => Ok(Action::AwaitChange),
        Plan::Wait(Some(time)) => Ok(Action::RequeueAfter(time)),
        Plan::Validate { closely } => {
            let note = |used: &_| secrets.uses(&key, used);
            let last = Box::pin(act::validate(&ctx, &location, last.as_ref(), closely, &note)).await?;
            let after = plan(Some(&last));
            memory.lock().unwrap_or_else(PoisonError::into_inner).insert(key.name, last);
            Ok(match after {
                Plan::Wait(Some(time)) => Action::RequeueAfter(time),
                Plan::Wait(None) => Action::AwaitChange,
                Plan::Validate { .. } => Action::RequeueAfter(decide::SHORTEST),
            })
        }
    }
}
