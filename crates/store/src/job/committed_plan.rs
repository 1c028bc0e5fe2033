//! The last step: publishing what was committed.

use futures::future::join_all;
use object_store::path::Path;

use super::{
    StoredJob,
    record::{Contents, Record, RecordedFile},
};
use crate::{Location, StoreError, crash, layout::JobKeys, staging::StagedObject};

/// Maximum number of small files written concurrently.
const MAX_CONCURRENT_FILES: usize = 8;
/// Larger files are written one at a time (bytes).
const MAX_SMALL_FILE: u64 = 256 * 1024;

/// An end whose every byte is recorded. From [`super::PendingUpload::commit`], or found by
/// [`Location::find_job`].
#[derive(Debug)]
pub struct CommittedPlan<J: StoredJob> {
    pub(crate) location: Location,
    pub(crate) keys: JobKeys,
    pub(crate) number: u64,
    pub(crate) record: Record,
    pub(crate) outcome: J::Outcome,
    /// Number of files that this process knows to be in place.
    pub(crate) done: usize,
}

impl<J: StoredJob> CommittedPlan<J> {
    /// What will be published: phase, times, counts.
    pub fn outcome(&self) -> &J::Outcome {
        &self.outcome
    }

    /// Size of the contents (bytes).
    pub fn bytes(&self) -> u64 {
        match &self.record.contents {
            Contents::Uploaded(parts) => parts.bytes,
            _ => J::contents(&self.keys)
                .and_then(|key| self.record.file(&key))
                .map_or(0, RecordedFile::size),
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Writes the missing files, each key once: large files in order, small ones concurrently. A
    /// backup exists once its metadata does, which is the last.
    ///
    /// Returns the outcome found in the store: publish that one. Safe to repeat, by any process,
    /// also by several at once. Errors: [`StoreError::Exists`] if a key holds other bytes, which
    /// are left unchanged; [`StoreError::Lost`] if the contents were uploaded and are gone without
    /// having become visible: then nothing of the backup is visible, and it can be started again.
    pub async fn publish(&mut self) -> Result<J::Outcome, StoreError> {
        // Since the record was written, the folder may have been taken over for a later object of
        // this name.
        if let Some(owner) = self.location.claimant(&self.keys).await?
            && owner.uid != self.record.uid
        {
            return Err(self
                .location
                .is_of_another(&self.keys, &owner.uid, &self.record.uid));
        }
        let files = self.files();
        while let Some(rest) = files.get(self.done..).filter(|rest| !rest.is_empty()) {
            let small = rest
                .iter()
                .take(MAX_CONCURRENT_FILES)
                .take_while(|key| self.is_small(key))
                .count();
            let next = &rest[..small.max(1)];
            // All are awaited, so that a failure of one does not cancel the others.
            let published = join_all(next.iter().map(|key| self.publish_file(key))).await;
            published.into_iter().collect::<Result<(), _>>()?;
            self.done += next.len();
            for key in next {
                self.crash_point(key);
            }
        }
        J::publish_outcome(self).await
    }

    /// Whether the file may be held in memory together with others.
    fn is_small(&self, key: &Path) -> bool {
        self.record
            .file(key)
            .is_some_and(|file| file.size() <= MAX_SMALL_FILE)
    }

    async fn publish_file(&self, key: &Path) -> Result<(), StoreError> {
        self.location.publish(key, &self.staged(key).await?).await
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
    pub(crate) async fn staged(&self, key: &Path) -> Result<StagedObject, StoreError> {
        if let Contents::Uploaded(parts) = &self.record.contents
            && J::contents(&self.keys).as_ref() == Some(key)
        {
            return Ok(StagedObject::Upload(parts.clone()));
        }
        let bytes = self.location.recorded_for(&self.record, key).await?;
        Ok(StagedObject::Inline(bytes.unwrap_or_default()))
    }

    /// All keys in the order of writing, except the one of the file with the outcome.
    pub(crate) fn files(&self) -> Vec<Path> {
        let contents = J::contents(&self.keys);
        let outcome = J::outcome_key(&self.keys);
        let rest = self.record.files.iter().map(|(key, _)| key);
        let rest =
            rest.filter(|key| Some(*key) != contents.as_ref() && Some(*key) != outcome.as_ref());
        contents.iter().chain(rest).cloned().collect()
    }
}
