//! Actions that may start what goes on, and what could not be found again by other means: executed once for an item, in all
//! tries of a backup or restore.
//!
//! A note is written before such an action sees an item, and another one when it has ended. After a crash the items are
//! looked at again: what was started goes on, and is not started a second time; what was begun and never ended is told, and
//! not tried again, as nobody knows what came of it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_actions::{ActionError, ItemId, backup::BackupActionOutput, restore::RestoreActionOutput};
use backup_store::{EntryPosition, StoreError, crash};
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::job::journal::{JournalWriter, undecodable};

/// How long the note before a call waits for others to be written with, for each other item that is noted: less than their calls
/// take, so that the action has something to do meanwhile.
const BEFORE: Duration = Duration::from_micros(100);
/// How long the note after a call waits at most for that before a later one.
const AFTER: Duration = Duration::from_millis(100);

const BEGUN: &str = "actionBegun";
const ENDED: &str = "actionEnded";
/// In the place of an item that is not held in memory: the position of the entry that has it.
const IN_ENTRY: &str = "inEntry";

/// What an action has made of an item.
pub(crate) trait ActionOutcome: Clone + Serialize + DeserializeOwned + Send + Sync {
    /// The id of what was started and goes on; none if nothing did.
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

/// What an action has done with an item, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Done<E> {
    pub executed: E,
    /// When it said so.
    pub at: Timestamp,
}

/// What is known of an action on an item from an earlier try.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PriorAttempt<E> {
    /// It was executed, and nobody knows what came of it.
    Unknown,
    /// It has started an operation, which goes on.
    Started {
        done: Box<Done<E>>,
        /// The entry that has the item, where `done` has it not.
        entry: Option<EntryPosition>,
    },
}

