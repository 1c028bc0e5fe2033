//! Actions that may start asynchronous work which could not be found again by other means: executed
//! once per item, over all attempts of a backup or restore.
//!
//! An entry is written before such an action sees an item, and another one when the action has
//! ended. After a crash the items are processed again: operations that were started continue and
//! are not started a second time; executions that were begun and have no end are reported and not
//! retried, as their outcome is unknown.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_actions::{
    ActionError, ItemId, backup::BackupActionOutput, restore::RestoreActionOutput,
};
use backup_store::{EntryPosition, StoreError, crash};
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::job::journal::{JournalWriter, undecodable};

/// Time that the entry before a call waits to share a write, per other execution in progress: less
/// than the calls of those take, so that the action is busy meanwhile.
const BEGIN_WAIT_PER_EXECUTION: Duration = Duration::from_micros(100);
/// Maximum time that the entry after a call waits to share a write with a later one.
const MAX_END_WAIT: Duration = Duration::from_millis(100);

const BEGUN: &str = "actionBegun";
const ENDED: &str = "actionEnded";
/// Replaces an item that is not held in memory: the position of the entry that contains it.
const IN_ENTRY: &str = "inEntry";

/// Result of an action for an item.
pub(crate) trait ActionOutcome: Clone + Serialize + DeserializeOwned + Send + Sync {
    /// Id of the operation that was started and continues; `None` if none was started.
    fn operation(&self) -> Option<&str>;
}

impl ActionOutcome for BackupActionOutput {
    fn operation(&self) -> Option<&str> {
        self.operation.as_deref()
    }
}

impl ActionOutcome for RestoreActionOutput {
    fn operation(&self) -> Option<&str> {
        self.operation.as_deref()
    }
}

/// The result of an action for an item, and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Done<E> {
    pub executed: E,
    /// Time of the action's answer.
    pub at: Timestamp,
}

/// Outcome of an action on an item in an earlier attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PriorAttempt<E> {
    /// It may have been executed; the outcome is unknown.
    Unknown,
    /// The action started an operation, which continues.
    Started {
        done: Box<Done<E>>,
        /// The entry that contains the item, if `done` does not.
        entry: Option<EntryPosition>,
    },
}

