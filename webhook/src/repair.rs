//! Maintains the ledgers in the background, also where no controller runs.

use std::sync::Arc;

use backup_lock::{LedgerError, LedgerReconciler, ProtectedProfile, RepairOutcome};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// Maintains the ledgers of one profile for ever; replicas start at different times.
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
    let mut closed = 0;
    for scope in reconciler.scopes([], Instant::now().into_std()).await? {
        // A failure of one does not stop the others.
        match reconciler.look(&scope, Instant::now().into_std()).await {
            Ok((repaired, collected)) => {
                closed += usize::from(repaired == RepairOutcome::Lost);
                collected
                    .freed
                    .iter()
                    .for_each(|(.., reason)| metrics.freed(reason.as_str()));
            }
            // It changed under the collector, or the API server is down: the next look retries.
            Err(error) if error.passes_soon() => {
                tracing::debug!(scope, %error, "nothing was freed");
            }
            Err(error) => {
                closed += 1;
                tracing::warn!(scope, %error, "could not look after a ledger; trying again");
            }
        }
    }
    metrics.ledgers_closed(&reconciler.protected().profile.name, closed);
    Ok(())
}
