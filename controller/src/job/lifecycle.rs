//! What differs between the life of a Backup and that of a Restore.

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
    /// What is wrong with an object that cannot be decoded.
    fn raw_findings(raw: &Value) -> Vec<String>;
    /// How long an operation may take, if the object says so.
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
                validate::$raw_findings(raw).iter().map(ToString::to_string).collect()
            }

            fn operation_timeout(&self) -> Option<std::time::Duration> {
                let timeout = self.spec.item_operation_timeout.filter(|timeout| !timeout.is_zero());
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
    /// Whether its deletion was asked for, or its cancellation: it gets no turn any more.
    pub leaving: bool,
    /// Whether a write of ours for it is on its way: it counts, but gets no other turn.
    pub busy: bool,
    /// Whether its last turn could not be written and is not due again yet: it counts for nothing meanwhile.
    pub held_back: bool,
    /// Whether its claim waits for a restore: it holds no slot meanwhile, and nothing that overlaps it overtakes it.
    pub yields: bool,
    /// What it reads.
    pub footprint: &'a Footprint,
}

/// What was read before an object can be worked on.
#[derive(Debug)]
pub(crate) struct Prepared<F> {
    pub facts: F,
    /// The BackupStorageLocation that everything of it is in.
    pub location: String,
    /// Why it cannot start, or go on.
    pub findings: Vec<String>,
}

pub(crate) struct Work<'a, L: Lifecycle> {
    pub object: &'a L::Object,
    pub facts: &'a L::Facts,
    pub location: &'a Location,
    /// What an earlier run has recorded, and cannot be published any more.
    pub lost: Option<Record<L::Object>>,
    pub token: &'a Token,
    /// Whether an earlier run may have done some of it.
    pub resumed: bool,
}

/// What the work has made. Nothing of it is visible.
pub(crate) struct Worked<L: Lifecycle> {
    pub contents: L::Contents,
    pub files: JobFiles,
    pub summary: L::Summary,
}

/// What work had done when it was stopped for good.
pub(crate) struct Interrupted<L: Lifecycle> {
    pub files: JobFiles,
    pub summary: L::Summary,
}

/// Why the work has not come to its end.
pub(crate) enum WorkError {
    Worker(WorkerError),
    /// The store does not take what is made.
    Store(StoreError),
    /// It never will; the location takes the log that says so.
    Fatal(String),
}

impl<E: Into<WorkerError>> From<E> for WorkError {
    fn from(error: E) -> Self {
        Self::Worker(error.into())
    }
}

type Patch<O> = Box<dyn Fn(&O) -> Option<Value> + Send + Sync>;

/// How an object ends that cannot go on.
pub(crate) enum Failure<O> {
    /// By a patch.
    Publish(Patch<O>),
    /// By what is stored first.
    Store,
}

