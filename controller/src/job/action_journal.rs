//! Actions that may start asynchronous work which could not be found again by other means: executed
//! once per item, over all attempts of a backup or restore.
//!
//! An entry is written before such an action sees an item, and another one when the action has
//! ended. After a crash the items are processed again: operations that were started continue and
//! are not started a second time; executions that were begun and have no end are reported and not
//! retried, as their outcome is unknown.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backup_actions::{
    ActionError, ItemId, backup::BackupActionOutput, restore::RestoreActionOutput,
};
use backup_store::{EntryPosition, StoreError, crash};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::job::{
    journal::{JournalWriter, undecodable},
    step_journal::{self, StepJournal, StepState},
};

/// Time that the entry before a call waits to share a write, per other execution in progress: less
/// than the calls of those take, so that the action is busy meanwhile.
const BEGIN_WAIT_PER_EXECUTION: Duration = Duration::from_micros(100);
/// Maximum time that the entry after a call waits to share a write with a later one.
const MAX_END_WAIT: Duration = Duration::from_millis(100);

/// Replaces an item that is not held in memory: the position of the entry that contains it.
const IN_ENTRY: &str = "inEntry";

/// Result of an action for an item.
pub(crate) trait ActionOutcome:
    Clone + Serialize + DeserializeOwned + Send + Sync + 'static
{
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

impl<E: ActionOutcome> StepState for PriorAttempt<E> {
    const STEPS: &'static str = "actions on items";
    const BEGUN: &'static str = "actionBegun";
    const ENDED: &'static str = "actionEnded";
    type Step = Execution;
    type Key = Execution;
    /// What the action started.
    type End<'a> = Option<&'a Done<E>>;

    fn begun(execution: Execution) -> (Execution, Self) {
        (execution, Self::Unknown)
    }

    fn end_entry(execution: &Execution, started: Option<&Done<E>>) -> Value {
        json!({ Self::ENDED: execution, "started": started })
    }

    fn ended(entry: &Value) -> Result<(Execution, Option<Self>), serde_json::Error> {
        let execution = Execution::deserialize(&entry[Self::ENDED])?;
        let started = &entry["started"];
        let done = Option::<Box<Done<E>>>::deserialize(started)?;
        let item = &started["executed"]["item"];
        let position = item.as_object().filter(|item| item.len() == 1);
        let position =
            position.and_then(|item| EntryPosition::deserialize(item.get(IN_ENTRY)?).ok());
        let state = done.map(|done| Self::Started {
            done,
            entry: position,
        });
        Ok((execution, state))
    }
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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
pub(crate) struct ActionJournal<E: ActionOutcome> {
    executions: StepJournal<PriorAttempt<E>>,
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
        Ok(Self {
            executions: StepJournal::take_over(journal, found)?,
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
        let execution = Execution {
            action: action.to_owned(),
            item: item.clone(),
        };
        match self.executions.take_prior(&execution) {
            Some(PriorAttempt::Started { done, entry: None }) => return Ok(Ok(*done)),
            Some(PriorAttempt::Started {
                entry: Some(position),
                ..
            }) => {
                let note = self.executions.entry(position).await?;
                let done = serde_json::from_value(note["started"].clone());
                return done
                    .map(Ok)
                    .map_err(|error| undecodable(PriorAttempt::<E>::STEPS, &error));
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
        let wait = BEGIN_WAIT_PER_EXECUTION * place.others();
        self.executions.begin_within(&execution, wait).await?;
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
            _ => Some(self.executions.end_within(&execution, started, patience)),
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

    /// Entries of earlier attempts that this attempt has not reached: their items are gone, or it
    /// has ended early. Returns the started operations, which continue, and messages about
    /// executions whose outcome is unknown.
    pub(crate) fn left(&self) -> (Vec<(Execution, Done<E>)>, Vec<String>) {
        let mut started = Vec::new();
        let mut unknown = Vec::new();
        for (of, earlier) in self.executions.left() {
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
    let attempts: BTreeMap<Execution, PriorAttempt<E>> = step_journal::states(notes)?;
    for (of, attempt) in attempts {
        if let PriorAttempt::Started { done, .. } = attempt {
            started.push((of, *done));
        }
    }
    Ok(started)
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

    fn execution(name: &str) -> Execution {
        Execution {
            action: "x/a".to_owned(),
            item: item(name),
        }
    }

    type Journal = ActionJournal<BackupActionOutput>;

    async fn begin(journal: &Journal, name: &str) {
        let begun = journal.executions.begin(&execution(name));
        begun.await.unwrap();
    }

    async fn end(journal: &Journal, name: &str, started: Option<&Done<BackupActionOutput>>) {
        let ended = journal.executions.end(&execution(name), started);
        ended.await.unwrap();
    }

    /// A process of another version may read the journal of a job that runs.
    #[tokio::test]
    async fn entries_are_those_that_other_versions_write() {
        let notes = Arc::new(MemoryJournal::default());
        let journal = Journal::take_over(notes.clone(), &[]).unwrap();
        begin(&journal, "i").await;
        end(&journal, "i", Some(&done())).await;
        end(&journal, "i", None).await;
        let of = json!({ "action": "x/a",
            "item": { "groupResource": "configmaps", "namespace": "n", "name": "i" } });
        let executed = json!({ "item": { "metadata": { "name": "started" } },
            "additional": [item("along")], "operation": "id\u{0}",
            "afterOperation": [item("later")] });
        let expected = [
            json!({ "actionBegun": of }),
            json!({ "actionEnded": of,
                "started": { "executed": executed, "at": "2026-01-01T00:00:00Z" } }),
            json!({ "actionEnded": of, "started": null }),
        ];
        assert_eq!(notes.all(), expected);
    }

    #[tokio::test]
    async fn what_was_begun_and_what_was_started_is_found_by_whoever_comes_next() {
        let notes = Arc::new(MemoryJournal::default());
        let first = Journal::take_over(notes.clone(), &[]).unwrap();
        for name in ["started", "nothing", "unknown"] {
            begin(&first, name).await;
        }
        end(&first, "started", Some(&done())).await;
        end(&first, "nothing", None).await;
        let mut found = notes.all();
        found.insert(0, json!({ "hooksCompleted": "other" }));

        let next = Journal::take_over(notes, &found).unwrap().executions;
        assert_eq!(
            next.take_prior(&execution("started")),
            Some(PriorAttempt::Started {
                done: Box::new(done()),
                entry: None
            })
        );
        assert_eq!(next.take_prior(&execution("nothing")), None);
        let other_action = Execution {
            action: "x/b".to_owned(),
            ..execution("unknown")
        };
        assert_eq!(next.take_prior(&other_action), None);
        assert_eq!(
            next.take_prior(&execution("unknown")),
            Some(PriorAttempt::Unknown)
        );
        assert!(next.left().is_empty(), "all was asked for");
    }

    #[tokio::test]
    async fn an_item_is_read_again_when_it_is_needed_and_not_held() {
        let notes = Arc::new(MemoryJournal::default());
        let first = Journal::take_over(notes.clone(), &[]).unwrap();
        begin(&first, "started").await;
        end(&first, "started", Some(&done())).await;
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
        let next = Journal::take_over(notes, &found).unwrap();
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
        let first = Journal::take_over(notes.clone(), &[]).unwrap();
        for name in ["started", "unknown", "again"] {
            begin(&first, name).await;
        }
        for name in ["started", "again"] {
            end(&first, name, Some(&done())).await;
        }
        let next = Journal::take_over(notes.clone(), &notes.all()).unwrap();
        next.executions.take_prior(&execution("again")).unwrap();
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
            json!({ "actionBegun": 1 }),
            json!({ "actionEnded": { "action": "x/a", "item": item("i") }, "started": 1 }),
        ] {
            assert!(Journal::take_over(Arc::new(MemoryJournal::default()), &[note]).is_err());
        }
    }
}
