//! The data of volumes: `data_mover` moves it into repositories in the bucket and back,
//! `moved_snapshots` removes moved data that no backup needs, and `snapshot_locations` opens the
//! locations in which plugins take snapshots.

pub(crate) mod data_mover;
pub(crate) mod moved_snapshots;
pub(crate) mod snapshot_locations;
