//! The controller and its workers.

use backup_lock::{
    Ledger, ObjectKind, State,
    activate::{all_end, give_back, take_right},
    collect::apply_to,
    ledger::Refusal,
    transition::PriorObservation,
};

use super::{Lock, Mistake, uid_text};
use crate::model::{
    actions::open_ledger,
    scenarios::Wish,
    state::{Bits, Collecting, Object, Phase, Worker, World},
};

impl Lock {
    pub(super) fn activate(&self, world: &mut World, name: usize, lost: bool) -> Option<()> {
        let Worker::Seen { uid, new } = world.workers[name] else {
            return None;
        };
        let on_sight = self.makes(Mistake::LookThenAllow) || self.makes(Mistake::OrphanIsProof);
        if on_sight || self.scenario.on_sight {
            world.workers[name] = Worker::Right(uid);
            return (!lost).then_some(());
        }
        let (key, text) = (self.key(name), uid_text(uid));
        let over = world.lease.clone()?;
        let footprint = self.want_over(&over.ledger, uid).footprint;
        // Refused changes are not written.
        let change = |ledger: &mut Ledger| {
            let mut changed = ledger.clone();
            take_right(&mut changed, &key, &text, &footprint, "", new)?;
            *ledger = changed;
            Ok(())
        };
        let outcome: Result<(), Refusal> =
            if self.makes(Mistake::LedgerOfItsOwn) && key.kind == ObjectKind::Restore {
                change(&mut Ledger::default())
            } else {
                // Not open: retried later.
                self.update(world, change)?
            };
        if lost {
            outcome.ok()?;
            world.left.lost_replies -= 1;
            world.workers[name] = Worker::Idle;
            return Some(());
        }
        world.workers[name] = match outcome {
            Ok(()) => Worker::Right(uid),
            Err(Refusal::Conflict(conflict)) if self.clear(world, &conflict.holders) => {
                Worker::Seen { uid, new }
            }
            Err(Refusal::Waiting(conflict)) if self.clear(world, &conflict.holders) => {
                Worker::Seen { uid, new }
            }
            // It waits; the queue retries it.
            Err(Refusal::Waiting(_)) => Worker::Idle,
            Err(_) => Worker::Refused(uid),
        };
        Some(())
    }

    /// As `activate::clear`: frees entries that have ended. Such facts do not change, so the reads
    /// count as one step.
    fn clear(&self, world: &mut World, holders: &[backup_lock::Claim]) -> bool {
        let mut over = Vec::new();
        for holder in holders {
            let observed = self.observed(world, &holder.key);
            let prior = |_: &backup_lock::Entry| PriorObservation::default();
            let judged = self.judge(holder, &observed, prior);
            if !all_end(holder, &judged) {
                return false;
            }
            over.extend(judged);
        }
        let done = self.update(world, |ledger| apply_to(ledger, &over));
        done.is_some_and(|done| !done.freed.is_empty())
    }

    pub(super) fn begin(&self, world: &mut World, name: usize) -> Option<()> {
        let Worker::Right(uid) = world.workers[name] else {
            return None;
        };
        let source = match self.scenario.requests[uid].wish {
            Wish::Create { source, .. } => source,
            Wish::Delete { .. } | Wish::Revive { .. } => None,
        };
        let has_source = source.is_none_or(|backup| world.objects[backup].is_some());
        world.workers[name] = match &mut world.objects[name] {
            Some(object) if object.uid == uid && object.phase != Phase::Over => {
                if has_source || object.phase == Phase::InProgress {
                    object.phase = Phase::InProgress;
                    Worker::Working(uid)
                } else {
                    Worker::Refused(uid)
                }
            }
            // The patch is for this uid only.
            _ => Worker::Ended(uid),
        };
        Some(())
    }

