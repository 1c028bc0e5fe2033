//! Rows of `get`.

use std::cmp::Ordering;

use backup_core::{
    api::{Backup, BackupPhase, Restore},
    labels,
};
use jiff::Timestamp;
use kube::core::ApiResource;

use super::backup::selectors;
use crate::print::{
    age::{human, seconds, took, until},
    style::{Style, Tone},
    table::plain,
};

/// Headers of backups; the first [`BACKUP_NARROW`] unless wide.
pub const BACKUP_HEADERS: [&str; 11] = [
    "NAME", "STATUS", "ERRORS", "WARNINGS", "AGE", "TOOK", "EXPIRES", "LOCATION", "ITEMS", "SCHEDULE",
    "SELECTOR",
];
/// Columns of backups unless wide.
pub const BACKUP_NARROW: usize = 8;
/// Headers of restores; the first [`RESTORE_NARROW`] unless wide.
pub const RESTORE_HEADERS: [&str; 10] =
    ["NAME", "BACKUP", "STATUS", "ERRORS", "WARNINGS", "AGE", "TOOK", "ITEMS", "SCHEDULE", "SELECTOR"];
/// Columns of restores unless wide.
pub const RESTORE_NARROW: usize = 7;

/// What stands in a row for an object that can't be read.
pub const UNREADABLE: &str = "(unreadable)";

/// What is said of it beside the table: why, and what to do.
pub fn warning(word: &str, resource: &ApiResource, namespace: &str, name: &str, why: &str) -> String {
    let (why, ApiResource { plural, group, .. }) = (plain(why), resource);
    format!(
        "warning: {word} {name} cannot be read: {why}\n  Correct it: kubectl -n {namespace} edit {plural}.{group} {name}"
    )
}

/// A backup's row, all columns.
pub fn backup(backup: &Backup, now: Timestamp, style: Style) -> Vec<String> {
    let (meta, status) = (&backup.metadata, &backup.status);
    let deleting = meta.deletion_timestamp.is_some();
    let phase = if deleting { "Deleting".to_owned() } else { plain(backup.phase().as_str()) };
    let phase = match super::deletion::until(backup) {
        Some(until) if backup.phase() == BackupPhase::Deleting => format!("{phase} ({until})"),
        _ => phase,
    };
    let tone = if deleting { Tone::Busy } else { super::backup::verdict(backup, now).tone };
    let (start, end) = (time(status.start_timestamp.as_ref()), time(status.completion_timestamp.as_ref()));
    vec![
        meta.name.clone().unwrap_or_default(),
        style.tone(tone, &phase),
        status.errors.to_string(),
        status.warnings.to_string(),
        age(start.or(time(meta.creation_timestamp.as_ref())), now),
        start.zip(end).map_or_else(dash, |(start, end)| took(seconds(start, end))),
        time(status.expiration.as_ref()).map_or_else(dash, |at| until(at, now)),
        backup.spec.storage_location.as_deref().map_or_else(dash, plain),
        status
            .progress
            .as_ref()
            .map_or_else(dash, |progress| count(progress.items_backed_up, progress.total_items)),
        meta.labels
            .as_ref()
            .and_then(|all| all.get(labels::SCHEDULE_NAME))
            .map_or_else(dash, |name| plain(name)),
        selector(selectors(backup.spec.label_selector.as_ref(), backup.spec.or_label_selectors.as_deref())),
    ]
}

/// A restore's row, all columns.
pub fn restore(restore: &Restore, now: Timestamp, style: Style) -> Vec<String> {
    let (meta, status, spec) = (&restore.metadata, &restore.status, &restore.spec);
    let deleting = meta.deletion_timestamp.is_some();
    let phase = if deleting { "Deleting".to_owned() } else { plain(restore.phase().as_str()) };
    let (start, end) = (time(status.start_timestamp.as_ref()), time(status.completion_timestamp.as_ref()));
    vec![
        meta.name.clone().unwrap_or_default(),
        spec.backup_name.as_deref().map_or_else(dash, plain),
        style.tone(super::restore::verdict(restore, now).tone, &phase),
        status.errors.to_string(),
        status.warnings.to_string(),
        age(start.or(time(meta.creation_timestamp.as_ref())), now),
        start.zip(end).map_or_else(dash, |(start, end)| took(seconds(start, end))),
        status
            .progress
            .as_ref()
            .map_or_else(dash, |progress| count(progress.items_restored, progress.total_items)),
        spec.schedule_name.as_deref().map_or_else(dash, plain),
        selector(selectors(spec.label_selector.as_ref(), spec.or_label_selectors.as_deref())),
    ]
}

/// A row for an object that can't be read: its name, where a status would be, and nothing else.
pub fn unreadable(name: &str, columns: usize, status_column: usize) -> Vec<String> {
    let mut row = vec!["-".to_owned(); columns];
    name.clone_into(&mut row[0]);
    UNREADABLE.clone_into(&mut row[status_column]);
    row
}

/// By name; names that end in a time and begin alike (those of one schedule) newest first, as velero lists them.
pub fn order(a: &str, b: &str) -> Ordering {
    match (split_time(a), split_time(b)) {
        (Some((a, a_time)), Some((b, b_time))) if a == b => b_time.cmp(a_time),
        _ => a.cmp(b),
    }
}

/// `nightly-` and `20261103030000`.
fn split_time(name: &str) -> Option<(&str, &str)> {
    let at = name.len().checked_sub(14)?;
    let (prefix, time) = name.split_at_checked(at)?;
    (prefix.ends_with('-') && time.bytes().all(|b| b.is_ascii_digit())).then_some((prefix, time))
}

fn time(time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(dash, |since| human(seconds(since, now).max(0)))
}

fn count(done: i64, total: i64) -> String {
    if done == total { done.to_string() } else { format!("{done}/{total}") }
}

fn selector(text: Option<String>) -> String {
    text.map_or_else(dash, |text| text.trim_start_matches("labels ").to_owned())
}

fn dash() -> String {
    "-".to_owned()
}
