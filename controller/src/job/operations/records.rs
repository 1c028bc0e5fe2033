//! Operations as stored, and what is derived from them. Pure.
//!
//! The outcome of a backup or restore is always derived from here, never from memory or from what
//! was published.

use backup_actions::ItemId;
use backup_core::{
    api::BackupStatus,
    operation::{BackupOperation, Counts, Operation, OperationPhase, ResourceIdentifier},
    phase::{Phase, Stage},
};
use backup_store::StoreError;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Resource of VolumeSnapshots, which are also counted separately.
const SNAPSHOTS: &str = "volumesnapshots";

/// The identifier in Velero's form.
pub(crate) fn identifier(item: &ItemId) -> ResourceIdentifier {
    ResourceIdentifier::new(&item.group_resource, item.namespace.as_deref(), &item.name)
}

pub(crate) fn encode<O: Serialize>(operations: &[O]) -> Result<Vec<Value>, StoreError> {
    operations
        .iter()
        .map(|operation| serde_json::to_value(operation).map_err(|error| malformed(&error)))
        .collect()
}

/// One operation that cannot be decoded fails the whole list: the outcome would be unknown.
pub(crate) fn decode<O: DeserializeOwned>(operations: &[Value]) -> Result<Vec<O>, StoreError> {
    operations
        .iter()
        .map(|one| serde_json::from_value(one.clone()).map_err(|error| malformed(&error)))
        .collect()
}

fn malformed(error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt {
        url: "the list of operations".to_owned(),
        detail: error.to_string(),
    }
}

/// Writes the counts into a status.
pub(crate) fn count(status: &mut BackupStatus, operations: &[BackupOperation]) {
    let counts = Counts::of_all(operations);
    status.backup_item_operations_attempted = counts.attempted;
    status.backup_item_operations_completed = counts.completed;
    status.backup_item_operations_failed = counts.failed;
    let snapshots = operations
        .iter()
        .filter(|operation| operation.spec.resource_identifier.resource == SNAPSHOTS);
    let counts = Counts::of(snapshots.map(|operation| &operation.status.phase));
    status.csi_volume_snapshots_attempted = counts.attempted;
    status.csi_volume_snapshots_completed = counts.completed;
}

/// Errors of failed operations: the namespace of the item, and a message.
pub(crate) fn errors<O: Operation>(operations: &[O]) -> Vec<(Option<String>, String)> {
    let failed = operations
        .iter()
        .filter(|operation| operation.status().phase == OperationPhase::Failed);
    failed
        .map(|operation| {
            let item = operation.item();
            let sentence = format!(
                "{item}: operation {} of {} failed: {}",
                operation.id(),
                operation.action(),
                operation.status().error
            );
            (item.namespace().map(str::to_owned), sentence)
        })
        .collect()
}

/// The phase while operations run, and after they have all ended: it never gets better than
/// `before`.
pub(crate) fn phase<P: Phase>(operations: Counts, errors: i64, before: &P) -> P {
    let failed = errors > 0 || operations.failed > 0 || before.stage().has_failed_so_far();
    // Work that is repeated while Finalizing stays Finalizing.
    if operations.all_ended() || matches!(before.stage(), Stage::Finalizing { .. }) {
        P::finalizing(failed)
    } else {
        P::waiting_for_operations(failed)
    }
}

