//! What the actions of one backup have started, by the notes about them (`job::action_journal`).

use backup_actions::backup::BackupActionOutput;
use backup_core::{api::Backup, operation::BackupOperation};
use serde_json::Value;

use super::collect::operations::{Done, StartedOperation};
use crate::job::{
    action_journal::{self, Execution, PriorAttempt},
    operations::records,
};

/// The notes of one backup.
pub type ActionJournal = action_journal::ActionJournal<BackupActionOutput>;

/// Operations that were started, by notes: for a backup that comes to nothing.
///
/// # Errors
/// As of [`action_journal::read`].
pub fn started(backup: &Backup, notes: &[Value]) -> Result<Vec<BackupOperation>, serde_json::Error> {
    let started =
        action_journal::read::<BackupActionOutput>(notes)?.into_iter().filter_map(|(of, earlier)| {
            match earlier {
                PriorAttempt::Unknown => None,
                PriorAttempt::Started(done) => operation(of, *done),
            }
        });
    Ok(records::begun(backup, &started.collect::<Vec<_>>()))
}

/// What an action has started, if it has.
pub fn operation(of: Execution, done: Done) -> Option<StartedOperation> {
    Some(StartedOperation {
        action: of.action,
        item: of.item,
        operation: done.executed.operation?,
        after: done.executed.after_operation,
        created: done.at,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_started_is_an_operation() {
        let of = |name: &str| {
            let item = json!({ "groupResource": "configmaps", "namespace": "n", "name": name });
            json!({ "action": "x/a", "item": item })
        };
        let executed = json!({ "additional": [], "operation": "id\u{0}", "afterOperation": [] });
        let at = "2026-01-01T00:00:00Z";
        let notes = [
            json!({ "actionBegun": of("unknown") }),
            json!({ "actionBegun": of("started") }),
            json!({ "actionEnded": of("started"), "started": { "executed": executed, "at": at } }),
            json!({ "actionEnded": of("nothing"), "started": null }),
        ];
        let [operation] = started(&Backup::default(), &notes).unwrap().try_into().unwrap();
        let operation: BackupOperation = operation;
        assert_eq!(operation.spec.operation_id, "id\u{0}");
        assert_eq!(operation.status.created, at.parse().ok());
    }
}
