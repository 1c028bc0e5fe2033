//! The object-store layout: keys, formats, and the only code that knows the order of writes.
//!
//! A [`Location`] is an opened BackupStorageLocation: one of `object_store`'s stores, or a plugin
//! of Velero's kind ([`ObjectPlugin`]). The types from [`Location::open_backup`] over
//! [`PendingUpload`] to [`CommittedPlan`] allow only the order of writes described in `job`.
//! [`Location::read_contents`] reads the items back.
//!
//! The layout is Velero's (`pkg/persistence/object_store_layout.go`, v1.18); only keys under the
//! `.private/` of a backup or restore are ours.
#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
extern crate backup_testkit;

mod backup;
pub mod crash;
mod digests;
mod download;
mod error;
mod file_at;
mod gzip;
mod http_failure;
mod job;
mod layout;
mod listed_names;
mod location;
mod logfile;
mod object_plugin;
mod piece_hasher;
mod reading;
mod resource_list;
mod restore;
mod staging;
pub mod tarball;
mod throttle;
mod upload;
pub mod verification;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod testing;

pub use backup_core::results::{ResultSet, Results, Scope};

pub use backup::{Abandonment, AwaitingBackup, BackupWriter, CommittedBackup, PendingBackup};
pub use download::{FileOwner, is_log};
pub use error::{AnswerClass, StoreError};
pub use job::{
    AwaitingOperations, Claimant, CommittedPlan, EntryPosition, FoundJob, JobFiles, Journal,
    PendingUpload, StoredJob,
};
pub use layout::is_snapshot_id;
pub use listed_names::{ListedNames, UnlistedItems};
pub use location::{
    AllowedPlaces, BUILT_IN, BackupFolder, CopiedFile, CopyNote, DeletedBackup, IncompleteBackup,
    Location, PendingCopy, Regions, Remnant, RetainedVersions, SavedVolumes, SideFile,
    SnapshotNote, bucket_and_prefix, check_settings, is_built_in, plugin_of,
};
pub use logfile::LogFile;
pub use object_plugin::{Body, Fault, ObjectPlugin, PluginFault};
pub use reading::{FileIdentity, LookupResult, StoredFile};
pub use resource_list::ResourceList;
pub use restore::{AwaitingRestore, CommittedRestore, PendingRestore, RestoreEnd};
pub use tarball::{Contents, ItemPath, ItemRef, Limits};
pub use throttle::Throttle;
