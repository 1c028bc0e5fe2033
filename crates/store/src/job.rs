//! How a Backup and a Restore are stored: one procedure for both.
//!
//! 1. The folder is claimed ([`Location::open_backup`], [`Location::open_restore`]): one
//!    create-only key holds the uid.
//! 2. All files are in the store or in memory, and nothing is visible: [`PendingUpload`].
//! 3. [`PendingUpload::commit`] writes one create-only record that says what each final key will
//!    hold: [`CommittedPlan`].
//! 4. [`CommittedPlan::publish`] writes the final keys. Every process that finds the record writes
//!    the same bytes, so each key is written once, by any number of processes.
//!
//! While operations run, a record without the end holds the current state: [`AwaitingOperations`].
//!
//! A crash before the record leaves nothing that counts: the items are processed again. A crash
//! after it leaves a plan that the next process finds ([`Location::find_job`]) and publishes.

mod awaiting_operations;
mod committed_plan;
mod files;
mod journal;
mod owner;
mod pending_upload;
pub(crate) mod record;

use std::fmt::Debug;

use object_store::path::Path;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Location, StoreError,
    digests::FileDigests,
    layout::{JobKeys, Layout},
};
use record::Contents;

pub use awaiting_operations::AwaitingOperations;
pub use committed_plan::CommittedPlan;
pub use files::JobFiles;
pub use journal::{EntryPosition, Journal};
pub use owner::Claimant;
pub(crate) use owner::MAX_NOTE_BYTES;
pub use pending_upload::PendingUpload;

/// A kind of object whose results are stored: Backup or Restore. Other crates name it but call none
/// of its methods.
pub trait StoredJob: Debug + Sized + Send + Sync + 'static {
    /// What is published in the object when it ends.
    type Outcome: Clone + Debug + Serialize + DeserializeOwned + Send + Sync;
    /// Suffixes of its files, in the order of writing.
    const FILES: &'static [&'static str];

    fn keys(layout: &Layout, name: &str, uid: &str) -> Result<JobKeys, StoreError>;
    /// Refuses an outcome that is not final, or belongs to another object.
    fn check(outcome: &Self::Outcome, name: &str, uid: &str) -> Result<(), StoreError>;

    /// Key of the file that holds the outcome and is written last. `None`: the outcome is in the
    /// record only.
    fn outcome_key(_: &JobKeys) -> Option<Path> {
        None
    }

    /// Adds the digests of the other files to the outcome, if a file holds it.
    fn add_digests(_: &mut Self::Outcome, _: &FileDigests) {}

    fn contents(_: &JobKeys) -> Option<Path> {
        None
    }

    /// The outcome already stored under the final keys, of this or another uid; `None` if the files
    /// do not name their uid.
    fn stored(
        _: &Location,
        _name: &str,
    ) -> impl Future<Output = Result<Option<Self::Outcome>, StoreError>> + Send {
        async { Ok(None) }
    }

    /// The last step of publishing: makes the outcome visible in the store.
    fn publish_outcome(
        plan: &mut CommittedPlan<Self>,
    ) -> impl Future<Output = Result<Self::Outcome, StoreError>> + Send {
        async { Ok(plan.outcome.clone()) }
    }
}

#[derive(Debug)]
pub enum FoundJob<J: StoredJob> {
    /// Neither an end nor a record of this uid: nothing is decided.
    Nothing,
    /// The end of this or another uid.
    Stored(Box<J::Outcome>),
    /// A record of this uid says what its end will be.
    Committed(Box<CommittedPlan<J>>),
    /// A record of this uid holds the current state; its operations were still running.
    Awaiting(Box<AwaitingOperations<J>>),
}

impl Location {
    /// Looks for the object of this name: its end, else the last record of this uid.
    ///
    /// Errors: [`StoreError::Corrupt`] for an unusable end or record.
    pub async fn find_job<J: StoredJob>(
        &self,
        name: &str,
        uid: &str,
    ) -> Result<FoundJob<J>, StoreError> {
        // An end that a plugin wrote only partly is written again by the process that has the
        // record.
        let broken = match J::stored(self, name).await {
            Ok(Some(stored)) => return Ok(FoundJob::Stored(Box::new(stored))),
            Ok(None) => None,
            Err(error @ StoreError::Corrupt { .. }) if self.plugin().is_some() => Some(error),
            Err(error) => return Err(error),
        };
        let keys = J::keys(self.layout(), name, uid)?;
        let found = self.list(&keys.private).await?;
        let Some(number) = keys.last_record(&found) else {
            return broken.map_or(Ok(FoundJob::Nothing), Err);
        };
        let Some(record) = self.read_record(&keys, number).await? else {
            // Another replica has just finished it, and tidied up.
            let stored = J::stored(self, name).await?;
            return Ok(stored.map_or(FoundJob::Nothing, |stored| {
                FoundJob::Stored(Box::new(stored))
            }));
        };
        // The folder belongs to another uid, as opening it reports, or to a backup that was
        // abandoned.
        if record.uid != uid || matches!(record.contents, Contents::Abandoned) {
            return broken.map_or(Ok(FoundJob::Nothing), Err);
        }
        let location = self.clone();
        // The first record of a restore is never its end.
        if number == 0 || matches!(record.contents, Contents::Open { .. }) {
            let awaiting =
                AwaitingOperations::found(location, keys, number, record, &found).await?;
            return Ok(FoundJob::Awaiting(Box::new(awaiting)));
        }
        let outcome = match J::outcome_key(&keys) {
            Some(of) => {
                serde_json::from_slice(&self.recorded_for(&record, &of).await?.unwrap_or_default())
            }
            None => serde_json::from_value(record.status.clone()),
        };
        let outcome = outcome.map_err(|error| {
            self.corrupt(
                &keys.record(number),
                format!("the end in it can not be read: {error}"),
            )
        })?;
        Ok(FoundJob::Committed(Box::new(CommittedPlan {
            location,
            keys,
            number,
            record,
            outcome,
            done: 0,
        })))
    }
}
