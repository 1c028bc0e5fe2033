//! Looks after the ledgers in the background, so that every claim ends in bounded time and every lost ledger comes back,
//! also where no controller runs.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_lock::{Collector, Guard, Keeper, VELERO_SCOPE};
use tokio::time::{Instant, sleep};

use crate::metrics::Metrics;

/// An empty ledger of a profile is removed after this; Velero's stays.
const IDLE: Duration = Duration::from_mins(10);

/// Looks for ever: a few times in each grace, each jittered by what the replicas differ in their start.
pub async fn run(guards: Vec<Guard>, grace: Duration, metrics: Arc<Metrics>) {
    let every = (grace / 8).clamp(Duration::from_millis(250), Duration::from_secs(10));
    let mut keepers: Vec<Keeper> = guards.iter().map(|_| Keeper::new(grace, IDLE)).collect();
    let mut collectors: Vec<HashMap<String, Collector>> = guards.iter().map(|_| HashMap::new()).collect();
    loop {
        sleep(every).await;
        for ((guard, keeper), collectors) in guards.iter().zip(&mut keepers).zip(&mut collectors) {
            if let Err(error) = look(guard, keeper, collectors, &metrics).await {
                let profile = &guard.profile.name;
                tracing::warn!(profile, %error, "could not look after the ledgers; trying again");
            }
        }
    }
}

async fn look(
    guard: &Guard,
    keeper: &mut Keeper,
    collectors: &mut HashMap<String, Collector>,
    metrics: &Metrics,
) -> Result<(), backup_lock::LedgerError> {
    let mut scopes = guard.store.scopes().await?;
    if guard.profile.group == VELERO_SCOPE {
        scopes.insert(VELERO_SCOPE.to_owned());
    }
    collectors.retain(|scope, _| scopes.contains(scope));
    for scope in &scopes {
        // One that fails does not stop the others.
        let now = Instant::now().into_std();
        if let Err(error) = keeper.tend(&guard.store, scope, now).await {
            tracing::warn!(scope, %error, "could not look after a ledger; trying again");
            continue;
        }
        let collector = collectors.entry(scope.clone()).or_insert_with(|| guard.collector());
        match collector.collect(&guard.store, scope, now).await {
            Ok(collected) => collected.freed.iter().for_each(|(.., reason)| metrics.freed(reason.as_str())),
            // It is being rebuilt, or changed under the collector: another pass comes.
            Err(error) if error.is_transient() => tracing::debug!(scope, %error, "nothing was freed"),
            Err(error) => tracing::warn!(scope, %error, "could not look for claims to free; trying again"),
        }
    }
    Ok(())
}
