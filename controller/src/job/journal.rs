//! Notes in the journal of a backup or restore.

use async_trait::async_trait;
use backup_runtime::leader::Leadership;
use backup_store::{Journal, StoreError};
use serde_json::Value;
use tokio::sync::Mutex;

/// Takes entries that the next process must know. Create-only: an entry is never changed.
#[async_trait]
pub(crate) trait JournalWriter: Send + Sync {
    /// Adds an entry; it is durable once this has returned.
    async fn append(&self, entry: Value) -> Result<(), StoreError>;
    /// The entry of this number, as it was written.
    async fn entry(&self, number: u64) -> Result<Value, StoreError>;
}

/// An entry that cannot be decoded: then it is not known what was done.
pub(crate) fn undecodable(about: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt {
        url: "the private journal".to_owned(),
        detail: format!("an entry about {about} cannot be decoded: {error}"),
    }
}

/// How often a note looks for another place.
const TRIES: usize = 5;

/// Where notes are made.
pub(crate) struct JobJournal {
    journal: Mutex<Journal>,
    leadership: Leadership,
    /// What every note says besides.
    stamp: Option<(&'static str, String)>,
}

impl JobJournal {
    /// Notes go behind what was read of this journal.
    pub(crate) fn new(journal: Journal, leadership: Leadership) -> Self {
        Self { journal: Mutex::new(journal), leadership, stamp: None }
    }

    /// Every note has this member, by which its reader knows it.
    #[must_use]
    pub(crate) fn stamped(self, member: &'static str, value: &str) -> Self {
        Self { stamp: Some((member, value.to_owned())), ..self }
    }
}

#[async_trait]
impl JournalWriter for JobJournal {
    /// Who led before may have added a note while it did not know yet that it does not lead any more. Notes do not depend on
    /// one another, so the next place will do.
    async fn append(&self, mut note: Value) -> Result<(), StoreError> {
        if let Some((member, value)) = &self.stamp {
            note[*member] = Value::from(value.as_str());
        }
        let mut journal = self.journal.lock().await;
        let mut tries = 0;
        loop {
            match journal.add(&note).await {
                Err(StoreError::Exists { .. }) if tries < TRIES && self.leadership.check().is_ok() => {
                    tries += 1;
                    journal.look_again().await?;
                }
                result => return result,
            }
        }
    }

    async fn entry(&self, number: u64) -> Result<Value, StoreError> {
        self.journal.lock().await.entry(number).await
    }
}

#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct MemoryJournal(std::sync::Arc<parking_lot::Mutex<Vec<Value>>>);

#[cfg(test)]
impl MemoryJournal {
    pub(crate) fn all(&self) -> Vec<Value> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
#[async_trait]
impl JournalWriter for MemoryJournal {
    async fn append(&self, entry: Value) -> Result<(), StoreError> {
        self.0.lock().push(entry);
        Ok(())
    }

    async fn entry(&self, number: u64) -> Result<Value, StoreError> {
        let found = (1..).zip(self.all()).find(|(at, _)| *at == number);
        found.map(|(_, entry)| entry).ok_or_else(|| StoreError::Corrupt {
            url: "the journal".to_owned(),
            detail: "there is no such entry".to_owned(),
        })
    }
}
