//! Checks every interleaving of two controllers on one backup, with crashes, lost answers and
//! uploads that a bucket discards, over the functions that decide in production. No invariant is
//! ever violated, and from every state either controller alone brings the backup to its end.
//!
//! Its deletion may be requested at any time, also while the store is unavailable; snapshots of a
//! stored backup are kept. A restore may run whenever the backup holds no claim; items collected
//! during a restore are never stored.
//!
//! A backup may start an operation, whose outcome is polled and kept in the store: once it has
//! ended, the record of the collection is continued in the upload that was left open.
//!
//! Two controllers act at a time: a paused leader does not know that it was replaced. Patches of
//! the Backup carry its resourceVersion; keys of the store are created and never overwritten, but
//! for contents that were uploaded in parts: these become visible by completing the upload, which
//! the store does not make conditional.

use std::collections::{BTreeMap, BTreeSet};

use backup_core::{
    api::{Backup, BackupPhase},
    operation::{BackupOperation, Counts, OperationPhase},
    phase::Phase as _,
};
use serde_json::Value;
use stateright::{Model, Property};

use crate::{
    backup::{Backups, patches},
    job::{
        decide::{self, ImmediatePlan, JobState, Plan, Stored},
        operations::records,
    },
};

mod steps;
mod tests;

/// The cluster, the store and two controllers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub phase: String,
    pub store: Store,
    pub workers: [Worker; 2],
    /// Collections begun.
    pub attempts: u8,
    /// Number of times that contents were continued after operations (renewals).
    pub renewals: u8,
    /// Whether the operations of a collection have failed, as a driver knows.
    pub operations: BTreeMap<u8, bool>,
    /// Faults so far.
    pub faults: u8,
    /// Whether the deletion was requested.
    pub deleting: bool,
    /// Whether the Backup is gone.
    pub gone: bool,
    /// Whether its snapshots were removed.
    pub destroyed: bool,
    pub ledger: Ledger,
    /// The invariant that was violated.
    pub wrong: Option<&'static str>,
}

/// The claim of the backup, and a restore that it keeps out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    /// Whether the backup holds its claim.
    pub held: bool,
    /// Whether the Backup is marked as reading the cluster although it is Finalizing.
    pub marked: bool,
    pub restoring: bool,
    /// Restores so far; each is a new epoch.
    pub epoch: u8,
    /// Collections during which a restore ran.
    pub torn: BTreeSet<u8>,
}

/// The files of the backup in the store. Contents and side files are identified by their
/// collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    /// Uploads that are not completed, each with its last renewal.
    pub uploads: BTreeMap<u8, u8>,
    /// Records by their number.
    pub records: BTreeMap<u8, Record>,
    /// Whether the operations of a record have failed, as kept in the store.
    pub kept: BTreeMap<u8, bool>,
    pub contents: Option<u8>,
    pub side: Option<u8>,
    pub metadata: Option<Record>,
}

/// The result of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// Number of the collection; 0: the backup was abandoned.
    pub attempt: u8,
    /// Whether items are missing.
    pub failed: bool,
    pub operations: Operations,
}

/// State of the operations of a collection when it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operations {
    /// There are none.
    None,
    /// They are running.
    Run,
    /// They have ended, and the renewal of this number has continued the contents.
    Ended(u8),
}

/// A controller: its next step, and its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    pub step: Step,
    pub hand: Option<Hand>,
    /// Number of the record whose upload was found to be gone.
    pub lost: Option<u8>,
    /// Epoch of the claim under which it collects.
    pub epoch: u8,
}

/// A backup whose end is still to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hand {
    /// Nothing is decided yet; the number of the record to write.
    Collected(Record, u8),
    /// Every byte is decided.
    Decided(Record, u8),
}

/// The next read or write of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Reads the Backup.
    #[default]
    Reads,
    /// Reads the store; the phase that was read, and whether the deletion was requested.
    Looks(String, bool),
    /// Marks the Backup as claiming again.
    Marks(String, Option<(u8, Record)>),
    Claims(String, Option<(u8, Record)>),
    /// Checks whether the claim is still held after a collection.
    Checks(String, Record, u8),
    /// Removes the mark: it needs no claim.
    Rests(Record, u8),
    /// Writes the record that nothing of it will be stored.
    Abandons,
    /// Removes the snapshots.
    Destroys,
    /// Removes the finalizer of the Backup.
    LetsGo,
    /// Moves it to InProgress.
    Begins,
    /// Opens the folder; the phase that was read, and the record that can no longer be finished.
    Opens(String, Option<(u8, Record)>),
    /// Collects everything, and uploads it.
    Collects(String, u8),
    /// Writes the record of a collection whose operations are running.
    Waits(String, Record, u8),
    /// Publishes the kept outcomes of operations.
    Operates(String, Record, u8),
    /// Polls an operation.
    Asks(Record, u8),
    /// Keeps the outcome in the store.
    Keeps(Record, u8, bool),
    /// Continues the contents.
    Renews(String, Record, u8),
    Renewed(String, Record, u8),
    /// Moves it to a finalizing phase.
    Announces(Record, u8),
    Decides,
    /// Checks whether the contents are visible.
    Contents,
    Completes,
    Side,
    Metadata,
    Ends(Record),
    Fails,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A controller takes its next step.
    Step(usize, Luck),
    /// Its next write is done, but its answer is an error.
    Lose(usize),
    Fail(usize),
    /// It restarts without its memory.
    Crash(usize),
    /// The bucket's rules remove an upload.
    Expire(u8),
    /// A user requests the deletion.
    Delete,
    /// A controller that reads the store for a deletion does not reach it.
    Away(usize),
    Restore,
    RestoreEnds,
}

