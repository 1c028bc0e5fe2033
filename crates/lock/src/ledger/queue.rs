//! Who waits, for whom, and whose turn it is.

use super::Ledger;
use crate::{
    claim::{Claim, Entry, ObjectKey, State},
    conflict::{Conflict, keeps_out},
    footprint::Footprint,
};

impl Ledger {
    /// Reserves the place of everyone who waits and has nobody in the way any more: neither who holds, nor who waits and
    /// came first. In the order in which they came. Notes of refused restores that they may come now.
    pub(crate) fn promote(&mut self) {
        let waiting: Vec<(ObjectKey, String, Footprint)> = self
            .claims
            .iter()
            .flat_map(|claim| claim.entries.iter().map(move |entry| (claim, entry)))
            .filter(|(_, entry)| entry.state == State::Waiting)
            .map(|(claim, entry)| (claim.key.clone(), entry.uid.clone(), entry.footprint.clone()))
            .collect();
        for (key, uid, footprint) in waiting {
            if self.ahead_of(&key, &footprint).is_empty() {
                if key.kind.is_exclusive() {
                    self.epoch += 1;
                }
                let epoch = self.epoch;
                if let Some(entry) = self.entry_mut(&key, &uid) {
                    (entry.state, entry.epoch) = (State::Reserved, epoch);
                }
            }
        }
        self.expect_the_refused();
    }

    /// Whom an entry waits for: who holds what it wants, and who waits for it and came first.
    pub fn behind(&self, key: &ObjectKey, uid: &str) -> Conflict {
        let holders =
            self.entry(key, uid).map(|entry| self.ahead_of(key, &entry.footprint)).unwrap_or_default();
        Conflict { key: key.clone(), holders }
    }

    /// Whether a claim that waits has its place behind this name, which waits too. A name has one place in the queue,
    /// whatever uids come under it.
    pub(super) fn is_behind(&self, claim: &Claim, key: &ObjectKey) -> bool {
        let waits = |claim: &Claim| claim.entries.iter().any(|entry| entry.state == State::Waiting);
        let mut order =
            self.claims.iter().filter(|one| waits(one) && (one.key == *key || one.key == claim.key));
        order.next().is_some_and(|first| first.key == *key)
    }

    fn ahead_of(&self, key: &ObjectKey, footprint: &Footprint) -> Vec<Claim> {
        let place = |key: &ObjectKey| self.claims.iter().position(|claim| claim.key == *key);
        let own = place(key);
        self.in_the_way(key, footprint, |claim: &Claim, entry: &Entry| {
            keeps_out(entry, key.kind) && (entry.state != State::Waiting || place(&claim.key) < own)
        })
    }
}
