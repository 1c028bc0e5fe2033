//! Decides on a batch of claims, over a ledger that was just read: reads the conflicting objects
//! before it refuses any claim.

use std::collections::HashMap;

use backup_lock::{
    Claim, Collector, Conflict, Ledger, ObjectKey, ProtectedProfile,
    admission::{Batch, ClaimRequest},
    ledger::{Grant, Refusal},
    observe::ObservedObject,
    transition::{ObservedState, Reason},
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Verdict;
use crate::admit::denial::Blocker;

pub(crate) struct BatchDecision {
    /// The ledger with the granted claims, and without those found to be over.
    pub ledger: Ledger,
    /// A verdict for each request, in order. A grant is valid only once the ledger is written.
    pub verdicts: Vec<Verdict>,
    pub freed: Vec<Reason>,
}

/// The conflicting objects as read, or why they could not be read.
type ReadObjects = HashMap<ObjectKey, Result<Option<ObservedObject>, String>>;

/// Running objects that were read concurrently with the ledger. All others have to be read after
/// the ledger.
pub(crate) type RunningByKey = HashMap<ObjectKey, (ObservedState, ObservedObject)>;

/// Reads the objects of these claims.
pub(crate) async fn look(
    protected: &ProtectedProfile,
    scope: &str,
    claims: &[Claim],
    until: Instant,
) -> RunningByKey {
    let seen = protected
        .store
        .objects()
        .observe_all(scope, claims, until)
        .await;
    let seen = claims.iter().zip(seen).filter_map(|(claim, seen)| {
        let (observed, object) = seen.ok()?;
        Some((claim.key.clone(), (observed, object?)))
    });
    seen.filter(|(_, (_, object))| !object.over).collect()
}

/// Decides; see [`backup_lock::admission`]. `running` was read since the requests came. A claim
/// whose object cannot be read by `until` counts as a conflict; the decision uses what was read by
/// then.
pub(crate) async fn decide(
    protected: &ProtectedProfile,
    scope: &str,
    collector: &mut Collector,
    fresh: &Ledger,
    requests: &[ClaimRequest],
    mut running: RunningByKey,
    until: Instant,
) -> BatchDecision {
    let mut batch = Batch::new(fresh, requests);
    let mut looked = ReadObjects::new();
    loop {
        let (known, claims): (Vec<Claim>, Vec<Claim>) =
            batch.to_read().into_iter().partition(|claim| {
                let object = running.get(&claim.key).map(|(_, object)| &object.uid);
                claim.entries.iter().all(|entry| object == Some(&entry.uid))
            });
        if known.is_empty() && claims.is_empty() {
            break;
        }
        let seen = protected
            .store
            .objects()
            .observe_all(scope, &claims, until)
            .await;
        let known = known.into_iter().filter_map(|claim| {
            let (observed, object) = running.remove(&claim.key)?;
            Some((claim, Ok((observed, Some(object)))))
        });
        for (claim, seen) in known.chain(claims.into_iter().zip(seen)) {
            match seen {
                Ok((observed, object)) => {
                    let judged =
                        collector.judge_entries(&claim, &observed, Instant::now().into_std());
                    batch.saw(&claim, &judged);
                    looked.insert(claim.key, Ok(object));
                }
                Err(error) => {
                    batch.could_not_see(&claim);
                    looked.insert(claim.key, Err(error.to_string()));
                }
            }
        }
    }
    let decided = batch.decide();
    let verdicts = decided
        .outcomes
        .into_iter()
        .map(|outcome| verdict(outcome, &looked, collector))
        .collect();
    BatchDecision {
        ledger: decided.ledger,
        verdicts,
        freed: decided.freed,
    }
}

fn verdict(
    outcome: Result<Grant, Refusal>,
    looked: &ReadObjects,
    collector: &Collector,
) -> Verdict {
    match outcome {
        Ok(Grant::Reserved) => Verdict::Granted,
        Ok(Grant::Waiting(conflict)) => Verdict::Waiting(blockers(conflict, looked, collector)),
        Ok(Grant::Forced(conflict)) => Verdict::Forced(blockers(conflict, looked, collector)),
        Err(Refusal::Conflict(conflict)) => {
            let confirmed = conflict
                .holders
                .iter()
                .any(|holder| matches!(looked.get(&holder.key), Some(Ok(_))));
            let failed = conflict
                .holders
                .iter()
                .find_map(|holder| looked.get(&holder.key)?.as_ref().err());
            if let Some(error) = failed.filter(|_| !confirmed) {
                return Verdict::trouble(error);
            }
            Verdict::Blocked(blockers(conflict, looked, collector))
        }
        Err(Refusal::NotOpen(status)) => {
            Verdict::not_open(&format!("the ledger is {status:?} and grants nothing now"))
        }
        Err(other) => Verdict::Full(other.to_string()),
    }
}

/// The blockers; those that were read come first, so that the message can name their phase.
fn blockers(conflict: Conflict, looked: &ReadObjects, collector: &Collector) -> Vec<Blocker> {
    let (mut read, others): (Vec<Claim>, Vec<Claim>) = conflict
        .holders
        .into_iter()
        .partition(|holder| matches!(looked.get(&holder.key), Some(Ok(_))));
    read.extend(others);
    let now = Instant::now().into_std();
    read.into_iter()
        .map(|claim| blocker(claim, looked, collector, now))
        .collect()
}

fn blocker(
    claim: Claim,
    looked: &ReadObjects,
    collector: &Collector,
    now: std::time::Instant,
) -> Blocker {
    let object = looked
        .get(&claim.key)
        .and_then(|object| object.as_ref().ok()?.clone());
    // Another object of the name is not the blocker, which is not stored (yet). For a deletion, the
    // object is the backup.
    let object = object.filter(|object| {
        let observed = ObservedState::of(Some(object), true);
        claim
            .entry(&object.uid)
            .is_some_and(|entry| observed.is_of(entry))
    });
    let left = claim
        .entries
        .iter()
        .map(|entry| collector.left(&claim.key, entry, now))
        .max();
    let left = SignedDuration::try_from(left.unwrap_or_default()).unwrap_or_default();
    let free_at = Timestamp::now().checked_add(left).unwrap_or(Timestamp::MAX);
    Blocker {
        claim,
        object,
        free_at,
    }
}
