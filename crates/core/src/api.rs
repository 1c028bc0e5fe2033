//! The `velero.io` API: one file per kind, and one for the four kinds of transfers.
//!
//! Field names, enums and required fields are Velero's (`pkg/apis/velero/v1`, v1.18), so that
//! manifests and buckets can be exchanged. Fields that this version does not know are kept in
//! `extra` and written back.

pub mod backup;
pub mod backup_repository;
pub mod backup_storage_location;
pub mod common;
pub mod crd;
pub mod delete_backup_request;
pub mod download_request;
pub mod drill;
pub mod duration;
pub(crate) mod go_json;
pub mod kind;
pub mod restore;
pub mod schedule;
pub mod server_status_request;
pub mod transfer;
pub mod volume_snapshot_location;

pub use backup::{Backup, BackupPhase, BackupSpec, BackupStatus};
pub use backup_repository::BackupRepository;
pub use backup_storage_location::{
    AccessMode, BackupStorageLocation, BackupStorageLocationSpec, BackupStorageLocationStatus,
    LocationPhase,
};
pub use delete_backup_request::{DeleteBackupRequest, DeleteBackupRequestPhase};
pub use download_request::DownloadRequest;
pub use drill::{DrillSettings, DrillSpec};
pub use duration::GoDuration;
pub use go_json::{Extra, null_default};
pub use kind::{GROUP, NamespacedKind, VeleroKind};
pub use restore::{Restore, RestorePhase, RestoreSpec, RestoreStatus};
pub use schedule::Schedule;
pub use server_status_request::ServerStatusRequest;
pub use transfer::{DataDownload, DataUpload, PodVolumeBackup, PodVolumeRestore};
pub use volume_snapshot_location::VolumeSnapshotLocation;

#[cfg(test)]
mod tests;
