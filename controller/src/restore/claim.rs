//! The right to work: taken from the ledger before any work, given back after the end is published.

use std::time::Duration;

use backup_core::api::Restore;
use backup_lock::{ActivateError, ObjectKey};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    reconcile::{StepError, schedule_label},
    status::{self, Counts},
};
use crate::{
    context::Context,
    metrics,
    runtime::{
        queue::Action,
        retry::{self, Outcome},
    },
};

/// Takes the right to work. Some: what to do instead of working.
pub async fn claim(ctx: &Context, restore: &Restore) -> Result<Option<Action>, StepError> {
    let uid = restore.uid().unwrap_or_default();
    match backup_lock::activate(&ctx.ledger, &object_key(restore), &uid).await {
        Ok(_) => Ok(None),
        Err(error) if error.is_transient() => Err(StepError::Activate(error)),
        Err(ActivateError::Gone { .. } | ActivateError::Over { .. }) => {
            Ok(Some(Action::RequeueAfter(Duration::from_millis(500))))
        }
        Err(ActivateError::Ledger(error)) => Err(StepError::Ledger(error)),
        Err(error) => {
            let why = format!("not started: {error}");
            let at = Timestamp::now();
            let counts = Counts::default();
            let written =
                retry::status_patch(ctx, restore, |now| status::failed(now, &why, &counts, at)).await?;
            if let Outcome::Written(failed) = written {
                ctx.metrics.restore(metrics::Outcome::Failure, schedule_label(restore));
                ctx.events.warning(&failed, "Refused", &why);
            }
            release(ctx, restore).await;
            Ok(Some(Action::AwaitChange))
        }
    }
}

/// Whether this Restore already has the right to work, from before a restart. The footprint is not asked for again: the
/// prepared spec may look wider than the one that was admitted.
pub async fn is_active(ctx: &Context, restore: &Restore) -> Result<bool, StepError> {
    let stored = ctx.ledger.read(backup_lock::VELERO_SCOPE).await?;
    let uid = restore.uid().unwrap_or_default();
    Ok(stored.is_some_and(|stored| {
        stored
            .ledger
            .entry(&object_key(restore), &uid)
            .is_some_and(|entry| entry.state == backup_lock::State::Active)
    }))
}

fn object_key(restore: &Restore) -> ObjectKey {
    ObjectKey::restore(&restore.namespace().unwrap_or_default(), &restore.name_any())
}

/// Gives the place back. A failure is only logged: what is over is collected anyway.
pub async fn release(ctx: &Context, restore: &Restore) {
    release_key(ctx, &object_key(restore), &restore.uid().unwrap_or_default()).await;
}

/// As [`release`], by name.
pub async fn release_key(ctx: &Context, key: &ObjectKey, uid: &str) {
    if let Err(error) = backup_lock::release(&ctx.ledger, key, uid).await {
        tracing::warn!(%key, %error, "the claim could not be released; it is collected later");
    }
}
