//! Removal of backups and restores, and of their versions in buckets that keep them: a deletion
//! there only hides the versions, which cost money until each one is removed.
//!
//! Readers see no files of it from the first deletion on. A key's older versions are removed first,
//! their delete markers last, once nothing else is left under the folder. The folder's owner marker
//! stays to the very end, so that no other backup starts there meanwhile.

use backup_core::{
    api::{BackupStorageLocation, Restore},
    bucket::{Facts, Versions},
    labels::BUCKET_ANNOTATION,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use object_store::path::Path;

use super::{
    Location,
    bucket_api::{BucketApi, BucketError, FailedRemoval, Lock, Page, PageMarker, Version},
};
use crate::{StoreError, error::is_retryable, job::StoredJob as _, layout::JobKeys};

/// Maximum number of concurrent requests for locks.
const MAX_CONCURRENT_LOCK_REQUESTS: usize = 8;

/// Versions that stay in a folder whose versions were all to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedVersions {
    /// Number of retained versions, as far as they could be counted.
    pub kept: u64,
    /// The latest date until which one of them is locked.
    pub until: Option<Timestamp>,
    /// Number of versions under legal hold.
    pub held: u64,
    /// Why some stay that are not locked: the missing right.
    pub refused: Option<String>,
}

impl RetainedVersions {
    /// Whether some version is locked, so that it can be removed later.
    pub fn is_locked(&self) -> bool {
        self.until.is_some() || self.held > 0
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            kept: self.kept + other.kept,
            until: self.until.max(other.until),
            held: self.held + other.held,
            refused: self.refused.or(other.refused),
        }
    }
}

#[derive(Debug, Default)]
pub struct DeletedBackup {
    pub keys: u64,
    pub retained: RetainedVersions,
}