    pub(super) fn release(&self, world: &mut World, name: usize) -> Option<()> {
        let (uid, next) = match world.workers[name] {
            Worker::Ended(uid) => (uid, Worker::Idle),
            Worker::Working(uid) => (uid, Worker::Released(uid)),
            _ => return None,
        };
        world.workers[name] = next;
        if self.scenario.on_sight {
            // An operator that starts on sight ignores claims.
            return Some(());
        }
        let (key, uid) = (self.key(name), uid_text(uid));
        // A failure is only logged: entries that are over are collected anyway.
        self.update(world, |ledger| {
            give_back(ledger, &key, &uid, self.scenario.ends)
        });
        let slot = &mut world.objects[name];
        if let Some(object) = slot
            .as_mut()
            .filter(|object| object.held && uid_text(object.uid) == uid)
        {
            object.held = false;
            if object.deleting {
                *slot = None;
            }
        }
        Some(())
    }

    pub(super) fn force(&self, world: &mut World, name: usize) -> Option<()> {
        let key = self.key(name);
        let claim = open_ledger(world)?.claim(&key)?;
        let uid = claim
            .entries
            .iter()
            .find(|entry| entry.state > State::Intent)?
            .uid
            .clone();
        world.left.releases -= 1;
        world.released.add(self.request_of(&key, &uid)?);
        self.update(world, |ledger| {
            ledger.force_release(&key, &uid, "");
            if self.makes(Mistake::ReleasedIsForgotten) {
                ledger.release(&key, &uid);
            }
        });
        Some(())
    }

    /// The worker has seen that its claim is gone, and has stopped.
    pub(super) fn stop(&self, world: &mut World, uid: usize) {
        world.stopped.add(uid);
        for worker in &mut world.workers {
            if [Worker::Right(uid), Worker::Working(uid)].contains(worker)
                && !self.makes(Mistake::NoFence)
            {
                *worker = Worker::Refused(uid);
            }
        }
    }
}

/// The memory of a process is lost with it.
pub(super) fn forget(world: &mut World) {
    world
        .workers
        .iter_mut()
        .for_each(|worker| *worker = Worker::Idle);
    world.collecting.fill(Collecting::Idle);
    (world.listed, world.seen) = (None, Bits::default());
}

pub(super) fn pause(world: &mut World) {
    world.left.pauses -= 1;
    for worker in &world.workers {
        match worker {
            Worker::Working(uid) => world.paused.works.add(*uid),
            Worker::Right(uid) => world.paused.begins.add(*uid),
            _ => {}
        }
    }
    forget(world);
}

/// The patch is for the version that was read: the object had not begun.
pub(super) fn begin_late(world: &mut World, uid: usize) {
    world.paused.begins.remove(uid);
    let new = |object: &&mut Object| object.uid == uid && object.phase == Phase::New;
    if let Some(object) = world.objects.iter_mut().flatten().find(new) {
        object.phase = Phase::InProgress;
    }
}

/// An object that has not begun has no worker that would have to stop.
pub(super) fn end_by_hand(world: &mut World, name: usize) -> Option<()> {
    world.left.ends -= 1;
    let object = world.objects[name]
        .as_mut()
        .filter(|object| object.phase != Phase::Over)?;
    object.held = object.phase == Phase::InProgress;
    object.phase = Phase::Over;
    Some(())
}

pub(super) fn read(world: &mut World, name: usize) -> Option<()> {
    let object = world.objects[name].filter(|object| object.phase != Phase::Over || object.held)?;
    let uid = object.uid;
    world.workers[name] = match object.phase {
        Phase::Over => Worker::Ended(uid),
        phase => Worker::Seen {
            uid,
            new: phase == Phase::New,
        },
    };
    Some(())
}

pub(super) fn publish(world: &mut World, name: usize) -> Option<()> {
    let (uid, released) = match world.workers[name] {
        Worker::Working(uid) | Worker::Refused(uid) => (uid, false),
        Worker::Released(uid) => (uid, true),
        _ => return None,
    };
    let slot = &mut world.objects[name];
    if let Some(object) = slot
        .as_mut()
        .filter(|object| object.uid == uid && !object.held)
    {
        object.phase = Phase::Over;
        if object.deleting {
            *slot = None;
        }
    }
    world.workers[name] = if released {
        Worker::Idle
    } else {
        Worker::Ended(uid)
    };
    Some(())
}
