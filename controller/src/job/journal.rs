//! Entries in the journal of a backup or restore.

use std::{collections::VecDeque, time::Duration};

use async_trait::async_trait;
use backup_runtime::leader::Leadership;
use backup_store::{EntryPosition, Journal, StoreError};
use futures::future::BoxFuture;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

/// Takes entries that the next process must know. Create-only: an entry is never changed.
#[async_trait]
pub(crate) trait JournalWriter: Send + Sync {
    /// Appends an entry. Entries become durable in the order in which they were added. This one is
    /// durable once the future has completed; dropping the future before withdraws it.
    fn append(&self, entry: Value) -> BoxFuture<'_, Result<(), StoreError>>;
    /// Like [`Self::append`], but waits up to `patience` so that entries about to arrive share the
    /// write.
    fn append_within(
        &self,
        entry: Value,
        _patience: Duration,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.append(entry)
    }
    /// The entry at this position, as written.
    async fn entry(&self, position: EntryPosition) -> Result<Value, StoreError>;
}

/// Error for an entry that cannot be decoded: then it is unknown what was done.
pub(crate) fn undecodable(about: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt {
        url: "the private journal".to_owned(),
        detail: format!("an entry about {about} cannot be decoded: {error}"),
    }
}

/// Maximum retries at another key, if one is taken.
const MAX_RETRIES: usize = 5;
/// Maximum size of entries that are written together (bytes): a successor reads several writes at a
/// time.
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// Tokio's timer resolution; shorter waits would be rounded up to it.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// Writes entries to the journal. Entries that arrive during a write wait, and are then written
/// together: a write takes as long for many as for one.
pub(crate) struct JobJournal {
    journal: Mutex<Journal>,
    waiting: parking_lot::Mutex<Waiting>,
    /// All entries up to this number that were not withdrawn are durable.
    durable: watch::Sender<u64>,
    leadership: Leadership,
    /// A member that is added to every entry.
    stamp: Option<(&'static str, String)>,
}

/// Entries that are not durable yet, in order of arrival. For each of them a caller waits.
#[derive(Default)]
struct Waiting {
    notes: VecDeque<WaitingNote>,
    /// Number of the latest entry.
    last: u64,
}

struct WaitingNote {
    number: u64,
    note: Box<RawValue>,
}

/// Withdraws an entry when its caller no longer waits for it.
struct Place<'a> {
    waiting: &'a parking_lot::Mutex<Waiting>,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting
            .lock()
            .notes
            .retain(|waiting| waiting.number != self.number);
    }
}

impl Waiting {
    fn add(&mut self, note: Box<RawValue>) -> u64 {
        self.last += 1;
        self.notes.push_back(WaitingNote {
            number: self.last,
            note,
        });
        self.last
    }

    /// The entries to write next, and the number of the last of them.
    fn batch(&self) -> (Vec<Box<RawValue>>, u64) {
        let mut size = 0;
        let mut batch = Vec::new();
        let mut last = 0;
        for waiting in &self.notes {
            size += waiting.note.get().len();
            if !batch.is_empty() && size > MAX_BATCH_BYTES {
                break;
            }
            batch.push(waiting.note.clone());
            last = waiting.number;
        }
        (batch, last)
    }

    /// Removes the durable entries, up to this one.
    fn written(&mut self, last: u64) {
        self.notes.retain(|waiting| waiting.number > last);
    }
}

impl JobJournal {
    /// New entries follow those that were read from this journal.
    pub(crate) fn new(journal: Journal, leadership: Leadership) -> Self {
        Self {
            journal: Mutex::new(journal),
            waiting: parking_lot::Mutex::default(),
            durable: watch::Sender::default(),
            leadership,
            stamp: None,
        }
    }

    /// Adds this member to every entry; readers select entries by it.
    #[must_use]
    pub(crate) fn stamped(self, member: &'static str, value: &str) -> Self {
        Self {
            stamp: Some((member, value.to_owned())),
            ..self
        }
    }

    /// The previous leader may have added entries before it noticed that it had lost leadership.
    /// Entries do not depend on one another, so the next key is as good.
    async fn write(
        &self,
        journal: &mut Journal,
        notes: &[Box<RawValue>],
    ) -> Result<(), StoreError> {
        let mut tries = 0;
        loop {
            match journal.add(notes).await {
                Err(StoreError::Exists { .. })
                    if tries < MAX_RETRIES && self.leadership.check().is_ok() =>
                {
                    tries += 1;
                    journal.look_again().await?;
                }
                result => return result,
            }
        }
    }

    /// The first caller writes all waiting entries, also of other callers. If that fails, it
    /// withdraws its own entry, and each of the others retries once by itself. A caller with
    /// `patience` first waits that long for another caller's write.
    fn add(&self, mut note: Value, patience: Duration) -> BoxFuture<'_, Result<(), StoreError>> {
        if let Some((member, value)) = &self.stamp {
            note[*member] = Value::from(value.as_str());
        }
        let note = match to_raw_value(&note) {
            Ok(note) => note,
            Err(error) => {
                let error = StoreError::Io {
                    action: "encode an entry of a journal".to_owned(),
                    detail: error.to_string(),
                };
                return Box::pin(std::future::ready(Err(error)));
            }
        };
        let number = self.waiting.lock().add(note);
        let place = Place {
            waiting: &self.waiting,
            number,
        };
        Box::pin(async move {
            // Captures the whole guard, or it would be dropped at once.
            let place = place;
            if patience < TIMER_RESOLUTION {
                // Entries of the same moment are still written together.
                tokio::task::yield_now().await;
            } else {
                let mut durable = self.durable.subscribe();
                let _ = timeout(
                    patience,
                    durable.wait_for(|durable| *durable >= place.number),
                )
                .await;
            }
            let mut journal = self.journal.lock().await;
            while *self.durable.borrow() < place.number {
                let (batch, last) = self.waiting.lock().batch();
                self.write(&mut journal, &batch).await?;
                self.waiting.lock().written(last);
                self.durable.send_replace(last);
            }
            Ok(())
        })
    }
}