impl Location {
    /// Removes a backup; returns the number of its keys.
    ///
    /// The metadata goes first, so that a deletion that is cut short never leaves a backup that
    /// looks whole, and our marker last, so that no other backup takes the folder meanwhile. Safe
    /// to repeat.
    pub async fn delete_backup(&self, backup: &str) -> Result<u64, StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.hide_backup(&keys).await?;
        self.delete(
            found
                .iter()
                .filter(|key| **key == keys.marker(&found))
                .cloned()
                .collect(),
        )
        .await?;
        self.remove_folder(&keys.folder).await?;
        Ok(found.len() as u64)
    }

    /// Removes all of a backup but our marker; returns the keys found.
    async fn hide_backup(&self, keys: &JobKeys) -> Result<Vec<Path>, StoreError> {
        let found = self.list(&keys.folder).await?;
        let metadata = keys.metadata();
        let owner = keys.marker(&found);
        if keys.upload_notes().has_any(&found) {
            self.remove_begun(keys, false).await?;
        }
        let hidden = found.iter().filter(|key| **key != owner).cloned();
        let (first, then): (Vec<Path>, Vec<Path>) = hidden.partition(|key| *key == metadata);
        self.delete(first).await?;
        self.delete(then).await?;
        Ok(found)
    }

    /// Removes the files of the restore of this uid; returns the number of its keys. Files with the
    /// marker of another restore of the name stay. Safe to repeat.
    pub async fn delete_restore(&self, restore: &str, uid: &str) -> Result<u64, StoreError> {
        let keys = Restore::keys(self.layout(), restore, uid)?;
        if self
            .claimant(&keys)
            .await?
            .is_some_and(|claimant| claimant.uid != uid)
        {
            return Ok(0);
        }
        let found = self.list(&keys.folder).await?;
        let number = found.len() as u64;
        self.delete_marker_last(&keys, found).await?;
        self.remove_folder(&keys.folder).await?;
        Ok(number)
    }

    /// The marker goes last, so that no other object of the name starts here meanwhile.
    pub(crate) async fn delete_marker_last(
        &self,
        keys: &JobKeys,
        found: Vec<Path>,
    ) -> Result<(), StoreError> {
        let (last, first): (Vec<Path>, Vec<Path>) = found
            .into_iter()
            .partition(|key| keys.is_marker(key) || *key == keys.copy_note());
        self.delete(first).await?;
        self.delete(last).await
    }

    /// On a local disk a crashed writer leaves staging files, which listings do not show, and so
    /// the folder.
    pub(crate) async fn remove_folder(&self, folder: &Path) -> Result<(), StoreError> {
        let Some(root) = &self.backend().folder else {
            return Ok(());
        };
        if let Err(error) = tokio::fs::remove_dir_all(root.join(folder.as_ref())).await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(StoreError::io(
                format!("remove {}", self.url_of(folder)),
                &error,
            ));
        }
        Ok(())
    }

    /// Whether deletions here may only hide versions: the bucket keeps versions, as its location
    /// says, or that is unknown.
    pub fn may_keep_versions(&self, location: &BackupStorageLocation) -> bool {
        let annotations = location.metadata.annotations.as_ref();
        let annotation = annotations.and_then(|all| all.get(BUCKET_ANNOTATION));
        let known = Facts::read(annotation.map(String::as_str)).and_then(|facts| facts.versions);
        self.backend().bucket.is_some() && known != Some(Versions::Off)
    }

    /// Removes a backup as [`Self::delete_backup`] does, and every version of its keys, where the
    /// bucket keeps them.
    ///
    /// `hidden` is the uid that had claimed the folder, if an earlier call has hidden all keys.
    /// Files visible there now belong to another backup, and nothing is touched. Safe to repeat.
    ///
    /// Errors: [`StoreError::Exists`] if the folder belongs to another backup.
    pub async fn delete_backup_and_versions(
        &self,
        backup: &str,
        hidden: Option<&str>,
    ) -> Result<DeletedBackup, StoreError> {
        let Some(bucket) = self.backend().bucket.clone() else {
            let keys = self.delete_backup(backup).await?;
            return Ok(DeletedBackup {
                keys,
                ..DeletedBackup::default()
            });
        };
        let keys = self.layout().backup(backup)?;
        let (owner, found, claimed) = match hidden {
            None => {
                let found = self.hide_backup(&keys).await?;
                let owner = keys.marker(&found);
                let claimed = found.contains(&owner);
                (owner, found.len() as u64, claimed)
            }
            Some(before) => {
                let found = self.list(&keys.folder).await?;
                let owner = keys.marker(&found);
                let claimed = found.contains(&owner);
                // A second check before anything more is destroyed: days may have passed.
                if found.iter().any(|key| *key != owner)
                    || claimed && self.owner(&keys).await? != before
                {
                    return Err(self.exists(
                        &keys.folder,
                        "the name of the backup has been used again since its files were deleted; what is there now \
                         stays, and so do the versions that were locked",
                    ));
                }
                (owner, 0, claimed)
            }
        };
        let removal = Removal::new(self, bucket.as_ref(), &keys.folder);
        let retained = removal.run(claimed.then_some(owner.as_ref())).await?;
        // It still exists if versions may not be removed. (Deleting a missing key would leave a
        // delete marker.)
        if retained.refused.is_some()
            && !retained.is_locked()
            && self.look_at(&owner).await?.is_some()
        {
            self.delete(vec![owner]).await?;
        }
        Ok(DeletedBackup {
            keys: found,
            retained,
        })
    }

    /// Removes the files of a restore as [`Self::delete_restore`] does, and every version of their
    /// keys; returns what stays. Safe to repeat. With `hidden`, files visible there now belong to
    /// another restore, and nothing is touched.
    pub async fn delete_restore_and_versions(
        &self,
        restore: &str,
        uid: &str,
        hidden: bool,
    ) -> Result<RetainedVersions, StoreError> {
        let keys = Restore::keys(self.layout(), restore, uid)?;
        let Some(bucket) = self.backend().bucket.clone() else {
            self.delete_restore(restore, uid).await?;
            return Ok(RetainedVersions::default());
        };
        // Another restore of the name uses the folder: its versions are neither removed nor waited
        // for.
        if self
            .claimant(&keys)
            .await?
            .is_some_and(|claimant| claimant.uid != uid)
        {
            return Ok(RetainedVersions::default());
        }
        if !hidden {
            self.delete_restore(restore, uid).await?;
        } else if !self.list(&keys.folder).await?.is_empty() {
            return Ok(RetainedVersions::default());
        }
        Removal::new(self, bucket.as_ref(), &keys.folder)
            .run(None)
            .await
    }
}

/// The removal of all versions under a folder that has no visible keys, or of one hidden key.
pub(super) struct Removal<'a> {
    location: &'a Location,
    bucket: &'a dyn BucketApi,
    /// The folder or key, for messages.
    place: &'a Path,
    /// The beginning of all keys whose versions are removed.
    prefix: String,
    retained: RetainedVersions,
}

impl<'a> Removal<'a> {
    fn new(location: &'a Location, bucket: &'a dyn BucketApi, folder: &'a Path) -> Self {
        Self {
            location,
            bucket,
            place: folder,
            prefix: format!("{folder}/"),
            retained: RetainedVersions::default(),
        }
    }

    /// Removes the versions of one key, with which no other key begins.
    pub(super) fn of_key(location: &'a Location, bucket: &'a dyn BucketApi, key: &'a Path) -> Self {
        Self {
            prefix: key.to_string(),
            ..Self::new(location, bucket, key)
        }
    }

