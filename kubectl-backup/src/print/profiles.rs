//! Profiles as text.

use std::fmt::Write as _;

use super::{json, style::Style, table::table};
use crate::{
    cli::Output,
    error::Problem,
    view::profiles::{PolicyView, ProfileList, ProfileView},
};

const HEADERS: [&str; 10] =
    ["NAME", "INSTALLED", "GUARDED", "MODE", "RESTORES", "BACKUPS", "SETTLE", "INTENT", "FROM", "KINDS"];
/// How many of them are shown unless wide.
const NARROW: usize = 9;

/// A row for each.
pub fn rows(list: &ProfileList, wide: bool, headers: bool) -> std::io::Result<String> {
    let columns = if wide { HEADERS.len() } else { NARROW };
    let rows: Vec<Vec<String>> = list.profiles.iter().map(|one| row(one)[..columns].to_vec()).collect();
    table(headers.then_some(&HEADERS[..columns]), &rows)
}

fn row(profile: &ProfileView) -> Vec<String> {
    let policy = &profile.policy;
    vec![
        profile.name.clone(),
        profile.installed().to_owned(),
        profile.guarded().to_owned(),
        word(&policy.mode),
        word(&policy.on_conflict_restore),
        word(&policy.on_conflict_backup),
        format!("{}s", policy.settle_seconds),
        format!("{}s", policy.intent_seconds),
        profile.from(),
        profile.kinds.iter().map(|kind| kind.resource.clone()).collect::<Vec<_>>().join(", "),
    ]
}

/// Everything about one profile.
pub fn one(profile: &ProfileView, style: Style) -> Result<String, Problem> {
    let mut text = format!("{}\n\n", style.title(&profile.name));
    for (title, fact) in facts(profile) {
        let _ = writeln!(text, "  {title:<16}{fact}");
    }
    let _ = writeln!(text, "\n{}", style.title("DEFINITION"));
    let definition = json::object(&profile.definition, Output::Yaml)?;
    Ok(definition.lines().fold(text, |text, line| text + "  " + line + "\n"))
}

fn facts(profile: &ProfileView) -> Vec<(&'static str, String)> {
    let PolicyView { mode, on_conflict_restore, on_conflict_backup, .. } = &profile.policy;
    let PolicyView { backups_exclude_each_other, settle_seconds, intent_seconds, .. } = profile.policy;
    let kinds = profile.kinds.iter().map(|kind| kind.resource.clone()).collect::<Vec<_>>().join(", ");
    let beside = if backups_exclude_each_other { "not beside each other" } else { "beside each other" };
    vec![
        ("Kinds", kinds),
        ("Installed", profile.installed().to_owned()),
        ("Guarded", profile.guarded().to_owned()),
        ("Kept apart by", profile.scope().to_owned()),
        ("Mode", word(mode)),
        (
            "Conflicts",
            format!("restores: {}, backups: {}", word(on_conflict_restore), word(on_conflict_backup)),
        ),
        ("Two backups", beside.to_owned()),
        ("Settles", format!("{settle_seconds}s after the end")),
        ("Intent", format!("{intent_seconds}s for a restore that was refused")),
        ("Policy from", profile.from()),
    ]
}

/// As the profile's file says it.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
