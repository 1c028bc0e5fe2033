//! Snapshots of CSI volumes in the cluster and in the storage system.

pub(crate) mod api;
pub(crate) mod backup;
pub mod delete;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod restore;
pub mod tidy;

pub use super::gated_writes::WriteGate;
pub use api::{CONTENTS, SNAPSHOTS, SnapshotApi};
