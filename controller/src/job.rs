//! What Backups and Restores have in common on their way from admission to their end.

pub(crate) mod action_journal;
pub(crate) mod cancellation;
pub(crate) mod journal;
pub(crate) mod log_upload;
pub(crate) mod operations;
