//! Looks after the ledgers in the background, also where no controller runs.

use std::sync::Arc;

use backup_lock::{Caretaker, Guard, LedgerError};
use tokio::time::{Duration, Instant, sleep};

use crate::metrics::Metrics;

/// Looks for ever; replicas differ in when they start.
pub async fn run(guards: Vec<Guard>, grace: Duration, metrics: Arc<Metrics>) {
    let mut caretakers: Vec<Caretaker> = guards.into_iter().map(Caretaker::new).collect();
    loop {
        sleep(Caretaker::period(grace)).await;
        for caretaker in &mut caretakers {
            if let Err(error) = look(caretaker, &metrics).await {
                let profile = &caretaker.guard().profile.name;
                tracing::warn!(profile, %error, "could not look after the ledgers; trying again");
            }
        }
    }
}

async fn look(caretaker: &mut Caretaker, metrics: &Metrics) -> Result<(), LedgerError> {
    for scope in caretaker.scopes([]).await? {
        // One that fails does not stop the others.
        match caretaker.look(&scope, Instant::now().into_std()).await {
            Ok(collected) => collected.freed.iter().for_each(|(.., reason)| metrics.freed(reason.as_str())),
            // It is being rebuilt, or changed under the collector: another look comes.
            Err(error) if error.is_transient() => tracing::debug!(scope, %error, "nothing was freed"),
            Err(error) => tracing::warn!(scope, %error, "could not look after a ledger; trying again"),
        }
    }
    Ok(())
}
