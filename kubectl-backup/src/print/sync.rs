//! What came of comparing buckets with the cluster, as text.

use backup_core::{bucket::Facts, sync::Summary};
use jiff::Timestamp;

use super::{
    age::ago,
    table::{plain, table},
};
use crate::view::sync::{LocationView, SyncList};

/// Headers of rows.
pub const HEADERS: [&str; 8] =
    ["LOCATION", "PHASE", "SYNCED", "FOUND", "CREATED", "SKIPPED", "REMOVED", "PROBLEM"];
/// Which of them is the status.
pub const STATUS_COLUMN: usize = 1;

/// What is shown of rows.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// The header line.
    pub headers: bool,
    /// A column for namespaces.
    pub namespaces: bool,
}

/// A row for each location.
pub fn rows(list: &SyncList, how: How, now: Timestamp) -> std::io::Result<String> {
    let mut headers = HEADERS.to_vec();
    let mut rows: Vec<Vec<String>> = list.locations.iter().map(|location| row(location, now)).collect();
    if how.namespaces {
        headers.insert(0, "NAMESPACE");
        for (row, location) in rows.iter_mut().zip(&list.locations) {
            row.insert(0, location.namespace.clone());
        }
    }
    table(how.headers.then_some(&headers[..]), &rows)
}

/// The row of one location.
pub fn row(location: &LocationView, now: Timestamp) -> Vec<String> {
    let number = |of: fn(&Summary) -> u64| {
        location.last_pass.as_ref().map_or_else(String::new, |pass| of(pass).to_string())
    };
    vec![
        plain(&location.name),
        location.phase.clone(),
        synced(location, now),
        number(|pass| pass.found),
        number(|pass| pass.created),
        number(Summary::skips),
        number(|pass| pass.removed),
        location.last_pass.as_ref().map(problem).unwrap_or_default(),
    ]
}

fn synced(location: &LocationView, now: Timestamp) -> String {
    let time = location.last_synced.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
    time.map_or_else(|| "never".to_owned(), |time| ago(time, now))
}

/// What a person has to look at, in short.
fn problem(pass: &Summary) -> String {
    match (&pass.error, pass.refused) {
        (Some(error), _) => plain(error),
        (None, 0) => String::new(),
        (None, refused) => format!("{refused} not removed"),
    }
}

/// Everything about one location.
pub fn one(location: &LocationView, now: Timestamp) -> std::io::Result<String> {
    let mut lines = vec![("Location", plain(&location.name)), ("Phase", location.phase.clone())];
    lines.extend(location.message.iter().map(|message| ("Message", plain(message))));
    lines.extend(location.bucket.iter().flat_map(bucket));
    lines.push(("Synced", synced(location, now)));
    let Some(pass) = &location.last_pass else {
        return told(&lines);
    };
    let skips =
        pass.skipped.iter().map(|(what, count)| format!("{count} {}", plain(what))).collect::<Vec<_>>();
    let skipped =
        if skips.is_empty() { "0".to_owned() } else { format!("{} ({})", pass.skips(), skips.join(", ")) };
    lines.extend([
        ("Took", format!("{}.{:03} s", pass.millis / 1000, pass.millis % 1000)),
        ("Found", format!("{} folders in the bucket", pass.found)),
        ("Created", pass.created.to_string()),
        ("Skipped", skipped),
        ("Removed", pass.removed.to_string()),
    ]);
    if pass.pruned > 0 {
        lines.push(("Pruned", format!("{} folders without a backup, from the bucket", pass.pruned)));
    }
    if pass.refused > 0 {
        lines.push(("Not removed", format!("{}: see below", pass.refused)));
    }
    if let Some(error) = &pass.error {
        lines.push(("Error", plain(error)));
    }
    let mut text = told(&lines)?;
    if !pass.notes.is_empty() {
        let rows: Vec<Vec<String>> = pass
            .notes
            .iter()
            .map(|note| vec![format!("  {}", plain(&note.name)), plain(&note.what), plain(&note.reason)])
            .collect();
        text += "\n";
        text += &table(Some(&["  BACKUP", "WHAT", "WHY"]), &rows)?;
        if pass.more > 0 {
            let more = format!("  and {} more\n", pass.more);
            text += &more;
        }
    }
    Ok(text)
}

/// What is known of the bucket.
fn bucket(facts: &Facts) -> Vec<(&'static str, String)> {
    let unknown = || format!("not known: {}", plain(facts.unknown.as_deref().unwrap_or_default()));
    let mut lines = vec![
        ("Versions", facts.versions.map_or_else(unknown, |versions| versions.to_string())),
        ("Object lock", facts.lock.as_ref().map_or_else(unknown, |lock| plain(&lock.to_string()))),
    ];
    lines.extend(facts.not_removable.iter().map(|why| ("Deletions", format!("refused: {}", plain(why)))));
    lines
}

fn told(lines: &[(&str, String)]) -> std::io::Result<String> {
    let rows: Vec<Vec<String>> =
        lines.iter().map(|(label, value)| vec![format!("{label}:"), value.clone()]).collect();
    table(None, &rows)
}
