//! Writes a backup: first the items, then the steps of [`crate::job`].

mod abandon;
mod open;
mod writer;

#[cfg(test)]
mod tests;

use backup_core::api::{Backup, BackupPhase};
use object_store::path::Path;

use crate::{
    Location, StoreError, crash,
    digests::FileDigests,
    job::{AwaitingOperations, CommittedPlan, PendingUpload, StoredJob},
    layout::{
        ITEM_OPERATIONS, JobKeys, LOG, Layout, POD_VOLUME_BACKUPS, RESOURCE_LIST, RESULTS,
        VOLUME_INFO, VOLUME_SNAPSHOTS,
    },
    staging::StagedObject,
};

pub use abandon::Abandonment;
pub use writer::BackupWriter;
pub(crate) use writer::note_number;

pub type PendingBackup = PendingUpload<Backup>;
pub type CommittedBackup = CommittedPlan<Backup>;
pub type AwaitingBackup = AwaitingOperations<Backup>;

impl StoredJob for Backup {
    type Outcome = Backup;
    const FILES: &'static [&'static str] = &[
        LOG,
        RESULTS,
        RESOURCE_LIST,
        VOLUME_INFO,
        ITEM_OPERATIONS,
        VOLUME_SNAPSHOTS,
        POD_VOLUME_BACKUPS,
    ];

    fn keys(layout: &Layout, name: &str, _uid: &str) -> Result<JobKeys, StoreError> {
        layout.backup(name)
    }

    fn check(metadata: &Backup, name: &str, uid: &str) -> Result<(), StoreError> {
        let found_name = metadata.metadata.name.as_deref();
        let found_uid = metadata.metadata.uid.as_deref();
        if found_name != Some(name) || found_uid != Some(uid) {
            let message = format!(
                "{found_name:?} with uid {found_uid:?} is not the backup that was opened, {name:?} with uid {uid:?}"
            );
            return Err(StoreError::config("metadata", message));
        }
        // Readers take stored metadata as the end of a backup, so no phase may be stored that a
        // reader would run or wait for.
        let phase = metadata.phase();
        if !matches!(
            phase,
            BackupPhase::Completed | BackupPhase::PartiallyFailed | BackupPhase::Failed
        ) {
            let message =
                format!("{phase} can not be stored: expected Completed, PartiallyFailed or Failed");
            return Err(StoreError::config("status.phase", message));
        }
        Ok(())
    }

    fn outcome_key(keys: &JobKeys) -> Option<Path> {
        Some(keys.metadata())
    }

    fn add_digests(metadata: &mut Backup, digests: &FileDigests) {
        digests.annotate(metadata);
    }

    fn contents(keys: &JobKeys) -> Option<Path> {
        Some(keys.contents())
    }

    async fn stored(location: &Location, name: &str) -> Result<Option<Backup>, StoreError> {
        location.read_metadata(name).await
    }

    /// Writes the metadata, last: from then on the backup exists.
    async fn publish_outcome(plan: &mut CommittedPlan<Self>) -> Result<Backup, StoreError> {
        plan.check_contents().await?;
        crash::point("before-metadata");
        let metadata = plan.staged(&plan.keys.metadata()).await?;
        let stored = plan.commit(&metadata).await?;
        crash::point("after-metadata");
        // Best effort: a bucket may refuse every deletion.
        if let Err(error) = plan.location.tidy_backup(&plan.keys.name).await {
            tracing::debug!(backup = &plan.keys.name, %error, "private files of a finished backup stay");
        }
        Ok(stored)
    }
}

const VANISHED: &str =
    "it was written, and now it is not there; another program may have removed it";

impl CommittedPlan<Backup> {
    /// Starts again after [`StoreError::Lost`]. Files of this decision that are visible
    /// nevertheless (published, and the contents removed by another program since) are removed
    /// first, if they are still as we wrote them.
    pub async fn begin_again(self) -> Result<BackupWriter, StoreError> {
        for key in self.files().into_iter().chain([self.keys.metadata()]) {
            let staged = self.staged(&key).await?;
            if self.location.holds(&key, &staged).await? {
                self.location.delete(vec![key]).await?;
            }
        }
        self.location
            .begin(self.keys, &self.record.uid, self.number, false)
            .await
    }

    async fn commit(&self, staged: &StagedObject) -> Result<Backup, StoreError> {
        let key = self.keys.metadata();
        match self.location.publish(&key, staged).await {
            // Other bytes may be ours, too: from an earlier decision, or written by another
            // version.
            Ok(()) | Err(StoreError::Exists { .. }) => {}
            Err(error) => return Err(error),
        }
        let Some(stored) = self.location.read_metadata(&self.keys.name).await? else {
            return Err(self.location.unreachable("read back", &key, VANISHED));
        };
        let phase = stored.phase();
        if stored.metadata.uid == self.outcome.metadata.uid && phase == self.outcome.phase() {
            return Ok(stored);
        }
        let uid = stored.metadata.uid.as_deref().unwrap_or_default();
        let detail = format!("it holds a backup with uid {uid:?} as {phase}; it is left alone");
        Err(self.location.exists(&key, detail))
    }

    /// The metadata claims that the contents exist, so they are checked once more: bucket rules,
    /// users and other programs may have removed them.
    async fn check_contents(&mut self) -> Result<(), StoreError> {
        let key = self.keys.contents();
        let expected = self.bytes();
        let found = self.location.look_at(&key).await?;
        // A plugin reports no sizes; it has confirmed that it holds all of it.
        if let Some(there) = &found
            && there.size.is_none_or(|size| size == expected)
        {
            return Ok(());
        }
        self.done = 0;
        match found.and_then(|there| there.size) {
            None => Err(self.location.unreachable("read back", &key, VANISHED)),
            Some(size) => Err(self.location.exists(
                &key,
                format!("{expected} bytes were stored, now there are {size}: another program has written it; it is left alone"),
            )),
        }
    }
}

impl Location {
    /// Removes what a finished backup no longer needs: records, notes, and uploads that were never
    /// completed. Does nothing if there is no metadata. Safe to repeat.
    pub async fn tidy_backup(&self, backup: &str) -> Result<(), StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.list(&keys.folder).await?;
        if !found.contains(&keys.metadata()) {
            return Ok(());
        }
        if keys.upload_notes().has_any(&found) {
            self.remove_begun(&keys, false).await?;
        }
        let removed = found
            .into_iter()
            .filter(|key| keys.is_private(key) && !keys.is_marker(key) && *key != keys.copy_note())
            .collect();
        self.delete(removed).await
    }
}
