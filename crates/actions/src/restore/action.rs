//! Actions that may change an item before it is restored, and start operations that continue
//! afterwards (Velero `pkg/plugin/velero/restoreitemaction/v2`).

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
    /// The item as it would be created, but still in its original namespace, and without the labels
    /// of the restore.
    pub item: &'a Object,
    pub from_backup: &'a Object,
    pub restore: &'a Restore,
    /// Why the item is left to its controller, which is also restored and creates a replacement.
    pub left_to_controller: Option<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreActionOutput {
    /// The item to create, if the action has changed it.
    pub item: Option<Object>,
    /// Objects that are restored before this item, by their names in the backup.
    pub additional: Vec<ItemId>,
    /// Why the item must not be restored; then no related items are added either.
    pub skip: Option<String>,
    /// The id of the started operation; `None` if none was started.
    pub operation: Option<String>,
    /// Whether the item is created only once its additional items are ready.
    pub wait: Option<RestoreWait>,
}

impl RestoreActionOutput {
    pub(crate) fn skipped(reason: &str) -> Self {
        Self {
            skip: Some(reason.to_owned()),
            ..Self::default()
        }
    }
}

/// How long an item waits for its additional items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreWait {
    /// `None`: the controller's timeout for other resources.
    pub limit: Option<Duration>,
}

#[async_trait]
pub trait RestoreItemAction: ItemAction {
    /// Whether it may start something that cannot be found again by other means. Then it is
    /// executed once for an item, across all attempts of a restore.
    fn is_executed_once(&self) -> bool {
        false
    }

    fn may_add_items(&self) -> bool {
        true
    }

    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError>;

    /// Progress of an operation, for actions that start some. Also called by processes that did not
    /// start it.
    async fn progress(
        &self,
        operation: &str,
        _: &Restore,
    ) -> Result<OperationProgress, ActionError> {
        Err(no_operations(self.name(), operation))
    }

    /// Asks an operation to end, for actions that start some. It may continue for a while.
    async fn cancel(&self, operation: &str, _: &Restore) -> Result<(), ActionError> {
        Err(no_operations(self.name(), operation))
    }

    /// Whether additional items can be used. Only called if an item waits for them.
    async fn are_ready(&self, _: &[ItemId], _: &Restore) -> Result<bool, ActionError> {
        Ok(true)
    }
}
