//! The two kinds of objects with jobs, and the facts in which their lives differ.

use std::fmt::Debug;

use backup_core::phase::Stage;
use backup_store::StoredJob;

use super::{object::JobObject, operations::call::Subject};

/// The types of a kind. An instance holds what only this kind needs.
pub(crate) trait JobKind: Sized + Send + Sync + 'static {
    type Object: JobObject;
    type Facts: Debug + Default + Send + Sync;
    /// Receives the output of the work.
    type Contents: Send;
    /// The parts of the end that are not in the files.
    type Summary: Clone + Debug + Send + Sync;

    const KIND: Kind;
    /// Added before the first work. The first ([`super::finalizers::work`]) is removed with the
    /// end, the others with the files.
    const FINALIZERS: &'static [&'static str];
}

pub(crate) type Outcome<L> = <<L as JobKind>::Object as StoredJob>::Outcome;
pub(crate) type Operation<L> = <<L as JobKind>::Object as Subject>::Operation;
pub(crate) type PhaseOf<L> = <<L as JobKind>::Object as JobObject>::Phase;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Backup,
    Restore,
}

impl Kind {
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Restore => "restore",
        }
    }

    /// Failure reason if cancelled before it begins.
    pub(crate) fn cancelled(self) -> &'static str {
        match self {
            Self::Backup => "never started: it was cancelled",
            Self::Restore => "it was cancelled by a user before anything was restored",
        }
    }

    /// Failure reason of an object that the ledger refuses before it has begun.
    pub(crate) fn refused(self) -> &'static str {
        match self {
            Self::Backup => "never started",
            Self::Restore => "not started",
        }
    }

    /// The stage in which work starts.
    pub(crate) fn start(self) -> Stage {
        match self {
            Self::Backup => Stage::ReadyToStart,
            Self::Restore => Stage::New,
        }
    }

    /// Whether the dispatcher has a queue for it. An object without one waits for its turn in the
    /// ledger.
    pub(crate) fn has_queue(self) -> bool {
        self == Self::Backup
    }

    /// Whether an object in this stage still waits for its turn in the queue.
    pub(crate) fn waits_for_turn(self, stage: Stage) -> bool {
        self.has_queue() && matches!(stage, Stage::New | Stage::Queued)
    }

    /// Whether it is claimed before anything else is read, and begins before the store is read. The
    /// others are claimed after the store was read.
    pub(crate) fn is_claimed_first(self) -> bool {
        self == Self::Restore
    }

    /// Whether it is validated again when it is resumed, and then fails if it is not valid.
    pub(crate) fn is_validated_again(self) -> bool {
        self == Self::Restore
    }

    /// Whether a claim that was lost during the work makes its results useless: what was collected
    /// may be inconsistent. Without this, each write checks the claim.
    pub(crate) fn results_need_claim(self) -> bool {
        self == Self::Backup
    }

    /// Whether items are read again after the operations, which needs the claim.
    pub(crate) fn reads_after_operations(self) -> bool {
        self == Self::Backup
    }

    /// Whether it holds no claim while it is Finalizing.
    pub(crate) fn rests_when_finalizing(self) -> bool {
        self == Self::Backup
    }

    /// Whether an object in this stage may still end as Failed. In later stages its contents may be
    /// in the store.
    pub(crate) fn may_fail(self, stage: Stage) -> bool {
        stage == self.start() || stage == Stage::InProgress
    }

    /// Whether an object in this stage may end although it cannot continue: as Failed, or as
    /// PartiallyFailed if what it has done stays in the cluster.
    pub(crate) fn may_end(self, stage: Stage) -> bool {
        self == Self::Restore || self.may_fail(stage)
    }

    /// Whether an object that has begun ends if its location was deleted: what it has done stays in
    /// the cluster. The others wait for the location.
    pub(crate) fn ends_without_location(self) -> bool {
        self == Self::Restore
    }

    /// Whether a deleted object is finished first if it is committed. The files of the others are
    /// removed with them.
    pub(crate) fn outlives_deletion(self) -> bool {
        self == Self::Backup
    }

    /// Whether our finalizer is removed from a deleted object in a phase of a newer version;
    /// otherwise the object waits for that version.
    pub(crate) fn is_let_go_in_unknown_phase(self) -> bool {
        self == Self::Restore
    }
}

#[cfg(test)]
mod tests {
    use backup_core::labels::CANCELLED;

    use super::Kind;

    /// The command tells by this part that nothing failed.
    #[test]
    fn the_reason_of_what_is_cancelled_before_it_begins_says_so() {
        for kind in [Kind::Backup, Kind::Restore] {
            assert!(kind.cancelled().contains(CANCELLED), "{kind:?}");
        }
    }
}
