//! Reads what a request is about: the backup, the restore, and the store with their files.

use std::time::Duration;

use backup_client::errors::found;
use backup_core::{
    api::{Backup, DownloadRequest, Restore, RestorePhase, download_request::DownloadTarget},
    labels::{READ_FROM_ANNOTATION, annotation},
};
use backup_store::{FileOwner, Location};
use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::sync::Semaphore;

use super::{DownloadContext, recent::RecentValues};
use crate::{
    error::ReconcileError,
    location::{LocationError, is_read_only},
};

/// Maximum age of what is known of a backup, a restore or a location.
const CACHE_TTL: Duration = Duration::from_secs(1);
/// Maximum number of snapshots of growing files that are read concurrently: each is in memory as a
/// whole.
const MAX_CONCURRENT_SNAPSHOTS: usize = 2;

pub(super) struct DownloadController {
    pub(super) ctx: DownloadContext,
    backups: RecentValues<Option<Subject>>,
    restores: RecentValues<Option<(Subject, String)>>,
    stores: RecentValues<OpenStore>,
    pub(super) snapshot_permits: Semaphore,
}

/// The fields of a backup or restore that are needed here.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Subject {
    pub(super) uid: String,
    /// Its operations still run, so its files are not under their final keys.
    pub(super) waits: bool,
    /// Its phase, for messages.
    pub(super) phase: String,
    /// Whether it has ended.
    pub(super) over: bool,
    pub(super) started: Option<Timestamp>,
    /// Why it has failed; only of restores, whose files may belong to another restore of the name.
    pub(super) failure: Option<String>,
    /// Name of the location of its files. Not set for all backups, and only for restores that read a
    /// copy of their backup.
    location: Option<String>,
}

#[derive(Clone)]
struct OpenStore {
    store: Location,
    read_only: bool,
}

/// A file that a client wants.
pub(super) struct WantedFile {
    /// Name of its location.
    pub(super) location: String,
    pub(super) store: Location,
    /// Whether nothing may be written there.
    pub(super) read_only: bool,
    /// The backup or restore of the file.
    pub(super) of: Subject,
}

impl DownloadController {
    pub(super) fn new(ctx: DownloadContext) -> Self {
        Self {
            ctx,
            backups: RecentValues::new(CACHE_TTL),
            restores: RecentValues::new(CACHE_TTL),
            stores: RecentValues::new(CACHE_TTL),
            snapshot_permits: Semaphore::new(MAX_CONCURRENT_SNAPSHOTS),
        }
    }

    pub(super) async fn request(&self, name: &str) -> Result<Option<DownloadRequest>, kube::Error> {
        found(self.ctx.cluster.api().get(name).await, name)
    }

    /// The file of a target, if the Backup or Restore has this uid.
    pub(super) async fn wanted_of(
        &self,
        uid: &str,
        target: &DownloadTarget,
    ) -> Result<WantedFile, ReconcileError> {
        let wanted = self.wanted_by_name(target).await?;
        if wanted.of.uid == uid {
            return Ok(wanted);
        }
        let name = &target.name;
        Err(ReconcileError::Impossible(format!(
            "{name} is not the one that was asked for: another one has its name now"
        )))
    }

    pub(super) async fn wanted_by_name(
        &self,
        target: &DownloadTarget,
    ) -> Result<WantedFile, ReconcileError> {
        let Some(owner) = FileOwner::of(&target.kind) else {
            let kind = target.kind.as_str();
            return Err(ReconcileError::Impossible(format!(
                "spec.target.kind {kind:?} is not known"
            )));
        };
        let (backup, of) = match owner {
            FileOwner::Backup => (target.name.clone(), None),
            FileOwner::Restore => {
                let (restore, backup) = self.restore(&target.name).await?;
                (backup, Some(restore))
            }
        };
        let found = self
            .backups
            .get(&backup, || self.read_backup(&backup))
            .await?;
        let Some(found) = found else {
            let of = of
                .map(|_| format!(", which restore {} is from", target.name))
                .unwrap_or_default();
            return Err(ReconcileError::Impossible(format!(
                "backup {backup}{of} not found in namespace {}: check the name with kubectl get backups.velero.io",
                self.ctx.cluster.namespace
            )));
        };
        let read_from = of.as_ref().and_then(|restore| restore.location.as_ref());
        let location = match read_from.or(found.location.as_ref()) {
            Some(name) => name.clone(),
            // A backup that never began has none; then the client learns from the store that there
            // is no such file.
            None => self.ctx.locations.default_location().await?,
        };
        let OpenStore { store, read_only } =
            self.stores.get(&location, || self.open(&location)).await?;
        Ok(WantedFile {
            location,
            store,
            read_only,
            of: of.unwrap_or(found),
        })
    }

    async fn restore(&self, name: &str) -> Result<(Subject, String), ReconcileError> {
        let restore = self.restores.get(name, || self.read_restore(name)).await?;
        let Some((restore, backup)) = restore else {
            return Err(ReconcileError::Impossible(format!(
                "restore {name} not found in namespace {}: check the name with kubectl get restores.velero.io",
                self.ctx.cluster.namespace
            )));
        };
        if backup.is_empty() {
            return Err(ReconcileError::Impossible(format!(
                "restore {name} has not begun: it has chosen no backup yet, so there are no files of it"
            )));
        }
        Ok((restore, backup))
    }

    async fn read_restore(&self, name: &str) -> Result<Option<(Subject, String)>, kube::Error> {
        let restore = found(self.ctx.cluster.api::<Restore>().get(name).await, name)?;
        Ok(restore.map(|restore| {
            (
                of_restore(&restore),
                restore.spec.backup_name.unwrap_or_default(),
            )
        }))
    }

    async fn read_backup(&self, name: &str) -> Result<Option<Subject>, kube::Error> {
        let backup = found(self.ctx.cluster.api::<Backup>().get(name).await, name)?;
        Ok(backup.map(|backup| of_backup(&backup)))
    }

    async fn open(&self, name: &str) -> Result<OpenStore, LocationError> {
        let (location, store) = self.ctx.locations.open(name).await?;
        Ok(OpenStore {
            store,
            read_only: is_read_only(&location),
        })
    }
}

fn of_backup(backup: &Backup) -> Subject {
    let location = backup
        .spec
        .storage_location
        .clone()
        .filter(|name| !name.is_empty());
    Subject {
        uid: backup.uid().unwrap_or_default(),
        waits: backup.phase().is_past_items(),
        phase: backup.phase().to_string(),
        over: backup.phase().is_terminal(),
        started: backup.status.start_timestamp.as_ref().map(|time| time.0),
        failure: None,
        location,
    }
}

fn of_restore(restore: &Restore) -> Subject {
    // A failed restore may have found the files of another one under its own keys; only its reason
    // is of use.
    let failure = matches!(
        restore.phase(),
        RestorePhase::Failed | RestorePhase::FailedValidation
    )
    .then(|| {
        let status = &restore.status;
        let reasons = status
            .failure_reason
            .iter()
            .chain(&status.validation_errors);
        reasons.cloned().collect::<Vec<_>>().join("; ")
    });
    Subject {
        uid: restore.uid().unwrap_or_default(),
        waits: restore.phase().is_past_items(),
        phase: restore.phase().to_string(),
        over: restore.phase().is_terminal(),
        started: restore.status.start_timestamp.as_ref().map(|time| time.0),
        failure,
        location: annotation(restore, READ_FROM_ANNOTATION).map(str::to_owned),
    }
}