/// A kind of object with a life: what is written to it, what its work is, and what its end leaves behind. The order of steps,
/// the lock, the store and all retries are [`Worker`]'s. An instance holds what only this kind needs.
pub(crate) trait Lifecycle: Sized + Send + Sync + 'static {
    type Object: JobObject;
    type Facts: Debug + Default + Send + Sync;
    /// Takes what the work makes.
    type Contents: Send;
    /// What the end tells besides what is in the files.
    type Summary: Clone + Debug + Send + Sync;
    type Turn: Copy + Send + Sync;
    type Gauges: Gauges<Self::Object> + Default + Send;

    const KIND: Kind;
    /// Put on before the first work. The first, [`super::finalizers::WORK`], goes with the end, the others with the files.
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
    ) -> impl Future<Output = Result<Prepared<Self::Facts>, WorkerError>> + Send;

    // Merge patches; `None` where the object cannot go there from where it is.
    fn begin_patch(&self, now: &Self::Object, facts: &Self::Facts) -> Option<Value>;
    fn refused_patch(&self, now: &Self::Object, facts: &Self::Facts, findings: &[String]) -> Option<Value>;
    fn announce_patch(
        now: &Self::Object,
        next: &PhaseOf<Self>,
        files: &JobFiles,
        summary: &Self::Summary,
    ) -> Option<Value>;
    /// What the status says of items that were done before operations went on.
    fn worked_patch(_now: &Self::Object, _status: &Value) -> Option<Value> {
        None
    }
    fn operations_patch(
        now: &Self::Object,
        next: &PhaseOf<Self>,
        operations: &[Operation<Self>],
        files: &JobFiles,
    ) -> Option<Value>;
    /// Takes back [`Self::rests_patch`].
    fn claims_again_patch(_now: &Self::Object) -> Option<Value> {
        None
    }
    /// Says that nothing of the cluster is needed any more, so that the claim ends.
    fn rests_patch(_now: &Self::Object) -> Option<Value> {
        None
    }
    fn terminal_patch(now: &Self::Object, outcome: &Outcome<Self>) -> Option<Value>;

    /// What is recorded as the end.
    fn outcome(
        object: &Self::Object,
        files: &JobFiles,
        summary: &Self::Summary,
        at: Timestamp,
    ) -> Result<Outcome<Self>, StoreError>;
    /// The uid and the stage of an end that is stored under the name, for kinds that store them visibly.
    fn stored_end(outcome: &Outcome<Self>) -> (String, Stage);

    fn started(worker: &Worker<Self>, object: &Self::Object, facts: &Self::Facts);
    /// Whether anything may be written to the location now.
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
    ) -> impl Future<Output = Result<Worked<Self>, WorkError>> + Send;
    /// Records what was made before its operations have ended.
    fn await_operations(
        worker: &mut Worker<Self>,
        object: &Self::Object,
        worked: Worked<Self>,
    ) -> impl Future<Output = Result<(), WorkError>> + Send;
    /// Everything is in the store or in hand.
    fn upload(
        contents: Self::Contents,
    ) -> impl Future<Output = Result<PendingUpload<Self::Object>, StoreError>> + Send;
    fn discard(contents: Self::Contents) -> impl Future<Output = ()> + Send;
    fn discard_upload(upload: PendingUpload<Self::Object>) -> impl Future<Output = ()> + Send;
    /// Completes what was made by how its operations have ended.
    fn complete(
        worker: &mut Worker<Self>,
        object: &Self::Object,
        location: &Location,
        awaiting: AwaitingOperations<Self::Object>,
        operations: &[Operation<Self>],
    ) -> impl Future<Output = Result<Completed<Self>, WorkError>> + Send;

    /// Before an end that is stored is published.
    fn before_end(
        _worker: &Worker<Self>,
        _outcome: &Outcome<Self>,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send {
        async { Ok(()) }
    }
    /// After the end was published: what only the work needed goes. Best effort.
    fn after_end(
        _worker: &Worker<Self>,
        _plan: &CommittedPlan<Self::Object>,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// After an end was published that another process had stored. Best effort.
    fn after_adoption(
        _worker: &Worker<Self>,
        _object: &Self::Object,
        _location: &Location,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// It will not come to a stored end: stops and removes what it has started outside of the store.
    fn abandon(
        worker: &Worker<Self>,
        object: &Self::Object,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send;
    /// How it ends that cannot go on; `location` is where, if that can be written.
    fn fail(
        worker: &mut Worker<Self>,
        object: &Self::Object,
        reason: &str,
        location: Option<&Location>,
    ) -> impl Future<Output = Result<Failure<Self::Object>, WorkerError>> + Send;
    /// A store that cannot be used while the object has begun: what it holds meanwhile is given up.
    fn leave_slot(
        _worker: &Worker<Self>,
        object: &Self::Object,
    ) -> impl Future<Output = Result<Self::Object, WorkerError>> + Send {
        async { Ok(object.clone()) }
    }
    /// The claim is free, and the work's finalizer off: removes the files of an object that is being deleted.
    fn remove_files(
        _worker: &Worker<Self>,
        _object: &Self::Object,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send {
        async { Ok(()) }
    }

    /// What people are told of the end.
    fn end_note(object: &Self::Object) -> String;
    fn count(metrics: &Metrics, object: Option<&Self::Object>, outcome: Counted);
    /// Counts what only a published end has.
    fn count_end(_metrics: &Metrics, _object: &Self::Object, _pending: Option<&PendingEnd<Self>>) {}
}

/// Everything is done; only the end is to be recorded.
pub(crate) struct Completed<L: Lifecycle> {
    pub upload: PendingUpload<L::Object>,
    pub files: JobFiles,
    pub summary: L::Summary,
}
