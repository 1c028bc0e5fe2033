//! The collectors: the controller, and replicas of the webhook.

use std::sync::Arc;

use backup_lock::{
    Claim, Entry, Ledger, ObjectKey, State,
    admission::ClaimRequest,
    collect::{Judgement, apply_to},
    transition::{EntryTransition, ObservedState, PriorObservation, Reason, decide},
};

use super::{Lock, Mistake};
use crate::model::{
    actions::open_ledger,
    state::{Collecting, Stage, World},
};

impl Lock {
    pub(super) fn collect_look(
        &self,
        world: &mut World,
        collector: usize,
        aged: bool,
    ) -> Option<()> {
        let Collecting::Read(claim) = &world.collecting[collector] else {
            return None;
        };
        let claim = Arc::clone(claim);
        let observed = self.observed(world, &claim.key);
        let stored = self
            .scenario
            .names
            .iter()
            .zip(&world.objects)
            .filter_map(|(_, object)| *object);
        let uid = stored
            .map(|object| object.uid)
            .find(|uid| observed.uid.as_deref() == Some(&super::uid_text(*uid)));
        if let Some(uid) = uid {
            world.seen.add(uid);
        }
        let judge = |aged| {
            let prior = |entry: &Entry| PriorObservation {
                aged,
                ..self.prior(world, &claim.key, entry)
            };
            self.judge(&claim, &observed, prior)
        };
        let judged = judge(aged);
        if aged && judged == judge(false) {
            return None;
        }
        world.collecting[collector] = if judged.is_empty() {
            Collecting::Idle
        } else {
            Collecting::Judged(judged)
        };
        Some(())
    }

    pub(super) fn collect_write(&self, world: &mut World, collector: usize) -> Option<()> {
        let collecting = std::mem::replace(&mut world.collecting[collector], Collecting::Idle);
        let Collecting::Judged(judged) = collecting else {
            return None;
        };
        let done = self
            .update(world, |ledger| apply_to(ledger, &judged))
            .unwrap_or_default();
        for (key, uid, reason) in &done.freed {
            let ends = matches!(reason, Reason::Gone | Reason::Over);
            world.wrong.hasty |= ends && self.in_flight(world, key, uid);
        }
        Some(())
    }

    pub(super) fn expire(&self, world: &mut World, claim: usize) -> Option<()> {
        let claim = open_ledger(world)?.claims.get(claim)?.clone();
        let entry = claim
            .entries
            .iter()
            .find(|entry| entry.state == State::Active)?;
        self.update(world, |ledger| {
            ledger.drop_if(&claim.key, &entry.uid, State::Active)
        });
        Some(())
    }

    /// The judgements of a claim's entries, without those that stay.
    pub(super) fn judge(
        &self,
        claim: &Claim,
        observed: &ObservedState,
        prior: impl Fn(&Entry) -> PriorObservation,
    ) -> Vec<Judgement> {
        let judge = |entry: &Entry| {
            let same = observed.uid.as_deref() == Some(&entry.uid);
            let dropped = self.makes(Mistake::DroppedWhenDeleting)
                && same
                && observed.deleting
                && entry.state == State::Active;
            let transition = if dropped {
                EntryTransition::End(Reason::Gone)
            } else {
                decide(
                    &claim.key,
                    entry,
                    observed,
                    prior(entry),
                    self.scenario.ends,
                )
            };
            let stays = self.makes(Mistake::OrphansStay)
                && transition == EntryTransition::End(Reason::Orphan);
            let transition = if stays {
                EntryTransition::Keep
            } else {
                transition
            };
            let judged = Judgement {
                key: claim.key.clone(),
                entry: entry.clone(),
                transition,
            };
            (transition != EntryTransition::Keep).then_some(judged)
        };
        claim.entries.iter().filter_map(judge).collect()
    }

    /// The ledger after the collector had enough time, while no other process acts.
    pub fn drained(&self, world: &World) -> Option<Ledger> {
        let mut ledger = open_ledger(world)?.clone();
        // Suspected, then ended, then the same for the entries that had waited; and once more for
        // tombstones.
        for _ in 0..6 {
            for claim in ledger.claims.clone() {
                let observed = self.observed(world, &claim.key);
                let prior = |entry: &Entry| PriorObservation {
                    aged: true,
                    ..self.prior(world, &claim.key, entry)
                };
                apply_to(&mut ledger, &self.judge(&claim, &observed, prior));
            }
        }
        Some(ledger)
    }

    fn prior(&self, world: &World, key: &ObjectKey, entry: &Entry) -> PriorObservation {
        let uid = self.request_of(key, &entry.uid);
        PriorObservation {
            stored: uid.is_some_and(|uid| world.seen.has(uid)),
            aged: false,
            overdue: false,
        }
    }

    /// Whether the object of an entry may still be stored.
    pub(super) fn in_flight(&self, world: &World, key: &ObjectKey, uid: &str) -> bool {
        let comes = |(want, stage): (&ClaimRequest, &Stage)| {
            want.key == *key && want.uid == uid && *stage == Stage::Admitted
        };
        !key.kind.is_deletion() && self.wants.iter().zip(&world.requests).any(comes)
    }
}

pub(super) fn read(world: &mut World, collector: usize, claim: usize) -> Option<()> {
    let claim = open_ledger(world)?.claims.get(claim)?.clone();
    world.collecting[collector] = Collecting::Read(Arc::new(claim));
    Some(())
}
