//! What actions have started and goes on after the items are written.

use backup_store::StoreError;
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::backup::action::ItemId;

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

/// Told of operations as they come to be, so that they can be made durable: whoever takes a backup over must know what
/// was started before.
pub trait Operations: Send {
    /// An action is about to see an item, and may start something. An error keeps it from being executed, and ends the
    /// collection.
    fn intended<'a>(&'a mut self, action: &'a str, item: &'a ItemId)
    -> BoxFuture<'a, Result<(), StoreError>>;

    /// It has started something. An error ends the collection.
    fn started<'a>(&'a mut self, operation: &'a StartedOperation) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Makes nothing durable: for actions whose operations can be found again by other means, and for tests.
#[derive(Debug, Default)]
pub struct InMemory;

impl Operations for InMemory {
    fn intended<'a>(&'a mut self, _: &'a str, _: &'a ItemId) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn started<'a>(&'a mut self, _: &'a StartedOperation) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
