//! The queue of a ledger: which entries wait, for which claims, and which is next.

use std::collections::HashSet;

use super::Ledger;
use crate::{
    claim::{Claim, Entry, ObjectKey, ObjectKind, State},
    conflict::{Conflict, keeps_out},
    footprint::Footprint,
};

impl Ledger {
    /// Reserves every waiting entry without conflicts, neither with holders nor with earlier
    /// waiting entries, in order of admission. Marks refused restores that may come now.
    pub(crate) fn promote(&mut self) {
        let waiting: Vec<(ObjectKey, String, Footprint)> = self
            .claims
            .iter()
            .flat_map(|claim| claim.entries.iter().map(move |entry| (claim, entry)))
            .filter(|(_, entry)| entry.waits())
            .map(|(claim, entry)| {
                (
                    claim.key.clone(),
                    entry.uid.clone(),
                    entry.footprint.clone(),
                )
            })
            .collect();
        for (key, uid, footprint) in waiting {
            if self.ahead_of(&key, &footprint).is_empty() {
                if key.kind.is_exclusive() {
                    self.epoch += 1;
                }
                let epoch = self.epoch;
                if let Some(entry) = self.entry_mut(&key, &uid) {
                    entry.state = State::Reserved;
                    entry.epoch = epoch;
                }
            }
        }
        self.expect_the_refused();
    }

    /// The claims that an entry waits for: holders that conflict, and conflicting entries that
    /// waited earlier.
    pub fn behind(&self, key: &ObjectKey, uid: &str) -> Conflict {
        let holders = self
            .entry(key, uid)
            .map(|entry| self.ahead_of(key, &entry.footprint))
            .unwrap_or_default();
        Conflict {
            key: key.clone(),
            holders,
        }
    }

    /// Whether a waiting claim is behind this name, which waits too. A name has one position in the
    /// queue, for all its uids.
    pub(super) fn is_behind(&self, claim: &Claim, key: &ObjectKey) -> bool {
        let mut order = self.claims.iter().filter(|one| {
            one.entries.iter().any(Entry::waits) && (one.key == *key || one.key == claim.key)
        });
        order.next().is_some_and(|first| first.key == *key)
    }

    /// Whether this entry yields to a restore that may wait: a backup that has not begun and was
    /// not forced.
    pub(super) fn yields(&self, claim: &Claim, entry: &Entry) -> bool {
        self.rules.backups_yield
            && claim.key.kind == ObjectKind::Backup
            && matches!(entry.state, State::Waiting | State::Reserved)
            && !entry.forced
    }

    /// The backups that yield to this restore, with the entries that do: backups that have not
    /// begun. Not a backup with a waiting follower that the restore must wait for itself, such as a
    /// hold.
    pub(super) fn yielding_to(&self, key: &ObjectKey, footprint: &Footprint) -> Vec<Claim> {
        let mut yielding =
            self.in_the_way(key, footprint, |claim, entry| self.yields(claim, entry));
        yielding.retain(|claim| {
            !self
                .with_followers(std::slice::from_ref(&claim.key), key)
                .iter()
                .any(|follower| self.must_wait_for(key, footprint, follower))
        });
        yielding
    }

    /// Whether the restore must wait for this follower of a backup, which then cannot yield to it.
    fn must_wait_for(&self, key: &ObjectKey, footprint: &Footprint, follower: &Claim) -> bool {
        follower.key.kind != ObjectKind::Backup
            && follower
                .entries
                .iter()
                .any(|entry| self.rules.conflicts(key, footprint, follower, entry))
    }

    /// The claims of these names, and those that wait behind them, except the restore's, in their
    /// order.
    fn with_followers(&self, names: &[ObjectKey], restore: &ObjectKey) -> Vec<&Claim> {
        let mut found: Vec<&Claim> = Vec::new();
        for claim in &self.claims {
            if names.contains(&claim.key)
                || claim.key != *restore
                    && found.iter().any(|before| self.waits_behind(claim, before))
            {
                found.push(claim);
            }
        }
        found
    }

    /// Whether an entry of this claim waits and conflicts with the claim `before`.
    fn waits_behind(&self, claim: &Claim, before: &Claim) -> bool {
        claim
            .entries
            .iter()
            .filter(|entry| entry.waits())
            .any(|entry| {
                before.entries.iter().any(|earlier| {
                    self.rules
                        .conflicts(&claim.key, &entry.footprint, before, earlier)
                })
            })
    }

    /// Moves these backups, which [yield](Self::yielding_to) to this restore, back to Waiting
    /// behind it. Claims that wait behind them move with them, so their relative order stays, and
    /// so do later intents, so that they do not keep the backups out. The write that does so is
    /// ordered with [activations](Self::activate), so none of them has begun.
    pub(super) fn take_turns_back(&mut self, restore: &ObjectKey, yielding: &[Claim]) {
        for claim in yielding {
            for entry in &claim.entries {
                self.turn(
                    &claim.key,
                    &entry.uid,
                    |state| state == State::Reserved,
                    State::Waiting,
                );
            }
        }
        let names: Vec<ObjectKey> = yielding.iter().map(|claim| claim.key.clone()).collect();
        let moving: HashSet<ObjectKey> = self
            .with_followers(&names, restore)
            .into_iter()
            .map(|claim| claim.key.clone())
            .collect();
        let mut others = Vec::new();
        let mut moved = Vec::new();
        for claim in std::mem::take(&mut self.claims) {
            let is_intent = claim
                .entries
                .iter()
                .all(|entry| entry.state == State::Intent);
            let goes_behind = moving.contains(&claim.key) || is_intent && !moved.is_empty();
            if goes_behind { &mut moved } else { &mut others }.push(claim);
        }
        others.append(&mut moved);
        self.claims = others;
    }

    fn ahead_of(&self, key: &ObjectKey, footprint: &Footprint) -> Vec<Claim> {
        let own = self.position_of(key);
        self.in_the_way(key, footprint, |claim, entry| {
            keeps_out(entry, key.kind)
                && (!matches!(entry.state, State::Waiting | State::Intent)
                    || self.position_of(&claim.key) < own)
        })
    }

    fn position_of(&self, key: &ObjectKey) -> Option<usize> {
        self.claims.iter().position(|claim| claim.key == *key)
    }
}
