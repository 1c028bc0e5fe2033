//! Backups whose time is over are deleted: each gets one DeleteBackupRequest, which the deletion controller carries out with all
//! its checks.
//!
//! Only backups that have ended, and only in locations that can be written. Where that is not so, a label of the Backup says why
//! (Velero's `velero.io/gc-failure`), and it is looked at again later.

mod act;
mod decide;
mod observe;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use backup_core::api::Backup;
use backup_runtime::{
    ReconcileError,
    queue::{Action, Key, run_queue},
    watch,
};
use jiff::Timestamp;

use crate::context::Context;
use decide::{Age, Plan};

/// Backups that are looked at at the same time.
const CONCURRENCY: usize = 4;

/// What the watch said of backups, until they are looked at: nearly all of them have time left, and are read no further.
type Ages = Arc<Mutex<HashMap<Key, Age>>>;

/// Runs until the process is asked to end.
///
/// # Errors
/// None at present; the signature is that of all controllers.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let ages = Ages::default();
    let noted = Arc::clone(&ages);
    let note = move |key: &Key, backup: Option<Backup>| {
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        match backup {
            Some(backup) => drop(noted.insert(key.clone(), decide::age(&backup, Timestamp::now()))),
            None => drop(noted.remove(key)),
        }
    };
    let keys = watch::keys_with::<Backup>(&ctx.cluster, &ctx.health, "retention of backups", note);
    let stop = ctx.stop.clone();
    run_queue("retention", keys, CONCURRENCY, stop, move |key| {
        reconcile(ctx.clone(), Arc::clone(&ages), key)
    })
    .await;
    Ok(())
}

async fn reconcile(ctx: Context, ages: Ages, key: Key) -> Result<Action, ReconcileError> {
    let noted = ages.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    match noted {
        Some(Age::Stays) => return Ok(Action::AwaitChange),
        Some(Age::Left(time)) => return Ok(Action::RequeueAfter(time)),
        Some(Age::Over) | None => {}
    }
    // Everything freshly read: from here on something may be destroyed.
    let Some(backup) = observe::backup(&ctx, &key.name).await? else { return Ok(Action::AwaitChange) };
    match decide::age(&backup, Timestamp::now()) {
        Age::Stays => return Ok(Action::AwaitChange),
        Age::Left(time) => return Ok(Action::RequeueAfter(time)),
        Age::Over => {}
    }
    let facts = observe::facts(&ctx, &backup).await?;
    let pace = ctx.args.retention_pace().as_std();
    match decide::decide(&facts, Timestamp::now(), pace) {
        Plan::Nothing => Ok(Action::RequeueAfter(pace)),
        Plan::Label(failure) => {
            act::label(&ctx, &backup, failure).await?;
            Ok(Action::RequeueAfter(pace))
        }
        Plan::Renew(request) => {
            act::remove(&ctx, &request).await?;
            act::ask(&ctx, &backup).await?;
            Ok(Action::RequeueAfter(pace))
        }
        Plan::Ask => {
            act::ask(&ctx, &backup).await?;
            Ok(Action::RequeueAfter(pace))
        }
    }
}
