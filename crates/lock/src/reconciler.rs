//! Maintains the ledgers of a profile in the background: lost ones are rebuilt, and every claim
//! ends in bounded time.
//!
//! A look at ledgers without claims costs two lists, of Leases and of markers. While no ledger
//! needs more, a look is made every few periods; an earlier one is requested by
//! [`LedgerStore::ask_for_attention`](crate::LedgerStore::ask_for_attention).

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use crate::{
    claim::{Claim, VELERO_SCOPE},
    collect::{CollectionOutcome, Collector, look_period},
    lease::{LedgerError, LedgerRepair, RepairOutcome, Upkeep},
    observe::ObservedObject,
    protected_profile::ProtectedProfile,
};

/// Time after which an empty ledger of a profile is removed; Velero's stays.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);
/// Number of periods between two looks while nothing is claimed.
const IDLE_PERIODS: u32 = 6;
/// Time after which every ledger is read directly, whatever lists show: they miss one that has lost
/// its labels.
const FULL_LOOK_INTERVAL: Duration = Duration::from_mins(10);

/// State about the ledgers of a profile, kept between looks.
pub struct LedgerReconciler {
    protected: ProtectedProfile,
    repair: LedgerRepair,
    collectors: HashMap<String, Collector>,
    last_full_look: Option<Instant>,
    /// Whether the last look found nothing to do now or soon.
    idle: bool,
}

impl LedgerReconciler {
    pub fn new(protected: ProtectedProfile) -> Self {
        Self {
            repair: LedgerRepair::new(protected.times.grace, IDLE_TIMEOUT),
            collectors: HashMap::new(),
            last_full_look: None,
            idle: false,
            protected,
        }
    }

    pub fn protected(&self) -> &ProtectedProfile {
        &self.protected
    }

    /// Waits until the next look is due: for a period, or for a few if nothing is claimed and no
    /// look is requested.
    pub async fn wait(&self) {
        let period = look_period(self.protected.times.grace);
        if self.idle {
            // Both results are fine: requested, or timed out.
            _ = tokio::time::timeout(
                period * (IDLE_PERIODS - 1),
                self.protected.store.attention(),
            )
            .await;
        }
        tokio::time::sleep(period).await;
    }

    /// The scopes whose ledgers need a look: those that have a ledger or have lost one, unless it
    /// needs nothing; and those in `also`. State about other scopes is dropped.
    pub async fn scopes(
        &mut self,
        also: impl IntoIterator<Item = String>,
        now: Instant,
    ) -> Result<BTreeSet<String>, LedgerError> {
        self.idle = false;
        let full = self
            .last_full_look
            .is_none_or(|last| now.saturating_duration_since(last) >= FULL_LOOK_INTERVAL);
        let mut found = self.protected.store.scopes().await?;
        if self.protected.profile.is_velero() {
            // Without any trace of a ledger nothing is needed.
            found.entry(VELERO_SCOPE.to_owned()).or_insert(Upkeep::None);
        }
        let needed = found
            .into_iter()
            .filter(|(_, upkeep)| full || *upkeep == Upkeep::Needed);
        let mut scopes: BTreeSet<String> = needed.map(|(scope, _)| scope).collect();
        scopes.extend(also);
        self.collectors.retain(|scope, _| scopes.contains(scope));
        if full {
            self.last_full_look = Some(now);
        }
        self.idle = scopes.is_empty();
        Ok(scopes)
    }

    /// Looks at the ledger of a scope once. `now` is this observer's clock.
    pub async fn look(
        &mut self,
        scope: &str,
        now: Instant,
    ) -> Result<(RepairOutcome, CollectionOutcome), LedgerError> {
        let Self {
            protected,
            repair,
            collectors,
            ..
        } = self;
        let repaired = repair.repair(&protected.store, scope, now).await?;
        let collector = collectors
            .entry(scope.to_owned())
            .or_insert_with(|| protected.collector());
        Ok((
            repaired,
            collector.collect(&protected.store, scope, now).await?,
        ))
    }
}

/// Frees the claims of objects that were seen stored and are gone, without waiting for a grace:
/// their uids cannot be stored again. A fresh read of each name decides.
pub async fn collect_gone(
    protected: &ProtectedProfile,
    scope: &str,
    gone: &[ObservedObject],
) -> Result<CollectionOutcome, LedgerError> {
    let store = &protected.store;
    let Some(stored) = store.read(scope).await? else {
        return Ok(CollectionOutcome::default());
    };
    // It has seen only these objects, so no other entry counts as aged.
    let mut collector = protected.collector();
    for object in gone {
        collector.remember_stored(&object.uid);
    }
    let claims: Vec<Claim> = stored
        .ledger
        .claims
        .iter()
        .filter(|claim| {
            gone.iter()
                .any(|object| object.key == claim.key && claim.entry(&object.uid).is_some())
        })
        .cloned()
        .collect();
    collector
        .collect_claims(
            store,
            scope,
            &claims,
            tokio::time::Instant::now().into_std(),
        )
        .await
}
