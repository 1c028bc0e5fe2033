//! One schedule, as text.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{
    age::{ago, seconds, took, until},
    style::Style,
    table::table,
};
use crate::view::{
    part::Part,
    schedule::{BackupLine, ScheduleView},
};

/// The screen.
pub fn text(view: &ScheduleView, now: Timestamp, style: Style) -> std::io::Result<String> {
    let next =
        view.next_runs.first().map_or_else(String::new, |at| format!("   next run {}", until(*at, now)));
    let mut text = format!(
        "{} {}   {}   {}{next}\n",
        style.tone(view.tone, view.tone.sign()),
        style.title(&view.name),
        style.tone(view.tone, &view.state),
        view.schedule
    );
    for problem in &view.problems {
        let _ = writeln!(text, "  {}", style.tone(view.tone, problem));
    }
    text += "\n";
    for (title, fact) in facts(view, now) {
        let _ = writeln!(text, "  {title:<13}{fact}");
    }
    match &view.backups {
        Part::Missing { unavailable } => {
            let _ = writeln!(text, "\n{}  unavailable: {unavailable}", style.title("BACKUPS"));
        }
        Part::Known(all) if all.is_empty() => text += "\n  It has made no backups that are still there.\n",
        Part::Known(all) => {
            let _ = writeln!(text, "\n{}", style.title("BACKUPS"));
            let rows: Vec<Vec<String>> = all.iter().map(|one| row(one, now, style)).collect();
            text = table(None, &rows)?.lines().fold(text, |text, line| text + "  " + line + "\n");
        }
    }
    Ok(text)
}

fn facts(view: &ScheduleView, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if !view.next_runs.is_empty() {
        let runs: Vec<String> =
            view.next_runs.iter().map(|at| at.strftime("%-d %b %H:%M").to_string()).collect();
        let how = match &view.read_as {
            Some(reading) => format!("the controller reads the expression as {reading}"),
            None => "assumed that it is read as robfig UTC: the controller has not said so".to_owned(),
        };
        facts.push(("Next runs", format!("{} (UTC; {how})", runs.join(", "))));
    }
    if view.ambiguous {
        let why =
            "day of month and day of week are both given: Velero's libraries differ (docs/schedules.md)";
        facts.push(("Mind", why.to_owned()));
    }
    facts.push(("Last backup", view.last_backup.map_or_else(|| "never".to_owned(), |at| ago(at, now))));
    if let Some(skipped) = &view.last_skipped {
        let why = skipped.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        facts.push(("Last skipped", format!("{}{why}", ago(skipped.at, now))));
    }
    facts.push(("Backs up", view.scope.clone()));
    facts.push(("Kept for", view.ttl.clone().unwrap_or_else(|| "as the server is set".to_owned())));
    facts.extend(view.location.clone().map(|name| ("Stored in", format!("location {name}"))));
    facts
}

fn row(backup: &BackupLine, now: Timestamp, style: Style) -> Vec<String> {
    vec![
        backup.name.clone(),
        style.tone(backup.tone, &backup.phase),
        backup.started.map_or_else(String::new, |at| ago(at, now)),
        backup
            .started
            .zip(backup.completed)
            .map_or_else(String::new, |(from, to)| format!("took {}", took(seconds(from, to)))),
    ]
}
