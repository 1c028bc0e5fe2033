//! All data is collected; the step that commits what the final keys will hold.

use std::marker::PhantomData;

use serde_json::Value;

use super::{
    CommittedPlan, JobFiles, StoredJob,
    record::{Contents, Record, held},
};
use crate::{
    Location, StoreError, crash, digests::FileDigests, layout::JobKeys, staging::StagedObject,
};

/// Results that are completely in the store or in memory, with nothing visible. From
/// [`crate::BackupWriter::finish`], [`Location::open_restore`] or
/// [`crate::AwaitingRestore::into_files`].
///
/// Dropping it removes nothing: it may be unknown whether a record was written. What was not
/// committed is removed when the folder is opened again.
#[derive(Debug)]
pub struct PendingUpload<J> {
    pub(crate) location: Location,
    pub(crate) keys: JobKeys,
    pub(crate) uid: String,
    pub(crate) record: u64,
    pub(crate) contents: Option<StagedObject>,
    pub(crate) of: PhantomData<J>,
}

impl<J: StoredJob> PendingUpload<J> {
    /// Without contents. `record` is the number of the record for its end.
    pub(crate) fn new(location: Location, keys: JobKeys, uid: String, record: u64) -> Self {
        Self {
            location,
            keys,
            uid,
            record,
            contents: None,
            of: PhantomData,
        }
    }

    /// Size of the contents (bytes).
    pub fn bytes(&self) -> u64 {
        self.contents.as_ref().map_or(0, StagedObject::bytes)
    }

    /// Records durably what every final key will hold: in one record, create-only. From then on
    /// every process can finish it, and none can give it another end.
    ///
    /// Safe to repeat with the same arguments. Errors: [`StoreError::Config`] for a phase other
    /// than Completed, PartiallyFailed or Failed, or for another name or uid than was opened;
    /// [`StoreError::Exists`] if another replica has committed something else (see
    /// [`Location::find_job`]).
    pub async fn commit(
        &self,
        files: &JobFiles,
        outcome: &J::Outcome,
    ) -> Result<CommittedPlan<J>, StoreError> {
        J::check(outcome, &self.keys.name, &self.uid)?;
        let mut all = Vec::new();
        let contents = match (&self.contents, J::contents(&self.keys)) {
            (Some(StagedObject::Upload(parts)), _) => Contents::Uploaded(parts.clone()),
            (Some(StagedObject::Inline(bytes)), Some(key)) => {
                all.push((key, bytes.clone()));
                Contents::Inline
            }
            _ => Contents::Inline,
        };
        all.append(&mut files.encode::<J>(&self.keys)?);
        let mut outcome = outcome.clone();
        let status = match J::outcome_key(&self.keys) {
            Some(key) => {
                let uploaded = self.contents.as_ref();
                let digests = FileDigests::of(&self.keys, &all, uploaded);
                J::add_digests(&mut outcome, &digests);
                let json = serde_json::to_vec_pretty(&outcome)
                    .map_err(|error| StoreError::io("encode the end", &error))?;
                all.push((key, json.into()));
                Value::Null
            }
            None => serde_json::to_value(&outcome)
                .map_err(|error| StoreError::io("encode the end", &error))?,
        };
        let record = Record {
            uid: self.uid.clone(),
            contents,
            status,
            operations_after: 0,
            files: held(all),
        };
        crash::point("before-record");
        self.location
            .put_record(&self.keys, self.record, &record)
            .await?;
        crash::point("after-record");
        Ok(CommittedPlan {
            location: self.location.clone(),
            keys: self.keys.clone(),
            number: self.record,
            record,
            outcome,
            done: 0,
        })
    }
}
