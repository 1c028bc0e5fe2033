//! Decides together on requested claims, over a ledger that was read freshly or moments ago. Pure:
//! names the objects to read next, takes the observations, and returns an outcome for each request.
//!
//! No request is denied from memory: before a denial, one conflicting claim has been confirmed by a
//! fresh read of its object, and entries that are over are dropped in the same step.

use std::{collections::HashSet, time::Duration};

use crate::{
    claim::{Claim, ObjectKey, ObjectKind, State},
    collect::Judgement,
    conflict::Conflict,
    footprint::Footprint,
    ledger::{Ask, Grant, Ledger, Refusal},
    transition::{EntryTransition, Reason},
};

/// Maximum age of a ledger by which a creation is refused because of an object that was just read
/// as running. That object conflicts in any case; but a user who releases its claim by force must
/// wait this long before others rely on it.
pub const REFUSAL_MEMORY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    pub key: ObjectKey,
    pub uid: String,
    pub footprint: Footprint,
    /// When it was created, for display only.
    pub since: String,
    pub ask: Ask,
    /// Whether a refusal leaves an intent, which keeps new backups out for a while.
    pub intent: bool,
    /// An object known to run in the scope, with or without a claim.
    pub running: Option<Running>,
}

/// A running object, which claims all of its scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Running {
    pub key: ObjectKey,
    pub uid: String,
    /// When it was created, for display only.
    pub since: String,
}

#[derive(Debug)]
pub struct Batch<'a> {
    base: Ledger,
    requests: &'a [ClaimRequest],
    /// Names that were read, or could not be read: an unknown object still conflicts.
    looked: HashSet<ObjectKey>,
    /// Maximum number of conflicting claims read next for one request.
    wide: usize,
    freed: Vec<Reason>,
}

#[derive(Debug)]
pub struct BatchDecision {
    /// The ledger with the granted entries, and without entries that were found to be over.
    pub ledger: Ledger,
    /// An outcome for each request, in their order. A grant is valid only once the ledger is
    /// written.
    pub outcomes: Vec<Result<Grant, Refusal>>,
    pub freed: Vec<Reason>,
}

impl<'a> Batch<'a> {
    pub fn new(fresh: &Ledger, requests: &'a [ClaimRequest]) -> Self {
        Self {
            base: fresh.clone(),
            requests,
            looked: HashSet::new(),
            wide: 1,
            freed: Vec::new(),
        }
    }

    /// Returns the claims whose objects must be read before the outcomes are final, each once in a
    /// decision; empty if they are final. Report all of them (`saw`, `could_not_see`) before the
    /// next call.
    ///
    /// One conflicting claim is enough for a refusal. Only if it is over are more read for the same
    /// request: four times as many each time, so that the number of rounds stays small however many
    /// claims conflict.
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

    /// Records that the object of a claim was read, and applies the judgements of its entries;
    /// entries that stay are left out.
    pub fn saw(&mut self, claim: &Claim, judged: &[Judgement]) {
        for Judgement {
            key,
            entry,
            transition,
        } in judged
        {
            if transition.apply(&mut self.base, key, entry)
                && let EntryTransition::End(reason) = transition
            {
                self.freed.push(*reason);
            }
        }
        self.looked.insert(claim.key.clone());
    }

    /// Records that the object of a claim could not be read: it still conflicts.
    pub fn could_not_see(&mut self, claim: &Claim) {
        self.looked.insert(claim.key.clone());
    }

    /// The decision. A refused restore leaves its intent, so that its footprint becomes free.
    pub fn decide(self) -> BatchDecision {
        let mut ledger = self.base;
        let outcomes = admit_all(&mut ledger, self.requests);
        for (request, outcome) in self.requests.iter().zip(&outcomes) {
            if request.intent && matches!(outcome, Err(Refusal::Conflict(_))) {
                let ClaimRequest {
                    key,
                    uid,
                    footprint,
                    since,
                    ask,
                    ..
                } = request;
                ledger.leave_intent(key, uid, footprint, since, ask);
            }
        }
        BatchDecision {
            ledger,
            outcomes,
            freed: self.freed,
        }
    }

    /// The first conflicting claims of this outcome, unless one of them was confirmed already, was
    /// requested in this batch, or has no object that could be read.
    fn unconfirmed(&self, outcome: &Result<Grant, Refusal>) -> Vec<Claim> {
        let (Err(Refusal::Conflict(Conflict { holders, .. }))
        | Ok(
            Grant::Waiting(Conflict { holders, .. }) | Grant::Forced(Conflict { holders, .. }),
        )) = outcome
        else {
            return Vec::new();
        };
        if holders.iter().any(|holder| self.needs_no_read(holder)) {
            return Vec::new();
        }
        holders
            .iter()
            .take(self.wide)
            .filter_map(|holder| self.base.claim(&holder.key).cloned())
            .collect()
    }

    /// Whether this conflicting claim was confirmed already, was requested in this batch, or has no
    /// object that could be read.
    fn needs_no_read(&self, holder: &Claim) -> bool {
        holder.key.kind == ObjectKind::Hold
            || self.looked.contains(&holder.key)
            || self.base.claim(&holder.key).is_none()
    }
}

/// Admits requests in their order of arrival; a refusal does not affect the other requests.
pub fn admit_all(ledger: &mut Ledger, requests: &[ClaimRequest]) -> Vec<Result<Grant, Refusal>> {
    requests
        .iter()
        .map(|request| admit_one(ledger, request))
        .collect()
}

fn admit_one(ledger: &mut Ledger, request: &ClaimRequest) -> Result<Grant, Refusal> {
    if let Some(Running { key, uid, since }) = &request.running {
        ledger.adopt(key, uid, &Footprint::everything(), State::Active, since);
    }
    ledger.admit(
        &request.key,
        &request.uid,
        &request.footprint,
        &request.since,
        &request.ask,
    )
}

#[cfg(test)]
mod tests;
