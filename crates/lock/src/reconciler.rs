//! Looks after the ledgers of a profile in the background: lost ones come back, and every claim ends in bounded time.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use crate::{
    claim::VELERO_SCOPE,
    collect::{Collected, Collector},
    lease::{LedgerError, LedgerRepair},
    protected_profile::ProtectedProfile,
};

/// An empty ledger of a profile is removed after this; Velero's stays.
const IDLE: Duration = Duration::from_mins(10);
/// Between two looks at most. The end of a backup or restore releases its claim at once; this is for what was missed.
const PERIOD: Duration = Duration::from_secs(10);

/// What is remembered about the ledgers of a profile between looks.
pub struct LedgerReconciler {
    protected: ProtectedProfile,
    repair: LedgerRepair,
    collectors: HashMap<String, Collector>,
}

impl LedgerReconciler {
    pub fn new(protected: ProtectedProfile) -> Self {
        Self { repair: LedgerRepair::new(protected.times.grace, IDLE), collectors: HashMap::new(), protected }
    }

    pub fn protected(&self) -> &ProtectedProfile {
        &self.protected
    }

    /// The time between two looks, where orphans have this grace: a few looks in each.
    pub fn period(grace: Duration) -> Duration {
        (grace / 8).clamp(Duration::from_millis(250), PERIOD)
    }

    /// The scopes that have a ledger, or have lost one, and these. What is remembered of others is forgotten.
    pub async fn scopes(
        &mut self,
        also: impl IntoIterator<Item = String>,
    ) -> Result<BTreeSet<String>, LedgerError> {
        let mut scopes = self.protected.store.scopes().await?;
        scopes.extend(also);
        if self.protected.profile.is_velero() {
            scopes.insert(VELERO_SCOPE.to_owned());
        }
        self.collectors.retain(|scope, _| scopes.contains(scope));
        Ok(scopes)
    }

    /// Looks after the ledger of a scope once. `now` is the clock of this observer.
    pub async fn look(&mut self, scope: &str, now: Instant) -> Result<Collected, LedgerError> {
        let Self { protected, repair, collectors } = self;
        repair.repair(&protected.store, scope, now).await?;
        let collector = collectors.entry(scope.to_owned()).or_insert_with(|| protected.collector());
        collector.collect(&protected.store, scope, now).await
    }
}
