//! What acts on volumes in backups and restores: their outcomes, and snapshots of CSI volumes.

pub(crate) mod backup_uploads;
pub(crate) mod backup_volumes;
pub mod csi;
mod gated_writes;
pub(crate) mod moved;
pub(crate) mod restored_volumes;
mod transfer_progress;
pub(crate) mod transfers;
