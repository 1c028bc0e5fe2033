//! A restore whose items are done, and whose operations go on: followed to their end, then its results are completed by how
//! they have ended.
//!
//! What is learned is kept in the store first and published then, so a lost patch loses nothing: counts, phase and errors are
//! derived from what is kept, each time anew.

use std::{sync::Arc, time::Duration};

use backup_actions::restore::RestoreActionOutput;
use backup_core::time::whole_seconds;
use backup_core::{
    api::{GoDuration, Restore, RestorePhase, restore::RestoreProgress},
    operation::{
        Counts as Numbers, OperationStatus, ResourceIdentifier, RestoreOperation, RestoreOperationSpec,
    },
};
use backup_runtime::{
    queue::Action,
    retry::{self, PatchOutcome},
};
use backup_store::{AwaitingRestore, FoundRestore, Location, RestoreFiles, Scope, StoreError, crash};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    decide,
    finish::{self, Pending},
    reconcile::{Desk, StepError, stopped},
    status::{self, Counts},
    work::Started,
};
use crate::job::cancellation::{Cancellation, StopReason};
use crate::{
    context::Context,
    job::{
        action_journal::{self, PriorAttempt},
        operations::{
            self, call,
            decide::{Answer, Call},
            poll_until_complete::{StateStore, Stored, poll_until_complete},
            poller::OperationPoller,
            records,
        },
    },
};

/// Where the restore does not say (it always does once it has begun).
const TIMEOUT: GoDuration = GoDuration::from_secs(4 * 3600);
/// Operations that are told to stop at the same time, and how long all of it may take.
const AT_ONCE: usize = 8;
const STOP_BUDGET: Duration = Duration::from_mins(1);

/// A restore whose operations go on.
pub struct Operating {
    /// The Restore.
    pub restore: Restore,
    /// Where its files are.
    pub store: Location,
    /// What they are so far.
    pub waiting: AwaitingRestore,
}

/// Operations as they are begun.
pub fn begun(restore: &Restore, started: impl IntoIterator<Item = Started>) -> Vec<RestoreOperation> {
    let mapping = &restore.spec.namespace_mapping;
    let operation = |(of, done): Started| {
        let source = of.item.namespace.as_deref();
        let target = source.map(|source| mapping.get(source).map_or(source, String::as_str));
        Some(RestoreOperation {
            spec: RestoreOperationSpec {
                restore_name: restore.name_any(),
                restore_uid: restore.uid().unwrap_or_default(),
                resource_identifier: ResourceIdentifier::new(&of.item.group_resource, target, &of.item.name),
                restore_item_action: of.action,
                operation_id: done.executed.operation?,
                ..RestoreOperationSpec::default()
            },
            status: OperationStatus { created: Some(whole_seconds(done.at)), ..OperationStatus::default() },
            ..RestoreOperation::default()
        })
    };
    started.into_iter().filter_map(operation).collect()
}

/// Sees operations to their end; then results are stored, and the restore ends.
pub async fn operate(
    ctx: &Context,
    desk: &Desk,
    cancellation: &Cancellation,
    operating: Operating,
) -> Result<Action, StepError> {
    let Operating { restore, store, mut waiting } = operating;
    let operations: Vec<RestoreOperation> = match records::decode(&waiting.files().item_operations) {
        Ok(operations) => operations,
        Err(error) => {
            let why = format!("the operations that are kept in the store can't be read: {error}");
            return finish::block(ctx, &restore, &why, false).await;
        }
    };
    let mut keeping = Keeping { ctx, cancellation, waiting: &mut waiting, shown: restore };
    let operations = if Numbers::of_all(&operations).all_ended() {
        operations
    } else {
        match follow(&mut keeping, operations).await {
            Ok(operations) => operations,
            Err(trouble) => return trouble.over(),
        }
    };
    let restore = keeping.shown;
    crash::point("after-operations");
    let pending = Arc::new(ended(&restore, store, waiting, &operations)?);
    desk.keep(&restore, Arc::clone(&pending));
    finish::finish(ctx, desk, &restore, &pending).await
}

async fn follow(
    keeping: &mut Keeping<'_>,
    operations: Vec<RestoreOperation>,
) -> Result<Vec<RestoreOperation>, Trouble> {
    keeping.publish(&operations).await?;
    let (ctx, cancellation, shown) = (keeping.ctx, keeping.cancellation, &keeping.shown);
    let timeout = shown.spec.item_operation_timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(TIMEOUT);
    let mut following =
        OperationPoller::new(operations::poll_config(ctx), shown, operations, timeout.as_std());
    if shown.is_cancelled() {
        following.stop();
    }
    poll_until_complete(&mut following, keeping, cancellation).await?;
    Ok(following.operations())
}

/// Why operations are not followed any more.
enum Trouble {
    Stopped(StopReason),
    Step(StepError),
}

impl Trouble {
    fn over(self) -> Result<Action, StepError> {
        match self {
            Self::Stopped(halt) => stopped(halt),
            Self::Step(error) => Err(error),
        }
    }
}

impl From<StopReason> for Trouble {
    fn from(reason: StopReason) -> Self {
        Self::Stopped(reason)
    }
}

impl<E: Into<StepError>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Step(error.into())
    }
}

/// States of operations go into the store, what follows from them into the Restore.
struct Keeping<'a> {
    ctx: &'a Context,
    cancellation: &'a Cancellation,
    waiting: &'a mut AwaitingRestore,
    /// As it was published last.
    shown: Restore,
}

