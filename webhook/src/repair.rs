//! Frees claims in the background, so that every claim ends in bounded time also where no controller runs.

use std::{sync::Arc, time::Duration};

use backup_lock::{Collector, VELERO_SCOPE, lease::LedgerStore};
use tokio::time::{Instant, sleep};

use crate::metrics::Metrics;

/// Collects for ever: a few passes in each grace, each jittered by what the replicas differ in their start.
pub async fn run(store: LedgerStore, grace: Duration, metrics: Arc<Metrics>) {
    let every = (grace / 8).clamp(Duration::from_millis(250), Duration::from_secs(10));
    let mut collector = Collector::new(grace);
    loop {
        sleep(every).await;
        match collector.collect(&store, VELERO_SCOPE, Instant::now().into_std()).await {
            Ok(collected) => collected.freed.iter().for_each(|(.., reason)| metrics.freed(reason.as_str())),
            Err(error) => tracing::warn!(%error, "could not look for claims to free; trying again"),
        }
    }
}
