//! Frees claims without a working object: entries of objects that have ended or are gone, and
//! reservations whose object was never stored.
//!
//! A creation that was admitted may be stored late, so collecting a reservation proves nothing
//! about its object: a late object must pass [`activate`](crate::activate::activate), which is
//! ordered with this on one key.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use crate::{
    claim::{Claim, Entry, ObjectKey, Standing, State},
    lease::{LedgerError, LedgerStore},
    ledger::{Ask, Ledger},
    transition::{
        EndRules, EntryTransition, ObservedState, PriorObservation, Reason, Times, decide,
    },
};

/// Maximum number of uids remembered; beyond it all are forgotten, which only makes collection
/// slower.
const MAX_REMEMBERED: usize = 10_000;
/// Longest time for one removal, retries included.
const RETRY_BUDGET: Duration = Duration::from_secs(10);
/// Time limit for the reads of one pass; claims not read by then stay until the next.
const READ_BUDGET: Duration = Duration::from_secs(30);
/// Number of claims judged before the result is written: a later failure cannot undo that.
const CLAIMS_PER_WRITE: usize = 256;
/// Maximum time between two looks. The end of a backup or restore releases its claim at once; this
/// is for missed ends.
const MAX_PERIOD: Duration = Duration::from_secs(10);

/// The time between two looks for this grace: several looks in each.
pub(crate) fn look_period(grace: Duration) -> Duration {
    (grace / 8).clamp(Duration::from_millis(250), MAX_PERIOD)
}

/// The history of one observer, on its own monotonic clock: never another process's timestamp.
#[derive(Debug)]
pub struct Collector {
    times: Times,
    ends: EndRules,
    /// When each entry was first seen in its current state; only for states that end by timeout.
    waiting: HashMap<(ObjectKey, String), (Standing, Instant)>,
    /// Uids that were seen stored. They cannot be stored again: gone means gone.
    stored: HashSet<String>,
}

/// Result of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionOutcome {
    pub freed: Vec<(ObjectKey, String, Reason)>,
    /// Number of entries kept because the API server gave no definite answer.
    pub unknown: usize,
    /// Stored after their reservation was collected, and running although other claims conflict.
    pub late: Vec<ObjectKey>,
}

impl Collector {
    /// An observer that has seen nothing yet.
    pub fn new(times: Times, ends: EndRules) -> Self {
        Self {
            times,
            ends,
            waiting: HashMap::new(),
            stored: HashSet::new(),
        }
    }

    /// Judges an entry by a fresh read of its name, and records the observation.
    pub fn judge(
        &mut self,
        key: &ObjectKey,
        entry: &Entry,
        observed: &ObservedState,
        now: Instant,
    ) -> EntryTransition {
        if let Some(uid) = &observed.uid {
            self.remember_stored(uid);
        }
        let age = self.age(key, entry, observed, now);
        let prior = PriorObservation {
            stored: self.stored.contains(&entry.uid),
            aged: age >= self.times.of(entry),
            overdue: age >= self.times.settle_at_most,
        };
        decide(key, entry, observed, prior, self.ends)
    }

    /// Maximum time until an entry ends that only a timeout ends. The observer that ends it sees
    /// its state up to a period late, and acts up to a period after the timeout; an orphan takes
    /// one look more.
    pub fn left(&self, key: &ObjectKey, entry: &Entry, now: Instant) -> Duration {
        let since = self.waiting.get(&(key.clone(), entry.uid.clone()));
        let since = since.filter(|(standing, _)| *standing == entry.standing());
        let age = since.map_or(Duration::ZERO, |(_, since)| {
            now.saturating_duration_since(*since)
        });
        let (time, looks) = match entry.state {
            State::Settling => (self.times.settle_at_most, 2),
            State::Intent | State::Collected => (self.times.of(entry), 2),
            State::Waiting | State::Reserved | State::Active | State::Released => {
                (self.times.of(entry), 3)
            }
        };
        time.saturating_sub(age) + look_period(self.times.grace) * looks
    }

    /// How long an entry has been in its current state; an entry whose object exists does not age.
    fn age(
        &mut self,
        key: &ObjectKey,
        entry: &Entry,
        observed: &ObservedState,
        now: Instant,
    ) -> Duration {
        let at = (key.clone(), entry.uid.clone());
        let standing = entry.standing();
        let ages = matches!(
            entry.state,
            State::Intent | State::Settling | State::Collected
        ) || key.kind.is_deletion()
            || !observed.is_of(entry);
        if !ages {
            self.waiting.remove(&at);
            return Duration::ZERO;
        }
        if self.waiting.len() >= MAX_REMEMBERED {
            self.waiting.clear();
        }
        let waits = self
            .waiting
            .entry(at)
            .or_insert_with(|| (standing.clone(), now));
        if waits.0 != standing {
            *waits = (standing, now);
        }
        now.saturating_duration_since(waits.1)
    }

