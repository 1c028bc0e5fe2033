//! Looks after the ledgers in the background, also where no controller runs.

use std::sync::Arc;

use backup_lock::{LedgerError, LedgerReconciler, ProtectedProfile};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// Looks after those of one profile for ever; replicas differ in when they start.
pub(crate) async fn run(profile: ProtectedProfile, metrics: Arc<Metrics>) {
    let mut reconciler = LedgerReconciler::new(profile);
    loop {
        reconciler.wait().await;
        if let Err(error) = look(&mut reconciler, &metrics).await {
            let profile = &reconciler.protected().profile.name;
            tracing::warn!(profile, %error, "could not look after the ledgers; trying again");
        }
    }
}

async fn look(reconciler: &mut LedgerReconciler, metrics: &Metrics) -> Result<(), LedgerError> {
    for scope in reconciler.scopes([], Instant::now().into_std()).await? {
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
