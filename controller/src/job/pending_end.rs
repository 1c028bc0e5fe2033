//! The end of a Backup or Restore, in the only order in which published data stays true: the
//! record, the files, and then the resource. Every step can be repeated.

use backup_store::{CommittedPlan, JobFiles, PendingUpload, StoreError};
use jiff::Timestamp;

use super::{
    kind::{JobKind, Outcome},
    patches::Patches,
};

/// Everything is done; only the end remains to be recorded.
pub(crate) struct CompletedWork<L: JobKind> {
    pub upload: PendingUpload<L::Object>,
    pub files: JobFiles,
    pub summary: L::Summary,
}

/// An end that is to be written.
pub(crate) enum PendingEnd<L: JobKind> {
    /// Nothing is recorded yet. Lost with the process: then the work is repeated.
    Collected {
        done: Box<CompletedWork<L>>,
        /// Made once: a retry after a lost answer writes the same bytes.
        outcome: Option<Box<Outcome<L>>>,
    },
    /// Every byte is recorded; any process can write what is missing.
    Committed(Box<CommittedPlan<L::Object>>),
}

impl<L: Patches> PendingEnd<L> {
    /// Takes an outcome if it does not follow from the files.
    pub(crate) fn new(done: CompletedWork<L>, outcome: Option<Outcome<L>>) -> Self {
        Self::Collected {
            done: Box::new(done),
            outcome: outcome.map(Box::new),
        }
    }

    /// Size of the contents (bytes).
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Collected { done, .. } => done.upload.bytes(),
            Self::Committed(plan) => plan.bytes(),
        }
    }

    /// Number of the record, once there is one.
    pub(crate) fn record(&self) -> Option<u64> {
        match self {
            Self::Collected { .. } => None,
            Self::Committed(plan) => Some(plan.number()),
        }
    }

    /// Records the end, then writes what is missing. Returns the end as stored.
    pub(crate) async fn store(
        &mut self,
        object: &L::Object,
        now: Timestamp,
    ) -> Result<Outcome<L>, StoreError> {
        loop {
            match self {
                Self::Collected { done, outcome } => {
                    let CompletedWork {
                        upload,
                        files,
                        summary,
                    } = &mut **done;
                    let outcome = match outcome {
                        Some(outcome) => &*outcome,
                        None => {
                            &*outcome.insert(Box::new(L::outcome(object, files, summary, now)?))
                        }
                    };
                    let plan = upload.commit(files, outcome).await?;
                    *self = Self::Committed(Box::new(plan));
                }
                Self::Committed(plan) => return plan.publish().await,
            }
        }
    }
}
