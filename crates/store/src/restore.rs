//! Storing the results of a restore: [`crate::job`].

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use backup_core::api::{Restore, RestorePhase, RestoreStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Location, StoreError, crash,
    job::{
        AwaitingOperations, Claimant, CommittedPlan, JobFiles, PendingUpload, StoredJob,
        record::{Contents, Record, held},
    },
    layout::{ITEM_OPERATIONS, JobKeys, LOG, Layout, RESOURCE_LIST, RESULTS, VOLUME_INFO},
};

pub type PendingRestore = PendingUpload<Restore>;
pub type CommittedRestore = CommittedPlan<Restore>;
pub type AwaitingRestore = AwaitingOperations<Restore>;

/// What is published in a Restore at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RestoreEnd {
    #[serde(flatten)]
    pub status: RestoreStatus,
    /// Annotations of the Restore for facts that the status has no field for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl StoredJob for Restore {
    /// A restore has no final key for its outcome.
    type Outcome = RestoreEnd;
    // The results are last: Velero's command line requests this file, so all files exist once it
    // does.
    const FILES: &'static [&'static str] =
        &[LOG, RESOURCE_LIST, ITEM_OPERATIONS, VOLUME_INFO, RESULTS];

    fn keys(layout: &Layout, name: &str, uid: &str) -> Result<JobKeys, StoreError> {
        layout.restore(name)?.of_uid(uid)
    }

    fn check(end: &RestoreEnd, name: &str, _uid: &str) -> Result<(), StoreError> {
        match end.status.phase {
            Some(
                RestorePhase::Completed | RestorePhase::PartiallyFailed | RestorePhase::Failed,
            ) => Ok(()),
            ref other => {
                let message = format!(
                    "restore {name:?} can not end as {other:?}: expected Completed, PartiallyFailed or Failed"
                );
                Err(StoreError::config("status.phase", message))
            }
        }
    }
}

impl Location {
    /// Claims the folder of a restore for the Restore object with this uid. Safe to repeat.
    ///
    /// Files that an earlier Restore of this name in the same installation has left are removed
    /// first: it no longer exists, as only one object can have the name. Errors:
    /// [`StoreError::Exists`] if the folder belongs to another installation, or holds files without
    /// a marker.
    pub async fn open_restore(
        &self,
        restore: &str,
        claimant: &Claimant,
    ) -> Result<PendingRestore, StoreError> {
        let keys = Restore::keys(self.layout(), restore, &claimant.uid)?;
        match self.claimant(&keys).await? {
            Some(before) if before.uid == claimant.uid => {}
            Some(before) => self.replace_restore(&keys, &before, claimant).await?,
            None => {
                self.refuse_foreign(&keys, &self.list(&keys.folder).await?)?;
                self.claim(&keys, claimant).await?;
            }
        }
        crash::point("after-owner-marker");
        Ok(PendingRestore::new(
            self.clone(),
            keys,
            claimant.uid.clone(),
            1,
        ))
    }

    /// Removes the files of an earlier restore in the same installation, and claims its folder.
    async fn replace_restore(
        &self,
        keys: &JobKeys,
        before: &Claimant,
        claimant: &Claimant,
    ) -> Result<(), StoreError> {
        if !before.is_same_installation(claimant) {
            return Err(self.exists(
                &keys.folder,
                format!(
                    "it belongs to another restore of this name, of another cluster or installation (uid {:?}); \
                     choose another name",
                    before.uid
                ),
            ));
        }
        // The marker goes last: after a crash before that, this is repeated; after a crash later,
        // the folder is empty.
        self.delete_marker_last(keys, self.list(&keys.folder).await?)
            .await?;
        self.put_marker(keys, &keys.owner(), claimant).await
    }
}

impl PendingRestore {
    /// Keeps the current files when all items are done, with the running operations, and the
    /// status: one record, create-only. Every process can resume from it.
    ///
    /// Errors: [`StoreError::Exists`] if another replica has stored them: look again
    /// ([`Location::find_job`]).
    pub async fn await_operations(
        &self,
        files: &JobFiles,
        status: Value,
    ) -> Result<(), StoreError> {
        let record = Record {
            uid: self.uid.clone(),
            contents: Contents::Inline,
            status,
            operations_after: 0,
            files: held(files.encode::<Restore>(&self.keys)?),
        };
        self.location.put_record(&self.keys, 0, &record).await
    }
}

impl AwaitingRestore {
    /// The files, to be completed and committed. The record stays until they are published.
    pub fn into_files(self) -> JobFiles {
        self.files
    }
}

impl CommittedRestore {
    /// Removes the files that are not needed once the end is published in the cluster, too. The
    /// marker stays.
    pub async fn remove_private(&self) -> Result<(), StoreError> {
        let found = self.location.list(&self.keys.private).await?;
        self.location.delete(found).await
    }
}
