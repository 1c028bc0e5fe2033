//! Abandons a backup, so that none of its files can be stored later.
//!
//! Two processes may work on it: a controller that does not know that it was replaced may be about
//! to write the final record. Both write the next record, which is create-only, so one of them is
//! refused.

use backup_core::api::Backup;
use object_store::path::Path;
use serde_json::Value;

use crate::{
    Location, Remnant, StoreError,
    job::{
        Claimant, StoredJob as _,
        record::{Contents, Record},
    },
    layout::JobKeys,
};

/// Maximum number of attempts when another process writes at the same time.
const MAX_ATTEMPTS: u32 = 3;

/// Outcome of abandoning a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandonment {
    /// No file of the backup will ever be stored.
    Abandoned,
    /// The backup is stored, or a record says what it will hold: finish it, then delete it as a
    /// whole.
    Committed,
}

impl Location {
    /// Decides that nothing of the Backup of this uid will be stored, unless its end is decided
    /// already. `lost` is the number of a record whose contents were found to be gone.
    ///
    /// Safe to repeat. Errors: [`StoreError::Corrupt`] if metadata or a record cannot be read: the
    /// decision is unknown then.
    pub async fn abandon_backup(
        &self,
        backup: &str,
        claimant: &Claimant,
        lost: Option<u64>,
    ) -> Result<Abandonment, StoreError> {
        let keys = self.layout().backup(backup)?;
        let mut tries = 1;
        loop {
            match self.try_abandon(&keys, claimant, lost).await {
                Err(StoreError::Exists { .. }) if tries < MAX_ATTEMPTS => tries += 1,
                other => return other,
            }
        }
    }

    async fn try_abandon(
        &self,
        keys: &JobKeys,
        claimant: &Claimant,
        lost: Option<u64>,
    ) -> Result<Abandonment, StoreError> {
        let uid = &claimant.uid;
        if let Some(stored) = Backup::stored(self, &keys.name).await? {
            let is_ours = stored.metadata.uid.as_ref() == Some(uid);
            return Ok(if is_ours {
                Abandonment::Committed
            } else {
                Abandonment::Abandoned
            });
        }
        let found = self.list(&keys.folder).await?;
        if let Some(owner) = self.claimant_among(keys, &found).await? {
            // Nothing is published into a folder of another uid.
            if owner.uid != *uid {
                return Ok(Abandonment::Abandoned);
            }
        } else {
            if self.refuse_foreign(keys, &found).is_err() {
                return Ok(Abandonment::Abandoned);
            }
            self.put_marker(keys, &keys.owner(), claimant).await?;
        }
        let newest = keys.records().last(&found);
        if let Some(number) = newest.filter(|number| lost != Some(*number)) {
            let Some(record) = self.read_record(keys, number).await? else {
                return Err(
                    self.exists(&keys.record(number), "it was removed meanwhile; look again")
                );
            };
            // A record of another uid is of a Backup whose folder was taken over.
            if record.uid == *uid {
                match record.contents {
                    Contents::Abandoned => return Ok(Abandonment::Abandoned),
                    Contents::Open { .. } => {}
                    Contents::Inline | Contents::Uploaded(_) => return Ok(Abandonment::Committed),
                }
            }
        }
        let record = Record {
            uid: uid.clone(),
            contents: Contents::Abandoned,
            status: Value::Null,
            operations_after: 0,
            files: Vec::new(),
        };
        self.put_record(keys, newest.unwrap_or_default() + 1, &record)
            .await?;
        Ok(Abandonment::Abandoned)
    }

    /// Removes the folder of a backup that was abandoned and cleared, the marker last. Returns
    /// false and removes nothing if the folder holds anything else or belongs to another uid.
    pub async fn remove_abandoned(&self, backup: &str, uid: &str) -> Result<bool, StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.list(&keys.folder).await?;
        let Some(number) = keys.records().last(&found) else {
            return Ok(false);
        };
        if !found.iter().all(|key| keys.stays_abandoned(key))
            || self
                .claimant_among(&keys, &found)
                .await?
                .is_none_or(|owner| owner.uid != uid)
        {
            return Ok(false);
        }
        match self.read_record(&keys, number).await? {
            Some(Record {
                contents: Contents::Abandoned,
                ..
            }) => {}
            _ => return Ok(false),
        }
        self.delete_marker_last(&keys, found).await?;
        self.remove_folder(&keys.folder).await?;
        Ok(true)
    }

    /// Removes the stored uploads (with their parts) and files of an abandoned backup. Numbered
    /// keys stay for [`Location::open_backup`] or [`Location::remove_abandoned`], as some stores
    /// refuse a key that was deleted before. Does nothing if the folder belongs to another uid.
    /// Safe to repeat.
    pub async fn clear_abandoned(&self, backup: &str, uid: &str) -> Result<(), StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.list(&keys.folder).await?;
        let owner = self.claimant_among(&keys, &found).await?;
        if found.contains(&keys.metadata()) || owner.is_none_or(|owner| owner.uid != uid) {
            return Ok(());
        }
        self.remove_begun(&keys, false).await?;
        let removed = found
            .into_iter()
            .filter(|key| {
                !keys.stays_abandoned(key) && keys.classify(key) != Some(Remnant::Foreign)
            })
            .collect();
        self.delete(removed).await
    }
}

impl JobKeys {
    /// Whether a key stays in the folder of an abandoned backup.
    fn stays_abandoned(&self, key: &Path) -> bool {
        let numbered = [self.records(), self.journal(), self.operations()];
        self.is_marker(key)
            || numbered
                .iter()
                .any(|numbered| numbered.number(key).is_some())
    }
}
