//! The locks as columns, a block for each scope.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{
    age::{human, seconds},
    style::{Style, Tone},
    table::table,
};
use crate::view::locks::{EntryView, LockList, ScopeView, UnclaimedView};

const HEADERS: [&str; 8] = ["KIND", "NAME", "STATE", "SINCE", "TOUCHES", "NOTE", "EPOCH", "UID"];
/// How many of them are shown unless wide.
const NARROW: usize = 6;

/// What of it is shown.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// More columns.
    pub wide: bool,
    /// Header lines.
    pub headers: bool,
}

/// The blocks.
pub fn text(list: &LockList, how: How, now: Timestamp, style: Style) -> std::io::Result<String> {
    let blocks: Vec<String> =
        list.scopes.iter().map(|scope| block(scope, how, now, style)).collect::<Result<_, _>>()?;
    Ok(blocks.join("\n"))
}

/// What `locks release` takes, one a line.
pub fn names(list: &LockList) -> String {
    let mut all: Vec<String> =
        list.scopes.iter().flat_map(|scope| &scope.entries).map(EntryView::handle).collect();
    all.dedup();
    all.iter().fold(String::new(), |text, name| text + name + "\n")
}

fn block(
    scope: &ScopeView,
    How { wide, headers }: How,
    now: Timestamp,
    style: Style,
) -> std::io::Result<String> {
    let status = style.tone(scope.tone(), &scope.status);
    let mut text = format!("{}   {status}", style.title(&scope.scope));
    if let Some(epoch) = scope.epoch {
        let _ = write!(text, "   epoch {epoch}");
    }
    if let (true, Some(lease)) = (wide, &scope.lease) {
        let _ = write!(text, "   profile {}   Lease {lease}", scope.profile);
    }
    text += "\n";
    for (sentence, tone) in [(&scope.problem, scope.tone()), (&scope.remedy, Tone::Good)] {
        if let Some(sentence) = sentence {
            let sentence = if tone == Tone::Good { sentence.clone() } else { style.tone(tone, sentence) };
            let _ = writeln!(text, "  {sentence}");
        }
    }
    let columns = if wide { HEADERS.len() } else { NARROW };
    let rows: Vec<Vec<String>> = scope
        .entries
        .iter()
        .map(|entry| row(entry, now, style))
        .chain(scope.unclaimed.iter().map(|object| unclaimed(object, now, style)))
        .map(|row| row[..columns].to_vec())
        .collect();
    if !rows.is_empty() {
        let table = table(headers.then_some(&HEADERS[..columns]), &rows)?;
        text = table.lines().fold(text, |text, line| text + "  " + line + "\n");
    } else if scope.problem.is_none() {
        text += "  nothing holds or waits\n";
    }
    if !scope.unclaimed.is_empty() {
        text += "  What has no claim was created while the lock was off, came late, or was released by hand: backup-controller\n  \
                 claims it where nobody is in its way. Its own backups and restores do not start without a claim.\n";
    }
    Ok(text)
}

fn row(entry: &EntryView, now: Timestamp, style: Style) -> Vec<String> {
    let tone = match entry.state.as_str() {
        _ if entry.suspect => Tone::Warn,
        "Active" => Tone::Good,
        _ => Tone::Busy,
    };
    let mark = if entry.suspect { "?" } else { "" };
    vec![
        entry.kind.clone(),
        format!("{}/{}", entry.namespace, entry.name),
        style.tone(tone, &format!("{}{mark}", entry.state)),
        since(&entry.since, now),
        entry.touches.clone(),
        entry.remarks(),
        entry.epoch.to_string(),
        entry.uid.clone(),
    ]
}

fn unclaimed(object: &UnclaimedView, now: Timestamp, style: Style) -> Vec<String> {
    vec![
        object.kind.clone(),
        format!("{}/{}", object.namespace, object.name),
        style.tone(Tone::Warn, "no claim"),
        since(&object.created, now),
        object.touches.clone(),
        object.remarks(),
        "-".to_owned(),
        object.uid.clone(),
    ]
}

/// The age of what was first seen then; a text that is no time as it is.
pub fn since(text: &str, now: Timestamp) -> String {
    text.parse::<Timestamp>().map_or_else(|_| text.to_owned(), |at| human(seconds(at, now).max(0)))
}
