//! What actions have started and goes on after the items are written.

use backup_store::StoreError;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::backup::action::{Executed, ItemId};

/// An operation that an action has started on an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedOperation {
    /// Name of the action.
    pub action: String,
    /// The item.
    pub item: ItemId,
    /// What the action calls it.
    pub operation: String,
    /// Objects that are read again, and stored in their last form, once it has ended.
    pub after: Vec<ItemId>,
    /// When the action told of it.
    pub created: Timestamp,
}

/// What an action has done with an item, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// What it has done.
    pub executed: Executed,
    /// When it said so.
    pub at: Timestamp,
}

/// What is known of an action on an item from an earlier try of the same backup.
#[derive(Clone, Debug, PartialEq)]
pub enum Earlier {
    /// It was executed, and nobody knows what came of it.
    Unknown,
    /// It has started an operation, which goes on.
    Started(Box<Done>),
}

/// Told of actions that start what can't be found again by other means, so that it is durable: whoever takes a backup over
/// must know what was started before.
pub trait Operations: Send {
    /// What an earlier try has made of an action on an item; none if it may be executed. Asked once for each.
    fn earlier(&mut self, action: &str, item: &ItemId) -> Option<Earlier>;

    /// An action is about to see an item, and may start something. An error keeps it from being executed, and ends the
    /// collection.
    fn intended<'a>(&'a mut self, action: &'a str, item: &'a ItemId)
    -> BoxFuture<'a, Result<(), StoreError>>;

    /// It has ended, and has started something or not. An error ends the collection.
    fn ended<'a>(
        &'a mut self,
        action: &'a str,
        item: &'a ItemId,
        started: Option<&'a Done>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Makes nothing durable: for items that are collected when no operation may be started any more, and for tests.
#[derive(Debug, Default)]
pub struct InMemory;

impl Operations for InMemory {
    fn earlier(&mut self, _: &str, _: &ItemId) -> Option<Earlier> {
        None
    }

    fn intended<'a>(&'a mut self, _: &'a str, _: &'a ItemId) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn ended<'a>(
        &'a mut self,
        _: &'a str,
        _: &'a ItemId,
        _: Option<&'a Done>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
