//! Snapshots of volumes that plugins take ("native" ones, Velero's VolumeSnapshotter): in which locations, by whom. What
//! they are taken for is with the backup (`backup::natives`), the restore and the deletion.

pub mod choose;
pub mod location;
pub mod zone;

pub use location::{LocationError, open};
