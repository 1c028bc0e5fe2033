//! The last step: what was committed becomes visible.

use object_store::path::Path;

use super::{
    StoredJob,
    record::{Contents, Record, RecordedFile},
};
use crate::{Location, StoreError, crash, layout::JobKeys, staging::Staged};

/// An end of which every byte is recorded. From [`super::PendingUpload::commit`], or found by [`Location::find_job`].
#[derive(Debug)]
pub struct CommittedPlan<J: StoredJob> {
    pub(crate) location: Location,
    pub(crate) keys: JobKeys,
    pub(crate) number: u64,
    pub(crate) record: Record,
    pub(crate) outcome: J::Outcome,
    /// How many files this process has seen in their place.
    pub(crate) done: usize,
}

impl<J: StoredJob> CommittedPlan<J> {
    /// What will be published: phase, times, counts.
    pub fn outcome(&self) -> &J::Outcome {
        &self.outcome
    }

    /// Size of the contents (bytes).
    pub fn bytes(&self) -> u64 {
        let inline =
            || J::contents(&self.keys).and_then(|key| self.record.file(&key)).map_or(0, RecordedFile::size);
        match &self.record.contents {
            Contents::Uploaded(parts) => parts.bytes,
            _ => inline(),
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Writes what is not there yet, each key once, in order. A backup exists with its metadata, which is the last.
    ///
    /// Returns the outcome as it stands in the store: that is what is to be published. Safe to repeat, by any process,
    /// also by several at once. Errors: [`StoreError::Exists`] if a key holds other bytes, which are left alone;
    /// [`StoreError::Lost`] if the contents were uploaded and are gone without having become visible: then nothing of the
    /// backup is visible, and it can be begun again.
    pub async fn publish(&mut self) -> Result<J::Outcome, StoreError> {
        // A folder may have been taken over for a later object of this name since the record was written.
        if let Some(owner) = self.location.claimant(&self.keys).await?
            && owner.uid != self.record.uid
        {
            return Err(self.location.is_of_another(&self.keys, &owner.uid, &self.record.uid));
        }
        for (place, key) in self.files().iter().enumerate().skip(self.done) {
            // One file at a time is in memory.
            self.location.publish(key, &self.staged(key).await?).await?;
            self.done = place + 1;
            self.crash_point(key);
        }
        J::publish_outcome(self).await
    }

    /// `after-contents`, `after-logs.gz`, …
    fn crash_point(&self, key: &Path) {
        let file = key.filename().unwrap_or_default();
        let suffix = file.strip_prefix("restore-").unwrap_or(file);
        let suffix = suffix.strip_prefix(&self.keys.name).unwrap_or_default();
        let suffix = if J::contents(&self.keys).as_ref() == Some(key) {
            "contents"
        } else {
            suffix.trim_start_matches('-')
        };
        crash::point(&format!("after-{suffix}"));
    }

    /// What a final key will hold.
    pub(crate) async fn staged(&self, key: &Path) -> Result<Staged, StoreError> {
        match &self.record.contents {
            Contents::Uploaded(parts) if J::contents(&self.keys).as_ref() == Some(key) => {
                Ok(Staged::Upload(parts.clone()))
            }
            _ => {
                let bytes = self.location.recorded_for(&self.record, key).await?;
                Ok(Staged::Inline(bytes.unwrap_or_default()))
            }
        }
    }

    /// All keys in the order of writing, but that of the file that holds the outcome.
    pub(crate) fn files(&self) -> Vec<Path> {
        let contents = J::contents(&self.keys);
        let outcome = J::outcome_key(&self.keys);
        let rest = self.record.files.iter().map(|(key, _)| key);
        let rest = rest.filter(|key| Some(*key) != contents.as_ref() && Some(*key) != outcome.as_ref());
        contents.iter().chain(rest).cloned().collect()
    }
}
