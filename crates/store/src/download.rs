//! The files that DownloadRequests name: their keys, and snapshots of them while work is in
//! progress.
//!
//! Velero: `GetDownloadURL` in `pkg/persistence/object_store.go`, v1.18.

use std::time::Duration;

use backup_core::api::{
    Backup, Restore,
    download_request::{DownloadTarget, DownloadTargetKind as Kind},
};
use object_store::path::Path;

use crate::{
    FoundJob, Location, StoreError,
    layout::{self, Layout},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOwner {
    Backup,
    Restore,
}

impl FileOwner {
    /// The kind of object that a target belongs to; `None` if this version does not know the
    /// target.
    pub fn of(kind: &Kind) -> Option<Self> {
        let is_of_restore = kind.is_of_restore()?;
        Some(if is_of_restore {
            Self::Restore
        } else {
            Self::Backup
        })
    }
}

/// Whether a kind of target is a log: the only file that exists while items are processed.
pub fn is_log(kind: &Kind) -> bool {
    matches!(kind, Kind::BackupLog | Kind::RestoreLog)
}

impl Layout {
    /// The key of a target. Errors: an unknown kind, or an invalid name.
    pub(crate) fn target(&self, target: &DownloadTarget) -> Result<Path, StoreError> {
        let suffix = match &target.kind {
            Kind::BackupLog | Kind::RestoreLog => layout::LOG,
            Kind::BackupContents => layout::CONTENTS,
            Kind::BackupVolumeSnapshots => layout::VOLUME_SNAPSHOTS,
            Kind::BackupItemOperations | Kind::RestoreItemOperations => layout::ITEM_OPERATIONS,
            Kind::BackupResourceList | Kind::RestoreResourceList => layout::RESOURCE_LIST,
            Kind::BackupResults | Kind::RestoreResults => layout::RESULTS,
            Kind::CsiBackupVolumeSnapshots => layout::CSI_SNAPSHOTS,
            Kind::CsiBackupVolumeSnapshotContents => layout::CSI_SNAPSHOT_CONTENTS,
            Kind::BackupVolumeInfos | Kind::RestoreVolumeInfo => layout::VOLUME_INFO,
            Kind::Unknown(kind) => {
                let message = format!(
                    "{kind:?} is not known: expected one of {}",
                    Kind::KNOWN.join(", ")
                );
                return Err(StoreError::config("spec.target.kind", message));
            }
        };
        let keys = match FileOwner::of(&target.kind) {
            Some(FileOwner::Restore) => self.restore(&target.name)?,
            _ => self.backup(&target.name)?,
        };
        Ok(keys.file(suffix))
    }
}

impl Location {
    /// A URL by which everyone who has it can read a file until `ttl` has passed. Also works if the
    /// file is missing: its reader then gets 404, which is what Velero's command line expects.
    ///
    /// Errors: [`StoreError::Config`] for an invalid target, or where no URLs can be made.
    pub async fn signed_url(
        &self,
        target: &DownloadTarget,
        ttl: Duration,
    ) -> Result<String, StoreError> {
        self.sign(&self.layout().target(target)?, ttl).await
    }

    /// A URL of a snapshot of a file, of a backup or restore of this uid that has not ended. While
    /// its operations run, the file is first written under a private key (create-only; the same
    /// bytes for the same state), which is removed with the others when the end is published;
    /// before that the last kept log is served. Returns `None` if there is no such state: then the
    /// final key counts.
    ///
    /// Errors: as for [`Self::signed_url`], and any error of reading or writing.
    pub async fn signed_url_of_snapshot(
        &self,
        target: &DownloadTarget,
        uid: &str,
        ttl: Duration,
    ) -> Result<Option<String>, StoreError> {
        let key = self.layout().target(target)?;
        if !self.can_sign() {
            return self.sign(&key, ttl).await.map(Some);
        }
        let Some(owner) = FileOwner::of(&target.kind) else {
            return Ok(None);
        };
        let found = match owner {
            FileOwner::Backup => match self.find_job::<Backup>(&target.name, uid).await? {
                FoundJob::Awaiting(awaiting) => awaiting.file(&key)?,
                FoundJob::Committed(_) | FoundJob::Stored(_) => return Ok(None),
                FoundJob::Nothing => None,
            },
            FileOwner::Restore => match self.find_job::<Restore>(&target.name, uid).await? {
                FoundJob::Awaiting(awaiting) => awaiting.file(&key)?,
                FoundJob::Committed(_) | FoundJob::Stored(_) => return Ok(None),
                FoundJob::Nothing => None,
            },
        };
        let snapshot = match found {
            Some((snapshot, bytes)) => {
                self.put_new(&snapshot, bytes).await?;
                Some(snapshot)
            }
            None => self.log_snapshot(owner, target, uid).await?,
        };
        match snapshot {
            Some(snapshot) => self.sign(&snapshot, ttl).await.map(Some),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{memory, target};

    #[test]
    fn every_kind_has_an_owner_and_a_key_in_its_folder() {
        let layout = Layout::new("p").unwrap();
        let mut keys = std::collections::BTreeSet::new();
        for kind in Kind::KNOWN {
            let key = layout.target(&target((*kind).into())).unwrap().to_string();
            let folder = match FileOwner::of(&(*kind).into()) {
                Some(FileOwner::Backup) => "p/backups/b/",
                Some(FileOwner::Restore) => "p/restores/b/",
                None => panic!("{kind} has no owner"),
            };
            assert!(
                kind.contains("Restore") == folder.contains("restores"),
                "{kind}"
            );
            assert!(key.starts_with(folder), "{kind}: {key}");
            assert!(keys.insert(key), "{kind} has the key of another");
        }
        assert_eq!(FileOwner::of(&"Tomorrow".into()), None);
        let error = layout
            .target(&target("Tomorrow".into()))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("spec.target.kind") && error.contains("BackupLog"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_name_that_is_none_opens_nothing() {
        let location = memory("p");
        for name in ["../restores/x", "", "a/b", "a?b"] {
            let target = DownloadTarget {
                name: name.to_owned(),
                ..target(Kind::BackupLog)
            };
            let error = location
                .signed_url(&target, Duration::from_secs(1))
                .await
                .unwrap_err();
            assert!(
                error.to_string().starts_with("metadata.name"),
                "{name:?}: {error}"
            );
        }
    }
}
