//! The describe screen: verdict, causes, evidence, and the next command.

mod copies;
mod transfers;
mod volume;

use std::fmt::Write as _;

use backup_core::{left_items::LeftItems, restorability::Answer};
use jiff::Timestamp;

use super::{Screen, Style, Tone, ago, day, human, moment, plain, seconds, took, until};
use crate::{
    fetched::FetchResult,
    view::{
        Attempts, DeletionView, Description, EventView, FileContents, LocationSummary, LockView,
        Message, Moment, Restorable, RunView, drill,
        stored::{ItemType, Messages, operations::OperationView, volumes::summary},
        transfer::TransferView,
    },
};

/// Maximum number of events on the screen; the document has all.
const MAX_EVENTS: usize = 5;
/// Maximum number of causes on the screen; the document has all.
const MAX_CAUSES: usize = 8;
/// In the place of a reason that the section with the errors has.
const SEE_ERRORS: &str = "see ERRORS";
/// Maximum number of item types in the summary line.
const MAX_ITEM_TYPES: usize = 4;

/// The screen; with `details` all sections are complete.
pub(crate) fn text(
    description: &Description,
    now: Timestamp,
    style: Style,
    details: bool,
) -> String {
    let Description {
        name,
        phase,
        tone,
        causes,
        ..
    } = description;
    let times = times(description, now);
    let mut screen = Screen::of(style, *tone, name, &[&style.tone(*tone, phase), &times]);
    screen.lines([&description.verdict]);
    screen.lines(
        causes
            .iter()
            .take(MAX_CAUSES)
            .map(|cause| style.tone(*tone, cause)),
    );
    if causes.len() > MAX_CAUSES {
        screen.line(&format!(
            "  and {} more: -o json has them all",
            causes.len() - MAX_CAUSES
        ));
    }
    screen.line("");
    screen.facts(12, evidence(description, now));
    let transfers = description.transfers.known().map_or(&[][..], Vec::as_slice);
    sections(&mut screen, &description.stored, transfers, now, details);
    let left = description.left_items.as_ref();
    let left_out = left.map(LeftItems::left_out_lines).unwrap_or_default();
    if !left_out.is_empty() {
        screen.section("LEFT OUT");
        screen.lines(left_out.iter().map(|line| plain(line)));
    }
    match &description.events {
        FetchResult::Known(events) => show_events(&mut screen, events, now, details),
        FetchResult::Missing { unavailable } => {
            screen.line(&format!(
                "\n{}  unavailable: {unavailable}",
                style.title("EVENTS")
            ));
        }
    }
    if !description.next.is_empty() {
        screen.section("NEXT");
        screen.lines(&description.next);
    }
    screen.text
}

/// The start, the duration and the expiry.
fn times(description: &Description, now: Timestamp) -> String {
    let Description {
        tone,
        started,
        created,
        completed,
        expires,
        ..
    } = description;
    let mut times = Vec::new();
    match (started, completed) {
        (Some(start), Some(end)) => {
            times.push(format!(
                "{}, took {}",
                ago(*end, now),
                took(seconds(*start, *end))
            ));
        }
        (Some(start), None) if *tone == Tone::Busy => {
            times.push(format!("running for {}", took(seconds(*start, now))));
        }
        (Some(start), None) => times.push(format!("started {}", ago(*start, now))),
        (None, _) => times.extend(created.map(|at| format!("created {}", ago(at, now)))),
    }
    if let Some(at) = expires {
        let verb = if *at > now { "expires" } else { "expired" };
        times.push(format!("{verb} {} ({})", until(*at, now), day(*at)));
    }
    times.join("   ")
}

