//! The life of Backups: queue, validation, collection, storing, end.
//!
//! `dispatch` follows the watch, and gives each Backup that needs one a job: a turn of the queue, a worker, or a refusal.
//! What a job does is decided in `queue` and `decide`, from what is stored; nothing in memory outlives its use, so another
//! process can go on at any point.

pub(crate) mod actions;
pub(crate) mod collect;
mod decide;
mod dispatch;
#[cfg(test)]
mod fake;
mod finalizer;
mod finish;
pub(crate) mod hooks;
mod journal;
#[cfg(test)]
mod model;
mod observe;
mod patches;
pub(crate) mod prepare;
mod progress;
mod queue;
mod report;
mod undecodable;
pub(crate) mod volume_snapshots;
mod worker;

use std::time::Duration;

use backup_core::api::Backup;
use backup_runtime::watch;
use futures::StreamExt as _;
use tokio::time::Instant;

use crate::context::Context;
use dispatch::Dispatcher;

/// What the health of the process calls this controller.
const PART: &str = "backups";
/// How long workers get to leave off in order once the process is asked to end.
const DRAIN: Duration = Duration::from_secs(20);

/// Runs Backups until the process is asked to end.
///
/// # Errors
/// None at present; the signature is that of all controllers.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    ctx.health.expect(PART);
    let mut dispatcher = Dispatcher::new(ctx.clone());
    let mut touched = std::pin::pin!(watch::objects::<Backup>(&ctx.cluster));
    loop {
        let wake = dispatcher.wake();
        tokio::select! {
            () = ctx.stop.cancelled() => break,
            Some(event) = touched.next() => {
                let listed = matches!(event, watch::WatchEvent::Listed);
                dispatcher.touched(event);
                if listed {
                    ctx.health.ready(PART);
                }
            }
            Some(()) = dispatcher.job_ended() => {}
            () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
        }
        dispatcher.dispatch();
    }
    if tokio::time::timeout(DRAIN, async { while dispatcher.job_ended().await.is_some() {} }).await.is_err() {
        tracing::info!("backups are left to be taken up again after the restart");
    }
    Ok(())
}
