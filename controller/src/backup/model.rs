//! Every interleaving of two controllers on one backup, with crashes, lost answers and uploads that a bucket throws away,
//! over the functions that decide in production. What must never happen does not happen, and whatever has happened, either
//! controller alone brings the backup to its end.
//!
//! A backup may start an operation, whose outcome is learned by asking and kept in the store: the record of what was collected
//! is then gone on with once it has ended, in the upload that was left open.
//!
//! Two controllers act at a time: a leader that was paused does not know that it is replaced. Patches of the Backup carry
//! its resourceVersion; keys of the store are created and never overwritten, but for contents that were uploaded in
//! parts: these become visible by completing the upload, which the store does not make conditional.

use std::collections::BTreeMap;

use backup_core::{
    api::BackupPhase,
    operation::{BackupOperation, Counts, OperationPhase},
    phase::Phase as _,
};
use serde_json::Value;
use stateright::{Model, Property};

use super::{Backups, patches};
use crate::job::{
    decide::{self, Plan, Seen, Stored},
    operations::records,
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
    /// How often contents were gone on with after operations.
    pub renewals: u8,
    /// Whether the operations of a collection have failed: what a driver knows.
    pub operations: BTreeMap<u8, bool>,
    /// Faults so far.
    pub faults: u8,
    /// What must never happen, and has.
    pub wrong: Option<&'static str>,
}

/// What the store holds of the backup. Contents and side files are told apart by the collection that they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    /// Uploads that are not completed, each with the last one who went on with it.
    pub uploads: BTreeMap<u8, u8>,
    /// Records by their number.
    pub records: BTreeMap<u8, Record>,
    /// Whether the operations of a record have failed.
    pub kept: BTreeMap<u8, bool>,
    pub contents: Option<u8>,
    pub side: Option<u8>,
    pub metadata: Option<Record>,
}

/// What a collection has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub attempt: u8,
    /// Whether items are missing.
    pub failed: bool,
    pub operations: Operations,
}

/// How far the operations of a collection were when it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operations {
    /// There are none.
    None,
    /// They go on.
    Run,
    /// They have ended, and this one has gone on with the contents.
    Ended(u8),
}

/// A controller: what it does next, and what it has in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    pub step: Step,
    pub hand: Option<Hand>,
    /// Number of the record whose upload was found to be gone.
    pub lost: Option<u8>,
}

/// A backup that has only its end to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hand {
    /// Nothing is decided yet; the number is that of the record that comes.
    Collected(Record, u8),
    /// Every byte is.
    Decided(Record, u8),
}

/// The next read or write of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Reads the Backup.
    #[default]
    Reads,
    /// Reads the store.
    Looks(String),
    /// Moves it to InProgress.
    Begins,
    /// Opens the folder; the phase that was read, and the record that can't be finished any more.
    Opens(String, Option<(u8, Record)>),
    /// Collects everything, and uploads it.
    Collects(String, u8),
    /// Writes the record of a collection whose operations go on.
    Waits(String, Record, u8),
    /// Publishes what is kept of operations.
    Operates(String, Record, u8),
    /// Asks for an operation.
    Asks(Record, u8),
    /// Keeps what was learned.
    Keeps(Record, u8, bool),
    /// Goes on with the contents.
    Renews(String, Record, u8),
    Renewed(String, Record, u8),
    /// Moves it to a finalizing phase.
    Announces(Record, u8),
    Decides,
    /// Sees whether the contents are visible.
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
    /// Its next write is done, and it is told that it failed.
    Lose(usize),
    Fail(usize),
    /// It loses its memory.
    Crash(usize),
    /// The bucket's rules remove an upload.
    Expire(u8),
}

/// What comes of a step that may go one way or another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Luck {
    /// A collection misses items, or an operation fails.
    pub failed: bool,
    /// A collection starts an operation.
    pub operation: bool,
}

pub(crate) struct Life {
    pub faults: u8,
    pub operations: bool,
    pub mistake: Option<Mistake>,
}

/// A plausible mistake. The model has to show what it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A collection is announced whatever another controller has announced before.
    AnnouncesAlways,
    /// Nothing is recorded: what is written under final keys is what this process has collected.
    NoRecord,
    /// The end is published before it is stored.
    EndsFirst,
    /// The metadata is written before the side files.
    MetadataEarly,
    /// What is in hand stays there although the store holds something else.
    KeepsHand,
    /// A record whose operations go on is taken for a decision.
    ForgetsOperations,
    /// A backup fails because another controller has recorded something.
    FailsWhenLate,
}