/// Titles and texts of all lines between the verdict and the events.
fn evidence(description: &Description, now: Timestamp) -> Vec<(&str, String)> {
    let Description {
        location,
        previous,
        stored,
        transfers,
        lock,
        deletions,
        ..
    } = description;
    let mut lines = Vec::new();
    let mut add = |title, text: Option<String>| lines.extend(text.map(|text| (title, text)));
    add(
        "Restorable",
        description
            .restorable
            .as_ref()
            .map(|restorable| show_restorable(restorable, now)),
    );
    let drilled = description.drilled.as_ref();
    add("Drilled", drilled.map(|result| drill::last(result, now)));
    let place = if description.kind == "BackupDescription" {
        "Stored in"
    } else {
        "Read from"
    };
    add(
        place,
        match location {
            FetchResult::Known(location) => location
                .as_ref()
                .map(|location| show_location(location, now)),
            FetchResult::Missing { unavailable } => {
                Some(format!("location unavailable: {unavailable}"))
            }
        },
    );
    add("Copies", copies::line(&description.copies, now));
    let volumes = stored
        .volumes
        .value()
        .filter(|_| !description.copies.is_empty());
    let left_behind = volumes.and_then(|volumes| copies::left_behind(volumes));
    add("Not copied", left_behind);
    for fact in &description.facts {
        add(fact.title, Some(fact.text.clone()));
    }
    add(
        "Previous",
        previous.shown(|run| Some(show_run(run.as_ref()?, now))),
    );
    add("Timeline", show_timeline(&description.timeline));
    add("Items", show_items(description));
    let volumes = stored.volumes.shown(|all| Some(summary(all.as_ref()?)));
    add("Volumes", volumes.filter(|text| !text.is_empty()));
    add("Transfers", transfers.shown(|all| transfers::summary(all)));
    add("Operations", description.operations.map(show_attempts));
    add("Hooks", description.hooks.map(show_attempts));
    add("Snapshots", description.snapshots.map(show_attempts));
    add("Messages", stored.messages.shown(|_| None));
    add("Operations", stored.item_operations.shown(|_| None));
    add("Lock", lock.shown(|lock| show_lock(lock, now)));
    add(
        "Deletion",
        match deletions {
            FetchResult::Known(all) => all.last().map(|last| show_deletion(last, now)),
            FetchResult::Missing { unavailable } => {
                Some(format!("requests unavailable: {unavailable}"))
            }
        },
    );
    lines
}

fn show_restorable(restorable: &Restorable, now: Timestamp) -> String {
    let Restorable {
        answer,
        why,
        verified,
    } = restorable;
    let mut parts = vec![answer.as_str().to_owned()];
    parts.extend((!why.is_empty()).then(|| why.clone()));
    if let Some(last) = verified {
        let result = plain(&last.result());
        parts.push(format!("last verified {}: {result}", ago(last.at, now)));
    } else if matches!(answer, Answer::Yes | Answer::Partly) {
        parts.push("never verified".to_owned());
    }
    parts.join(", ")
}

/// "created 2026-11-03 03:00:00Z, started +2s, ended +14m12s": the first time, then the differences
/// from it.
fn show_timeline(moments: &[Moment]) -> Option<String> {
    let (first, rest) = moments.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let mut text = format!("{} {}", first.what, moment(first.at));
    for moment in rest {
        let _ = write!(
            text,
            ", {} +{}",
            moment.what,
            took(seconds(first.at, moment.at))
        );
    }
    Some(text)
}

fn show_items(description: &Description) -> Option<String> {
    let mut text = description
        .items
        .map(|items| format!("{} of {}", items.done, items.total));
    match &description.stored.contents {
        FetchResult::Known(None) => {}
        FetchResult::Known(Some(contents)) => {
            let of = contents.summary(MAX_ITEM_TYPES);
            let mut summary = if of.is_empty() {
                String::new()
            } else {
                format!(": {of}")
            };
            let outcomes = contents.outcomes();
            if !outcomes.is_empty() {
                let _ = write!(summary, " ({outcomes})");
            }
            text = Some(text.unwrap_or_default() + &summary);
        }
        FetchResult::Missing { unavailable } => {
            text = Some(format!(
                "{} (their list is unavailable: {unavailable})",
                text.unwrap_or_default()
            ));
        }
    }
    text
}

fn show_run(run: &RunView, now: Timestamp) -> String {
    let RunView {
        name,
        phase,
        started,
        completed,
    } = run;
    let when = completed
        .or(*started)
        .map_or_else(String::new, |at| format!(" {}", ago(at, now)));
    let long = started
        .zip(*completed)
        .map_or_else(String::new, |(start, end)| {
            format!(", took {}", took(seconds(start, end)))
        });
    format!("{name} {phase}{when}{long}")
}

