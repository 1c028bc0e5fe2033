//! The locks as columns, a block for each scope.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{
    EntryView, LockList, ScopeView, UnclaimedView,
    changes::{LockChange, What},
};
use crate::print::{Style, Tone, since, table};

const HEADERS: [&str; 8] = ["KIND", "NAME", "STATE", "SINCE", "TOUCHES", "NOTE", "EPOCH", "UID"];
const STATE: usize = 2;
const NOTE: usize = 5;
const NARROW: usize = 6;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) wide: bool,
    pub(crate) headers: bool,
    pub(crate) namespaces: bool,
}

pub(crate) fn text(list: &LockList, what: Shown, now: Timestamp, style: Style) -> std::io::Result<String> {
    let blocks: Vec<String> =
        list.scopes.iter().map(|scope| block(scope, what, now, style)).collect::<Result<_, _>>()?;
    Ok(blocks.join("\n"))
}

/// What `locks release` takes, one a line.
pub(crate) fn names(list: &LockList) -> String {
    let mut all: Vec<String> =
        list.scopes.iter().flat_map(|scope| &scope.entries).map(EntryView::handle).collect();
    all.dedup();
    all.iter().fold(String::new(), |text, name| text + name + "\n")
}

fn block(
    scope: &ScopeView,
    Shown { wide, headers, namespaces }: Shown,
    now: Timestamp,
    style: Style,
) -> std::io::Result<String> {
    let status = style.tone(scope.tone(), &scope.status);
    let mut text = format!("{}   {status}", style.title(&scope.scope));
    if let Some(epoch) = scope.epoch {
        let _ = write!(text, "   epoch {epoch}");
    }
    if namespaces {
        let _ = write!(text, "   namespace {}", scope.namespace);
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
                 claims it where nothing is in its way. Its own backups and restores do not start without a claim.\n";
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

/// Rows of what is new, in columns as wide as all need that are there now.
pub(crate) fn changes(
    new: &[LockChange],
    now: &[LockChange],
    what: Shown,
    at: Timestamp,
    style: Style,
) -> std::io::Result<String> {
    let columns = if what.wide { HEADERS.len() } else { NARROW };
    let whole = |namespace: &str, scope: &str, cells: Vec<String>| -> Vec<String> {
        let place = [namespace.to_owned(), scope.to_owned()].into_iter().skip(usize::from(!what.namespaces));
        place.chain(cells.into_iter().take(columns)).collect()
    };
    let header = whole("NAMESPACE", "SCOPE", HEADERS.map(str::to_owned).into());
    let lines = new.iter().chain(now).map(|line| whole(&line.namespace, &line.scope, cells(line, at, style)));
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(lines).collect();
    let text = table(None, &rows)?;
    let shown = text.lines().take(new.len() + 1).skip(usize::from(!what.headers));
    Ok(shown.fold(String::new(), |text, line| text + line + "\n"))
}

fn cells(line: &LockChange, now: Timestamp, style: Style) -> Vec<String> {
    let mut cells = match &line.what {
        What::Entry(entry) => row(entry, now, style),
        What::Ledger { status, problem } => {
            let problem = problem.as_deref().unwrap_or_default();
            ["Ledger", "-", status, "-", "-", problem, "-", "-"].map(str::to_owned).into()
        }
    };
    if line.gone {
        // Whether it has ended or was taken away: its place is free.
        (cells[STATE], cells[NOTE]) = (style.tone(Tone::Good, "gone"), String::new());
    }
    cells
}
