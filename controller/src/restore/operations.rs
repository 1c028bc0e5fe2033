//! Operations that actions on the items of a restore have started.

use std::time::Duration;

use backup_core::{
    api::{Restore, RestorePhase},
    operation::{OperationStatus, ResourceIdentifier, RestoreOperation, RestoreOperationSpec},
    time::whole_seconds,
};
use backup_store::{AwaitingRestore, FoundJob, JobFiles, Location, Scope, StoreError};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    Restores, files,
    patches::{self, Counts, Summary},
    work::StartedOperation,
};
use crate::job::{
    action_journal,
    operations::{call, records},
    worker::Worker,
};

/// Timeout for cancelling all operations of a restore.
const CANCEL_BUDGET: Duration = Duration::from_mins(1);

pub(super) fn begun(
    restore: &Restore,
    started: impl IntoIterator<Item = StartedOperation>,
) -> Vec<RestoreOperation> {
    started
        .into_iter()
        .filter_map(|started| operation(restore, started))
        .collect()
}

fn operation(restore: &Restore, (of, done): StartedOperation) -> Option<RestoreOperation> {
    let mapping = &restore.spec.namespace_mapping;
    let source = of.item.namespace.as_deref();
    let target = source.map(|source| mapping.get(source).map_or(source, String::as_str));
    Some(RestoreOperation {
        spec: RestoreOperationSpec {
            restore_name: restore.name_any(),
            restore_uid: restore.uid().unwrap_or_default(),
            resource_identifier: ResourceIdentifier::new(
                &of.item.group_resource,
                target,
                &of.item.name,
            ),
            restore_item_action: of.action,
            operation_id: done.executed.operation?,
            ..RestoreOperationSpec::default()
        },
        status: OperationStatus {
            created: Some(whole_seconds(done.at)),
            ..OperationStatus::default()
        },
        ..RestoreOperation::default()
    })
}

/// Called when all operations have ended: adds their errors to results and log.
pub(super) fn completed(
    restore: &Restore,
    awaiting: AwaitingRestore,
    operations: &[RestoreOperation],
) -> Result<(JobFiles, Summary), StoreError> {
    let left = patches::left_items(awaiting.status());
    let mut files = awaiting.into_files();
    files.item_operations = records::encode(operations)?;
    let at = Timestamp::now();
    for (namespace, sentence) in records::errors(operations) {
        files.log.line("error", &sentence, &[], at);
        files.results.error(
            namespace
                .as_deref()
                .map_or(Scope::Cluster, Scope::Namespace),
            sentence,
        );
    }
    if restore.phase().has_failed_so_far() && files.results.errors() == 0 {
        let sentence =
            "an earlier try of this restore met errors that were lost when it was taken up again";
        files.log.line("error", sentence, &[], at);
        files.results.error(Scope::Velero, sentence);
    }
    let summary = Summary {
        left,
        ..Counts::with_operations(restore, &files, &[]).summary
    };
    Ok((files, summary))
}

/// Cancels the known operations of a restore that is abandoned. Best effort, at most
/// `CANCEL_BUDGET`.
pub(super) async fn cancel(worker: &Worker<Restores>, restore: &Restore) {
    if restore.phase() == RestorePhase::New {
        return;
    }
    let store = match files::location(worker, restore).await {
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
            begun(
                restore,
                action_journal::started(&notes.unwrap_or_default()).unwrap_or_default(),
            )
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}