/// Takes the item out of an entry: ten thousand of them have no place in memory.
pub(crate) fn slim(position: EntryPosition, note: &mut Value) {
    if let Some(item) = note.pointer_mut("/started/executed/item").filter(|item| !item.is_null()) {
        *item = json!({ IN_ENTRY: position });
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Execution {
    pub action: String,
    pub item: ItemId,
}

/// What an execution holds from before it is noted until its end is in the queue of the journal, or is durable where there are no
/// others.
pub(crate) trait Place: Send {
    /// Other executions that are noted, or about to be, so that notes of this one may wait for theirs.
    fn others(&self) -> u32;
}

/// No other execution is waited for.
impl Place for () {
    fn others(&self) -> u32 {
        0
    }
}

/// The notes of one backup or restore.
pub(crate) struct ActionJournal<E> {
    journal: Arc<dyn JournalWriter>,
    /// What was not come past again so far.
    earlier: Mutex<HashMap<Execution, PriorAttempt<E>>>,
}

impl<E: ActionOutcome> ActionJournal<E> {
    /// Goes on from these notes; those about other things are passed over.
    ///
    /// # Errors
    /// A note about actions that can't be understood: then nobody knows what was started.
    pub(crate) fn take_over(journal: Arc<dyn JournalWriter>, found: &[Value]) -> Result<Self, StoreError> {
        let earlier = read(found).map_err(|error| undecodable("actions on items", &error))?;
        Ok(Self { journal, earlier: Mutex::new(earlier) })
    }

    /// Executes an action on an item, unless an earlier try has: then what that has started is taken as it was. The outer error
    /// ends the work: what could not be noted is not executed, because the replica that takes the work over must know of it.
    /// `place` is dropped once no later note becomes durable before the end of this execution.
    pub(crate) async fn execute_once(
        &self,
        action: &str,
        item: &ItemId,
        place: impl Place,
        execute: impl Future<Output = Result<E, ActionError>> + Send,
    ) -> Result<Result<Done<E>, ActionError>, StoreError> {
        match self.prior_attempt(action, item) {
            Some(PriorAttempt::Started { done, entry: None }) => return Ok(Ok(*done)),
            Some(PriorAttempt::Started { entry: Some(position), .. }) => {
                let note = self.journal.entry(position).await?;
                let done = serde_json::from_value(note["started"].clone());
                return done.map(Ok).map_err(|error| undecodable("actions on items", &error));
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
        self.begin(action, item, BEFORE * place.others()).await?;
        crash::point("before-execution");
        let executed = execute.await.map(|executed| Done { executed, at: Timestamp::now() });
        crash::point("after-execution");
        let alone = place.others() == 0;
        let patience = if alone { Duration::ZERO } else { AFTER };
        let started = executed.as_ref().ok().filter(|done| done.executed.operation().is_some());
        let end = match &executed {
            // Stays open: the replica that takes this up must not try it again either.
            Err(ActionError::Unknown { .. }) => None,
            _ => Some(self.end(action, item, started, patience)),
        };
        // Alone, it keeps its place until its end is durable: a crash between two calls leaves out no item.
        let _place = alone.then_some(place);
        if let Some(end) = end {
            end.await?;
        }
        crash::point("after-execution-recorded");
        Ok(executed)
    }

    /// What an earlier try has made of an action on an item; none if it may be executed. Asked once for each.
    fn prior_attempt(&self, action: &str, item: &ItemId) -> Option<PriorAttempt<E>> {
        self.earlier.lock().remove(&Execution { action: action.to_owned(), item: item.clone() })
    }

    /// An action is about to see an item, and may start something.
    async fn begin(&self, action: &str, item: &ItemId, patience: Duration) -> Result<(), StoreError> {
        let note = json!({ BEGUN: { "action": action, "item": item } });
        self.journal.append_within(note, patience).await
    }

    /// It has ended, and has started something or not.
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

    /// What earlier tries have left and this one has not come past: their items are gone by now, or it has ended early. With
    /// each operation goes on what was started; of the rest nobody knows, as sentences for people.
    pub(crate) fn left(&self) -> (Vec<(Execution, Done<E>)>, Vec<String>) {
        let (mut started, mut unknown) = (Vec::new(), Vec::new());
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
        // In no order so far.
        let key = |(_, done): &(Execution, Done<E>)| (done.at, done.executed.operation().map(str::to_owned));
        started.sort_by_cached_key(key);
        unknown.sort();
        (started, unknown)
    }
}

/// What was started by these notes, of a backup or restore that does not go on.
///
/// # Errors
/// As of [`ActionJournal::take_over`].
pub(crate) fn started<E: ActionOutcome>(
    notes: &[Value],
) -> Result<Vec<(Execution, Done<E>)>, serde_json::Error> {
    let started = |(of, attempt)| match attempt {
        PriorAttempt::Unknown => None,
        PriorAttempt::Started { done, .. } => Some((of, *done)),
    };
    Ok(read(notes)?.into_iter().filter_map(started).collect())
}

/// What notes say was begun, and what has come of it.
fn read<E: ActionOutcome>(notes: &[Value]) -> Result<HashMap<Execution, PriorAttempt<E>>, serde_json::Error> {
    let mut all = HashMap::new();
    for note in notes {
        if let Some(begun) = note.get(BEGUN) {
            all.insert(serde_json::from_value(begun.clone())?, PriorAttempt::Unknown);
        }
        if let Some(ended) = note.get(ENDED) {
            let of: Execution = serde_json::from_value(ended.clone())?;
            match serde_json::from_value::<Option<Box<Done<E>>>>(note["started"].clone())? {
                Some(done) => {
                    let item = &note["started"]["executed"]["item"];
                    let entry = item.as_object().filter(|item| item.len() == 1);
                    let entry = entry.and_then(|item| EntryPosition::deserialize(item.get(IN_ENTRY)?).ok());
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
        ItemId { group_resource: "configmaps".into(), namespace: Some("n".into()), name: name.into() }
    }

    fn done() -> Done<BackupActionOutput> {
        let executed = BackupActionOutput {
            item: Some(json!({ "metadata": { "name": "started" } })),
            additional: vec![item("along")],
            operation: Some("id\u{0}".into()),
            after_operation: vec![item("later")],
        };
        Done { executed, at: "2026-01-01T00:00:00Z".parse().unwrap() }
    }

    #[tokio::test]
    async fn what_was_begun_and_what_was_started_is_found_by_whoever_comes_next() {
        let notes = Arc::new(MemoryJournal::default());
        let first = ActionJournal::take_over(notes.clone(), &[]).unwrap();
        for name in ["started", "nothing", "unknown"] {
            first.begin("x/a", &item(name), Duration::ZERO).await.unwrap();
        }
        first.end("x/a", &item("started"), Some(&done()), Duration::ZERO).await.unwrap();
        first.end("x/a", &item("nothing"), None, Duration::ZERO).await.unwrap();
        let mut found = notes.all();
        found.insert(0, json!({ "hooksPaid": "other" }));

        let next = ActionJournal::<BackupActionOutput>::take_over(notes, &found).unwrap();
        assert_eq!(
            next.prior_attempt("x/a", &item("started")),
            Some(PriorAttempt::Started { done: Box::new(done()), entry: None })
        );
        assert_eq!(next.prior_attempt("x/a", &item("unknown")), Some(PriorAttempt::Unknown));
        assert_eq!(next.prior_attempt("x/a", &item("nothing")), None);
        assert_eq!(next.prior_attempt("x/b", &item("unknown")), None);
        assert_eq!(next.left(), (vec![], vec![]), "all was asked for");
    }

    #[tokio::test]
    async fn an_item_is_read_again_when_it_is_needed_and_not_held() {
        let notes = Arc::new(MemoryJournal::default());
        let first = ActionJournal::take_over(notes.clone(), &[]).unwrap();
        first.begin("x/a", &item("started"), Duration::ZERO).await.unwrap();
        first.end("x/a", &item("started"), Some(&done()), Duration::ZERO).await.unwrap();
        let mut found = notes.all();
        for (key, note) in (1..).zip(&mut found) {
            slim(EntryPosition { key, index: 0 }, note);
        }
        assert!(!Value::from(found.clone()).to_string().contains("\"name\":\"started\"},\"a"), "{found:?}");
        let next = ActionJournal::<BackupActionOutput>::take_over(notes, &found).unwrap();
        let never = async { panic!("it was executed before") };
        assert_eq!(next.execute_once("x/a", &item("started"), (), never).await.unwrap().unwrap(), done());
    }

    #[tokio::test]
    async fn what_is_not_come_past_again_is_not_forgotten() {
        let notes = Arc::new(MemoryJournal::default());
        let first = ActionJournal::take_over(notes.clone(), &[]).unwrap();
        for name in ["started", "unknown", "again"] {
            first.begin("x/a", &item(name), Duration::ZERO).await.unwrap();
        }
        for name in ["started", "again"] {
            first.end("x/a", &item(name), Some(&done()), Duration::ZERO).await.unwrap();
        }
        let next = ActionJournal::<BackupActionOutput>::take_over(notes.clone(), &notes.all()).unwrap();
        next.prior_attempt("x/a", &item("again")).unwrap();
        let (started, unknown) = next.left();
        assert_eq!(started.iter().map(|(of, _)| of.item.name.as_str()).collect::<Vec<_>>(), ["started"]);
        assert!(unknown.len() == 1 && unknown[0].contains("n/unknown"), "{unknown:?}");
    }

    #[test]
    fn a_note_that_can_not_be_understood_is_an_error() {
        for note in
            [json!({ BEGUN: 1 }), json!({ ENDED: { "action": "x/a", "item": item("i") }, "started": 1 })]
        {
            assert!(
                ActionJournal::<BackupActionOutput>::take_over(Arc::new(MemoryJournal::default()), &[note])
                    .is_err()
            );
        }
    }
}