    /// Notes that an object of this uid was seen stored.
    pub(crate) fn remember_stored(&mut self, uid: &str) {
        if self.stored.len() >= MAX_REMEMBERED {
            self.stored.clear();
        }
        self.stored.insert(uid.to_owned());
    }

    /// One pass over the ledger of a scope, by fresh reads, with a write for each few hundred
    /// claims if anything changes. Entries that changed in between stay. `now` is this observer's
    /// monotonic clock.
    ///
    /// A reservation takes three passes: the first misses its object, the second, a grace later,
    /// marks it suspect, and the third finds the object still missing.
    pub async fn collect(
        &mut self,
        store: &LedgerStore,
        scope: &str,
        now: Instant,
    ) -> Result<CollectionOutcome, LedgerError> {
        let Some(stored) = store.read(scope).await? else {
            return Ok(CollectionOutcome::default());
        };
        self.forget_released(&stored.ledger);
        self.collect_claims(store, scope, &stored.ledger.claims, now)
            .await
    }

    pub(crate) async fn collect_claims(
        &mut self,
        store: &LedgerStore,
        scope: &str,
        claims: &[Claim],
        now: Instant,
    ) -> Result<CollectionOutcome, LedgerError> {
        let mut result = CollectionOutcome::default();
        let until = tokio::time::Instant::now() + READ_BUDGET;
        for claims in claims.chunks(CLAIMS_PER_WRITE) {
            let mut judged = Vec::new();
            let seen = store.objects().observe_all(scope, claims, until).await;
            for (claim, seen) in claims.iter().zip(seen) {
                match seen {
                    Ok((observed, _)) => judged.extend(self.judge_entries(claim, &observed, now)),
                    Err(error) => {
                        tracing::warn!(key = %claim.key, %error, "kept a claim whose object could not be read");
                        result.unknown += 1;
                    }
                }
            }
            if !judged.is_empty() {
                let done = apply(
                    store,
                    scope,
                    &judged,
                    tokio::time::Instant::now() + RETRY_BUDGET,
                )
                .await?;
                result.freed.extend(done.freed);
                result.late.extend(done.late);
            }
        }
        Ok(result)
    }

    /// The judgements of a claim's entries, without those that stay.
    pub fn judge_entries(
        &mut self,
        claim: &Claim,
        observed: &ObservedState,
        now: Instant,
    ) -> Vec<Judgement> {
        let mut judgements = Vec::new();
        for entry in &claim.entries {
            let transition = self.judge(&claim.key, entry, observed, now);
            if transition != EntryTransition::Keep {
                judgements.push(Judgement {
                    key: claim.key.clone(),
                    entry: entry.clone(),
                    transition,
                });
            }
        }
        judgements
    }

    fn forget_released(&mut self, ledger: &Ledger) {
        self.waiting.retain(|(key, uid), (standing, _)| {
            ledger
                .entry(key, uid)
                .is_some_and(|entry| entry.standing() == *standing)
        });
        self.stored
            .retain(|uid| ledger.claims.iter().any(|claim| claim.entry(uid).is_some()));
    }
}

/// An entry, in the state in which it was judged, and its transition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Judgement {
    pub key: ObjectKey,
    pub entry: Entry,
    pub transition: EntryTransition,
}

/// Applies these judgements in one write.
pub(crate) async fn apply(
    store: &LedgerStore,
    scope: &str,
    judged: &[Judgement],
    deadline: tokio::time::Instant,
) -> Result<CollectionOutcome, LedgerError> {
    let done = store
        .change(scope, deadline, |ledger: &mut Ledger| {
            apply_to(ledger, judged)
        })
        .await?;
    for (key, uid, reason) in &done.freed {
        tracing::info!(%key, uid, ?reason, "freed a claim");
    }
    Ok(done)
}

/// The step of a collection on a ledger: entries whose state has changed since they were judged
/// stay.
pub fn apply_to(ledger: &mut Ledger, judged: &[Judgement]) -> CollectionOutcome {
    let mut done = CollectionOutcome::default();
    for Judgement {
        key,
        entry,
        transition,
    } in judged
    {
        if *transition == EntryTransition::Readmit {
            if ledger
                .admit(
                    key,
                    &entry.uid,
                    &entry.footprint,
                    &entry.since,
                    &Ask::default(),
                )
                .is_err()
            {
                done.late.push(key.clone());
            }
        } else if transition.apply(ledger, key, entry)
            && let Some(reason) = transition.reason()
        {
            done.freed.push((key.clone(), entry.uid.clone(), reason));
        }
    }
    done
}
