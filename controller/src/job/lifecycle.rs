//! The differences between the lives of a Backup and of a Restore.

use std::fmt::Debug;

use backup_core::{
    api::{Backup, BackupPhase, NamespacedKind, Restore, RestorePhase},
    phase::{Phase, Stage},
    validate,
};
use backup_lock::{Footprint, ObjectKey, Token};
use backup_store::{
    AwaitingOperations, CommittedPlan, JobFiles, Location, PendingUpload, StoreError, StoredJob,
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    JobContext,
    decide::Kind,
    operations::call::Subject,
    pending_end::PendingEnd,
    worker::{Record, Worker, WorkerError},
};
use crate::metrics::{Metrics, Outcome as Counted, stored::Stored as Gauges};

pub(crate) trait JobObject: StoredJob + Subject + NamespacedKind {
    type Phase: Phase;

    fn phase(&self) -> Self::Phase;
    fn is_cancelled(&self) -> bool;
    fn ledger_key(namespace: &str, name: &str) -> ObjectKey;
    fn has_spec_of(&self, other: &Self) -> bool;
    /// Validation errors of an object that cannot be decoded.
    fn raw_findings(raw: &Value) -> Vec<String>;
    /// Timeout of each operation, if the object has one.
    fn operation_timeout(&self) -> Option<std::time::Duration>;

    fn stage(&self) -> Stage {
        self.phase().stage()
    }

    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }
}

macro_rules! job_object {
    ($object:ident, $phase:ident, $key:ident, $raw_findings:ident) => {
        impl JobObject for $object {
            type Phase = $phase;

            fn phase(&self) -> $phase {
                $object::phase(self)
            }

            fn is_cancelled(&self) -> bool {
                $object::is_cancelled(self)
            }

            fn ledger_key(namespace: &str, name: &str) -> ObjectKey {
                ObjectKey::$key(namespace, name)
            }

            fn has_spec_of(&self, other: &Self) -> bool {
                self.spec == other.spec
            }

            fn raw_findings(raw: &Value) -> Vec<String> {
                validate::$raw_findings(raw)
                    .iter()
                    .map(ToString::to_string)
                    .collect()
            }

            fn operation_timeout(&self) -> Option<std::time::Duration> {
                let timeout = self
                    .spec
                    .item_operation_timeout
                    .filter(|timeout| !timeout.is_zero());
                timeout.map(|timeout| timeout.as_std())
            }
        }
    };
}

job_object!(Backup, BackupPhase, backup, raw_backup);
job_object!(Restore, RestorePhase, restore, raw_restore);

pub(crate) type Outcome<L> = <<L as Lifecycle>::Object as StoredJob>::Outcome;
pub(crate) type Operation<L> = <<L as Lifecycle>::Object as Subject>::Operation;
pub(crate) type PhaseOf<L> = <<L as Lifecycle>::Object as JobObject>::Phase;

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

pub(crate) struct Work<'a, L: Lifecycle> {
    pub object: &'a L::Object,
    pub facts: &'a L::Facts,
    pub location: &'a Location,
    /// A record of an earlier run that can no longer be published.
    pub lost: Option<Record<L::Object>>,
    pub token: &'a Token,
    /// Whether an earlier run may have done some of the work.
    pub resumed: bool,
}

/// The result of the work. Nothing of it is visible yet.
pub(crate) struct WorkResult<L: Lifecycle> {
    pub contents: L::Contents,
    pub files: JobFiles,
    pub summary: L::Summary,
}

/// The result of work that was stopped for good.
pub(crate) struct InterruptedWork<L: Lifecycle> {
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

/// A kind of object with jobs: its patches, its work, and what its end leaves behind. The order of
/// steps, the lock, the store and all retries are in [`Worker`]. An instance holds what only this
/// kind needs.
pub(crate) trait Lifecycle: Sized + Send + Sync + 'static {
    type Object: JobObject;
    type Facts: Debug + Default + Send + Sync;
    /// Receives the output of the work.
    type Contents: Send;
    /// The parts of the end that are not in the files.
    type Summary: Clone + Debug + Send + Sync;
    type Turn: Copy + Send + Sync;
    type Gauges: Gauges<Self::Object> + Default + Send;

    const KIND: Kind;
    /// Added before the first work. The first ([`super::finalizers::work`]) is removed with the
    /// end, the others with the files.
    const FINALIZERS: &'static [&'static str];

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
    fn turn_patch(_now: &Self::Object, _turn: Self::Turn) -> Option<Value> {
        None
    }

    /// Reads what validation and work need.
    fn prepare(
        &self,
        ctx: &JobContext,
        object: &Self::Object,
    ) -> impl Future<Output = Result<JobPreparation<Self::Facts>, WorkerError>> + Send;

    // Merge patches; `None` if the current phase does not allow the step.
    fn begin_patch(&self, now: &Self::Object, facts: &Self::Facts) -> Option<Value>;
    fn refused_patch(
        &self,
        now: &Self::Object,
        facts: &Self::Facts,
        findings: &[String],
    ) -> Option<Value>;
    fn announce_patch(
        now: &Self::Object,
        next: &PhaseOf<Self>,
        files: &JobFiles,
        summary: &Self::Summary,
    ) -> Option<Value>;
    /// Publishes the results of the items, which were done before the operations ended.
    fn worked_patch(_now: &Self::Object, _status: &Value) -> Option<Value> {
        None
    }
    fn operations_patch(
        now: &Self::Object,
        next: &PhaseOf<Self>,
        operations: &[Operation<Self>],
        files: &JobFiles,
    ) -> Option<Value>;
    /// Reverts [`Self::rests_patch`].
    fn claims_again_patch(_now: &Self::Object) -> Option<Value> {
        None
    }
    /// Records that the object no longer needs anything of the cluster, so that its claim can be
    /// released.
    fn rests_patch(_now: &Self::Object) -> Option<Value> {
        None
    }
    fn terminal_patch(now: &Self::Object, outcome: &Outcome<Self>) -> Option<Value>;

    /// The end to record.
    fn outcome(
        object: &Self::Object,
        files: &JobFiles,
        summary: &Self::Summary,
        at: Timestamp,
    ) -> Result<Outcome<Self>, StoreError>;
    /// The uid and the stage of an end stored under the name, for kinds that store their ends
    /// visibly.
    fn stored_end(outcome: &Outcome<Self>) -> (String, Stage);

    fn started(worker: &Worker<Self>, object: &Self::Object, facts: &Self::Facts);
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
    /// Decides how an object that cannot continue ends; `location` is its location, if that can be
    /// written.
    fn fail(
        worker: &mut Worker<Self>,
        object: &Self::Object,
        reason: &str,
        location: Option<&Location>,
    ) -> impl Future<Output = Result<Failure<Self::Object>, WorkerError>> + Send;
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

    /// Message of the event about the end.
    fn end_note(object: &Self::Object) -> String;
    fn count(metrics: &Metrics, object: Option<&Self::Object>, outcome: Counted);
    /// Counts what only a published end has.
    fn count_end(_metrics: &Metrics, _object: &Self::Object, _pending: Option<&PendingEnd<Self>>) {}
}

/// Everything is done; only the end remains to be recorded.
pub(crate) struct CompletedWork<L: Lifecycle> {
    pub upload: PendingUpload<L::Object>,
    pub files: JobFiles,
    pub summary: L::Summary,
}
