//! What actions have started and goes on after the items are written.

use backup_actions::{ItemId, backup::BackupActionOutput};
use backup_store::StoreError;
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::job::action_journal::{self, ActionRecords, PriorAttempt};

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

/// What an action has done with an item of a backup, and when.
pub type Done = action_journal::Done<BackupActionOutput>;

/// Makes nothing durable: for items that are collected when no operation may be started any more, and for tests.
#[derive(Debug, Default)]
pub struct InMemory;

impl ActionRecords<BackupActionOutput> for InMemory {
    fn prior_attempt(&mut self, _: &str, _: &ItemId) -> Option<PriorAttempt<BackupActionOutput>> {
        None
    }

    fn begin<'a>(&'a mut self, _: &'a str, _: &'a ItemId) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn end<'a>(
        &'a mut self,
        _: &'a str,
        _: &'a ItemId,
        _: Option<&'a Done>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
