//! The differences between the lives of a Backup and of a Restore.

use backup_core::phase::Stage;
use backup_lock::{Footprint, Token};
use backup_store::{
    AwaitingOperations, CommittedPlan, JobFiles, Location, PendingUpload, StoreError, StoredJob,
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    JobContext,
    kind::{JobKind, Operation, Outcome},
    patches::Patches,
    pending_end::{CompletedWork, PendingEnd},
    worker::{Worker, WorkerError},
};
use crate::metrics::{Metrics, Outcome as Counted, stored::Stored as Gauges};

/// An object as a queue sees it.
#[derive(Clone, Debug)]
pub(crate) struct Ticket<'a> {
    pub name: &'a str,
    pub stage: Stage,
    pub position: i64,
    pub created: Option<Timestamp>,
    /// Whether its deletion or cancellation was requested: it gets no further turn.
    pub leaving: bool,
    /// Whether a write of ours for it is in flight: it counts, but gets no other turn.
    pub busy: bool,
    /// Whether its last turn could not be written and is in backoff: it gets no turn meanwhile, and
    /// blocks no other.
    pub held_back: bool,
    /// Whether its claim waits for a restore: then it holds no slot, and nothing that overlaps it
    /// may overtake it.
    pub yields: bool,
    /// What the object reads.
    pub footprint: &'a Footprint,
}

/// What was read before work on an object.
#[derive(Debug)]
pub(crate) struct JobPreparation<F> {
    pub facts: F,
    /// Name of the BackupStorageLocation that holds all its files.
    pub location: String,
    /// Why the object cannot start or continue.
    pub findings: Vec<String>,
}

pub(crate) struct Work<'a, L: JobKind> {
    pub object: &'a L::Object,
    pub facts: &'a L::Facts,
    pub location: &'a Location,
    /// A record of an earlier run that can no longer be published.
    pub lost: Option<Record<L::Object>>,
    pub token: &'a Token,
    /// Whether an earlier run may have done some of the work.
    pub resumed: bool,
}

/// A record of an object.
pub(crate) enum Record<O: StoredJob> {
    /// The complete end.
    Committed(Box<CommittedPlan<O>>),
    /// The results before its operations have ended.
    Awaiting(Box<AwaitingOperations<O>>),
}

/// The result of the work. Nothing of it is visible yet.
pub(crate) struct WorkResult<L: JobKind> {
    pub contents: L::Contents,
    pub files: JobFiles,
    pub summary: L::Summary,
}

/// Why the work did not complete.
pub(crate) enum WorkError {
    Worker(WorkerError),
    /// The store does not accept the result.
    Store(StoreError),
    /// The work can never succeed; the location accepts the log that says so.
    Fatal(String),
}

impl<E: Into<WorkerError>> From<E> for WorkError {
    fn from(error: E) -> Self {
        Self::Worker(error.into())
    }
}

type Patch<O> = Box<dyn Fn(&O) -> Option<Value> + Send + Sync>;

/// How an object that cannot continue ends.
pub(crate) enum Failure<O> {
    /// With a patch.
    Publish(Patch<O>),
    /// By storing the end first.
    Store,
}

/// The work of a kind, and what becomes of its results.
pub(crate) trait JobWork: JobKind {
    /// Fails if nothing may be written to the location now.
    fn may_write(
        _worker: &Worker<Self>,
        _object: &Self::Object,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send {
        async { Ok(()) }
    }
    /// Does everything between the claim and the record.
    fn work(
        worker: &mut Worker<Self>,
        work: Work<'_, Self>,
    ) -> impl Future<Output = Result<WorkResult<Self>, WorkError>> + Send;
    /// Records the results of the work before its operations have ended.
    fn await_operations(
        worker: &mut Worker<Self>,
        object: &Self::Object,
        worked: WorkResult<Self>,
    ) -> impl Future<Output = Result<(), WorkError>> + Send;
    /// Completes the contents, in the store or in this process.
    fn upload(
        contents: Self::Contents,
    ) -> impl Future<Output = Result<PendingUpload<Self::Object>, StoreError>> + Send;
    fn discard(contents: Self::Contents) -> impl Future<Output = ()> + Send;
    fn discard_upload(upload: PendingUpload<Self::Object>) -> impl Future<Output = ()> + Send;
    /// Completes the results of the work with the outcomes of its operations.
    fn complete(
        worker: &mut Worker<Self>,
        object: &Self::Object,
        location: &Location,
        awaiting: AwaitingOperations<Self::Object>,
        operations: &[Operation<Self>],
    ) -> impl Future<Output = Result<CompletedWork<Self>, WorkError>> + Send;
}

/// What is done beside the store when an object ends, rests or is deleted.
pub(crate) trait Cleanup: JobKind {
    /// Called before a stored end is published.
    fn before_end(
        _worker: &Worker<Self>,
        _outcome: &Outcome<Self>,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send {
        async { Ok(()) }
    }
    /// Called after the end was published: removes what only the work needed. Best effort.
    fn after_end(
        _worker: &Worker<Self>,
        _plan: &CommittedPlan<Self::Object>,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// Called after an end was published that another process had stored. Best effort.
    fn after_adoption(
        _worker: &Worker<Self>,
        _object: &Self::Object,
        _location: &Location,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// For an object that will not reach a stored end: stops and removes what it has started
    /// outside of the store.
    fn abandon(
        worker: &Worker<Self>,
        object: &Self::Object,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send;
    /// Called if the store cannot be used after the object has begun: releases the slot meanwhile.
    fn leave_slot(
        _worker: &Worker<Self>,
        object: &Self::Object,
    ) -> impl Future<Output = Result<Self::Object, WorkerError>> + Send {
        async { Ok(object.clone()) }
    }
    /// Removes the files of an object that is being deleted, after its claim was freed and its work
    /// finalizer removed.
    fn remove_files(
        _worker: &Worker<Self>,
        _object: &Self::Object,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send {
        async { Ok(()) }
    }
}

/// A kind of object with jobs. The order of steps, the lock, the store and all retries are in
/// [`super::reconcile`].
pub(crate) trait Lifecycle: Patches + JobWork + Cleanup {
    type Gauges: Gauges<Self::Object> + Default + Send;

    fn slots(&self) -> usize;
    fn footprint(_object: &Self::Object) -> Footprint {
        Footprint::namespaces([""; 0])
    }
    fn position(_object: &Self::Object) -> i64 {
        0
    }
    fn turns(_tickets: &[Ticket<'_>], _slots: usize) -> Vec<(String, Self::Turn)> {
        Vec::new()
    }

    /// Reads what validation and work need.
    fn prepare(
        &self,
        ctx: &JobContext,
        object: &Self::Object,
    ) -> impl Future<Output = Result<JobPreparation<Self::Facts>, WorkerError>> + Send;
    fn started(worker: &Worker<Self>, object: &Self::Object, facts: &Self::Facts);
    /// Decides how an object that cannot continue ends; `location` is its location, if that can be
    /// written.
    fn fail(
        worker: &mut Worker<Self>,
        object: &Self::Object,
        reason: &str,
        location: Option<&Location>,
    ) -> impl Future<Output = Result<Failure<Self::Object>, WorkerError>> + Send;

    /// Message of the event about the end.
    fn end_note(object: &Self::Object) -> String;
    fn count(metrics: &Metrics, object: Option<&Self::Object>, outcome: Counted);
    /// Counts what only a published end has.
    fn count_end(_metrics: &Metrics, _object: &Self::Object, _pending: Option<&PendingEnd<Self>>) {}
}
