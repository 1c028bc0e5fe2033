//! The tarball of a backup: paths, writing, reading.
//!
//! Velero: `pkg/backup/item_backupper.go`, `pkg/archive`, v1.18.

mod contents;
mod paths;
mod places;
mod walk;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use contents::Download;
pub use contents::{Contents, ItemRef, decoded};
pub use paths::{Entry, ItemPath};
pub use places::{Member, Place, places};
pub use walk::walk;
pub(crate) use writer::{Writer, now};

/// Version of the layout inside the tarball, for `status.formatVersion`.
pub const FORMAT_VERSION: &str = "1.1.0";

/// Items larger than this are refused, when writing and when reading (bytes). etcd's own limit is
/// about 1.5 MiB.
pub(crate) const MAX_ITEM: u64 = 64 * 1024 * 1024;

/// Tarballs that unpack to more than this are refused (bytes). Velero's own cap.
pub const MAX_TOTAL: u64 = 16 * 1024 * 1024 * 1024;

/// Limits on a tarball for a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of items. Each takes about 60 bytes of memory during the restore.
    pub items: usize,
    /// Unpacked size (bytes), which is the most that is written to local disk.
    pub bytes: u64,
    /// Memory that one decoded item may take (bytes).
    pub item_memory: u64,
}

impl Limits {
    /// For a program that serves one user: the maximum number of items that can be indexed, of any
    /// size.
    pub const LOOSE: Self = Self {
        items: u32::MAX as usize,
        bytes: MAX_TOTAL,
        item_memory: u64::MAX,
    };

    /// For archives made by the writer.
    pub const DEFAULT: Self = Self {
        items: 1_000_000,
        bytes: MAX_TOTAL,
        item_memory: 32 * 1024 * 1024,
    };
}
