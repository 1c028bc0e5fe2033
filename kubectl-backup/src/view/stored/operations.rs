//! Asynchronous operations and their progress.

use backup_core::operation::{Operation, OperationPhase};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    print::{Style, Tone, plain, size, table},
    view::table_kind::{age, dash},
};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperationList {
    pub(crate) of: String,
    /// Failed operations, then running ones, then the others.
    pub(crate) items: Vec<OperationView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperationView {
    /// The item that the operation belongs to: `plural.group namespace/name`.
    pub(crate) item: String,
    pub(crate) action: String,
    /// The operation's id, chosen by the action.
    pub(crate) id: String,
    /// New, InProgress, Completed or Failed, as the server wrote it.
    pub(crate) phase: String,
    #[serde(skip)]
    pub(crate) tone: Tone,
    pub(crate) done: i64,
    /// Total number of units; 0 if the action does not report it.
    pub(crate) total: i64,
    pub(crate) units: String,
    pub(crate) description: String,
    /// Why it failed; for a running operation, the last error.
    pub(crate) error: String,
    pub(crate) created: Option<Timestamp>,
    /// Start time, reported by the action.
    pub(crate) started: Option<Timestamp>,
    /// Time of the last update, reported by the action.
    pub(crate) updated: Option<Timestamp>,
}

impl OperationView {
    /// "3 of 10 files", "1.0 GiB of 2.5 GiB", "3 files", or empty.
    pub(crate) fn progress(&self) -> String {
        // Velero's own actions write "Byte" (`pkg/backup/actions/csi/pvc_action.go`).
        let are_bytes = ["byte", "bytes"]
            .iter()
            .any(|unit| self.units.eq_ignore_ascii_case(unit));
        let units = if are_bytes { "" } else { self.units.as_str() };
        let text = match (self.done, self.total) {
            (0, 0) => return String::new(),
            (done, 0) => format!("{} {units}", amount(done, are_bytes)),
            (done, total) => format!(
                "{} of {} {units}",
                amount(done, are_bytes),
                amount(total, are_bytes)
            ),
        };
        text.trim_end().to_owned()
    }

    /// The error, or else the description by the action.
    pub(crate) fn remark(&self) -> &str {
        if self.error.is_empty() {
            &self.description
        } else {
            &self.error
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.tone, Tone::Good | Tone::Bad)
    }
}

fn amount(count: i64, are_bytes: bool) -> String {
    if are_bytes {
        size(u64::try_from(count).unwrap_or_default())
    } else {
        count.to_string()
    }
}

/// Failed operations, then running ones, then the others; the oldest first.
pub(crate) fn views<O: Operation>(operations: &[O]) -> Vec<OperationView> {
    let mut all: Vec<OperationView> = operations.iter().map(view).collect();
    all.sort_by_key(|operation| (rank(operation.tone), operation.created));
    all
}

fn rank(tone: Tone) -> u8 {
    match tone {
        Tone::Bad => 0,
        Tone::Good => 2,
        _ => 1,
    }
}

fn view<O: Operation>(operation: &O) -> OperationView {
    let status = operation.status();
    OperationView {
        item: plain(&operation.item().to_string()),
        action: plain(operation.action()),
        id: plain(operation.id()),
        phase: plain(status.phase.as_str()),
        tone: match status.phase {
            OperationPhase::Completed => Tone::Good,
            OperationPhase::Failed => Tone::Bad,
            OperationPhase::New | OperationPhase::InProgress => Tone::Busy,
            OperationPhase::Unknown(_) => Tone::Unknown,
        },
        done: status.n_completed,
        total: status.n_total,
        units: plain(&status.operation_units),
        description: plain(&status.description),
        error: plain(&status.error),
        created: status.created,
        started: status.started,
        updated: status.updated,
    }
}

const HEADERS: [&str; 9] = [
    "ITEM", "ACTION", "PHASE", "PROGRESS", "AGE", "UPDATED", "REMARK", "ID", "STARTED",
];
const NARROW_COLUMNS: usize = 7;

/// The lines of a table, beginning with the header; UPDATED is the time since the action's last
/// report.
pub(crate) fn lines(
    operations: &[OperationView],
    wide: bool,
    now: Timestamp,
    style: Style,
) -> std::io::Result<Vec<String>> {
    let headers = if wide {
        &HEADERS[..]
    } else {
        &HEADERS[..NARROW_COLUMNS]
    };
    let text = table(
        headers,
        true,
        operations.iter().map(|one| row(one, now, style)),
    )?;
    Ok(text.lines().map(|line| format!("{line}\n")).collect())
}

fn row(operation: &OperationView, now: Timestamp, style: Style) -> Vec<String> {
    vec![
        operation.item.clone(),
        operation.action.clone(),
        style.tone(operation.tone, &operation.phase),
        or_dash(operation.progress()),
        age(operation.created, now),
        age(operation.updated, now),
        or_dash(operation.remark().to_owned()),
        operation.id.clone(),
        operation.started.map_or_else(dash, |at| at.to_string()),
    ]
}

fn or_dash(text: String) -> String {
    if text.is_empty() { dash() } else { text }
}

#[cfg(test)]
mod tests {
    use backup_core::operation::BackupOperation;

    use super::*;

    #[test]
    fn whatever_a_plugin_or_an_older_version_wrote_is_shown() {
        let stored = r#"[
            {"spec": {"backupItemAction": "a", "operationID": "done"}, "status": {"phase": "Completed", "nCompleted": 3}},
            {"spec": {"operationID": "\u001b[2J\n|é"}, "status": {"phase": "Pondering", "nCompleted": -1, "nTotal": 5, "updated": "9999-12-30T00:00:00Z", "new": {}}},
            {"spec": {"operationID": "both"}, "status": {"phase": "Failed", "nCompleted": 9, "nTotal": 5, "error": "but done", "updated": "yesterday"}},
            {}
        ]"#;
        let all = views(&serde_json::from_str::<Vec<BackupOperation>>(stored).unwrap());
        let seen: Vec<_> = all
            .iter()
            .map(|one| {
                (
                    one.id.as_str(),
                    one.phase.as_str(),
                    one.progress(),
                    one.has_ended(),
                )
            })
            .collect();
        let expected = [
            ("both", "Failed", "9 of 5".to_owned(), true),
            ("[2J |é", "Pondering", "-1 of 5".to_owned(), false),
            ("", "New", String::new(), false),
            ("done", "Completed", "3".to_owned(), true),
        ];
        assert_eq!(seen, expected);
    }
}
