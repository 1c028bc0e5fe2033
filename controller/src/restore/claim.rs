//! The right to work: taken from the ledger before any work, given back after the end is published.

use std::time::Duration;

use backup_core::api::{Restore, RestorePhase};
use backup_lock::{ActivateError, ObjectKey, Token, activate::holds};
use backup_runtime::{
    queue::Action,
    retry::{self, PatchOutcome},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    reconcile::{StepError, schedule_label},
    status::{self, Counts},
};
use crate::{context::Context, metrics};

/// Until a Restore is looked at again that changed while its end was written.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Until a Restore that waits for its turn asks again.
const TURN: Duration = Duration::from_secs(2);

/// The answer of the ledger.
pub enum Right {
    /// To work, in what the token covers.
    Granted(Token),
    /// None; what to do instead.
    Refused(Action),
}

/// Takes the right to work. A Restore that had it before a restart keeps it: its footprint is not judged again.
pub async fn claim(ctx: &Context, restore: &Restore) -> Result<Right, StepError> {
    ctx.cluster.leadership.check()?;
    let uid = restore.uid().unwrap_or_default();
    let error = match backup_lock::activate(&ctx.ledger, &object_key(restore), &uid).await {
        Ok(token) => return Ok(Right::Granted(token)),
        Err(error) if error.is_transient() => return Err(StepError::Activate(error)),
        Err(ActivateError::Gone { .. } | ActivateError::Over { .. }) => {
            return Ok(Right::Refused(Action::RequeueAfter(Duration::from_millis(500))));
        }
        Err(error @ ActivateError::Waiting(_)) => {
            ctx.cluster.events.normal(restore, "Waiting", &error.to_string());
            return Ok(Right::Refused(Action::RequeueAfter(TURN)));
        }
        Err(ActivateError::Ledger(error)) => return Err(StepError::Ledger(error)),
        Err(error) => error,
    };
    let why = format!("not started: {error}");
    let mut outcome = status::outcome(restore, RestorePhase::Failed, &Counts::default(), Timestamp::now());
    outcome.failure_reason = Some(why.clone());
    let written = retry::status_patch(&ctx.cluster, restore, |now| status::published(now, &outcome)).await?;
    if let PatchOutcome::Written(failed) = &written {
        ctx.metrics.restore(metrics::Outcome::Failure, schedule_label(restore));
        ctx.cluster.events.warning(failed, "Refused", &why);
    }
    Ok(Right::Refused(give_back(ctx, restore, &written).await))
}

/// Whether the right stands still, asked after the start was published and before the first item: that write may have
/// taken longer than a lost ledger needs to be rebuilt, from what was stored before it. Then the right has to be taken again.
pub async fn still_granted(ctx: &Context, restore: &Restore, token: &Token) -> Result<bool, StepError> {
    ctx.cluster.leadership.check()?;
    let uid = restore.uid().unwrap_or_default();
    Ok(holds(&ctx.ledger, &object_key(restore), &uid, token).await?)
}

/// After the write of an end: gives the place back. What changed meanwhile so that this is not its end keeps its place,
/// and is looked at again.
pub async fn give_back(ctx: &Context, restore: &Restore, written: &PatchOutcome<Restore>) -> Action {
    if *written == PatchOutcome::Stale {
        return Action::RequeueAfter(LOOK_AGAIN);
    }
    release(ctx, restore).await;
    Action::AwaitChange
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
    if let Err(error) = ctx.cluster.leadership.check() {
        tracing::debug!(%key, %error, "the claim is left to be collected");
    } else if let Err(error) = backup_lock::release(&ctx.ledger, key, uid).await {
        tracing::warn!(%key, %error, "the claim could not be released; it is collected later");
    }
}