fn show_location(location: &LocationSummary, now: Timestamp) -> String {
    let LocationSummary {
        name,
        url,
        phase,
        message,
        checked,
        synced,
    } = location;
    let phase = phase.as_deref().unwrap_or("not checked yet");
    let checked = checked.map_or_else(String::new, |at| format!(" {}", ago(at, now)));
    let message = message
        .as_ref()
        .filter(|_| location.is_unavailable())
        .map_or_else(String::new, |why| format!(": {why}"));
    let synced = synced.map_or_else(String::new, |at| format!("synced {}, ", ago(at, now)));
    format!("{url}  (location {name}, {synced}{phase}{checked}{message})")
}

fn show_attempts(counts: Attempts) -> String {
    let mut text = match counts.completed {
        Some(completed) => format!("{completed} of {} completed", counts.attempted),
        None => format!("{} ran", counts.attempted),
    };
    if let Some(failed) = counts.failed.filter(|failed| *failed > 0) {
        let _ = write!(text, ", {failed} failed");
    }
    text
}

/// The object's own claim; objects that block it are shown as a cause.
fn show_lock(lock: &LockView, now: Timestamp) -> Option<String> {
    let claim = lock.claim.as_ref()?;
    let since = lock.since.as_deref().unwrap_or_default();
    let since = since
        .parse::<Timestamp>()
        .map_or_else(|_| since.to_owned(), |at| ago(at, now));
    Some(match claim.as_str() {
        "Active" => format!("held by it, since {since}"),
        "Reserved" => format!("reserved for it, since {since}"),
        "Waiting" => format!("waits for its turn, since {since}"),
        other => format!("{other}, since {since}"),
    })
}

fn show_deletion(request: &DeletionView, now: Timestamp) -> String {
    let when = request
        .created
        .map_or_else(String::new, |at| format!(", asked for {}", ago(at, now)));
    let errors = if request.errors.is_empty() {
        String::new()
    } else {
        format!(": {}", request.errors.join("; "))
    };
    format!("{} {}{when}{errors}", request.name, request.phase)
}

/// Adds the section of the last events, or of all with `details`; no section without events.
fn show_events(screen: &mut Screen, events: &[EventView], now: Timestamp, details: bool) {
    if events.is_empty() {
        return;
    }
    let style = screen.style;
    let shown = if details { usize::MAX } else { MAX_EVENTS };
    let last = &events[events.len().saturating_sub(shown)..];
    screen.section("EVENTS");
    screen.lines(last.iter().map(|event| show_event(event, now, style)));
}

fn show_event(event: &EventView, now: Timestamp, style: Style) -> String {
    let age = event
        .last
        .map_or_else(|| "-".to_owned(), |at| human(seconds(at, now).max(0)));
    let tone = if event.level == "Warning" {
        Tone::Warn
    } else {
        Tone::Good
    };
    let times = if event.count > 1 {
        format!("  (x{})", event.count)
    } else {
        String::new()
    };
    let reason = if event.level == "Warning" {
        style.tone(tone, &event.reason)
    } else {
        event.reason.clone()
    };
    format!("{age:<6}{reason}  {}{times}", event.message)
}

/// Maximum number of lines of a section without `details`.
const MAX_SECTION_LINES: usize = 5;

