//! Frees claims that nobody holds any more, at intervals, while this replica leads.

use std::time::{Duration, Instant};

use backup_lock::{Collector, VELERO_SCOPE};

use crate::context::Context;

/// Between passes. The end of a backup or restore releases its claim at once; this is for what was missed.
const PERIOD: Duration = Duration::from_secs(10);
/// For one pass, however many claims there are.
const DEADLINE: Duration = Duration::from_mins(1);

/// Runs until the process is asked to end.
pub(crate) async fn run(ctx: Context) -> anyhow::Result<()> {
    let mut collector = Collector::new(ctx.args.orphan_grace.as_std());
    loop {
        tokio::select! {
            () = ctx.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(PERIOD) => {}
        }
        if !ctx.leadership.is_leader() {
            continue;
        }
        let pass = collector.collect(&ctx.ledger, VELERO_SCOPE, Instant::now());
        match tokio::time::timeout(DEADLINE, pass).await {
            // The collector has told what it freed.
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(category = error.category(), %error, "claims were not looked at");
            }
            Err(_) => tracing::warn!("claims were not looked at in time; trying again"),
        }
    }
}
