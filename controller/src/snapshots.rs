//! Snapshots of volumes that plugins take ("native" ones, Velero's VolumeSnapshotter): in which locations, by whom. What
//! they are taken for is with the backup (`backup::volume_snapshots`), the restore and the deletion.

pub mod choose;
pub mod location;
pub mod zone;

pub use location::{LocationError, open};
