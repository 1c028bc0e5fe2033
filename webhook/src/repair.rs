//! Looks after the ledgers in the background, also where no controller runs.

use std::sync::Arc;

use backup_lock::{LedgerError, LedgerReconciler, ProtectedProfile};
use tokio::time::{Duration, Instant, sleep};

use crate::metrics::Metrics;

/// Looks for ever; replicas differ in when they start.
pub(crate) async fn run(profiles: Vec<ProtectedProfile>, grace: Duration, metrics: Arc<Metrics>) {
    let mut reconcilers: Vec<LedgerReconciler> = profiles.into_iter().map(LedgerReconciler::new).collect();
    loop {
        sleep(LedgerReconciler::period(grace)).await;
        for reconciler in &mut reconcilers {
            if let Err(error) = look(reconciler, &metrics).await {
                let profile = &reconciler.protected().profile.name;
                tracing::warn!(profile, %error, "could not look after the ledgers; trying again");
            }
        }
    }
}

async fn look(reconciler: &mut LedgerReconciler, metrics: &Metrics) -> Result<(), LedgerError> {
    for scope in reconciler.scopes([]).await? {
        // One that fails does not stop the others.
        match reconciler.look(&scope, Instant::now().into_std()).await {
            Ok(collected) => collected.freed.iter().for_each(|(.., reason)| metrics.freed(reason.as_str())),
            // It is being rebuilt, or changed under the collector: another look comes.
            Err(error) if error.is_transient() => tracing::debug!(scope, %error, "nothing was freed"),
            Err(error) => tracing::warn!(scope, %error, "could not look after a ledger; trying again"),
        }
    }
    Ok(())
}
