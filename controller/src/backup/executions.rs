//! Notes of actions that were executed on items, and of what they have started.
//!
//! A note is written before such an action sees an item, and another one when it has ended. After a crash the items are
//! collected again: what was started goes on, and is not started a second time; what was begun and never ended is told, and
//! not tried again, as nobody knows what came of it.

use std::{collections::HashMap, sync::Arc};

use backup_core::{api::Backup, operation::BackupOperation};
use backup_store::StoreError;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    action::ItemId,
    collect::{
        name_of,
        operations::{Done, Earlier, Operations, StartedOperation},
    },
    hooks::Notes,
};
use crate::operations::kept;

const BEGUN: &str = "actionBegun";
const ENDED: &str = "actionEnded";

/// An action on an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Execution {
    action: String,
    item: ItemId,
}

/// The notes of one backup.
pub struct Executions {
    notes: Arc<dyn Notes>,
    earlier: HashMap<Execution, Earlier>,
}

impl Executions {
    /// Goes on from these notes; those about other things are passed over.
    ///
    /// # Errors
    /// A note about actions that can't be understood: then nobody knows what was started.
    pub fn take_over(notes: Arc<dyn Notes>, found: &[Value]) -> Result<Self, StoreError> {
        let earlier = read(found).map_err(|error| StoreError::Corrupt {
            url: "the notes of this backup".to_owned(),
            detail: format!("a note about actions on items can't be understood: {error}"),
        })?;
        Ok(Self { notes, earlier })
    }

    /// What earlier tries have left and this one has not come past: their items are gone by now, or it has ended early. With
    /// each operation goes on what was started; of the rest nobody knows.
    pub fn left(&mut self) -> (Vec<StartedOperation>, Vec<String>) {
        let mut unknown = Vec::new();
        let mut started = Vec::new();
        for (of, earlier) in self.earlier.drain() {
            match earlier {
                Earlier::Started(done) => started.extend(operation(of, *done)),
                Earlier::Unknown => unknown.push(format!(
                    "{}: it was executed on {} by an earlier try of this backup that was ended before it had answered; whether \
                     it has started something is not known",
                    of.action,
                    name_of(&of.item)
                )),
            }
        }
        // In no order so far.
        started.sort_by(|a, b| (a.created, &a.operation).cmp(&(b.created, &b.operation)));
        unknown.sort();
        (started, unknown)
    }
}

fn operation(of: Execution, done: Done) -> Option<StartedOperation> {
    Some(StartedOperation {
        action: of.action,
        item: of.item,
        operation: done.executed.operation?,
        after: done.executed.after_operation,
        created: done.at,
    })
}

/// Operations that were started, by notes: for a backup that comes to nothing.
///
/// # Errors
/// As of [`Executions::take_over`].
pub fn started(backup: &Backup, notes: &[Value]) -> Result<Vec<BackupOperation>, serde_json::Error> {
    let started = read(notes)?.into_iter().filter_map(|(of, earlier)| match earlier {
        Earlier::Unknown => None,
        Earlier::Started(done) => operation(of, *done),
    });
    Ok(kept::begun(backup, &started.collect::<Vec<_>>()))
}

fn read(notes: &[Value]) -> Result<HashMap<Execution, Earlier>, serde_json::Error> {
    let mut all = HashMap::new();
    for note in notes {
        if let Some(begun) = note.get(BEGUN) {
            all.insert(serde_json::from_value(begun.clone())?, Earlier::Unknown);
        }
        if let Some(ended) = note.get(ENDED) {
            let of: Execution = serde_json::from_value(ended.clone())?;
            match serde_json::from_value::<Option<Box<Done>>>(note["started"].clone())? {
                Some(done) => all.insert(of, Earlier::Started(done)),
                None => all.remove(&of),
            };
        }
    }
    Ok(all)
}

impl Operations for Executions {
    fn earlier(&mut self, action: &str, item: &ItemId) -> Option<Earlier> {
        self.earlier.remove(&Execution { action: action.to_owned(), item: item.clone() })
    }

    fn intended<'a>(
        &'a mut self,
        action: &'a str,
        item: &'a ItemId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.notes.note(json!({ BEGUN: { "action": action, "item": item } }))
    }

    fn ended<'a>(
        &'a mut self,
        action: &'a str,
        item: &'a ItemId,
        started: Option<&'a Done>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.notes.note(json!({ ENDED: { "action": action, "item": item }, "started": started }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::{action::Executed, hooks::fake::Kept};

    fn item(name: &str) -> ItemId {
        ItemId { group_resource: "configmaps".into(), namespace: Some("n".into()), name: name.into() }
    }

    fn done() -> Done {
        let executed = Executed {
            item: Some(json!({ "metadata": { "name": "started" } })),
            additional: vec![item("along")],
            operation: Some("id\u{0}".into()),
            after_operation: vec![item("later")],
        };
        Done { executed, at: "2026-01-01T00:00:00Z".parse().unwrap() }
    }

    #[tokio::test]
    async fn what_was_begun_and_what_was_started_is_found_by_whoever_comes_next() {
        let notes = Arc::new(Kept::default());
        let mut first = Executions::take_over(notes.clone(), &[]).unwrap();
        for name in ["started", "nothing", "unknown"] {
            first.intended("x/a", &item(name)).await.unwrap();
        }
        first.ended("x/a", &item("started"), Some(&done())).await.unwrap();
        first.ended("x/a", &item("nothing"), None).await.unwrap();
        let mut found = notes.all();
        found.insert(0, json!({ "hooksPaid": "other" }));

        let mut next = Executions::take_over(notes, &found).unwrap();
        assert_eq!(next.earlier("x/a", &item("started")), Some(Earlier::Started(Box::new(done()))));
        assert_eq!(next.earlier("x/a", &item("unknown")), Some(Earlier::Unknown));
        assert_eq!(next.earlier("x/a", &item("nothing")), None);
        assert_eq!(next.earlier("x/b", &item("unknown")), None);
        assert_eq!(next.left(), (vec![], vec![]), "all was asked for");

        let [operation] = started(&Backup::default(), &found).unwrap().try_into().unwrap();
        let operation: BackupOperation = operation;
        assert_eq!(operation.spec.operation_id, "id\u{0}");
        assert_eq!(operation.status.created, Some(done().at));
    }

    #[tokio::test]
    async fn what_is_not_come_past_again_is_not_forgotten() {
        let notes = Arc::new(Kept::default());
        let mut first = Executions::take_over(notes.clone(), &[]).unwrap();
        for name in ["started", "unknown", "again"] {
            first.intended("x/a", &item(name)).await.unwrap();
        }
        for name in ["started", "again"] {
            first.ended("x/a", &item(name), Some(&done())).await.unwrap();
        }
        let mut next = Executions::take_over(notes.clone(), &notes.all()).unwrap();
        next.earlier("x/a", &item("again")).unwrap();
        let (started, unknown) = next.left();
        assert_eq!(started.iter().map(|one| one.item.name.as_str()).collect::<Vec<_>>(), ["started"]);
        assert!(unknown.len() == 1 && unknown[0].contains("n/unknown"), "{unknown:?}");
    }

    #[test]
    fn a_note_that_can_not_be_understood_is_an_error() {
        for note in
            [json!({ BEGUN: 1 }), json!({ ENDED: { "action": "x/a", "item": item("i") }, "started": 1 })]
        {
            assert!(Executions::take_over(Arc::new(Kept::default()), &[note]).is_err());
        }
    }
}
