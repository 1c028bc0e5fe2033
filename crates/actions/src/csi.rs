//! Snapshots of CSI volumes in the cluster and in the storage system.

pub(crate) mod api;
pub mod delete;
#[cfg(test)]
pub(crate) mod fake;
pub mod tidy;

pub use api::{SNAPSHOTS, SnapshotApi, WriteGate};
