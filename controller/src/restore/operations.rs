//! Operations that actions on the items of a restore have started.

use backup_actions::restore::MOVED_NAME;
use backup_core::{
    api::Restore,
    operation::{
        OperationPhase, OperationStatus, ResourceIdentifier, RestoreOperation, RestoreOperationSpec,
    },
    time::whole_seconds,
    volume_info::{VolumeInfo, VolumeResult},
};
use backup_store::{AwaitingRestore, JobFiles, Scope, StoreError};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    kind::Summary,
    patches::{self, Counts},
    work::StartedOperation,
};
use crate::job::operations::records;

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
    mark_missing_data(&mut files.volume_info, operations);
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

/// Marks the volumes whose data was to come by operations that have not completed. Their entries
/// were written when the operations began.
fn mark_missing_data(volumes: &mut [VolumeInfo], operations: &[RestoreOperation]) {
    let not_completed = operations.iter().filter(|operation| {
        operation.spec.restore_item_action == MOVED_NAME
            && operation.status.phase != OperationPhase::Completed
    });
    for operation in not_completed {
        let why = match operation.status.error.as_str() {
            "" => "it has not come from the repository",
            error => error,
        };
        let entry = volumes
            .iter_mut()
            .find(|volume| comes_by(volume, &operation.spec.operation_id));
        if let Some(entry) = entry {
            entry.result = Some(VolumeResult::Failed);
            entry.skipped_reason = Some(why.to_owned());
            let movement = entry.snapshot_data_movement_info.as_mut();
            if let Some(movement) = movement.filter(|_| operation.status.started.is_none()) {
                // Without a snapshot the entry is one of a restore that no pod has begun.
                movement.snapshot_handle.clear();
                movement.size = 0;
            }
        }
    }
}

/// Whether this operation restores the data of a volume.
fn comes_by(volume: &VolumeInfo, operation: &str) -> bool {
    volume
        .snapshot_data_movement_info
        .as_ref()
        .is_some_and(|movement| movement.operation_id == operation)
}

/// Marks the volumes whose data is in our repository, at the end of a restore that has not waited
/// for its operations.
pub(super) fn give_up_data(volumes: &mut [VolumeInfo]) {
    for entry in volumes
        .iter_mut()
        .filter(|volume| volume.snapshot_data_moved == Some(true))
    {
        entry.result = Some(VolumeResult::Failed);
        entry.skipped_reason =
            Some("the restore ended before it had come from the repository".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use backup_core::volume_data::MissingData;
    use serde_json::json;

    use super::*;

    fn volumes() -> Vec<VolumeInfo> {
        let moved = |claim: &str, operation: &str| {
            json!({"pvcNamespace": "shop", "pvcName": claim, "restoreMethod": "CSISnapshot", "snapshotDataMoved": true,
                "snapshotDataMovementInfo": {"dataMover": "backup-mover", "operationID": operation, "snapshotHandle": "k"}})
        };
        VolumeInfo::all(&[
            moved("done", "d-1"),
            moved("failed", "d-2"),
            moved("silent", "d-3"),
            json!({"pvcNamespace": "shop", "pvcName": "csi", "restoreMethod": "CSISnapshot", "snapshotDataMoved": false}),
        ])
    }

    fn operation(action: &str, id: &str, phase: OperationPhase, error: &str) -> RestoreOperation {
        let mut operation = RestoreOperation::default();
        operation.spec.restore_item_action = action.to_owned();
        operation.spec.operation_id = id.to_owned();
        operation.status.phase = phase;
        operation.status.error = error.to_owned();
        operation
    }

    #[test]
    fn data_whose_operation_has_not_completed_is_missing() {
        let mut volumes = volumes();
        assert_eq!(MissingData::of(&volumes), None);
        let operations = [
            operation(MOVED_NAME, "d-1", OperationPhase::Completed, ""),
            operation(MOVED_NAME, "d-2", OperationPhase::Failed, "no pod"),
            operation(MOVED_NAME, "d-3", OperationPhase::Failed, ""),
            operation(
                "x/other",
                "d-1",
                OperationPhase::Failed,
                "of another action",
            ),
            operation(
                MOVED_NAME,
                "d-9",
                OperationPhase::Failed,
                "of a claim that was not created",
            ),
        ];
        mark_missing_data(&mut volumes, &operations);
        let missing = MissingData::of(&volumes).unwrap();
        assert_eq!((missing.missing, missing.of), (2, 4));
        assert_eq!(missing.volumes["shop/failed"], "no pod");
        assert_eq!(
            missing.volumes["shop/silent"],
            "it has not come from the repository"
        );
    }

    #[test]
    fn only_data_whose_restore_has_begun_may_be_there_in_part() {
        for (started, expected) in [(None, ""), (Some(Timestamp::UNIX_EPOCH), "k")] {
            let mut volumes = volumes();
            let mut failed = operation(MOVED_NAME, "d-2", OperationPhase::Failed, "why");
            failed.status.started = started;
            mark_missing_data(&mut volumes, &[failed]);
            let movement = volumes[1].snapshot_data_movement_info.as_ref().unwrap();
            assert_eq!(movement.snapshot_handle, expected);
        }
    }

    #[test]
    fn data_that_was_not_waited_for_is_missing() {
        let mut volumes = volumes();
        give_up_data(&mut volumes);
        let missing = MissingData::of(&volumes).unwrap();
        assert_eq!((missing.missing, missing.of), (3, 4));
    }
}
