//! One object of another operator, as text.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{locks::since, style::Style};
use crate::view::{guarded::GuardedDescription, locks::EntryView, part::Part};

/// The screen.
pub fn text(view: &GuardedDescription, now: Timestamp, style: Style) -> String {
    let end = if view.has_ended { "ended" } else { "not ended" };
    let going = if view.is_deleting { ", its deletion was asked for" } else { "" };
    let mut text = format!(
        "{}   {}, {end}{going}   created {} ago\n",
        style.title(&view.name),
        view.state,
        since(&view.created, now)
    );
    if !view.is_known_state {
        let _ = writeln!(
            text,
            "  Profile {} does not know the state {}: it counts as running.",
            view.profile, view.state
        );
    }
    let scope = view.scope.as_deref().unwrap_or("none: it does not say what it is about");
    let kind = format!("{} in namespace {}, by profile {}", view.object_kind, view.namespace, view.profile);
    text += "\n";
    for (title, fact) in [("Kind", kind.as_str()), ("Scope", scope), ("Claim", &claim(view, now))] {
        let _ = writeln!(text, "  {title:<12}{fact}");
    }
    if !view.status.is_empty() {
        let _ = writeln!(text, "\n{}", style.title("STATUS"));
    }
    for (name, word) in &view.status {
        let _ = writeln!(text, "  {name}: {word}");
    }
    let _ = writeln!(text, "\n{}", style.title("NEXT"));
    if let Some(scope) = &view.scope {
        let _ = writeln!(text, "  kubectl backup locks {scope}");
    }
    let _ = writeln!(text, "  kubectl -n {} get {} {} -o yaml", view.namespace, view.resource, view.name);
    text
}

fn claim(view: &GuardedDescription, now: Timestamp) -> String {
    match &view.claim {
        Part::Missing { unavailable } => format!("unavailable: {unavailable}"),
        Part::Known(Some(entry)) => told(entry, now),
        Part::Known(None) if view.has_ended => "none, as it has ended".to_owned(),
        Part::Known(None) => "none: nobody is kept away from it".to_owned(),
    }
}

fn told(entry: &EntryView, now: Timestamp) -> String {
    let remarks = entry.remarks();
    let remarks = if remarks.is_empty() { remarks } else { format!(": {remarks}") };
    format!("{} for {}{remarks}", entry.state, since(&entry.since, now))
}
