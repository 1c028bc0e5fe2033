//! Results of synchronising buckets with the cluster, as data. Pure.

use backup_core::{
    api::BackupStorageLocation,
    bucket::Facts,
    labels::{BUCKET_ANNOTATION, SYNC_ANNOTATION, SYNC_REQUEST_ANNOTATION, annotation},
    sync::Summary,
    text::counted,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::Columns;
use crate::{
    cli::TableParts,
    print::{Screen, Style, Tone, ago_or_never, plain, table},
};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SyncList {
    pub(crate) namespace: String,
    /// The locations, sorted by namespace and name.
    pub(crate) locations: Vec<SyncedLocation>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SyncedLocation {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Available, Unavailable, or empty at first.
    pub(crate) phase: String,
    /// End of the last complete synchronisation, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_synced: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bucket: Option<Facts>,
    /// Whether a synchronisation was requested and has not begun.
    pub(crate) requested: bool,
    /// Result of the last synchronisation; null if there was none, or its record cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_pass: Option<Summary>,
}

pub(crate) fn list(namespace: &str, mut locations: Vec<SyncedLocation>) -> SyncList {
    locations.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    SyncList {
        namespace: namespace.to_owned(),
        locations,
    }
}

pub(crate) fn location(location: &BackupStorageLocation) -> SyncedLocation {
    SyncedLocation {
        namespace: location.namespace().unwrap_or_default(),
        name: location.name_any(),
        phase: location
            .status
            .phase
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        last_synced: location
            .status
            .last_synced_time
            .as_ref()
            .map(|time| time.0.to_string()),
        message: location
            .status
            .message
            .clone()
            .filter(|message| !message.is_empty()),
        bucket: Facts::read(annotation(location, BUCKET_ANNOTATION)),
        requested: location.annotations().contains_key(SYNC_REQUEST_ANNOTATION),
        last_pass: location
            .annotations()
            .get(SYNC_ANNOTATION)
            .and_then(|text| serde_json::from_str(text).ok()),
    }
}

pub(crate) const COLUMNS: Columns = Columns {
    headers: &[
        "LOCATION", "PHASE", "SYNCED", "FOUND", "CREATED", "SKIPPED", "REMOVED", "PROBLEM",
    ],
    narrow: 8,
    status: 1,
};

pub(crate) fn rows(list: &SyncList, shown: TableParts, now: Timestamp) -> std::io::Result<String> {
    let mut headers = COLUMNS.headers.to_vec();
    let rows = list.locations.iter().map(|location| {
        let place = shown.namespaces.then(|| location.namespace.clone());
        place.into_iter().chain(row(location, now)).collect()
    });
    if shown.namespaces {
        headers.insert(0, "NAMESPACE");
    }
    table(&headers, shown.headers, rows)
}

pub(crate) fn row(location: &SyncedLocation, now: Timestamp) -> Vec<String> {
    let pass = location.last_pass.as_ref();
    vec![
        plain(&location.name),
        location.phase.clone(),
        synced(location, now),
        count(pass, |pass| pass.found),
        count(pass, |pass| pass.created),
        count(pass, Summary::skips),
        count(pass, |pass| pass.removed),
        pass.map(problem).unwrap_or_default(),
    ]
}

/// One number of a pass; empty if there was none.
fn count(pass: Option<&Summary>, number: fn(&Summary) -> u64) -> String {
    pass.map_or_else(String::new, |pass| number(pass).to_string())
}

fn synced(location: &SyncedLocation, now: Timestamp) -> String {
    let time = location
        .last_synced
        .as_ref()
        .and_then(|text| text.parse::<Timestamp>().ok());
    ago_or_never(time, now)
}

fn problem(pass: &Summary) -> String {
    match (&pass.error, pass.refused) {
        (Some(error), _) => plain(error),
        (None, 0) => String::new(),
        (None, refused) => format!("{refused} not removed"),
    }
}

/// The tone for this phase of a location; one that was not validated yet has no phase.
pub(super) fn tone(phase: Option<&str>) -> Tone {
    match phase.unwrap_or_default() {
        "" => Tone::Busy,
        "Available" => Tone::Good,
        "Unavailable" => Tone::Bad,
        _ => Tone::Unknown,
    }
}

pub(crate) fn one(
    location: &SyncedLocation,
    now: Timestamp,
    style: Style,
) -> std::io::Result<String> {
    let tone = tone(Some(&location.phase));
    let mut screen = Screen::of(
        style,
        tone,
        &plain(&location.name),
        &[&style.tone(tone, &location.phase)],
    );
    screen.lines(
        location
            .message
            .iter()
            .map(|message| style.tone(tone, &plain(message))),
    );
    screen.line("");
    let mut lines: Vec<_> = location.bucket.iter().flat_map(bucket).collect();
    lines.push(("Synced", synced(location, now)));
    let Some(pass) = &location.last_pass else {
        screen.facts(13, lines);
        return Ok(screen.text);
    };
    let skips = pass
        .skipped
        .iter()
        .map(|(what, count)| format!("{count} {}", plain(what.as_str())))
        .collect::<Vec<_>>();
    let skipped = if skips.is_empty() {
        "0".to_owned()
    } else {
        format!("{} ({})", pass.skips(), skips.join(", "))
    };
    lines.extend([
        (
            "Took",
            format!("{}.{:03} s", pass.millis / 1000, pass.millis % 1000),
        ),
        (
            "Found",
            format!("{} in the bucket", counted(pass.found, "folder")),
        ),
        ("Created", pass.created.to_string()),
        ("Skipped", skipped),
        ("Removed", pass.removed.to_string()),
    ]);
    if pass.pruned > 0 {
        let folders = counted(pass.pruned, "folder");
        lines.push((
            "Pruned",
            format!("{folders} without a backup, from the bucket"),
        ));
    }
    if pass.refused > 0 {
        lines.push(("Not removed", format!("{}: see below", pass.refused)));
    }
    lines.extend(pass.error.iter().map(|error| ("Error", plain(error))));
    screen.facts(13, lines);
    if !pass.notes.is_empty() {
        screen.section("NOTES");
        let rows = pass.notes.iter().map(|note| {
            vec![
                plain(&note.name),
                plain(note.what.as_str()),
                plain(&note.reason),
            ]
        });
        screen.lines(table(&["BACKUP", "WHAT", "WHY"], true, rows)?.lines());
        if pass.more > 0 {
            screen.line(&format!("  and {} more", pass.more));
        }
    }
    Ok(screen.text)
}

/// Known facts about a bucket, with their titles.
pub(super) fn bucket(facts: &Facts) -> Vec<(&'static str, String)> {
    let why = plain(facts.unknown.as_deref().unwrap_or_default());
    let unknown = format!("not known: {why}");
    let mut lines = vec![
        (
            "Versions",
            facts
                .versions
                .map_or_else(|| unknown.clone(), |versions| versions.to_string()),
        ),
        (
            "Object lock",
            facts
                .lock
                .as_ref()
                .map_or(unknown, |lock| plain(&lock.to_string())),
        ),
    ];
    lines.extend(facts.writes().map(|how| ("Writes", how.to_owned())));
    lines.extend(
        facts
            .not_removable
            .iter()
            .map(|why| ("Deletions", format!("refused: {}", plain(why)))),
    );
    lines
}
