//! What may change an item on its way into a backup, and what says which items belong together.

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
    /// The item to store, if it is another one than was given.
    pub item: Option<Value>,
    /// Objects that are backed up before this item.
    pub additional: Vec<ItemId>,
    /// The id of what was started and goes on; none if nothing did.
    pub operation: Option<String>,
    /// Objects that are read again, and stored in their last form, once the operation has ended.
    pub after_operation: Vec<ItemId>,
}

/// An action on items of a backup (Velero `pkg/plugin/velero/backupitemaction/v2`).
#[async_trait]
pub trait BackupItemAction: ItemAction {
    /// Whether it may start something that cannot be found again by other means. Then it is executed once for an item, in
    /// all tries of a backup.
    fn is_executed_once(&self) -> bool {
        false
    }

    /// Looks at one item, and may change it. The item is the whole object as it would be stored.
    async fn execute(&self, item: &Value, backup: &Backup) -> Result<BackupActionOutput, ActionError>;

    /// Starts what [`Self::execute`] would wait for, of an item that comes soon. Idempotent; what goes wrong is told then.
    async fn begin(&self, _item: &Value, _: &Backup) {}

    /// Ends what was begun for items that were not executed. What stays, as sentences.
    async fn end_begun(&self) -> Vec<String> {
        Vec::new()
    }

    /// How far an operation has come. May be asked by a process that did not start it. For actions that start some.
    async fn progress(&self, operation: &str, _: &Backup) -> Result<OperationProgress, ActionError> {
        Err(no_operations(self.name(), operation))
    }

    /// Asks an operation to end. It may go on for a while. For actions that start some.
    async fn cancel(&self, operation: &str, _: &Backup) -> Result<(), ActionError> {
        Err(no_operations(self.name(), operation))
    }
}

/// An action that names what belongs to an item: these items are backed up as one block, and the commands of all its pods
/// are run around all of it (Velero `pkg/plugin/velero/itemblockaction/v1`). It changes nothing, and may be asked again.
#[async_trait]
pub trait ItemBlockAction: ItemAction {
    /// Items that belong to the block of this one, which is the whole object.
    async fn related(&self, item: &Value, backup: &Backup) -> Result<Vec<ItemId>, ActionError>;
}
