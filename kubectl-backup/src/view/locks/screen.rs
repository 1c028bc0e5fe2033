//! The locks in columns, with a block for each scope.

use jiff::Timestamp;

use super::{
    EntryView, LockList, ScopeView, UnclaimedView,
    changes::{ChangeSubject, LockChange},
};
use crate::{
    cli::TableParts,
    print::{Screen, Style, Tone, since, table},
};

const HEADERS: [&str; 8] = [
    "KIND", "NAME", "STATE", "SINCE", "TOUCHES", "NOTE", "EPOCH", "UID",
];
const STATE_COLUMN: usize = 2;
const NOTE_COLUMN: usize = 5;
const NARROW_COLUMNS: usize = 6;

fn columns(wide: bool) -> &'static [&'static str] {
    if wide {
        &HEADERS
    } else {
        &HEADERS[..NARROW_COLUMNS]
    }
}

pub(crate) fn text(
    list: &LockList,
    what: TableParts,
    now: Timestamp,
    style: Style,
) -> std::io::Result<String> {
    let blocks: Vec<String> = list
        .scopes
        .iter()
        .map(|scope| block(scope, what, now, style))
        .collect::<Result<_, _>>()?;
    Ok(blocks.join("\n"))
}

/// Arguments for `locks release`, one a line.
pub(crate) fn names(list: &LockList) -> String {
    let mut all: Vec<String> = list
        .scopes
        .iter()
        .flat_map(|scope| &scope.entries)
        .map(EntryView::handle)
        .collect();
    all.dedup();
    all.iter()
        .fold(String::new(), |text, name| text + name + "\n")
}

fn block(
    scope: &ScopeView,
    TableParts {
        wide,
        headers,
        namespaces,
    }: TableParts,
    now: Timestamp,
    style: Style,
) -> std::io::Result<String> {
    let mut parts = vec![
        style.title(&scope.scope),
        style.tone(scope.tone(), &scope.status),
    ];
    parts.extend(scope.epoch.map(|epoch| format!("epoch {epoch}")));
    parts.extend(namespaces.then(|| format!("namespace {}", scope.namespace)));
    let lease = scope.lease.as_ref().filter(|_| wide);
    parts.extend(lease.map(|lease| format!("profile {}   Lease {lease}", scope.profile)));
    let mut screen = Screen {
        text: String::new(),
        style,
    };
    screen.line(&parts.join("   "));
    screen.lines(
        scope
            .problem
            .iter()
            .map(|problem| style.tone(scope.tone(), problem)),
    );
    screen.lines(&scope.remedy);
    let mut rows: Vec<Vec<String>> = scope
        .entries
        .iter()
        .map(|entry| row(entry, now, style))
        .collect();
    rows.extend(
        scope
            .unclaimed
            .iter()
            .map(|object| unclaimed(object, now, style)),
    );
    if !rows.is_empty() {
        screen.lines(table(columns(wide), headers, rows)?.lines());
    } else if scope.problem.is_none() {
        screen.line("  nothing holds or waits");
    }
    if !scope.unclaimed.is_empty() {
        screen.lines([
            "What has no claim was created while the lock was off, or came late: backup-controller claims it where nothing",
            "is in its way. Its own backups and restores do not start without a claim.",
        ]);
    }
    Ok(screen.text)
}

fn row(entry: &EntryView, now: Timestamp, style: Style) -> Vec<String> {
    let tone = if entry.suspect || entry.state == "Released" {
        Tone::Warn
    } else if entry.state == "Active" {
        Tone::Good
    } else {
        Tone::Busy
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

/// Rows of the new lines; the columns are wide enough for all current lines.
pub(crate) fn changes(
    new: &[LockChange],
    now: &[LockChange],
    what: TableParts,
    at: Timestamp,
    style: Style,
) -> std::io::Result<String> {
    let skipped = usize::from(!what.namespaces);
    let headers = [&["NAMESPACE", "SCOPE"][skipped..], columns(what.wide)].concat();
    let rows = new.iter().chain(now).map(|line| {
        let place = [line.namespace.clone(), line.scope.clone()]
            .into_iter()
            .skip(skipped);
        place.chain(cells(line, at, style)).collect()
    });
    let text = table(&headers, true, rows)?;
    let shown = text
        .lines()
        .take(new.len() + 1)
        .skip(usize::from(!what.headers));
    Ok(shown.fold(String::new(), |text, line| text + line + "\n"))
}

fn cells(line: &LockChange, now: Timestamp, style: Style) -> Vec<String> {
    let mut cells = match &line.what {
        ChangeSubject::Entry(entry) => row(entry, now, style),
        ChangeSubject::Ledger { status, problem } => {
            let problem = problem.as_deref().unwrap_or_default();
            ["Ledger", "-", status, "-", "-", problem, "-", "-"]
                .map(str::to_owned)
                .into()
        }
    };
    if line.gone {
        // The entry is gone, because the object ended or its claim was removed.
        cells[STATE_COLUMN] = style.tone(Tone::Good, "gone");
        cells[NOTE_COLUMN] = String::new();
    }
    cells
}