/// Items that are read once more, without duplicates and in order, each with whether every
/// operation that asks for it has completed.
pub(crate) fn read_again(operations: &[BackupOperation]) -> Vec<(ItemId, bool)> {
    let mut items: Vec<(ItemId, bool)> = Vec::new();
    for operation in operations {
        let completed = operation.status.phase == OperationPhase::Completed;
        for item in &operation.spec.post_operation_items {
            let item = ItemId {
                group_resource: item.group_resource(),
                namespace: item.namespace().map(str::to_owned),
                name: item.name.clone(),
            };
            match items.iter_mut().find(|(known, _)| *known == item) {
                Some((_, all)) => *all &= completed,
                None => items.push((item, completed)),
            }
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use backup_core::api::{BackupPhase, RestorePhase};

    use super::*;

    fn item(name: &str) -> ItemId {
        ItemId {
            group_resource: "volumesnapshots.snapshot.storage.k8s.io".into(),
            namespace: Some("shop".into()),
            name: name.into(),
        }
    }

    fn operations(phases: &[OperationPhase]) -> Vec<BackupOperation> {
        let one = |(n, phase): (usize, &OperationPhase)| {
            let mut operation = BackupOperation::default();
            operation.spec.resource_identifier = identifier(&item(&format!("vs-{n}")));
            operation.spec.backup_item_action = "a/b".into();
            operation.spec.operation_id = format!("id-{n}");
            operation.spec.post_operation_items = vec![
                identifier(&item(&format!("vs-{n}"))),
                identifier(&item("shared")),
            ];
            operation.status.phase = phase.clone();
            operation
        };
        phases.iter().enumerate().map(one).collect()
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let operations = operations(&[OperationPhase::New, OperationPhase::Failed]);
        assert_eq!(
            decode::<BackupOperation>(&encode(&operations).unwrap()).unwrap(),
            operations
        );
        assert!(decode::<BackupOperation>(&[serde_json::json!("no operation")]).is_err());
    }

    #[test]
    fn the_phase_follows_from_the_list_and_never_gets_better() {
        use BackupPhase as P;
        use OperationPhase as O;
        let before = P::InProgress;
        let phase = |operations: &[BackupOperation], errors, before: &P| {
            let restore = RestorePhase::of(before.stage()).unwrap();
            let of_restore = phase(Counts::of_all(operations), errors, &restore).stage();
            let of_backup = phase(Counts::of_all(operations), errors, before);
            assert_eq!(of_backup.stage(), of_restore);
            of_backup
        };
        for (phases, errors, expected) in [
            (vec![O::New, O::Completed], 0, P::WaitingForPluginOperations),
            (
                vec![O::New, O::Failed],
                0,
                P::WaitingForPluginOperationsPartiallyFailed,
            ),
            (
                vec![O::InProgress],
                1,
                P::WaitingForPluginOperationsPartiallyFailed,
            ),
            (vec![O::Completed], 0, P::Finalizing),
            (
                vec![O::Completed, O::Failed],
                0,
                P::FinalizingPartiallyFailed,
            ),
            (vec![O::Completed], 1, P::FinalizingPartiallyFailed),
            (vec![], 0, P::Finalizing),
        ] {
            assert_eq!(
                phase(&operations(&phases), errors, &before),
                expected,
                "{phases:?} {errors}"
            );
        }
        // A failure that was published before stays.
        let failed = P::WaitingForPluginOperationsPartiallyFailed;
        assert_eq!(
            phase(&operations(&[O::Completed]), 0, &failed),
            P::FinalizingPartiallyFailed
        );
        // So does Finalizing.
        assert_eq!(
            phase(&operations(&[O::New]), 0, &P::Finalizing),
            P::Finalizing
        );
    }

    #[test]
    fn counts_and_errors_are_those_of_the_list() {
        let mut operations = operations(&[
            OperationPhase::Completed,
            OperationPhase::Failed,
            OperationPhase::New,
        ]);
        operations[1].status.error = "no space".into();
        operations[2].spec.resource_identifier.resource = "pods".into();
        let mut status = BackupStatus::default();
        count(&mut status, &operations);
        assert_eq!(
            (
                status.backup_item_operations_attempted,
                status.backup_item_operations_completed,
                status.backup_item_operations_failed,
                status.csi_volume_snapshots_attempted,
                status.csi_volume_snapshots_completed,
            ),
            (3, 1, 1, 2, 1)
        );
        let errors = errors(&operations);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].0.as_deref(), Some("shop"));
        assert!(
            errors[0].1.contains("shop/vs-1") && errors[0].1.ends_with("no space"),
            "{}",
            errors[0].1
        );
    }

    #[test]
    fn what_several_ask_for_is_read_once() {
        let again = read_again(&operations(&[
            OperationPhase::Completed,
            OperationPhase::Failed,
        ]));
        let names: Vec<_> = again
            .iter()
            .map(|(item, all)| (item.name.as_str(), *all))
            .collect();
        assert_eq!(names, [("vs-0", true), ("shared", false), ("vs-1", false)]);
    }
}
