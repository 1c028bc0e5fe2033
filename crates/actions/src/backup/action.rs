//! Actions that may change an item of a backup, and actions that name related items.

use async_trait::async_trait;
use backup_core::api::Backup;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ItemId,
    action::{ActionError, ItemAction, OperationProgress, no_operations},
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupActionOutput {
    /// The item to store, if the action has changed it.
    pub item: Option<Value>,
    /// Objects that are backed up before this item.
    pub additional: Vec<ItemId>,
    /// The id of the started operation; `None` if none was started.
    pub operation: Option<String>,
    /// Objects that are read again and stored in their final form once the operation has ended.
    pub after_operation: Vec<ItemId>,
}

/// An action on items of a backup (Velero `pkg/plugin/velero/backupitemaction/v2`).
#[async_trait]
pub trait BackupItemAction: ItemAction {
    /// Whether it may start something that cannot be found again by other means. Then it is
    /// executed once for an item, across all attempts of a backup.
    fn is_executed_once(&self) -> bool {
        false
    }

    /// Processes one item, and may change it. The item is the whole object as it would be stored.
    async fn execute(
        &self,
        item: &Value,
        backup: &Backup,
    ) -> Result<BackupActionOutput, ActionError>;

    /// Starts in advance the work of [`Self::execute`] for an item that comes soon. Idempotent;
    /// errors are reported by [`Self::execute`].
    async fn begin(&self, _item: &Value, _: &Backup) {}

    /// Cancels work that was begun for items that were not executed. Returns what could not be
    /// removed, as sentences.
    async fn end_begun(&self) -> Vec<String> {
        Vec::new()
    }

    /// Progress of an operation, for actions that start some. Also called by processes that did not
    /// start it.
    async fn progress(
        &self,
        operation: &str,
        _: &Backup,
    ) -> Result<OperationProgress, ActionError> {
        Err(no_operations(self.name(), operation))
    }

    /// Asks an operation to end, for actions that start some. It may continue for a while.
    async fn cancel(&self, operation: &str, _: &Backup) -> Result<(), ActionError> {
        Err(no_operations(self.name(), operation))
    }
}

/// An action that names items related to an item: these items are backed up as one block, with the
/// commands of all its pods before and after the whole block (Velero
/// `pkg/plugin/velero/itemblockaction/v1`). It changes nothing, and may be called again.
#[async_trait]
pub trait ItemBlockAction: ItemAction {
    /// Items that belong to the block of this item, which is the whole object.
    async fn related(&self, item: &Value, backup: &Backup) -> Result<Vec<ItemId>, ActionError>;
}