/// More collections than this need more controllers than two.
const ATTEMPTS: u8 = 4;
/// The same with operations, with which there are many more states: also how often one is gone on with.
const WITH_OPERATIONS: u8 = 2;

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
            for (failed, operation) in [(false, false), (true, false), (false, true), (true, true)] {
                if (fails || !failed) && (starts || !operation) {
                    actions.push(Action::Step(number, Luck { failed, operation }));
                }
            }
            if world.faults < self.faults {
                actions.extend([Action::Crash(number), Action::Fail(number)]);
                if worker.step.writes() {
                    actions.push(Action::Lose(number));
                }
            }
        }
        if world.faults < self.faults {
            actions.extend(world.store.uploads.keys().map(|upload| Action::Expire(*upload)));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Step(number, luck) => next.step(number, luck, self.mistake),
            Action::Lose(number) => {
                let hand = world.workers[number].hand;
                next.step(number, Luck::default(), self.mistake);
                // What it held it holds still; only what was written it does not know of.
                let worker = &mut next.workers[number];
                (worker.step, worker.hand) = (Step::Reads, hand);
            }
            Action::Fail(number) => next.workers[number].step = Step::Reads,
            Action::Crash(number) => next.workers[number] = Worker::default(),
            Action::Expire(upload) => drop(next.store.uploads.remove(&upload)),
        }
        if !matches!(action, Action::Step(..)) {
            next.faults += 1;
        }
        if next.wrong.is_none() {
            next.wrong = next.broken(world);
        }
        (next != *world).then_some(next)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.attempts <= ATTEMPTS
            && (!self.operations || world.attempts.max(world.renewals) <= WITH_OPERATIONS)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing wrong is ever seen", |_, world: &World| world.wrong.is_none()),
            Property::always("either controller alone brings it to its end", |life: &Self, world: &World| {
                (0..2).all(|number| world.clone().ends_by(number, life.mistake))
            }),
            Property::sometimes("it completes", |_, world: &World| world.phase == "Completed"),
            Property::sometimes("it partially fails", |_, world: &World| world.phase == "PartiallyFailed"),
            Property::sometimes("a decision is lost", |_, world: &World| world.store.records.len() > 1),
            Property::sometimes("contents are gone on with twice", |life: &Self, world: &World| {
                world.renewals > 1 || !life.operations
            }),
        ]
    }
}

impl World {
    fn phase(&self) -> BackupPhase {
        BackupPhase::from(self.phase.as_str())
    }

    /// What is wrong now, where `before` came before.
    fn broken(&self, before: &World) -> Option<&'static str> {
        let (now, was) = (self.phase(), before.phase());
        if now != was && !was.can_become(&now) {
            return Some("the phase went back, or an end was changed (P5)");
        }
        if now == BackupPhase::Failed {
            return Some("it failed although nobody else has the name (P7)");
        }
        if let Some(Record { attempt, failed, operations }) = self.store.metadata
            && operations != Operations::None
            && (operations == Operations::Run
                || self.operations.get(&attempt).is_none_or(|lost| *lost && !failed))
        {
            return Some("an end that does not know how its operations ended (P8)");
        }
        if let Some(Record { attempt, failed, .. }) = self.store.metadata
            && (self.store.contents, self.store.side) != (Some(attempt), Some(attempt))
        {
            return Some(if failed {
                "metadata without its files (P4)"
            } else {
                "metadata without its contents (P4)"
            });
        }
        let published = matches!(now, BackupPhase::Completed | BackupPhase::PartiallyFailed);
        if published && self.store.metadata.is_none_or(|stored| ended(stored) != now) {
            return Some("an end that is not in the store (P4)");
        }
        let visible = [(before.store.contents, self.store.contents), (before.store.side, self.store.side)];
        if visible.iter().any(|(was, now)| was.is_some() && now.is_some() && was != now) {
            return Some("a key was written twice (P7)");
        }
        None
    }

    /// Whether a controller alone ends it, without further faults.
    fn ends_by(mut self, number: usize, mistake: Option<Mistake>) -> bool {
        for _ in 0..80 {
            if self.phase().is_terminal() {
                return true;
            }
            self.step(number, Luck::default(), mistake);
        }
        false
    }
}

fn ended(record: Record) -> BackupPhase {
    BackupPhase::ended(record.failed)
}

/// The phase after a patch, if there is one.
fn patched(patch: Option<Value>) -> Option<String> {
    patch?.pointer("/status/phase").and_then(Value::as_str).map(str::to_owned)
}

/// The operation of a collection, by what is kept of it.
fn operation(failed: Option<bool>) -> BackupOperation {
    let mut operation = BackupOperation::default();
    operation.status.phase = match failed {
        None => OperationPhase::InProgress,
        Some(false) => OperationPhase::Completed,
        Some(true) => OperationPhase::Failed,
    };
    operation
}