/// The outcome of a step that is not deterministic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Luck {
    /// A collection misses items, or an operation fails.
    pub failed: bool,
    /// A collection starts an operation.
    pub operation: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Life {
    pub faults: u8,
    pub operations: bool,
    pub deletion: bool,
    pub restores: bool,
    pub mistake: Option<Mistake>,
}

/// A plausible mistake. The model must find the invariant that it violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A collection is announced even if another controller has announced one.
    AnnouncesAlways,
    /// Nothing is recorded: final keys get whatever this process has collected.
    NoRecord,
    /// The end is published before it is stored.
    EndsFirst,
    /// The metadata is written before the side files.
    MetadataEarly,
    /// A controller keeps its result in memory although the store holds another one.
    KeepsHand,
    /// A record with running operations is taken for a decision.
    ForgetsOperations,
    /// A backup fails because another controller has recorded something.
    FailsWhenLate,
    /// A deletion removes the snapshots without reading the store.
    DeletesBlindly,
    /// A deletion reads the store, and writes nothing there.
    AbandonsSilently,
    /// A collection is announced although the deletion was requested.
    AnnouncesDeleted,
    /// A repeated collection does not claim again.
    CollectsUnclaimed,
    /// The claim is not checked after a collection.
    TrustsClaim,
}

/// Maximum number of collections: more would need more than two controllers.
const MAX_ATTEMPTS: u8 = 4;
/// Maximum number of collections, and of renewals, with operations or restores, which have many
/// more states.
const MAX_ATTEMPTS_WITH_MANY_STATES: u8 = 2;
const MAX_RESTORES: u8 = 2;

impl Model for Life {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            phase: BackupPhase::ReadyToStart.to_string(),
            store: Store::default(),
            workers: Default::default(),
            attempts: 0,
            renewals: 0,
            operations: BTreeMap::new(),
            faults: 0,
            deleting: false,
            gone: false,
            destroyed: false,
            ledger: Ledger {
                held: true,
                ..Ledger::default()
            },
            wrong: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (number, worker) in world.workers.iter().enumerate() {
            let (fails, starts) = match worker.step {
                Step::Collects(..) => (true, self.operations),
                Step::Asks(..) => (true, false),
                _ => (false, false),
            };
            for (failed, operation) in [(false, false), (true, false), (false, true), (true, true)]
            {
                if (fails || !failed) && (starts || !operation) {
                    actions.push(Action::Step(number, Luck { failed, operation }));
                }
            }
            if world.faults < self.faults {
                actions.extend([Action::Crash(number), Action::Fail(number)]);
                if worker.step.writes() {
                    actions.push(Action::Lose(number));
                }
                if matches!(worker.step, Step::Looks(_, true)) {
                    actions.push(Action::Away(number));
                }
            }
        }
        if self.deletion && !world.deleting && !world.phase().is_terminal() {
            actions.push(Action::Delete);
        }
        if world.ledger.restoring {
            actions.push(Action::RestoreEnds);
        } else if self.restores && world.ledger.epoch < MAX_RESTORES && world.lets_restores_in() {
            actions.push(Action::Restore);
        }
        if world.faults < self.faults {
            actions.extend(
                world
                    .store
                    .uploads
                    .keys()
                    .map(|upload| Action::Expire(*upload)),
            );
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Step(number, luck) => next.step(number, luck, *self),
            Action::Lose(number) => {
                let hand = world.workers[number].hand;
                next.step(number, Luck::default(), *self);
                // It keeps its memory; it only does not know of the write.
                let worker = &mut next.workers[number];
                worker.step = Step::Reads;
                worker.hand = hand;
            }
            Action::Fail(number) => next.workers[number].step = Step::Reads,
            Action::Crash(number) => next.workers[number] = Worker::default(),
            Action::Expire(upload) => drop(next.store.uploads.remove(&upload)),
            Action::Delete => next.deleting = true,
            Action::Away(number) => next.workers[number].step = world.lets_go_without_store(number),
            Action::Restore => next.restores(),
            Action::RestoreEnds => next.ledger.restoring = false,
        }
        let is_fault = !matches!(
            action,
            Action::Step(..) | Action::Delete | Action::Restore | Action::RestoreEnds
        );
        if is_fault {
            next.faults += 1;
        }
        if next.wrong.is_none() {
            next.wrong = next.broken(world);
        }
        (next != *world).then_some(next)
    }

    fn within_boundary(&self, world: &World) -> bool {
        let many = (self.operations || self.restores) && self.mistake.is_none();
        world.attempts <= MAX_ATTEMPTS
            && (!many || world.attempts.max(world.renewals) <= MAX_ATTEMPTS_WITH_MANY_STATES)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing wrong is ever seen", |_, world: &World| {
                world.wrong.is_none()
            }),
            Property::always(
                "either controller alone brings it to its end",
                |life: &Self, world: &World| {
                    (0..2).all(|number| world.clone().ends_by(number, *life))
                },
            ),
            Property::sometimes("it completes", |_, world: &World| {
                world.phase == "Completed"
            }),
            Property::sometimes("it partially fails", |_, world: &World| {
                world.phase == "PartiallyFailed"
            }),
            Property::sometimes("a decision is lost", |_, world: &World| {
                world.store.records.len() > 1
            }),
            Property::sometimes(
                "contents are gone on with twice",
                |life: &Self, world: &World| world.renewals > 1 || !life.operations,
            ),
            Property::sometimes(
                "it is deleted and nothing of it is stored",
                |life: &Self, world: &World| world.gone && world.destroyed || !life.deletion,
            ),
            Property::sometimes(
                "it is deleted and stays stored",
                |life: &Self, world: &World| {
                    world.deleting && world.phase().is_terminal() || !life.deletion
                },
            ),
            Property::sometimes(
                "it is let go without a store",
                |life: &Self, world: &World| {
                    world.gone && !world.destroyed && world.store.metadata.is_none()
                        || !life.deletion
                },
            ),
            Property::sometimes(
                "a restore begins during a collection",
                |life: &Self, world: &World| !world.ledger.torn.is_empty() || !life.restores,
            ),
        ]
    }
}