    /// `owner` is a key that is still visible, and is removed last.
    pub(super) async fn run(mut self, owner: Option<&str>) -> Result<RetainedVersions, StoreError> {
        let mut of_owner = Vec::new();
        let mut marks = false;
        let mut after = None;
        loop {
            let Some(page) = self.page(after.as_ref()).await? else {
                return Ok(self.retained);
            };
            let (own, mut covered): (Vec<_>, Vec<_>) = page
                .versions
                .into_iter()
                .partition(|version| has_key(version, owner));
            of_owner.extend(own);
            if let Some(seen) = covered
                .iter()
                .find(|version| version.is_latest && !version.is_mark)
            {
                return Err(self.was_written(&seen.key));
            }
            let before = covered.len();
            covered.retain(|version| !version.is_latest);
            marks |= covered.len() < before;
            self.remove(&covered).await?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if self.retained.kept > 0 {
            return Ok(self.retained);
        }
        // Only the delete markers are left.
        while marks {
            let Some(page) = self.page(after.as_ref()).await? else {
                return Ok(self.retained);
            };
            let covers: Vec<_> = page
                .versions
                .into_iter()
                .filter(|version| !has_key(version, owner))
                .collect();
            if let Some(other) = covers.iter().find(|version| !version.is_mark) {
                return Err(self.was_written(&other.key));
            }
            self.remove(&covers).await?;
            after = page.next;
            marks = after.is_some();
        }
        // Only versions listed before: a delete marker that another writer adds from now on stays.
        let (last, first): (Vec<_>, Vec<_>) =
            of_owner.into_iter().partition(|version| version.is_latest);
        for versions in [first, last] {
            if self.retained.kept == 0 {
                self.remove(&versions).await?;
            }
        }
        Ok(self.retained)
    }

    /// `None`: the versions may not be listed, which is recorded.
    async fn page(&mut self, after: Option<&PageMarker>) -> Result<Option<Page>, StoreError> {
        match self.bucket.page(&self.prefix, after).await {
            Ok(page) => Ok(Some(page)),
            Err(BucketError::Refused(why)) => {
                self.retained.refused = Some(format!("how many there are is not known, {why}"));
                Ok(None)
            }
            Err(BucketError::Retryable(why)) => Err(self.failed("list the versions under", why)),
        }
    }

    async fn remove(&mut self, versions: &[Version]) -> Result<(), StoreError> {
        if versions.is_empty() {
            return Ok(());
        }
        let undeleted = match self.bucket.remove(versions).await {
            Ok(undeleted) => undeleted,
            Err(BucketError::Refused(why)) => {
                self.retained.kept += versions.len() as u64;
                self.retained.refused = Some(why);
                return Ok(());
            }
            Err(BucketError::Retryable(why)) => {
                return Err(self.failed("remove versions under", why));
            }
        };
        let bucket = self.bucket;
        let asking = stream::iter(undeleted)
            .map(|one| one.why(bucket))
            .buffer_unordered(MAX_CONCURRENT_LOCK_REQUESTS);
        let kept: Vec<RetainedVersions> = asking
            .try_collect()
            .await
            .map_err(|why| self.failed("remove versions under", why))?;
        self.retained = kept
            .into_iter()
            .fold(std::mem::take(&mut self.retained), |all, one| one.and(all));
        Ok(())
    }

    fn was_written(&self, key: &str) -> StoreError {
        self.failed(
            "remove versions under",
            format!("{key} was written meanwhile; it is checked again"),
        )
    }

    fn failed(&self, action: &str, detail: String) -> StoreError {
        let url = self.location.url_of(self.place);
        StoreError::Unreachable {
            action: action.to_owned(),
            url,
            detail,
        }
    }
}

/// Whether it is a version of this key; false without a key.
fn has_key(version: &Version, key: Option<&str>) -> bool {
    Some(version.key.as_str()) == key
}

impl FailedRemoval {
    /// Finds out why a version was not removed. Errors: why that is unknown for now.
    async fn why(self, bucket: &dyn BucketApi) -> Result<RetainedVersions, String> {
        let code = self.code;
        if is_retryable(&code) {
            return Err(code);
        }
        let (lock, refusal) = match bucket.lock_of(&self.version).await {
            Ok(lock) => (lock, "s3:DeleteObjectVersion is not granted".to_owned()),
            Err(BucketError::Refused(why)) => (
                Lock::default(),
                format!("whether it is locked is not known, {why}"),
            ),
            Err(BucketError::Retryable(why)) => return Err(why),
        };
        let retained = RetainedVersions {
            kept: 1,
            until: lock.until,
            held: lock.held.into(),
            refused: None,
        };
        let refused = Some(format!("{code}: {refusal}")).filter(|_| !retained.is_locked());
        Ok(RetainedVersions {
            refused,
            ..retained
        })
    }
}

#[cfg(test)]
mod tests;
