//! What a pass over one location uses.

use std::time::Duration;

use backup_core::api::{Backup, BackupStorageLocation};
use backup_runtime::{Cluster, errors::found, retry};
use backup_store::Location;
use kube::{Api, ResourceExt as _};
use tokio_util::sync::CancellationToken;

use super::skip_cache::Skip;
use crate::{error::ReconcileError, location::Locations, recent_deletions::RecentDeletions};

/// How long one request to the API server is tried for.
pub(super) const READ_BUDGET: Duration = Duration::from_secs(10);

pub(super) struct Pass<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) locations: &'a Locations,
    pub(super) deletions: &'a RecentDeletions,
    pub(super) incomplete_ttl: Duration,
    pub(super) stop: &'a CancellationToken,
    /// As it was when the pass began.
    pub(super) location: &'a BackupStorageLocation,
    pub(super) store: &'a Location,
    /// When the pass began, on the monotonic clock.
    pub(super) began: Duration,
}

impl Pass<'_> {
    /// The location as it is now; an error if it points elsewhere or is gone.
    pub(super) async fn current_location(&self) -> Result<BackupStorageLocation, ReconcileError> {
        let name = self.location.name_any();
        let now = retry::read(READ_BUDGET, || self.locations.find(&name)).await?;
        let same = |now: &BackupStorageLocation| {
            now.metadata.uid == self.location.metadata.uid && now.spec == self.location.spec
        };
        now.filter(same).ok_or_else(location_changed)
    }

    pub(super) async fn backup(&self, name: &str) -> Result<Option<Backup>, kube::Error> {
        let api: Api<Backup> = self.cluster.api();
        found(retry::read(READ_BUDGET, || api.get(name)).await, name)
    }

    /// Whether there is a Backup of this name, also one that cannot be decoded.
    pub(super) async fn backup_exists(&self, name: &str) -> Result<bool, kube::Error> {
        let api: Api<Backup> = self.cluster.api();
        Ok(found(retry::read(READ_BUDGET, || api.get_metadata(name)).await, name)?.is_some())
    }
}

pub(super) fn location_changed() -> ReconcileError {
    let why = "the location was changed meanwhile; the rest is looked at in the next pass";
    ReconcileError::Changed(why.to_owned())
}

/// What became of one folder that is not in the cluster.
pub(super) enum FolderOutcome {
    Created,
    Skipped(Skip),
    /// Nothing to report: it has come into the cluster another way, or left the bucket.
    Settled,
    /// It held no backup, and was removed from the bucket: a sentence.
    Pruned(String),
    /// It could not be read or created now: a sentence.
    Failed(String),
}
