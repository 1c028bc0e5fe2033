//! Writing a backup: the one place that knows the order.
//!
//! [`crate::Location::open_backup`] → [`BackupWriter`] (items) → [`Collected`] (everything is in the store or in hand, and
//! nothing is visible) → [`Decided`] (a private record says what each final key will hold) → the final keys, contents
//! first and metadata last. Each step consumes or needs the one before it. Whoever finds the record writes the same
//! bytes, so every final key is written once, by however many processes.
//!
//! A backup whose operations go on after its items were collected is kept by a record, too: [`Waiting`].

mod claim;
mod collected;
mod decided;
mod files;
mod find;
pub(crate) mod record;
mod waiting;
mod writer;

#[cfg(test)]
mod tests;

pub use collected::Collected;
pub use decided::Decided;
pub use files::BackupFiles;
pub use find::Found;
pub use waiting::Waiting;
pub use writer::BackupWriter;
