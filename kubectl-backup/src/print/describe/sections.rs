//! Parts of the screen that come from files in the store: messages, operations, volumes, items.

use jiff::Timestamp;

use super::super::{
    age::ago,
    style::{Style, Tone},
};
use crate::view::stored::{
    Stored, contents::Contents, messages::Message, operations::OperationView, volumes::VolumeView,
};

/// Lines of a section, unless everything is shown.
const SHORT: usize = 5;

/// All sections that have something to say; each begins with an empty line.
pub(super) fn sections(stored: &Stored, now: Timestamp, style: Style, details: bool) -> Vec<String> {
    let most = if details { usize::MAX } else { SHORT };
    let mut lines = Vec::new();
    if let Some(messages) = stored.messages.known().and_then(Option::as_ref) {
        for (title, all, tone) in
            [("ERRORS", &messages.errors, Tone::Bad), ("WARNINGS", &messages.warnings, Tone::Warn)]
        {
            let told: Vec<String> = all.iter().map(|one| message(one, tone, style)).collect();
            section(&mut lines, title, told, most, style);
        }
    }
    if let Some(operations) = stored.item_operations.known().and_then(Option::as_ref) {
        // Those that went well are counted above.
        let shown = operations.iter().filter(|one| details || one.tone != Tone::Good);
        let told = shown.map(|one| operation(one, now, style)).collect();
        section(&mut lines, "OPERATIONS", told, most, style);
    }
    if let Some(volumes) = stored.volumes.known().and_then(Option::as_ref) {
        let bad = |one: &&VolumeView| one.succeeded == Some(false);
        let told = volumes.iter().filter(|one| details || bad(one)).map(|one| volume(one, style)).collect();
        section(&mut lines, "VOLUMES", told, most, style);
    }
    if let Some(contents) = stored.contents.known().and_then(Option::as_ref).filter(|_| details) {
        items(&mut lines, contents, style);
    }
    lines
}

fn section(lines: &mut Vec<String>, title: &str, told: Vec<String>, most: usize, style: Style) {
    if told.is_empty() {
        return;
    }
    lines.extend([String::new(), style.title(title)]);
    let rest = told.len().saturating_sub(most);
    lines.extend(told.into_iter().take(most));
    if rest > 0 {
        lines.push(format!("  and {rest} more: --details shows them"));
    }
}

fn message(message: &Message, tone: Tone, style: Style) -> String {
    let Message { text, count, namespaces } = message;
    let place = match namespaces.as_slice() {
        [] => String::new(),
        [one] => format!("{one}: "),
        [one, two] => format!("{one}, {two}: "),
        [one, rest @ ..] => format!("{one} and {} other namespaces: ", rest.len()),
    };
    let times = if *count > 1 { format!("  (x{count})") } else { String::new() };
    format!("  {} {place}{text}{times}", style.tone(tone, tone.sign()))
}

fn operation(operation: &OperationView, now: Timestamp, style: Style) -> String {
    let OperationView { item, action, phase, tone, .. } = operation;
    let mut parts = vec![phase.clone()];
    parts.extend(Some(operation.progress()).filter(|text| !text.is_empty()));
    parts.extend(operation.updated.map(|at| ago(at, now)));
    let remark = operation.remark();
    let remark = if remark.is_empty() { String::new() } else { format!(": {remark}") };
    format!("  {} {item}  {action}  {}{remark}", style.tone(*tone, tone.sign()), parts.join(", "))
}

fn volume(volume: &VolumeView, style: Style) -> String {
    let VolumeView { claim, method, succeeded, size, handle, skipped } = volume;
    let tone = match (skipped, succeeded) {
        (None, Some(false)) => Tone::Bad,
        (Some(_), _) => Tone::Warn,
        _ => Tone::Good,
    };
    let failed = if tone == Tone::Bad { " failed" } else { "" };
    let mut parts = vec![match skipped {
        Some(why) if why.is_empty() => "without its data".to_owned(),
        Some(why) => format!("without its data: {why}"),
        None if method.is_empty() => format!("by other means{failed}"),
        None => format!("{method}{failed}"),
    }];
    parts.extend((*size > 0).then(|| format!("{size} bytes")));
    parts.extend((!handle.is_empty()).then(|| handle.clone()));
    format!("  {} {claim}  {}", style.tone(tone, tone.sign()), parts.join(", "))
}

fn items(lines: &mut Vec<String>, contents: &Contents, style: Style) {
    if contents.kinds.is_empty() {
        return;
    }
    lines.extend([String::new(), style.title("ITEMS")]);
    for kind in &contents.kinds {
        lines.push(format!("  {} ({})", kind.kind, kind.count));
        lines.extend(kind.items.iter().map(|item| format!("    {item}")));
    }
}