/// Adds all sections that are not empty.
pub(crate) fn sections(
    screen: &mut Screen,
    stored: &FileContents,
    transfers: &[TransferView],
    now: Timestamp,
    details: bool,
) {
    let style = screen.style;
    let shown_errors = if details {
        usize::MAX
    } else {
        MAX_SECTION_LINES
    };
    let is_said = |text: &str| {
        let messages = stored.messages.value();
        messages.is_some_and(|messages| messages.say_first(text, shown_errors))
    };
    if let Some(messages) = stored.messages.value() {
        for (title, all, tone) in [
            ("ERRORS", &messages.errors, Tone::Bad),
            ("WARNINGS", &messages.warnings, Tone::Warn),
        ] {
            let lines = all.iter().map(|one| message(one, tone, style)).collect();
            section(screen, title, lines, details);
        }
    }
    let shown = transfers
        .iter()
        .filter(|one| details || one.tone != Tone::Good);
    let lines = shown.map(|one| {
        let is_said = is_said(&one.message);
        let message = if is_said {
            SEE_ERRORS
        } else {
            one.message.as_str()
        };
        transfers::line(one, message, now, style)
    });
    let lines = lines.collect();
    section(screen, "TRANSFERS", lines, details);
    if let Some(operations) = stored.item_operations.value() {
        // Successful operations are counted above; a transfer says more than its running operation.
        let shown = operations.iter().filter(|one| {
            details || (one.tone != Tone::Good && !transfers::tell_about(transfers, one))
        });
        let lines = shown.map(|one| {
            let is_said = is_said(one.remark());
            let remark = if is_said { SEE_ERRORS } else { one.remark() };
            operation(one, remark, now, style)
        });
        let lines = lines.collect();
        section(screen, "OPERATIONS", lines, details);
    }
    if let Some(volumes) = stored.volumes.value() {
        let shown = volumes
            .iter()
            .filter(|one| details || one.succeeded == Some(false));
        let lines = shown.map(|one| volume::line(one, style)).collect();
        section(screen, "VOLUMES", lines, details);
    }
    if let Some(contents) = stored.contents.value() {
        let lines = contents.removed.iter().map(|item| style.bad(item));
        section(screen, "REMOVED", lines.collect(), details);
    }
    if let Some(contents) = stored.contents.value().filter(|_| details) {
        let lines = contents.kinds.iter().flat_map(items).collect();
        section(screen, "ITEMS", lines, details);
    }
}

/// Adds a section unless it is empty; without `details` only its first lines.
fn section(screen: &mut Screen, title: &str, mut lines: Vec<String>, details: bool) {
    let rest = if details {
        0
    } else {
        lines.len().saturating_sub(MAX_SECTION_LINES)
    };
    lines.truncate(lines.len() - rest);
    if !lines.is_empty() {
        screen.section(title);
        screen.lines(lines);
    }
    if rest > 0 {
        screen.line(&format!("  and {rest} more: --details shows them"));
    }
}

/// A line for each error, then for each warning.
pub(crate) fn message_lines(messages: &Messages, style: Style) -> Vec<String> {
    let Messages { errors, warnings } = messages;
    let errors = errors.iter().map(|one| message(one, Tone::Bad, style));
    let warnings = warnings.iter().map(|one| message(one, Tone::Warn, style));
    errors.chain(warnings).collect()
}

fn message(message: &Message, tone: Tone, style: Style) -> String {
    let Message {
        text,
        count,
        namespaces,
    } = message;
    let place = match namespaces.as_slice() {
        [] => String::new(),
        [one] => format!("{one}: "),
        [one, two] => format!("{one}, {two}: "),
        [one, rest @ ..] => format!("{one} and {} other namespaces: ", rest.len()),
    };
    let times = if *count > 1 {
        format!("  (x{count})")
    } else {
        String::new()
    };
    format!("{} {place}{text}{times}", style.tone(tone, tone.sign()))
}

fn operation(operation: &OperationView, remark: &str, now: Timestamp, style: Style) -> String {
    let OperationView {
        item,
        action,
        phase,
        tone,
        ..
    } = operation;
    let mut parts = vec![phase.clone()];
    parts.extend(Some(operation.progress()).filter(|text| !text.is_empty()));
    parts.extend(operation.updated.map(|at| ago(at, now)));
    let remark = if remark.is_empty() {
        String::new()
    } else {
        format!(": {remark}")
    };
    format!(
        "{} {item}  {action}  {}{remark}",
        style.tone(*tone, tone.sign()),
        parts.join(", ")
    )
}

fn items(of: &ItemType) -> impl Iterator<Item = String> {
    let items = of.items.iter().map(|item| format!("  {item}"));
    std::iter::once(format!("{} ({})", of.kind, of.count)).chain(items)
}
