//! What may change an item on its way out of a backup, and start work that goes on after the item is restored.
//!
//! Built-in actions and plugin processes are spoken to by the same trait, which is that of Velero's plugins
//! (`pkg/plugin/velero/restoreitemaction/v2`, v1.18) in our types.

use std::{future::ready, time::Duration};

use backup_core::api::Restore;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::json::Object;
use crate::{
    backup::action::{ActionError, AppliesTo, ItemId, OperationProgress, starts_none},
    operations::executing::Outcome,
};

/// An item that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// As it would be created, but still in the namespace that it has in the backup, and without the labels of the restore.
    pub item: &'a Object,
    /// As the backup has it.
    pub from_backup: &'a Object,
    /// The Restore.
    pub restore: &'a Restore,
}

/// What an action did with an item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Executed {
    /// The item to create, if it is another one than was given.
    pub item: Option<Object>,
    /// Objects that are restored before this item, by what they are called in the backup.
    pub additional: Vec<ItemId>,
    /// Why the item is not to be restored; then nothing comes along either.
    pub skip: Option<String>,
    /// The id of what was started and goes on; none if nothing did.
    pub operation: Option<String>,
    /// Whether the item is created only once what came along is ready.
    pub wait: Option<Wait>,
}

/// How long an item waits for what came along with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// None: as long as the controller waits for other things.
    pub limit: Option<Duration>,
}

impl Outcome for Executed {
    fn operation(&self) -> Option<&str> {
        self.operation.as_deref()
    }
}

/// An action on items of a restore.
pub trait RestoreItemAction: Send + Sync {
    /// Its name, as `domain/name`.
    fn name(&self) -> &str;

    /// Which items it wants to see. Namespaces are those that items are restored into.
    fn applies_to(&self) -> &AppliesTo;

    /// Whether it may start something that nobody can find again by other means. Then it is executed once for an item, in
    /// all tries of a restore.
    fn is_executed_once(&self) -> bool {
        false
    }

    /// Whether it may ask for other objects.
    fn may_bring(&self) -> bool {
        false
    }

    /// Looks at one item, and may change it.
    fn execute<'a>(&'a self, given: Given<'a>) -> BoxFuture<'a, Result<Executed, ActionError>>;

    /// How far an operation has come. May be asked by a process that did not start it. For actions that start some.
    fn progress<'a>(
        &'a self,
        operation: &'a str,
        _: &'a Restore,
    ) -> BoxFuture<'a, Result<OperationProgress, ActionError>> {
        Box::pin(ready(Err(starts_none(self.name(), operation))))
    }

    /// Asks an operation to end. It may go on for a while. For actions that start some.
    fn cancel<'a>(&'a self, operation: &'a str, _: &'a Restore) -> BoxFuture<'a, Result<(), ActionError>> {
        Box::pin(ready(Err(starts_none(self.name(), operation))))
    }

    /// Whether objects that came along can be used. Only asked where an item waits for them.
    fn are_ready<'a>(&'a self, _: &'a [ItemId], _: &'a Restore) -> BoxFuture<'a, Result<bool, ActionError>> {
        Box::pin(ready(Ok(true)))
    }
}
