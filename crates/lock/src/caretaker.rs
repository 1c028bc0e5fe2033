//! Looks after the ledgers of a profile in the background: lost ones come back, and every claim ends in bounded time.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use crate::{
    collect::{Collected, Collector},
    guard::Guard,
    lease::{Keeper, LedgerError, VELERO_SCOPE},
};

/// An empty ledger of a profile is removed after this; Velero's stays.
const IDLE: Duration = Duration::from_mins(10);
/// Between two looks at most. The end of a backup or restore releases its claim at once; this is for what was missed.
const PERIOD: Duration = Duration::from_secs(10);

/// What is remembered about the ledgers of a profile between looks.
pub struct Caretaker {
    guard: Guard,
    keeper: Keeper,
    collectors: HashMap<String, Collector>,
}

impl Caretaker {
    pub fn new(guard: Guard) -> Self {
        Self { keeper: Keeper::new(guard.times.grace, IDLE), collectors: HashMap::new(), guard }
    }

    pub fn guard(&self) -> &Guard {
        &self.guard
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
        let mut scopes = self.guard.store.scopes().await?;
        scopes.extend(also);
        if self.guard.profile.is_velero() {
            scopes.insert(VELERO_SCOPE.to_owned());
        }
        self.collectors.retain(|scope, _| scopes.contains(scope));
        Ok(scopes)
    }

    /// Looks after the ledger of a scope once. `now` is the clock of this observer.
    pub async fn look(&mut self, scope: &str, now: Instant) -> Result<Collected, LedgerError> {
        let Self { guard, keeper, collectors } = self;
        keeper.tend(&guard.store, scope, now).await?;
        let collector = collectors.entry(scope.to_owned()).or_insert_with(|| guard.collector());
        collector.collect(&guard.store, scope, now).await
    }
}
