//! Operations, a row for each.

use jiff::Timestamp;

use super::{
    age::{human, seconds},
    style::Style,
    table::table,
};
use crate::view::stored::operations::OperationView;

const HEADERS: [&str; 9] = ["ITEM", "ACTION", "PHASE", "PROGRESS", "AGE", "HEARD", "REMARK", "ID", "STARTED"];
/// Columns unless wide.
const NARROW: usize = 7;

/// The lines of a table, its header first; HEARD is how long ago an action has last said something.
pub fn lines(
    operations: &[OperationView],
    wide: bool,
    now: Timestamp,
    style: Style,
) -> std::io::Result<Vec<String>> {
    let columns = if wide { HEADERS.len() } else { NARROW };
    let rows: Vec<Vec<String>> =
        operations.iter().map(|one| row(one, now, style).into_iter().take(columns).collect()).collect();
    Ok(table(Some(&HEADERS[..columns]), &rows)?.lines().map(|line| format!("{line}\n")).collect())
}

fn row(operation: &OperationView, now: Timestamp, style: Style) -> Vec<String> {
    let age = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| human(seconds(at, now).max(0)));
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    vec![
        operation.item.clone(),
        operation.action.clone(),
        style.tone(operation.tone, &operation.phase),
        or_dash(operation.progress()),
        age(operation.created),
        age(operation.updated),
        or_dash(operation.remark().to_owned()),
        operation.id.clone(),
        operation.started.map_or_else(|| "-".to_owned(), |at| at.to_string()),
    ]
}