impl StateStore<RestoreOperation> for Keeping<'_> {
    type Error = Trouble;

    async fn store(&mut self, operations: &[RestoreOperation]) -> Result<Stored, Trouble> {
        let kept = match records::encode(operations) {
            Ok(encoded) => self.waiting.store_operations(&encoded).await,
            Err(error) => {
                Err(StoreError::Io { action: "encode operations".to_owned(), detail: error.to_string() })
            }
        };
        match kept {
            Ok(()) => {
                crash::point("after-operations-kept");
                Ok(Stored::Yes)
            }
            Err(error @ StoreError::Exists { .. }) => {
                Err(StepError::Cut(format!("another replica has kept another state: {error}")).into())
            }
            Err(error) => {
                let delay =
                    finish::tell(self.ctx, &self.shown, &error.to_string(), error.is_transient()).await?;
                Ok(Stored::NotYet(delay))
            }
        }
    }

    async fn publish(&mut self, operations: &[RestoreOperation]) -> Result<(), Trouble> {
        let counts = counts(&self.shown, self.waiting.files(), operations);
        let next = decide::operating(counts.operations, counts.errors, &self.shown.phase());
        if status::operating(&self.shown, &next, &counts).is_none() {
            return Ok(());
        }
        let patch = |now: &Restore| status::operating(now, &next, &counts);
        match retry::status_patch(&self.ctx.cluster, &self.shown, patch).await? {
            PatchOutcome::Written(shown) => self.shown = shown,
            // Somebody has ended it, or says already what is to be said: seen in the next step.
            PatchOutcome::Gone | PatchOutcome::Stale => return Err(Trouble::Stopped(StopReason::Deleted)),
        }
        Ok(())
    }
}

/// The counts of a restore by its files, and by operations that are not in them yet.
fn counts(restore: &Restore, files: &RestoreFiles, operations: &[RestoreOperation]) -> Counts {
    let failed = i64::try_from(records::errors(operations).len()).unwrap_or(i64::MAX);
    let done = i64::try_from(files.resource_list.len()).unwrap_or(i64::MAX);
    let total = restore.status.progress.as_ref().map_or(0, |progress| progress.total_items);
    Counts {
        warnings: files.results.warnings(),
        errors: files.results.errors() + failed,
        // What the status says may be from before a crash.
        progress: RestoreProgress {
            total_items: total.max(done),
            items_restored: done,
            ..RestoreProgress::default()
        },
        operations: Numbers::of_all(operations),
    }
}

/// All have ended: their errors are added to the results and the log. Not visible before it is committed.
fn ended(
    restore: &Restore,
    store: Location,
    waiting: AwaitingRestore,
    operations: &[RestoreOperation],
) -> Result<Pending, StepError> {
    let mut files = waiting.into_files();
    files.item_operations = records::encode(operations)
        .map_err(|error| StepError::Cut(format!("operations can't be encoded: {error}")))?;
    let at = Timestamp::now();
    for (namespace, sentence) in records::errors(operations) {
        files.log.line("error", &sentence, &[], at);
        files.results.error(namespace.as_deref().map_or(Scope::Cluster, Scope::Namespace), sentence);
    }
    if decide::had_failed(&restore.phase()) && files.results.errors() == 0 {
        let sentence = "an earlier try of this restore met errors that were lost when it was taken up again";
        files.log.line("error", sentence, &[], at);
        files.results.error(Scope::Velero, sentence);
    }
    let mut counts = counts(restore, &files, &[]);
    counts.operations = Numbers::of_all(operations);
    Ok(Pending::of_files(restore, files, &counts, store))
}

/// Operations of a restore that comes to nothing, as far as they are known, are told to stop. Best effort: each is told once.
pub async fn stop(ctx: &Context, restore: &Restore, store: &Location) {
    let told = async {
        let operations = known(restore, store).await;
        let running = operations.into_iter().filter(|operation| !operation.status.phase.has_ended());
        let config = operations::poll_config(ctx);
        stream::iter(running)
            .for_each_concurrent(AT_ONCE, async |operation| {
                let (action, id) = (&operation.spec.restore_item_action, &operation.spec.operation_id);
                let answer = call::make(&config.registry, action, id, Call::Cancel, restore).await;
                if let Answer::Passing(reason) | Answer::Final(reason) = answer {
                    tracing::warn!(action, operation = id, reason, "an operation could not be told to stop");
                }
            })
            .await;
    };
    if tokio::time::timeout(STOP_BUDGET, told).await.is_err() {
        tracing::warn!(restore = restore.name_any(), "not all operations could be told to stop");
    }
}

/// While items are restored, operations are known by the notes about them, later by what was kept.
async fn known(restore: &Restore, store: &Location) -> Vec<RestoreOperation> {
    let (name, uid) = (restore.name_any(), restore.uid().unwrap_or_default());
    match store.find_job::<Restore>(&name, &uid).await {
        Ok(FoundRestore::Awaiting(waiting)) => {
            records::decode(&waiting.files().item_operations).unwrap_or_default()
        }
        Ok(FoundRestore::Nothing) if restore.phase() == RestorePhase::InProgress => {
            let notes = store.journal::<Restore>(&name, &uid).await.map(|(_, notes)| notes);
            let read =
                action_journal::read::<RestoreActionOutput>(&notes.unwrap_or_default()).unwrap_or_default();
            let started = read.into_iter().filter_map(|(of, earlier)| match earlier {
                PriorAttempt::Started(done) => Some((of, *done)),
                PriorAttempt::Unknown => None,
            });
            begun(restore, started)
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}