/// Removes the item from an entry: ten thousand of them do not fit in memory.
pub(crate) fn slim(position: EntryPosition, note: &mut Value) {
    if let Some(item) = note
        .pointer_mut("/started/executed/item")
        .filter(|item| !item.is_null())
    {
        *item = json!({ IN_ENTRY: position });
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Execution {
    pub action: String,
    pub item: ItemId,
}

/// Held by an execution from before its first entry until its end is queued in the journal, or
/// durable if there are no other executions.
pub(crate) trait Place: Send {
    /// Number of other executions that are journaled or about to be; entries of this one may wait
    /// for theirs.
    fn others(&self) -> u32;
}

/// Without waiting for other executions.
impl Place for () {
    fn others(&self) -> u32 {
        0
    }
}

/// The action entries of one backup or restore.
pub(crate) struct ActionJournal<E> {
    journal: Arc<dyn JournalWriter>,
    /// Earlier entries that were not reached again so far.
    earlier: Mutex<HashMap<Execution, PriorAttempt<E>>>,
}

impl<E: ActionOutcome> ActionJournal<E> {
    /// Continues from these entries; entries about other things are ignored.
    ///
    /// # Errors
    /// An entry about actions cannot be decoded: then it is unknown what was started.
    pub(crate) fn take_over(
        journal: Arc<dyn JournalWriter>,
        found: &[Value],
    ) -> Result<Self, StoreError> {
        let earlier = read(found).map_err(|error| undecodable("actions on items", &error))?;
        Ok(Self {
            journal,
            earlier: Mutex::new(earlier),
        })
    }

    /// Executes an action on an item, unless an earlier attempt has: then returns the operation
    /// that was started. The outer error ends the work: an execution that cannot be journaled is
    /// not begun, because the replica that takes the work over must know of it. `place` is dropped
    /// once no later entry becomes durable before the end of this execution.
    pub(crate) async fn execute_once(
        &self,
        action: &str,
        item: &ItemId,
        place: impl Place,
        execute: impl Future<Output = Result<E, ActionError>> + Send,
    ) -> Result<Result<Done<E>, ActionError>, StoreError> {
        match self.prior_attempt(action, item) {
            Some(PriorAttempt::Started { done, entry: None }) => return Ok(Ok(*done)),
            Some(PriorAttempt::Started {
                entry: Some(position),
                ..
            }) => {
                let note = self.journal.entry(position).await?;
                let done = serde_json::from_value(note["started"].clone());
                return done
                    .map(Ok)
                    .map_err(|error| undecodable("actions on items", &error));
            }
            Some(PriorAttempt::Unknown) => {
                let reason = "it was executed on this item, or was about to be, by an earlier try that was ended before it had \
                              answered, so it is not executed again";
                return Ok(Err(ActionError::Unknown {
                    action: action.to_owned(),
                    reason: reason.to_owned(),
                }));
            }
            None => {}
        }
        self.begin(action, item, BEGIN_WAIT_PER_EXECUTION * place.others())
            .await?;
        crash::point("before-execution");
        let executed = execute.await.map(|executed| Done {
            executed,
            at: Timestamp::now(),
        });
        crash::point("after-execution");
        let alone = place.others() == 0;
        let patience = if alone { Duration::ZERO } else { MAX_END_WAIT };
        let started = executed
            .as_ref()
            .ok()
            .filter(|done| done.executed.operation().is_some());
        let end = match &executed {
            // Stays open: the replica that takes over must not retry it either.
            Err(ActionError::Unknown { .. }) => None,
            _ => Some(self.end(action, item, started, patience)),
        };
        // A sole execution keeps its place until its end is durable: then a crash between two calls
        // leaves no item in doubt.
        let _place = alone.then_some(place);
        if let Some(end) = end {
            end.await?;
        }
        crash::point("after-execution-recorded");
        Ok(executed)
    }

    /// The outcome of an earlier attempt; `None` if the action may be executed. Each outcome is
    /// returned once.
    fn prior_attempt(&self, action: &str, item: &ItemId) -> Option<PriorAttempt<E>> {
        self.earlier.lock().remove(&Execution {
            action: action.to_owned(),
            item: item.clone(),
        })
    }

    /// Records that an action is about to see an item, and may start an operation.
    async fn begin(
        &self,
        action: &str,
        item: &ItemId,
        patience: Duration,
    ) -> Result<(), StoreError> {
        let note = json!({ BEGUN: { "action": action, "item": item } });
        self.journal.append_within(note, patience).await
    }

    /// Records the end of an action, and what it started.
    fn end(
        &self,
        action: &str,
        item: &ItemId,
        started: Option<&Done<E>>,
        patience: Duration,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let note = json!({ ENDED: { "action": action, "item": item }, "started": started });
        self.journal.append_within(note, patience)
    }

    /// Entries of earlier attempts that this attempt has not reached: their items are gone, or it
    /// has ended early. Returns the started operations, which continue, and messages about
    /// executions whose outcome is unknown.
    pub(crate) fn left(&self) -> (Vec<(Execution, Done<E>)>, Vec<String>) {
        let mut started = Vec::new();
        let mut unknown = Vec::new();
        for (of, earlier) in self.earlier.lock().drain() {
            match earlier {
                PriorAttempt::Started { done, .. } => started.push((of, *done)),
                PriorAttempt::Unknown => unknown.push(format!(
                    "{}: it was executed on {}, or was about to be, by an earlier try that was ended before it had answered; \
                     whether it has started something is not known",
                    of.action,
                    of.item
                )),
            }
        }
        // The map has no order.
        started.sort_by_cached_key(|(_, done): &(Execution, Done<E>)| {
            (done.at, done.executed.operation().map(str::to_owned))
        });
        unknown.sort();
        (started, unknown)
    }
}

/// The operations started according to these entries, of a backup or restore that does not
/// continue.
///
/// # Errors
/// See [`ActionJournal::take_over`].
pub(crate) fn started<E: ActionOutcome>(
    notes: &[Value],
) -> Result<Vec<(Execution, Done<E>)>, serde_json::Error> {
    let mut started = Vec::new();
    for (of, attempt) in read::<E>(notes)? {
        if let PriorAttempt::Started { done, .. } = attempt {
            started.push((of, *done));
        }
    }
    Ok(started)
}

/// Decodes what was begun according to these entries, and its outcome.
fn read<E: ActionOutcome>(
    notes: &[Value],
) -> Result<HashMap<Execution, PriorAttempt<E>>, serde_json::Error> {
    let mut all = HashMap::new();
    for note in notes {
        if let Some(begun) = note.get(BEGUN) {
            all.insert(
                serde_json::from_value(begun.clone())?,
                PriorAttempt::Unknown,
            );
        }
        if let Some(ended) = note.get(ENDED) {
            let of: Execution = serde_json::from_value(ended.clone())?;
            match serde_json::from_value::<Option<Box<Done<E>>>>(note["started"].clone())? {
                Some(done) => {
                    let item = &note["started"]["executed"]["item"];
                    let entry = item.as_object().filter(|item| item.len() == 1);
                    let entry =
                        entry.and_then(|item| EntryPosition::deserialize(item.get(IN_ENTRY)?).ok());
                    all.insert(of, PriorAttempt::Started { done, entry })
                }
                None => all.remove(&of),
            };
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::journal::MemoryJournal;

    fn item(name: &str) -> ItemId {
        ItemId {
            group_resource: "configmaps".into(),
            namespace: Some("n".into()),
            name: name.into(),
        }
    }

    fn done() -> Done<BackupActionOutput> {
        let executed = BackupActionOutput {
            item: Some(json!({ "metadata": { "name": "started" } })),
            additional: vec![item("along")],
            operation: Some("id\u{0}".into()),
            after_operation: vec![item("later")],
        };
        Done {
            executed,
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    #[tokio::test]
    async fn what_was_begun_and_what_was_started_is_found_by_whoever_comes_next() {
        let notes = Arc::new(MemoryJournal::default());
        let first = ActionJournal::take_over(notes.clone(), &[]).unwrap();
        for name in ["started", "nothing", "unknown"] {
            first
                .begin("x/a", &item(name), Duration::ZERO)
                .await
                .unwrap();
        }
        first
            .end("x/a", &item("started"), Some(&done()), Duration::ZERO)
            .await
            .unwrap();
        first
            .end("x/a", &item("nothing"), None, Duration::ZERO)
            .await
            .unwrap();
        let mut found = notes.all();
        found.insert(0, json!({ "hooksPaid": "other" }));

        let next = ActionJournal::<BackupActionOutput>::take_over(notes, &found).unwrap();
        assert_eq!(
            next.prior_attempt("x/a", &item("started")),
            Some(PriorAttempt::Started {
                done: Box::new(done()),
                entry: None
            })
        );
        assert_eq!(
            next.prior_attempt("x/a", &item("unknown")),
            Some(PriorAttempt::Unknown)
        );
        assert_eq!(next.prior_attempt("x/a", &item("nothing")), None);
        assert_eq!(next.prior_attempt("x/b", &item("unknown")), None);
        assert_eq!(next.left(), (vec![], vec![]), "all was asked for");
    }

    #[tokio::test]
    async fn an_item_is_read_again_when_it_is_needed_and_not_held() {
        let notes = Arc::new(MemoryJournal::default());
        let first = ActionJournal::take_over(notes.clone(), &[]).unwrap();
        first
            .begin("x/a", &item("started"), Duration::ZERO)
            .await
            .unwrap();
        first
            .end("x/a", &item("started"), Some(&done()), Duration::ZERO)
            .await
            .unwrap();
        let mut found = notes.all();
        for (key, note) in (1..).zip(&mut found) {
            slim(EntryPosition { key, index: 0 }, note);
        }
        assert!(
            !Value::from(found.clone())
                .to_string()
                .contains("\"name\":\"started\"},\"a"),
            "{found:?}"
        );
        let next = ActionJournal::<BackupActionOutput>::take_over(notes, &found).unwrap();
        let never = async { panic!("it was executed before") };
        assert_eq!(
            next.execute_once("x/a", &item("started"), (), never)
                .await
                .unwrap()
                .unwrap(),
            done()
        );
    }

    #[tokio::test]
    async fn what_is_not_come_past_again_is_not_forgotten() {
        let notes = Arc::new(MemoryJournal::default());
        let first = ActionJournal::take_over(notes.clone(), &[]).unwrap();
        for name in ["started", "unknown", "again"] {
            first
                .begin("x/a", &item(name), Duration::ZERO)
                .await
                .unwrap();
        }
        for name in ["started", "again"] {
            first
                .end("x/a", &item(name), Some(&done()), Duration::ZERO)
                .await
                .unwrap();
        }
        let next =
            ActionJournal::<BackupActionOutput>::take_over(notes.clone(), &notes.all()).unwrap();
        next.prior_attempt("x/a", &item("again")).unwrap();
        let (started, unknown) = next.left();
        assert_eq!(
            started
                .iter()
                .map(|(of, _)| of.item.name.as_str())
                .collect::<Vec<_>>(),
            ["started"]
        );
        assert!(
            unknown.len() == 1 && unknown[0].contains("n/unknown"),
            "{unknown:?}"
        );
    }

    #[test]
    fn a_note_that_can_not_be_understood_is_an_error() {
        for note in [
            json!({ BEGUN: 1 }),
            json!({ ENDED: { "action": "x/a", "item": item("i") }, "started": 1 }),
        ] {
            assert!(
                ActionJournal::<BackupActionOutput>::take_over(
                    Arc::new(MemoryJournal::default()),
                    &[note]
                )
                .is_err()
            );
        }
    }
}
