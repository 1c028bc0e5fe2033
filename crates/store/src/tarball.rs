//! The tarball of a backup: paths, writing, reading.
//!
//! Velero: `pkg/backup/item_backupper.go`, `pkg/archive`, v1.18.

mod contents;
mod paths;
mod walk;
mod writer;

#[cfg(test)]
mod tests;

pub use contents::{Contents, ItemRef};
pub use paths::{Entry, ItemPath};
pub use walk::walk;
pub(crate) use writer::{Writer, now};

/// Version of the layout inside the tarball, for `status.formatVersion`.
pub const FORMAT_VERSION: &str = "1.1.0";

/// Items larger than this are refused, when writing and when reading (bytes). etcd's own limit is about 1.5 MiB.
pub(crate) const MAX_ITEM: u64 = 64 * 1024 * 1024;

/// Tarballs that unpack to more than this are refused (bytes). Velero's own cap.
pub(crate) const MAX_TOTAL: u64 = 16 * 1024 * 1024 * 1024;
