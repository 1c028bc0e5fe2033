//! Restores: from a stored backup into the cluster.
//!
//! `observe` reads, `validate` and `decide` say what to do, `runner` runs the `work`, `finish` publishes the end. The
//! work reads one item at a time from the local copy of the backup: `select` chooses and orders, actions rewrite, `apply`
//! creates or compares with what is there, `report` keeps what is told about it. What actions have started is seen to its end
//! by `operating`.
//!
//! The phase in the resource is the only state that counts. A restore found running is run again: what is there and
//! equal is left as it is, so this leads to the same.

mod apply;
mod calls;
mod claim;
mod crds;
pub mod decide;
mod finish;
mod guard;
mod namespaces;
mod observe;
mod operating;
mod reconcile;
mod report;
mod runner;
mod select;
mod snapshots;
mod status;
mod validate;
mod work;

#[cfg(test)]
mod fake;

use std::sync::Arc;

use backup_core::api::Restore;
use backup_runtime::{queue::run_queue, watch};
use futures::StreamExt as _;

use crate::{context::Context, metrics::stored::StoredRestores};
use reconcile::Desk;

/// Restores that are looked after at the same time, most of which wait for operations: as many as the ledger has room for.
const CONCURRENCY: usize = 1_000;
/// What the health of the process calls this controller.
const PART: &str = "restores";

/// Runs until the process is asked to end.
///
/// # Errors
/// None at present; the signature is that of all controllers.
#[allow(clippy::unused_async)] // the same for all controllers
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let desk = Arc::new(Desk::default());
    let (watched, health) = (Arc::clone(&desk), ctx.health.clone());
    let (mut stored, metrics) = (StoredRestores::default(), Arc::clone(&ctx.metrics));
    health.expect(PART);
    let keys = watch::objects::<Restore>(&ctx.cluster).filter_map(move |touched| {
        let key = touched.key();
        match (&touched, &key) {
            (watch::WatchEvent::Deleted(_), Some(key)) => stored.gone(&key.name, &metrics),
            (_, Some(key)) => stored.applied(&key.name, &metrics),
            (_, None) => stored.listed(&metrics),
        }
        match (&touched, &key) {
            (watch::WatchEvent::Listed, _) => health.ready(PART),
            (watch::WatchEvent::Applied(restore), Some(key))
                if restore.metadata.deletion_timestamp.is_some() =>
            {
                watched.stop(key);
            }
            (watch::WatchEvent::Applied(restore), Some(key)) if restore.is_cancelled() => {
                watched.cancel(key);
            }
            (watch::WatchEvent::Deleted(_), Some(key)) => watched.stop(key),
            _ => {}
        }
        std::future::ready(key)
    });
    let stop = ctx.stop.clone();
    run_queue("restore", keys, CONCURRENCY, stop, move |key| {
        let (ctx, desk) = (ctx.clone(), Arc::clone(&desk));
        async move {
            let done = Box::pin(reconcile::reconcile(ctx, desk, key)).await;
            if let Err(error) = &done {
                tracing::debug!(category = error.category(), "a step of a restore failed");
            }
            done
        }
    })
    .await;
    Ok(())
}
