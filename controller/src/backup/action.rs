//! What may change an item on its way into a backup, and start work that goes on after the item is written.
//!
//! Built-in actions and plugin processes are spoken to by the same trait, which is that of Velero's plugins
//! (`pkg/plugin/velero/backupitemaction/v2`, v1.18) in our types.

use std::future::ready;

use backup_core::api::Backup;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An object by its type and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemId {
    /// `plural`, or `plural.group`.
    pub group_resource: String,
    /// None for a cluster-scoped object.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// Which items an action wants to see. Empty lists select everything; an exclude beats an include.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliesTo {
    /// Resources, as people write them (`pods`, `deployments.apps`, globs).
    pub included_resources: Vec<String>,
    /// Resources to leave out.
    pub excluded_resources: Vec<String>,
    /// Namespaces; items without a namespace are not filtered by it.
    pub included_namespaces: Vec<String>,
    /// Namespaces to leave out.
    pub excluded_namespaces: Vec<String>,
    /// A label selector as text; empty selects everything.
    pub label_selector: String,
}

/// What an action did with an item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Executed {
    /// The item to store, if it is another one than was given.
    pub item: Option<Value>,
    /// Objects that are backed up before this item.
    pub additional: Vec<ItemId>,
    /// The id of what was started and goes on; none if nothing did.
    pub operation: Option<String>,
    /// Objects that are read again, and stored in their last form, once the operation has ended.
    pub after_operation: Vec<ItemId>,
}

/// How far an operation has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationProgress {
    /// Whether it has ended.
    pub completed: bool,
    /// Why it failed; empty if it did not.
    pub error: String,
    /// Units done, and in all.
    pub done: i64,
    /// See `done`.
    pub total: i64,
    /// What a unit is, for people.
    pub units: String,
    /// For people.
    pub description: String,
    /// When it began, and when this was last true.
    pub started: Option<jiff::Timestamp>,
    /// See `started`.
    pub updated: Option<jiff::Timestamp>,
}

/// Why an action could not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// It may pass: no answer in time, a process that ended, an API server that is away.
    #[error("{action}: {reason}")]
    Passing {
        /// Name of the action.
        action: String,
        /// What happened.
        reason: String,
    },
    /// Nobody knows how far it came: it may have done its work, or go on with it.
    #[error("{action}: {reason}; whether it has started something is not known")]
    Unknown {
        /// Name of the action.
        action: String,
        /// What happened.
        reason: String,
    },
    /// It will not pass by itself: no such action, operation or method, or the action refuses.
    #[error("{action}: {reason}")]
    Final {
        /// Name of the action.
        action: String,
        /// What happened.
        reason: String,
    },
}

/// An action on items of a backup.
pub trait BackupItemAction: Send + Sync {
    /// Its name, as `domain/name`.
    fn name(&self) -> &str;

    /// Which items it wants to see.
    fn applies_to(&self) -> &AppliesTo;

    /// Whether it may start something that nobody can find again by other means. Then it is executed once for an item, in
    /// all tries of a backup.
    fn is_executed_once(&self) -> bool {
        false
    }

    /// Looks at one item, and may change it. The item is the whole object as it would be stored.
    fn execute<'a>(
        &'a self,
        item: &'a Value,
        backup: &'a Backup,
    ) -> BoxFuture<'a, Result<Executed, ActionError>>;

    /// How far an operation has come. May be asked by a process that did not start it. For actions that start some.
    fn progress<'a>(
        &'a self,
        operation: &'a str,
        _: &'a Backup,
    ) -> BoxFuture<'a, Result<OperationProgress, ActionError>> {
        Box::pin(ready(Err(starts_none(self.name(), operation))))
    }

    /// Asks an operation to end. It may go on for a while. For actions that start some.
    fn cancel<'a>(&'a self, operation: &'a str, _: &'a Backup) -> BoxFuture<'a, Result<(), ActionError>> {
        Box::pin(ready(Err(starts_none(self.name(), operation))))
    }
}

/// The answer of an action that never starts an operation.
pub fn starts_none(action: &str, operation: &str) -> ActionError {
    ActionError::Final {
        action: action.to_owned(),
        reason: format!("it starts no operations, so it does not know {operation:?}"),
    }
}
