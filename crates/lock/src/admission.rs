//! Decides on wanted claims together, over a ledger that was read freshly, or moments ago. Pure: says which objects to read next, is
//! told what was seen, and in the end has a verdict for each.
//!
//! Nothing is denied from memory: before a denial stands, one claim in the way has been confirmed by a fresh read of its
//! object, and entries that are over are dropped in the same step.

use std::{collections::HashSet, time::Duration};

use crate::{
    claim::{Claim, ObjectKey, ObjectKind, State},
    collect::Judged,
    conflict::Conflict,
    footprint::Footprint,
    ledger::{Ask, Grant, Ledger, Refusal},
    transition::{EntryTransition, Reason},
};

/// How old the ledger may be by which a creation is refused for an object that was just read to be at work. That object is in
/// the way in any case; but a person who frees its claim by hand all the same waits for so long before others may rely on it.
pub const REFUSAL_MEMORY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    pub key: ObjectKey,
    pub uid: String,
    pub footprint: Footprint,
    /// When it was created, for people.
    pub since: String,
    pub ask: Ask,
    /// Whether a refusal leaves word that keeps new backups out for a while.
    pub intent: bool,
    /// An object that is known to run in the scope, whether it has a claim or not.
    pub running: Option<Running>,
}

/// An object that runs, and holds all of its scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Running {
    pub key: ObjectKey,
    pub uid: String,
    /// When it was created, for people.
    pub since: String,
}

#[derive(Debug)]
pub struct Batch<'a> {
    base: Ledger,
    requests: &'a [ClaimRequest],
    /// Names that were read, or could not be: unknown is in the way.
    looked: HashSet<ObjectKey>,
    /// How many of those in its way are read next for one request.
    wide: usize,
    freed: Vec<Reason>,
}

#[derive(Debug)]
pub struct Decided {
    /// The ledger with what is granted, and without what was found to be over.
    pub ledger: Ledger,
    /// An outcome for each request, in their order. What is granted holds only once the ledger is written.
    pub outcomes: Vec<Result<Grant, Refusal>>,
    pub freed: Vec<Reason>,
}

impl<'a> Batch<'a> {
    pub fn new(fresh: &Ledger, requests: &'a [ClaimRequest]) -> Self {
        Self { base: fresh.clone(), requests, looked: HashSet::new(), wide: 1, freed: Vec::new() }
    }

    /// The claims whose objects are to be read before the outcomes may stand, each once in a decision; none: they stand. All of
    /// them are to be told of before this is asked again.
    ///
    /// One that is in the way is enough for a refusal. Only if it is over are more read for the same request: four times as
    /// many each time, so that the requests are decided again a few times only, however many are in their way.
    pub fn to_read(&mut self) -> Vec<Claim> {
        let outcomes = admit_all(&mut self.base.clone(), self.requests);
        let mut wanted = HashSet::new();
        let mut claims = Vec::new();
        for outcome in &outcomes {
            for claim in self.unconfirmed(outcome) {
                if wanted.insert(claim.key.clone()) {
                    claims.push(claim);
                }
            }
        }
        self.wide = self.wide.saturating_mul(4);
        claims
    }

    /// Its object was read, and this is what becomes of the entries of the claim; entries that stay are left out.
    pub fn saw(&mut self, claim: &Claim, judged: &[Judged]) {
        for Judged { key, entry, transition } in judged {
            if transition.apply(&mut self.base, key, entry)
                && let EntryTransition::End(reason) = transition
            {
                self.freed.push(*reason);
            }
        }
        self.looked.insert(claim.key.clone());
    }

    /// Its object could not be read: unknown is in the way.
    pub fn could_not_see(&mut self, claim: &Claim) {
        self.looked.insert(claim.key.clone());
    }

    /// The decision. A refused restore leaves its word, so that what it wants becomes free.
    pub fn decide(self) -> Decided {
        let mut ledger = self.base;
        let outcomes = admit_all(&mut ledger, self.requests);
        for (request, outcome) in self.requests.iter().zip(&outcomes) {
            if request.intent && matches!(outcome, Err(Refusal::Conflict(_))) {
                let ClaimRequest { key, uid, footprint, since, ask, .. } = request;
                ledger.leave_intent(key, uid, footprint, since, ask);
            }
        }
        Decided { ledger, outcomes, freed: self.freed }
    }

    /// The first claims in the way of this outcome, unless one of them was confirmed already, came in with this very
    /// batch, or has no object that could be read.
    fn unconfirmed(&self, outcome: &Result<Grant, Refusal>) -> Vec<Claim> {
        let (Err(Refusal::Conflict(Conflict { holders, .. }))
        | Ok(Grant::Waiting(Conflict { holders, .. }) | Grant::Forced(Conflict { holders, .. }))) = outcome
        else {
            return Vec::new();
        };
        let stands = |holder: &Claim| {
            holder.key.kind == ObjectKind::Hold
                || self.looked.contains(&holder.key)
                || self.base.claim(&holder.key).is_none()
        };
        if holders.iter().any(stands) {
            return Vec::new();
        }
        holders.iter().take(self.wide).filter_map(|holder| self.base.claim(&holder.key).cloned()).collect()
    }
}

/// Admits requests in their order of arrival; one that is refused does not hurt the others.
pub fn admit_all(ledger: &mut Ledger, requests: &[ClaimRequest]) -> Vec<Result<Grant, Refusal>> {
    let admit = |request: &ClaimRequest| {
        if let Some(Running { key, uid, since }) = &request.running {
            ledger.adopt(key, uid, &Footprint::everything(), State::Active, since);
        }
        ledger.admit(&request.key, &request.uid, &request.footprint, &request.since, &request.ask)
    };
    requests.iter().map(admit).collect()
}

#[cfg(test)]
mod tests;
