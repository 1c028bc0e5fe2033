//! Writing a backup: the one place that knows the order.
//!
//! [`crate::Location::open_backup`] → [`BackupWriter`] (items) → [`ContentsDone`] (other files, then metadata). Each step
//! consumes or needs the one before it, so contents can't come after side files nor metadata before either.

mod claim;
mod done;
mod writer;

#[cfg(test)]
mod tests;

pub use done::{BackupFiles, ContentsDone};
pub use writer::BackupWriter;