impl World {
    fn phase(&self) -> BackupPhase {
        BackupPhase::from(self.phase.as_str())
    }

    /// The invariant violated now, after the state `before`.
    fn broken(&self, before: &World) -> Option<&'static str> {
        let now = self.phase();
        let was = before.phase();
        if self.store.metadata.is_some() && self.destroyed {
            return Some("the snapshots of a stored backup are gone (P6)");
        }
        if self
            .store
            .metadata
            .is_some_and(|stored| self.ledger.torn.contains(&stored.attempt))
        {
            return Some("what was collected beside a restore is stored (P1)");
        }
        if now != was && !was.can_become(&now) {
            return Some("the phase went back, or an end was changed (P5)");
        }
        if now == BackupPhase::Failed {
            return Some("it failed although nobody else has the name (P7)");
        }
        if let Some(Record {
            attempt,
            failed,
            operations,
        }) = self.store.metadata
            && operations != Operations::None
            && (operations == Operations::Run
                || self
                    .operations
                    .get(&attempt)
                    .is_none_or(|lost| *lost && !failed))
        {
            return Some("an end that does not know how its operations ended (P8)");
        }
        if let Some(Record {
            attempt, failed, ..
        }) = self.store.metadata
            && (self.store.contents, self.store.side) != (Some(attempt), Some(attempt))
        {
            return Some(if failed {
                "metadata without its files (P4)"
            } else {
                "metadata without its contents (P4)"
            });
        }
        let published = matches!(now, BackupPhase::Completed | BackupPhase::PartiallyFailed);
        if published
            && self
                .store
                .metadata
                .is_none_or(|stored| ended(stored) != now)
        {
            return Some("an end that is not in the store (P4)");
        }
        let visible = [
            (before.store.contents, self.store.contents),
            (before.store.side, self.store.side),
        ];
        if visible
            .iter()
            .any(|(was, now)| was.is_some() && now.is_some() && was != now)
        {
            return Some("a key was written twice (P7)");
        }
        None
    }

    /// Whether a controller alone ends it, without further faults.
    fn ends_by(mut self, number: usize, life: Life) -> bool {
        self.ledger.restoring = false;
        for _ in 0..80 {
            if self.phase().is_terminal() || self.gone {
                return true;
            }
            self.step(number, Luck::default(), life);
        }
        false
    }
}

fn ended(record: Record) -> BackupPhase {
    BackupPhase::ended(record.failed)
}

/// Whether the lock holds no claim for it (`lock/observe/seen.rs`).
fn rests(phase: &BackupPhase, marked: bool) -> bool {
    matches!(
        phase,
        BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed
    ) && !marked
}

/// The phase after a patch, if there is one.
fn patched(patch: Option<Value>) -> Option<String> {
    patch?
        .pointer("/status/phase")
        .and_then(Value::as_str)
        .map(str::to_owned)
}

/// The operation of a collection, by its kept outcome.
fn operation(failed: Option<bool>) -> BackupOperation {
    let mut operation = BackupOperation::default();
    operation.status.phase = match failed {
        None => OperationPhase::InProgress,
        Some(false) => OperationPhase::Completed,
        Some(true) => OperationPhase::Failed,
    };
    operation
}
