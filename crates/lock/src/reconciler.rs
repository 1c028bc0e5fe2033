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
    claim::VELERO_SCOPE,
    collect::{CollectionOutcome, Collector},
    lease::{LedgerError, LedgerRepair, RepairOutcome, Upkeep},
    protected_profile::ProtectedProfile,
};

/// Time after which an empty ledger of a profile is removed; Velero's stays.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum time between two looks. The end of a backup or restore releases its claim at once; this
/// is for missed ends.
const MAX_PERIOD: Duration = Duration::from_secs(10);
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

    /// The time between two looks for this grace: several looks in each.
    pub fn period(grace: Duration) -> Duration {
        (grace / 8).clamp(Duration::from_millis(250), MAX_PERIOD)
    }

    /// Waits until the next look is due: for a period, or for a few if nothing is claimed and no
    /// look is requested.
    pub async fn wait(&self) {
        let period = Self::period(self.protected.times.grace);
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
