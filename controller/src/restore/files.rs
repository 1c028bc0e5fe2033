//! Stored files of ended and deleted Restores.

use std::time::Duration;

use backup_core::{api::Restore, event_reason::EventReason};
use backup_store::{CommittedRestore, Location};

use super::{Restores, observe, operations};
use crate::job::{
    lifecycle::Cleanup,
    worker::{Worker, WorkerError},
};

const STORE_TIMEOUT: Duration = Duration::from_secs(30);

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
        operations::cancel(worker, restore).await;
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
pub(super) async fn location(
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
