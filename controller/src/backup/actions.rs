//! The actions of one backup, and the operations that they have started.

use std::sync::Arc;

use backup_actions::{
    ActionSet, ItemId,
    backup::{self, BackupActionOutput, BackupItemAction, BackupVolumes, ItemBlockAction},
};
use backup_core::{
    api::Backup,
    operation::{BackupOperation, BackupOperationSpec, OperationStatus},
    time::whole_seconds,
};
use backup_plugins::{PluginLog, catalog::Kind};
use backup_runtime::Cluster;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::Value;

use super::Backups;
use crate::{
    discovery::ServedTypes,
    job::{
        action_journal::{self, Execution},
        operations::records,
    },
};

/// The actions of one backup, in the order in which an item passes them.
#[derive(Default)]
pub(crate) struct BackupActions {
    pub(crate) items: ActionSet<dyn BackupItemAction>,
    /// Actions that say which items belong together.
    pub(crate) blocks: ActionSet<dyn ItemBlockAction>,
    /// Messages about problems of plugins.
    pub(crate) problems: Vec<String>,
    /// Log lines of plugins while they run.
    pub(crate) log: PluginLog,
}

impl BackupActions {
    /// Loads built-in actions and actions of plugins. Actions on CSI volumes record their results
    /// in `volumes`.
    pub(crate) async fn load(
        cluster: &Cluster,
        kind: &Backups,
        served: &ServedTypes,
        volumes: &Arc<BackupVolumes>,
    ) -> Self {
        let built_in = backup::built_in(cluster, kind.settings.csi, volumes);
        let log = PluginLog::default();
        let names = built_in
            .iter()
            .map(|action| action.name().to_owned())
            .collect();
        let plugins = kind
            .plugins
            .actions(&Kind::BACKUP_ITEM, &names, Some(&log))
            .await;
        let built_in_blocks = backup::built_in_blocks(&cluster.client);
        let names = built_in_blocks
            .iter()
            .map(|action| action.name().to_owned())
            .collect();
        let block_plugins = kind
            .plugins
            .actions(&[Kind::ItemBlockAction], &names, Some(&log))
            .await;
        let item_plugins = plugins
            .usable
            .into_iter()
            .map(|action| action as _)
            .collect();
        // A binary that does not run is a problem of every kind of action that is loaded.
        let mut problems = plugins.problems;
        for problem in block_plugins.problems {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        let blocks = block_plugins.usable.into_iter().map(|action| action as _);
        let blocks = built_in_blocks.into_iter().chain(blocks);
        Self {
            items: backup::ordered(built_in, item_plugins, &|name| served.resolve(name)),
            blocks: ActionSet::new("block action", blocks, &|name| served.resolve(name)),
            problems,
            log,
        }
    }

    /// Messages about actions that are missing.
    pub(crate) fn unusable(&self) -> impl Iterator<Item = &String> {
        self.items
            .unusable
            .iter()
            .chain(&self.blocks.unusable)
            .chain(&self.problems)
    }
}

pub(crate) type ActionJournal = action_journal::ActionJournal<BackupActionOutput>;

/// The result of an action on an item of a backup, and its time.
pub(crate) type Done = action_journal::Done<BackupActionOutput>;

/// An operation that an action has started on an item, and that continues after the items are
/// written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartedOperation {
    pub(crate) action: String,
    pub(crate) item: ItemId,
    pub(crate) operation: String,
    /// Objects that are read again, and stored in their final state, once it has ended.
    pub(crate) after: Vec<ItemId>,
    pub(crate) created: Timestamp,
}

impl StartedOperation {
    /// The operation that an action has started, if any.
    pub(crate) fn new(execution: Execution, done: Done) -> Option<Self> {
        Some(Self {
            action: execution.action,
            item: execution.item,
            operation: done.executed.operation?,
            after: done.executed.after_operation,
            created: done.at,
        })
    }
}

/// Started operations of a backup that is abandoned, by the entries of its journal.
pub(crate) fn started_operations(
    backup: &Backup,
    entries: &[Value],
) -> Result<Vec<BackupOperation>, serde_json::Error> {
    let started = action_journal::started(entries)?.into_iter();
    let started = started.filter_map(|(execution, done)| StartedOperation::new(execution, done));
    Ok(begun(backup, &started.collect::<Vec<_>>()))
}

pub(crate) fn begun(backup: &Backup, started: &[StartedOperation]) -> Vec<BackupOperation> {
    started
        .iter()
        .map(|operation| backup_operation(backup, operation))
        .collect()
}

fn backup_operation(backup: &Backup, started: &StartedOperation) -> BackupOperation {
    BackupOperation {
        spec: BackupOperationSpec {
            backup_name: backup.name_any(),
            backup_uid: backup.uid().unwrap_or_default(),
            backup_item_action: started.action.clone(),
            resource_identifier: records::identifier(&started.item),
            operation_id: started.operation.clone(),
            post_operation_items: started.after.iter().map(records::identifier).collect(),
            ..BackupOperationSpec::default()
        },
        status: OperationStatus {
            created: Some(whole_seconds(started.created)),
            ..OperationStatus::default()
        },
        ..BackupOperation::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_started_is_an_operation() {
        let of = |name: &str| {
            let item = json!({ "groupResource": "configmaps", "namespace": "n", "name": name });
            json!({ "action": "x/a", "item": item })
        };
        let executed = json!({ "additional": [], "operation": "id\u{0}", "afterOperation": [] });
        let at = "2026-01-01T00:00:00.9Z";
        let entries = [
            json!({ "actionBegun": of("unknown") }),
            json!({ "actionBegun": of("started") }),
            json!({ "actionEnded": of("started"), "started": { "executed": executed, "at": at } }),
            json!({ "actionEnded": of("nothing"), "started": null }),
        ];
        let [operation] = started_operations(&Backup::default(), &entries)
            .unwrap()
            .try_into()
            .unwrap();
        let operation: BackupOperation = operation;
        assert_eq!(operation.spec.operation_id, "id\u{0}");
        assert_eq!(
            operation.status.created,
            "2026-01-01T00:00:00Z".parse().ok()
        );
    }
}
