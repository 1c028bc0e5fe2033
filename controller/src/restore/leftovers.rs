//! Leftovers of ended, abandoned and deleted Restores: running operations, and stored files.

use std::time::Duration;

use backup_actions::restore::DownloadApi;
use backup_client::errors::plain;
use backup_core::{
    api::{Restore, RestorePhase},
    event_reason::EventReason,
    operation::RestoreOperation,
};
use backup_runtime::Cluster;
use backup_store::{CommittedRestore, FoundJob, Location};
use kube::ResourceExt as _;

use super::{Restores, observe, operations};
use crate::job::{
    action_journal,
    lifecycle::Cleanup,
    operations::{call, records},
    worker::{Worker, WorkerError},
};

const STORE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for cancelling all operations of a restore.
const CANCEL_BUDGET: Duration = Duration::from_mins(1);

impl Cleanup for Restores {
    /// Best effort: the rest is removed with the Restore.
    async fn after_end(worker: &Worker<Self>, plan: &CommittedRestore) {
        let removed = tokio::time::timeout(STORE_TIMEOUT, plan.remove_private()).await;
        if !matches!(removed, Ok(Ok(()))) {
            tracing::debug!(
                restore = worker.name,
                ?removed,
                "private files of a restore stay"
            );
        }
    }

    async fn abandon(worker: &Worker<Self>, restore: &Restore) -> Result<(), WorkerError> {
        cancel(worker, restore).await;
        Ok(())
    }

    /// Fails while the store is unavailable; if the location is gone, the files are left behind.
    async fn remove_files(worker: &Worker<Self>, restore: &Restore) -> Result<(), WorkerError> {
        let store = match location(worker, restore).await {
            Ok(store) => store,
            Err(error) => {
                // Deleted definitions take every Backup and location with them; the read error only
                // says that they are not served.
                if !observe::definitions_are_gone(&worker.ctx).await {
                    return Err(error);
                }
                None
            }
        };
        let Some(store) = store else {
            let note = "its files in the object store were left behind: its backup, or the location of that, is gone";
            tracing::info!(restore = worker.name, note, "a restore is deleted");
            worker
                .ctx
                .cluster
                .events
                .warning(restore, EventReason::FilesNotRemoved, note);
            return Ok(());
        };
        let deletion = store.delete_restore(&worker.name, &worker.uid);
        match tokio::time::timeout(STORE_TIMEOUT, deletion).await {
            Ok(deleted) => Ok(deleted.map(|_| ())?),
            Err(_) => Err(no_answer()),
        }
    }
}

/// The location with the files of a Restore; `None` if its backup, or the backup's location, is
/// gone.
async fn location(
    worker: &Worker<Restores>,
    restore: &Restore,
) -> Result<Option<Location>, WorkerError> {
    let opened = async {
        let facts = observe::facts(&worker.ctx, restore, None).await?;
        let Some(location) = facts.location else {
            return Ok(None);
        };
        Ok(Some(worker.ctx.locations.store(&location).await?))
    };
    tokio::time::timeout(STORE_TIMEOUT, opened)
        .await
        .unwrap_or_else(|_| Err(no_answer()))
}

fn no_answer() -> WorkerError {
    WorkerError::Blocked {
        reason: format!("the object store gave no answer within {STORE_TIMEOUT:?}"),
        retryable: true,
    }
}

/// Cancels the known operations of a restore that is abandoned. Best effort, at most
/// `CANCEL_BUDGET`.
async fn cancel(worker: &Worker<Restores>, restore: &Restore) {
    if restore.phase() == RestorePhase::New {
        return;
    }
    cancel_downloads(worker, restore).await;
    let store = match location(worker, restore).await {
        Ok(Some(store)) => store,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(
                restore = worker.name,
                ?error,
                "the operations of a restore are not known"
            );
            return;
        }
    };
    let cancelled = async {
        let operations = known(restore, &store).await;
        call::cancel_all(&worker.ctx.polling.registry, &operations, restore).await;
    };
    if tokio::time::timeout(CANCEL_BUDGET, cancelled)
        .await
        .is_err()
    {
        tracing::warn!(
            restore = worker.name,
            "not all operations could be cancelled"
        );
    }
}

/// Cancels the downloads of volume data, which are in no journal. Best effort, at most
/// `CANCEL_BUDGET`.
async fn cancel_downloads(worker: &Worker<Restores>, restore: &Restore) {
    if !worker.kind.has_mover {
        return;
    }
    let Cluster {
        client,
        namespace,
        leadership,
        ..
    } = &worker.ctx.cluster;
    let downloads = DownloadApi::new(client, namespace, leadership);
    let uid = restore.uid().unwrap_or_default();
    let cancelled = tokio::time::timeout(CANCEL_BUDGET, downloads.cancel_all(&uid)).await;
    let error = match cancelled {
        Ok(Ok(())) => return,
        Ok(Err(error)) => plain(&error),
        Err(_) => format!("no answer within {CANCEL_BUDGET:?}"),
    };
    tracing::warn!(
        restore = worker.name,
        error,
        "not all downloads of volume data could be cancelled"
    );
}

/// The known operations: from the journal while items are restored, later from the stored files.
async fn known(restore: &Restore, store: &Location) -> Vec<RestoreOperation> {
    let name = restore.name_any();
    let uid = restore.uid().unwrap_or_default();
    match store.find_job::<Restore>(&name, &uid).await {
        Ok(FoundJob::Awaiting(waiting)) => {
            records::decode(&waiting.files().item_operations).unwrap_or_default()
        }
        Ok(FoundJob::Nothing) => {
            if restore.phase() != RestorePhase::InProgress {
                return Vec::new();
            }
            let notes = store
                .journal::<Restore>(&name, &uid, action_journal::slim)
                .await
                .map(|(_, notes)| notes);
            operations::begun(
                restore,
                action_journal::started(&notes.unwrap_or_default()).unwrap_or_default(),
            )
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}
