//! The files of a Restore that is over.

use std::time::Duration;

use backup_core::api::Restore;
use backup_store::{CommittedRestore, Location};

use super::{Restores, observe};
use crate::job::worker::{Worker, WorkerError};

const BUDGET: Duration = Duration::from_secs(30);

/// Where the files of a Restore are; `None` if its backup or the location of that is gone.
pub(super) async fn location(
    worker: &Worker<Restores>,
    restore: &Restore,
) -> Result<Option<Location>, WorkerError> {
    let opened = async {
        let facts = observe::facts(&worker.ctx, restore, None).await?;
        let Some(location) = facts.location else { return Ok(None) };
        Ok(Some(worker.ctx.locations.store(&location).await?))
    };
    tokio::time::timeout(BUDGET, opened).await.unwrap_or_else(|_| Err(no_answer()))
}

/// Deletes the files of a Restore that is being deleted. A store that is away is waited for; one whose location is gone keeps
/// nothing from going.
pub(super) async fn remove(worker: &Worker<Restores>, restore: &Restore) -> Result<(), WorkerError> {
    let store = match location(worker, restore).await {
        Ok(store) => store,
        // Then every Backup and every location is gone, too; what cannot be read says only that it is not served.
        Err(_) if observe::definitions_are_gone(&worker.ctx).await => None,
        Err(error) => return Err(error),
    };
    let Some(store) = store else {
        let note =
            "its files in the object store were left behind: its backup, or the location of that, is gone";
        tracing::info!(restore = worker.name, note, "a restore is deleted");
        worker.ctx.cluster.events.warning(restore, "FilesLeft", note);
        return Ok(());
    };
    let deletion = store.delete_restore(&worker.name, &worker.uid);
    match tokio::time::timeout(BUDGET, deletion).await {
        Ok(deleted) => Ok(deleted.map(|_| ())?),
        Err(_) => Err(no_answer()),
    }
}

/// What was only recorded for the work goes. Best effort: what stays goes with the restore.
pub(super) async fn remove_private(name: &str, plan: &CommittedRestore) {
    let removed = tokio::time::timeout(BUDGET, plan.remove_private()).await;
    if !matches!(removed, Ok(Ok(()))) {
        tracing::debug!(restore = name, ?removed, "private files of a restore stay");
    }
}

fn no_answer() -> WorkerError {
    WorkerError::Blocked {
        reason: format!("the object store gave no answer within {BUDGET:?}"),
        retryable: true,
    }
}
