//! Frees what is held by nobody: entries of objects that have ended or are gone, and reservations whose object was never
//! stored.
//!
//! A creation that was admitted may be stored late, so collecting a reservation proves nothing about its object: what
//! comes later has to pass [`activate`](crate::activate::activate), which is ordered with this on one key.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use crate::{
    claim::{Claim, Entry, ObjectKey, State},
    lease::{LedgerError, LedgerStore, UpdateError},
    ledger::Ledger,
    observe::{Objects, Observed},
};

/// Default time that a reservation keeps its place without its object being seen.
pub const DEFAULT_GRACE: Duration = Duration::from_mins(2);
/// Uids remembered at most; beyond it the oldest knowledge is dropped, which only makes collection slower.
const MAX_REMEMBERED: usize = 10_000;
/// Longest time for one removal, retries included.
const BUDGET: Duration = Duration::from_secs(10);

/// What this observer has seen, on its own monotonic clock: never a timestamp of someone else.
#[derive(Debug)]
pub struct Collector {
    grace: Duration,
    /// Reservations without an object, since when.
    missing: HashMap<(ObjectKey, String), Instant>,
    /// Uids that were seen stored. They can't be stored again: gone means gone.
    stored: HashSet<String>,
}

/// What became of the entries in one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Freed, with the reason.
    pub freed: Vec<(ObjectKey, String, Reason)>,
    /// Kept because the API server could not tell.
    pub unknown: usize,
}

/// Why an entry was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The object is terminal.
    Over,
    /// The object was stored once and is gone.
    Gone,
    /// The object was never seen stored for the whole grace.
    Orphan,
}

impl Reason {
    /// A bounded label for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Gone => "gone",
            Self::Orphan => "orphan",
        }
    }
}

impl Collector {
    /// An observer that has seen nothing yet.
    pub fn new(grace: Duration) -> Self {
        Self { grace, missing: HashMap::new(), stored: HashSet::new() }
    }

    /// How long a reservation is kept without its object.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Judges an entry by a fresh read of its name (none: not found), and remembers what was seen.
    pub fn judge(
        &mut self,
        key: &ObjectKey,
        entry: &Entry,
        object: Option<&Observed>,
        now: Instant,
    ) -> Option<Reason> {
        if let Some(object) = object {
            self.remember_stored(&object.uid);
            if object.uid == entry.uid {
                self.missing.remove(&(key.clone(), entry.uid.clone()));
                return object.over.then_some(Reason::Over);
            }
        }
        if entry.state == State::Active || self.stored.contains(&entry.uid) {
            return Some(Reason::Gone);
        }
        if self.missing.len() >= MAX_REMEMBERED {
            self.missing.clear();
        }
        let since = *self.missing.entry((key.clone(), entry.uid.clone())).or_insert(now);
        (now.saturating_duration_since(since) >= self.grace).then_some(Reason::Orphan)
    }

    /// Notes that an object of this uid was seen stored.
    pub fn remember_stored(&mut self, uid: &str) {
        if self.stored.len() >= MAX_REMEMBERED {
            self.stored.clear();
        }
        self.stored.insert(uid.to_owned());
    }

    /// One pass over the ledger of a scope, by fresh reads, and one write if anything is to be freed. Entries that
    /// changed in between keep their place. `now` is this observer's monotonic clock.
    ///
    /// A reservation takes at least two passes: one that misses its object first, and one a grace later.
    pub async fn collect(
        &mut self,
        store: &LedgerStore,
        scope: &str,
        now: Instant,
    ) -> Result<Collected, LedgerError> {
        let Some(stored) = store.read(scope).await? else { return Ok(Collected::default()) };
        let mut result = Collected::default();
        let mut over = Vec::new();
        for claim in &stored.ledger.claims {
            match self.judge_claim(store.objects(), claim, now).await {
                Some(found) => over.extend(found),
                None => result.unknown += 1,
            }
        }
        self.forget_released(&stored.ledger);
        if !over.is_empty() {
            result.freed = free(store, scope, &over, tokio::time::Instant::now() + BUDGET).await?;
        }
        Ok(result)
    }

    /// The entries of a claim that are over, or none if the API server could not tell.
    async fn judge_claim(&mut self, objects: &Objects, claim: &Claim, now: Instant) -> Option<Vec<Over>> {
        let object = match objects.read(&claim.key).await {
            Ok(object) => object,
            Err(error) => {
                tracing::warn!(key = %claim.key, %error, "kept a claim whose object could not be read");
                return None;
            }
        };
        let judged = claim.entries.iter().filter_map(|entry| {
            let reason = self.judge(&claim.key, entry, object.as_ref(), now)?;
            Some(Over { key: claim.key.clone(), uid: entry.uid.clone(), state: entry.state, reason })
        });
        Some(judged.collect())
    }

    fn forget_released(&mut self, ledger: &Ledger) {
        self.missing.retain(|(key, uid), _| ledger.entry(key, uid).is_some());
        self.stored.retain(|uid| ledger.claims.iter().any(|claim| claim.entry(uid).is_some()));
    }
}

/// An entry that was found to be over, in the state in which it was found.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    pub(crate) state: State,
    pub(crate) reason: Reason,
}

/// Frees these entries in one write; those whose state has changed meanwhile keep their place. What was freed.
pub(crate) async fn free(
    store: &LedgerStore,
    scope: &str,
    over: &[Over],
    deadline: tokio::time::Instant,
) -> Result<Vec<(ObjectKey, String, Reason)>, LedgerError> {
    let change = |ledger: &mut Ledger| {
        let freed = over.iter().filter(|entry| ledger.drop_if(&entry.key, &entry.uid, entry.state));
        let freed = freed.map(|entry| (entry.key.clone(), entry.uid.clone(), entry.reason));
        Ok::<Vec<_>, std::convert::Infallible>(freed.collect())
    };
    match store.update(scope, deadline, change).await {
        Ok((freed, _)) => {
            for (key, uid, reason) in &freed {
                tracing::info!(%key, uid, ?reason, "freed a claim");
            }
            Ok(freed)
        }
        Err(UpdateError::Ledger(error)) => Err(error),
        Err(UpdateError::Refused(never)) => match never {},
    }
}
