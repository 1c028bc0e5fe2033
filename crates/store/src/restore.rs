//! Storing what a restore leaves: [`crate::job`].

#[cfg(test)]
mod tests;

use backup_core::api::{Restore, RestorePhase, RestoreStatus};
use bytes::Bytes;
use object_store::path::Path;
use serde_json::Value;

use crate::{
    Location, LogFile, ResourceList, Results, StoreError, crash,
    gzip::{file, parse},
    job::{
        AwaitingOperations, Claimant, CommittedPlan, FoundJob, PendingUpload, RecordedOutcome, StoredJob,
        record::{Contents, Record},
    },
    layout::{Layout, PrivateKeys, RestoreKeys},
};

pub type FoundRestore = FoundJob<Restore>;
/// A restore that may commit its end.
pub type PendingRestore = PendingUpload<Restore>;
/// A restore of which every byte is recorded.
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
    type Keys = RestoreKeys;

    const NOUN: &'static str = "restore";

    fn keys(layout: &Layout, name: &str, uid: &str) -> Result<(RestoreKeys, PrivateKeys), StoreError> {
        let keys = layout.restore(name)?;
        let private = keys.private(uid)?;
        Ok((keys, private))
    }

    fn name(keys: &RestoreKeys) -> &str {
        keys.name()
    }

    fn folder(keys: &RestoreKeys) -> &Path {
        keys.folder()
    }

    // The results are last: Velero's command line asks for this file, so once it is there, all is there.
    fn encode(files: &RestoreFiles, keys: &RestoreKeys) -> Result<Vec<(Path, Bytes)>, StoreError> {
        let log =
            files.log.bytes().map_err(|error| StoreError::io("read the log from local disk", &error))?;
        Ok(vec![
            (keys.log(), log),
            file(keys.resource_list(), &files.resource_list)?,
            file(keys.item_operations(), &files.item_operations)?,
            file(keys.volume_info(), &files.volume_info)?,
            file(keys.results(), &files.results)?,
        ])
    }

    fn decode(keys: &RestoreKeys, bytes_of: &dyn Fn(&Path) -> Option<Bytes>) -> Result<RestoreFiles, String> {
        Ok(RestoreFiles {
            log: LogFile::read(&keys.log(), bytes_of)?,
            results: parse(&keys.results(), bytes_of)?,
            resource_list: parse(&keys.resource_list(), bytes_of)?,
            item_operations: parse(&keys.item_operations(), bytes_of)?,
            volume_info: parse(&keys.volume_info(), bytes_of)?,
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

    fn encode_outcome(status: &RestoreStatus, _keys: &RestoreKeys) -> Result<RecordedOutcome, StoreError> {
        let status =
            serde_json::to_value(status).map_err(|error| StoreError::io("encode a status", &error))?;
        Ok(RecordedOutcome::Status(status))
    }

    fn decode_outcome(_keys: &RestoreKeys, record: &Record) -> Result<RestoreStatus, String> {
        serde_json::from_value(record.status.clone())
            .map_err(|error| format!("the status in it can not be read: {error}"))
    }

    fn outcome_key(_keys: &RestoreKeys) -> Option<Path> {
        None
    }

    fn contents(_keys: &RestoreKeys) -> Option<Path> {
        None
    }

    /// Nothing that is visible says of which uid it is: the record does.
    async fn stored(_location: &Location, _name: &str) -> Result<Option<RestoreStatus>, StoreError> {
        Ok(None)
    }

    async fn publish_outcome(plan: &mut CommittedPlan<Self>) -> Result<RestoreStatus, StoreError> {
        Ok(plan.outcome.clone())
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
        let (keys, private) = Restore::keys(self.layout(), restore, &claimant.uid)?;
        let owner = private.owner();
        match self.claimant(&owner).await? {
            Some(before) if before.uid == claimant.uid => {}
            Some(before)
                if before.installation == claimant.installation && !before.installation.is_empty() =>
            {
                // The marker goes last: a crash before that is repeated, one after it leaves an empty folder.
                let found = self.list(keys.folder()).await?;
                self.delete(found.into_iter().filter(|key| *key != owner).collect()).await?;
                self.delete(vec![owner.clone()]).await?;
                self.put_marker(&owner, claimant, Restore::NOUN).await?;
            }
            Some(before) => {
                return Err(self.exists(
                    keys.folder(),
                    format!(
                        "it belongs to another restore of this name, of another cluster or installation (uid {:?}); \
                         choose another name",
                        before.uid
                    ),
                ));
            }
            None => {
                self.refuse_unmarked(&keys).await?;
                self.put_marker(&owner, claimant, Restore::NOUN).await?;
                if let Err(error) = self.refuse_unmarked(&keys).await {
                    self.delete(vec![owner]).await?;
                    return Err(error);
                }
            }
        }
        crash::point("after-owner-marker");
        Ok(PendingRestore {
            location: self.clone(),
            keys,
            private,
            uid: claimant.uid.clone(),
            record: 1,
            contents: None,
        })
    }

    async fn refuse_unmarked(&self, keys: &RestoreKeys) -> Result<(), StoreError> {
        self.refuse_foreign(Restore::NOUN, keys.folder(), &self.list(keys.folder()).await?)
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
        self.location.still_ours(Restore::NOUN, self.keys.folder(), &self.private.owner(), &self.uid).await?;
        self.location.put_new(&self.private.record(0), record.encode()?).await
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
        let found = self.location.list(self.private.folder()).await?;
        self.location.delete(found).await
    }
}
