//! BackupStorageLocations: opening them with their credentials, and keeping their status true.
//!
//! The controller: `observe` reads the location, `decide` says whether to validate it now, `act` validates and writes
//! phase, message and time.

mod act;
mod decide;
mod observe;
mod open;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use backup_core::api::BackupStorageLocation;

pub use open::{LocationError, Locations, choose_default, is_available, is_read_only};

use crate::{
    context::Context,
    runtime::{
        queue::{Action, Key, run_queue},
        watch,
    },
};
use decide::{Last, Plan};

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
    let memory = Memory::default();
    let keys = watch::keys::<BackupStorageLocation>(&ctx, "backup storage locations");
    let stop = ctx.stop.clone();
    run_queue("location", keys, CONCURRENCY, stop, move |key| {
        reconcile(ctx.clone(), Arc::clone(&memory), key)
    })
    .await;
    Ok(())
}

async fn reconcile(ctx: Context, memory: Memory, key: Key) -> Result<Action, act::Error> {
    let Some(location) = observe::location(&ctx, &key.name).await? else {
        memory.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.name);
        ctx.metrics.forget_location(&key.name);
        return Ok(Action::AwaitChange);
    };
    let last = memory.lock().unwrap_or_else(PoisonError::into_inner).get(&key.name).cloned();
    let plan = decide::decide(&location, last.as_ref(), ctx.args.store_validation_frequency, observe::now());
    match plan {
        Plan::Wait(None) => Ok(Action::AwaitChange),
        Plan::Wait(Some(time)) => Ok(Action::RequeueAfter(time)),
        Plan::Validate => {
            let last = act::validate(&ctx, &location).await?;
            let after =
                decide::decide(&location, Some(&last), ctx.args.store_validation_frequency, observe::now());
            memory.lock().unwrap_or_else(PoisonError::into_inner).insert(key.name, last);
            Ok(match after {
                Plan::Wait(Some(time)) => Action::RequeueAfter(time),
                Plan::Wait(None) => Action::AwaitChange,
                Plan::Validate => Action::RequeueAfter(decide::SHORTEST),
            })
        }
    }
}
