//! Storing what a restore leaves: [`crate::job`].

#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use backup_core::api::{Restore, RestorePhase, RestoreStatus};
use bytes::Bytes;
use object_store::path::Path;
use serde_json::Value;

use crate::{
    Location, LogFile, ResourceList, Results, StoreError, crash,
    gzip::{file, parse},
    job::{
        AwaitingOperations, Claimant, CommittedPlan, FoundJob, PendingUpload, StoredJob,
        record::{Contents, Record},
    },
    layout::{ITEM_OPERATIONS, JobKeys, LOG, Layout, RESOURCE_LIST, RESULTS, VOLUME_INFO},
};

pub type FoundRestore = FoundJob<Restore>;
pub type PendingRestore = PendingUpload<Restore>;
pub type CommittedRestore = CommittedPlan<Restore>;
pub type AwaitingRestore = AwaitingOperations<Restore>;

#[derive(Debug)]
pub struct RestoreFiles {
    pub log: LogFile,
    /// Warnings and errors. The counts in the Restore's status must be those of these lists.
    pub results: Results,
    /// Names of the items, each with what was done.
    pub resource_list: ResourceList,
    pub item_operations: Vec<Value>,
    pub volume_info: Vec<Value>,
}

impl StoredJob for Restore {
    type Files = RestoreFiles;
    /// The status at the end. It has no final key of its own.
    type Outcome = RestoreStatus;

    fn keys(layout: &Layout, name: &str, uid: &str) -> Result<JobKeys, StoreError> {
        layout.restore(name)?.of_uid(uid)
    }

    // The results are last: Velero's command line asks for this file, so once it is there, all is there.
    fn encode(files: &RestoreFiles, keys: &JobKeys) -> Result<Vec<(Path, Bytes)>, StoreError> {
        Ok(vec![
            (keys.file(LOG), files.log.bytes()?),
            file(keys.file(RESOURCE_LIST), &files.resource_list)?,
            file(keys.file(ITEM_OPERATIONS), &files.item_operations)?,
            file(keys.file(VOLUME_INFO), &files.volume_info)?,
            file(keys.file(RESULTS), &files.results)?,
        ])
    }

    fn decode(keys: &JobKeys, bytes_of: &dyn Fn(&Path) -> Option<Bytes>) -> Result<RestoreFiles, String> {
        Ok(RestoreFiles {
            log: LogFile::read(&keys.file(LOG), bytes_of)?,
            results: parse(&keys.file(RESULTS), bytes_of)?,
            resource_list: parse(&keys.file(RESOURCE_LIST), bytes_of)?,
            item_operations: parse(&keys.file(ITEM_OPERATIONS), bytes_of)?,
            volume_info: parse(&keys.file(VOLUME_INFO), bytes_of)?,
        })
    }

    fn operations(files: &mut RestoreFiles) -> &mut Vec<Value> {
        &mut files.item_operations
    }

    fn check(status: &RestoreStatus, name: &str, _uid: &str) -> Result<(), StoreError> {
        match status.phase {
            Some(RestorePhase::Completed | RestorePhase::PartiallyFailed | RestorePhase::Failed) => Ok(()),
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
    /// What an earlier Restore of this name in the same installation has left there is removed first: it is gone, as a name
    /// has one object at a time. Errors: [`StoreError::Exists`] if the folder belongs to another installation, or holds
    /// files that carry no mark.
    pub async fn open_restore(
        &self,
        restore: &str,
        claimant: &Claimant,
    ) -> Result<PendingRestore, StoreError> {
        let keys = Restore::keys(self.layout(), restore, &claimant.uid)?;
        match self.claimant(&keys).await? {
            Some(before) if before.uid == claimant.uid => {}
            Some(before)
                if before.installation == claimant.installation && !before.installation.is_empty() =>
            {
                // The marker goes last: a crash before that is repeated, one after it leaves an empty folder.
                let (found, owner) = (self.list(&keys.folder).await?, keys.owner());
                self.delete(found.into_iter().filter(|key| *key != owner).collect()).await?;
                self.delete(vec![owner]).await?;
                self.put_marker(&keys, claimant).await?;
            }
            Some(before) => {
                return Err(self.exists(
                    &keys.folder,
                    format!(
                        "it belongs to another restore of this name, of another cluster or installation (uid {:?}); \
                         choose another name",
                        before.uid
                    ),
                ));
            }
            None => {
                self.refuse_foreign(&keys, &self.list(&keys.folder).await?)?;
                self.claim(&keys, claimant).await?;
            }
        }
        crash::point("after-owner-marker");
        Ok(PendingRestore {
            location: self.clone(),
            keys,
            uid: claimant.uid.clone(),
            record: 1,
            contents: None,
            of: PhantomData,
        })
    }
}

impl PendingRestore {
    /// Keeps the files as they are when all items are done, with the operations that go on: one record, create-only. Every
    /// process can go on from there.
    ///
    /// Errors: [`StoreError::Exists`] if another replica has stored them: look again ([`Location::find_job`]).
    pub async fn await_operations(&self, files: &RestoreFiles) -> Result<(), StoreError> {
        let record = Record {
            uid: self.uid.clone(),
            contents: Contents::Inline,
            status: Value::Null,
            files: Restore::encode(files, &self.keys)?,
        };
        self.location.still_ours(&self.keys, &self.uid).await?;
        self.location.put_new(&self.keys.record(0), record.encode()?).await
    }
}

impl AwaitingRestore {
    /// The files, to be completed and committed. The record stays until that is published.
    pub fn into_files(self) -> RestoreFiles {
        self.files
    }
}

impl CommittedRestore {
    /// Removes what nobody needs once the end is published in the cluster, too. The marker stays.
    pub async fn remove_private(&self) -> Result<(), StoreError> {
        let found = self.location.list(&self.keys.private).await?;
        self.location.delete(found).await
    }
}
