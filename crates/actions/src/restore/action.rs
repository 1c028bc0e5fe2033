//! What may change an item on its way out of a backup, and start work that goes on after the item is restored (Velero
//! `pkg/plugin/velero/restoreitemaction/v2`).

use std::time::Duration;

use async_trait::async_trait;
use backup_core::api::Restore;
use serde::{Deserialize, Serialize};

use super::json::Object;
use crate::{
    ItemId,
    action::{ActionError, ItemAction, OperationProgress, no_operations},
};

#[derive(Clone, Copy, Debug)]
pub struct RestoreActionInput<'a> {
    /// As it would be created, but still in the namespace that it has in the backup, and without the labels of the restore.
    pub item: &'a Object,
    pub from_backup: &'a Object,
    pub restore: &'a Restore,
    /// Why the item is left to its controller, which is part of the restore and makes another one in its place.
    pub left_to_controller: Option<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreActionOutput {
    /// The item to create, if it is another one than was input.
    pub item: Option<Object>,
    /// Objects that are restored before this item, by what they are called in the backup.
    pub additional: Vec<ItemId>,
    /// Why the item is not to be restored; then nothing comes along either.
    pub skip: Option<String>,
    /// The id of what was started and goes on; none if nothing did.
    pub operation: Option<String>,
    /// Whether the item is created only once what came along is ready.
    pub wait: Option<RestoreWait>,
}

impl RestoreActionOutput {
    pub(crate) fn skipped(reason: &str) -> Self {
        Self { skip: Some(reason.to_owned()), ..Self::default() }
    }
}

/// How long an item waits for what came along with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreWait {
    /// None: as long as the controller waits for other things.
    pub limit: Option<Duration>,
}

#[async_trait]
pub trait RestoreItemAction: ItemAction {
    /// Whether it may start something that cannot be found again by other means. Then it is executed once for an item, in
    /// all tries of a restore.
    fn is_executed_once(&self) -> bool {
        false
    }

    fn may_add_items(&self) -> bool {
        true
    }

    async fn execute(&self, input: RestoreActionInput<'_>) -> Result<RestoreActionOutput, ActionError>;

    /// How far an operation has come. May be asked by a process that did not start it. For actions that start some.
    async fn progress(&self, operation: &str, _: &Restore) -> Result<OperationProgress, ActionError> {
        Err(no_operations(self.name(), operation))
    }

    /// Asks an operation to end. It may go on for a while. For actions that start some.
    async fn cancel(&self, operation: &str, _: &Restore) -> Result<(), ActionError> {
        Err(no_operations(self.name(), operation))
    }

    /// Whether objects that came along can be used. Only asked where an item waits for them.
    async fn are_ready(&self, _: &[ItemId], _: &Restore) -> Result<bool, ActionError> {
        Ok(true)
    }
}