#[async_trait]
impl JournalWriter for JobJournal {
    fn append(&self, note: Value) -> BoxFuture<'_, Result<(), StoreError>> {
        self.add(note, Duration::ZERO)
    }

    fn append_within(
        &self,
        note: Value,
        patience: Duration,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.add(note, patience)
    }

    async fn entry(&self, position: EntryPosition) -> Result<Value, StoreError> {
        self.journal.lock().await.entry(position).await
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
    fn append(&self, entry: Value) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.lock().push(entry);
        Box::pin(std::future::ready(Ok(())))
    }

    async fn entry(&self, position: EntryPosition) -> Result<Value, StoreError> {
        let found = (1..).zip(self.all()).find(|(key, _)| *key == position.key);
        found
            .map(|(_, entry)| entry)
            .ok_or_else(|| StoreError::Corrupt {
                url: "the journal".to_owned(),
                detail: "there is no such entry".to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::Restore;
    use backup_store::Location;
    use futures::future::join_all;
    use serde_json::json;

    use super::*;
    use crate::testing::local_location;

    fn location() -> (tempfile::TempDir, Location) {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::open(&local_location(folder.path()), None, None).unwrap();
        (folder, location)
    }

    fn journal(location: &Location) -> JobJournal {
        JobJournal::new(
            location.new_journal::<Restore>("r", "u").unwrap(),
            Leadership::always(),
        )
    }

    /// The entries that the next process finds, and their number of keys.
    async fn written(location: &Location) -> (Vec<Value>, usize) {
        let keys = |position: EntryPosition, note: &mut Value| *note = json!([position.key, *note]);
        let (_, entries) = location.journal::<Restore>("r", "u", keys).await.unwrap();
        let keys: std::collections::BTreeSet<u64> = entries
            .iter()
            .filter_map(|entry| entry[0].as_u64())
            .collect();
        (
            entries.into_iter().map(|entry| entry[1].clone()).collect(),
            keys.len(),
        )
    }

    #[tokio::test]
    async fn notes_that_wait_for_a_write_share_the_next_one() {
        let (_folder, location) = location();
        let journal = journal(&location);
        let all = (0..100).map(|number| journal.append(json!({ "number": number })));
        assert!(join_all(all).await.iter().all(Result::is_ok));
        let (entries, keys) = written(&location).await;
        assert_eq!(
            entries,
            (0..100)
                .map(|number| json!({ "number": number }))
                .collect::<Vec<_>>()
        );
        assert_eq!(keys, 1);
        let position = EntryPosition { key: 1, index: 42 };
        assert_eq!(
            journal.entry(position).await.unwrap(),
            json!({ "number": 42 })
        );
        assert!(
            journal
                .entry(EntryPosition {
                    index: 100,
                    ..position
                })
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn notes_of_the_same_moment_are_written_together() {
        let (_folder, location) = location();
        let journal = &journal(&location);
        let all = (0..100).map(async |number| journal.append(json!(number)).await);
        assert!(join_all(all).await.iter().all(Result::is_ok));
        assert_eq!(written(&location).await.1, 1);
    }

    #[tokio::test]
    async fn a_note_that_may_wait_is_written_with_the_next_one_or_soon() {
        let (_folder, location) = location();
        let journal = journal(&location);
        let mut soon = journal.append_within(json!(1), Duration::from_millis(100));
        assert!(futures::poll!(&mut soon).is_pending());
        let other = timeout(Duration::from_secs(5), journal.append(json!(2)));
        other
            .await
            .expect("the first one is being written")
            .unwrap();
        soon.await.unwrap();
        assert_eq!(written(&location).await, (vec![json!(1), json!(2)], 1));
        journal
            .append_within(json!(3), Duration::from_millis(10))
            .await
            .unwrap();
        assert_eq!(written(&location).await.1, 2);
    }

    #[tokio::test]
    async fn large_notes_are_not_written_together() {
        let (_folder, location) = location();
        let journal = journal(&location);
        let text = "x".repeat(MAX_BATCH_BYTES * 2 / 5);
        let all = (0..9).map(|number| journal.append(json!({ "number": number, "text": text })));
        assert!(join_all(all).await.iter().all(Result::is_ok));
        let (entries, keys) = written(&location).await;
        assert_eq!((entries.len(), keys), (9, 5), "four times two, and one");
    }

    #[tokio::test]
    async fn a_note_whose_caller_is_gone_is_not_written() {
        let (_folder, location) = location();
        let journal = journal(&location);
        let held = journal.journal.lock().await;
        let mut dropped = Box::pin(journal.append(json!("dropped")));
        assert!(futures::poll!(&mut dropped).is_pending());
        drop(dropped);
        drop(held);
        journal.append(json!("kept")).await.unwrap();
        assert_eq!(written(&location).await.0, [json!("kept")]);
    }

    /// As after a replica that did not notice that it was replaced.
    #[tokio::test]
    async fn notes_find_another_place_where_theirs_is_taken() {
        let (_folder, location) = location();
        let (late, journal) = (journal(&location), journal(&location));
        late.append(json!("late")).await.unwrap();
        let both = tokio::join!(journal.append(json!(1)), journal.append(json!(2)));
        assert!(both.0.is_ok() && both.1.is_ok());
        assert_eq!(
            written(&location).await.0,
            [json!("late"), json!(1), json!(2)]
        );
    }
}
