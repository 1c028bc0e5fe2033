//! The data of volumes: `data_mover` moves it into repositories in the bucket and back,
//! `moved_snapshots` removes the moved data of a backup, and `snapshot_locations` opens the
//! plugins that take snapshots.

pub(crate) mod data_mover;
pub(crate) mod moved_snapshots;
pub(crate) mod snapshot_locations;
