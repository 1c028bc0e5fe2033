//! The worker of one Backup or Restore: its state, and how it reads and writes its object. Its steps
//! are in `reconcile`.
//!
//! Only an unfinished end is kept in memory, so a successor continues from what is stored.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use backup_client::{errors::found, retry};
use backup_lock::ObjectKey;
use backup_runtime::retry::{PatchOutcome, status_patch};
use backup_store::JobFiles;
use kube::Resource as _;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{
    JobContext, cancellation::Cancellation, kind::JobKind, object::JobObject as _,
    pending_end::PendingEnd,
};

mod blocked;
mod error;

use blocked::BlockState;
pub(crate) use error::WorkerError;

const READ_BUDGET: Duration = Duration::from_secs(30);

pub(crate) struct Worker<L: JobKind> {
    pub ctx: JobContext,
    /// State that only this kind needs.
    pub kind: Arc<L>,
    pub name: String,
    pub uid: String,
    pub(super) key: ObjectKey,
    pub cancellation: Cancellation,
    /// Limits concurrent work; work that starts again while Finalizing needs a permit, too.
    pub(super) permits: Arc<Semaphore>,
    /// Whether its claim waits for a restore, so that the queue gives its slot to another object.
    pub yields: Arc<AtomicBool>,
    pub pending: Option<PendingEnd<L>>,
    /// The results of work that was stopped and is not resumed, for the end.
    pub interrupted: Option<InterruptedWork<L>>,
    /// Number of the record whose data is gone from the store.
    pub lost: Option<u64>,
    pub(super) blocked: BlockState,
}

/// The result of work that was stopped and is not resumed.
pub(crate) struct InterruptedWork<L: JobKind> {
    pub files: JobFiles,
    pub summary: L::Summary,
}

impl<L: JobKind> Worker<L> {
    pub(crate) fn new(
        ctx: JobContext,
        kind: Arc<L>,
        name: &str,
        uid: &str,
        cancellation: Cancellation,
        permits: Arc<Semaphore>,
    ) -> Self {
        let key = L::Object::ledger_key(&ctx.cluster.namespace, name);
        Self {
            ctx,
            kind,
            name: name.to_owned(),
            uid: uid.to_owned(),
            key,
            cancellation,
            permits,
            yields: Arc::default(),
            pending: None,
            interrupted: None,
            lost: None,
            blocked: BlockState::default(),
        }
    }

    /// Reads the object; `None` if it is gone, or another one has its name.
    pub(super) async fn read(&self) -> Result<Option<L::Object>, kube::Error> {
        let api = self.ctx.cluster.api::<L::Object>();
        let object = found(
            retry::read(READ_BUDGET, || api.get(&self.name)).await,
            &self.name,
        )?;
        Ok(object.filter(|object| object.meta().uid.as_deref() == Some(&self.uid)))
    }

    /// Writes a patch; retried for `--resource-timeout`, each time with the resourceVersion it was
    /// made from.
    pub(crate) async fn publish(
        &self,
        object: &L::Object,
        patch: impl Fn(&L::Object) -> Option<Value> + Send + Sync,
    ) -> Result<L::Object, WorkerError> {
        match status_patch(&self.ctx.cluster, object, patch).await? {
            PatchOutcome::Written(object) => Ok(object),
            PatchOutcome::Gone | PatchOutcome::Stale => Err(WorkerError::Conflict),
        }
    }
}
