//! What says which items belong together: they are backed up as one block, and the commands of all its pods are run around
//! all of it.
//!
//! Built-in actions and plugin processes are spoken to by the same trait, which is that of Velero's plugins
//! (`pkg/plugin/velero/itemblockaction/v1`, v1.18) in our types.

use backup_core::api::Backup;
use futures::future::BoxFuture;
use serde_json::Value;

use super::action::{ActionError, AppliesTo, ItemId};

/// An action that names what belongs to an item. It changes nothing, and may be asked again.
pub trait ItemBlockAction: Send + Sync {
    /// Its name, as `domain/name`.
    fn name(&self) -> &str;

    /// Which items it wants to see.
    fn applies_to(&self) -> &AppliesTo;

    /// Items that belong to the block of this one. It is the whole object.
    fn related<'a>(
        &'a self,
        item: &'a Value,
        backup: &'a Backup,
    ) -> BoxFuture<'a, Result<Vec<ItemId>, ActionError>>;
}
