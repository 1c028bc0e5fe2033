//! Locations: rows of `locations get`, and the document behind `locations describe`. Pure.

use backup_core::{
    api::{BackupStorageLocation, backup_storage_location::LocationPhase},
    bucket::Facts,
    labels::BUCKET_ANNOTATION,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::{description::API_VERSION, sync};
use crate::print::{
    age::{ago, human, seconds},
    style::{Style, Tone},
    table::plain,
};

/// Headers of locations; the first [`NARROW`] unless wide.
pub const HEADERS: [&str; 10] = [
    "NAME",
    "PHASE",
    "PROVIDER",
    "BUCKET/PREFIX",
    "CHECKED",
    "ACCESS",
    "DEFAULT",
    "SYNCED",
    "OBJECT LOCK",
    "MESSAGE",
];
/// Columns unless wide.
pub const NARROW: usize = 7;

/// A location's row, all columns.
pub fn row(location: &BackupStorageLocation, now: Timestamp, style: Style) -> Vec<String> {
    let view = describe(location);
    let dash = || "-".to_owned();
    let age = |time: Option<Timestamp>| time.map_or_else(dash, |at| human(seconds(at, now).max(0)));
    vec![
        view.name,
        style.tone(view.tone, &view.phase),
        view.provider,
        view.place,
        age(view.checked),
        view.access,
        if view.is_default { "yes".to_owned() } else { String::new() },
        age(view.synced),
        view.bucket.as_ref().and_then(|facts| facts.lock.as_ref()).map_or_else(dash, ToString::to_string),
        view.message.unwrap_or_default(),
    ]
}

/// What `locations describe -o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocationView {
    /// The version of the document.
    pub api_version: &'static str,
    /// Always `LocationDescription`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its phase; `New` before it was looked at.
    pub phase: String,
    /// How it stands.
    pub tone: Tone,
    /// Why it can't be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who stores it.
    pub provider: String,
    /// Bucket and prefix.
    pub place: String,
    /// ReadWrite or ReadOnly.
    pub access: String,
    /// Whether backups that name no location go there.
    pub is_default: bool,
    /// When it was looked at last.
    pub checked: Option<Timestamp>,
    /// When it was compared with the cluster last.
    pub synced: Option<Timestamp>,
    /// What is known of its bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Facts>,
    /// What came of the last comparison, in short; nothing if there is nothing to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_problem: Option<String>,
}

/// The document.
pub fn describe(location: &BackupStorageLocation) -> LocationView {
    let (spec, status) = (&location.spec, &location.status);
    let prefix = spec.object_storage.prefix.as_deref().filter(|prefix| !prefix.is_empty());
    let place = [Some(spec.object_storage.bucket.as_str()), prefix].into_iter().flatten().collect::<Vec<_>>();
    let (phase, tone) = match &status.phase {
        None => ("New".to_owned(), Tone::Busy),
        Some(phase @ LocationPhase::Available) => (phase.to_string(), Tone::Good),
        Some(phase @ LocationPhase::Unavailable) => (phase.to_string(), Tone::Bad),
        Some(phase) => (plain(phase.as_str()), Tone::Unknown),
    };
    let pass = sync::location(location).last_pass;
    LocationView {
        api_version: API_VERSION,
        kind: "LocationDescription",
        name: location.name_any(),
        phase,
        tone,
        message: status.message.as_deref().map(plain).filter(|message| !message.is_empty()),
        provider: plain(&spec.provider),
        place: plain(&place.join("/")),
        access: spec.access_mode.as_ref().map_or_else(|| "ReadWrite".to_owned(), |mode| plain(mode.as_str())),
        is_default: spec.default.unwrap_or_default(),
        checked: status.last_validation_time.as_ref().map(|at| at.0),
        synced: status.last_synced_time.as_ref().map(|at| at.0),
        bucket: Facts::read(location.annotations().get(BUCKET_ANNOTATION).map(String::as_str)),
        sync_problem: pass.and_then(|pass| match (&pass.error, pass.refused) {
            (Some(error), _) => Some(plain(error)),
            (None, 0) => None,
            (None, refused) => {
                Some(format!("{refused} Backups are gone from the bucket and were not removed"))
            }
        }),
    }
}

impl LocationView {
    /// The screen.
    pub fn text(&self, now: Timestamp, style: Style) -> String {
        let mark = if self.is_default { "   default" } else { "" };
        let mut lines = vec![format!(
            "{} {}   {}{mark}",
            style.tone(self.tone, self.tone.sign()),
            style.title(&self.name),
            style.tone(self.tone, &self.phase)
        )];
        lines.extend(self.message.iter().map(|why| format!("  {}", style.tone(self.tone, why))));
        lines.push(String::new());
        let when = |time: Option<Timestamp>| time.map_or_else(|| "never".to_owned(), |at| ago(at, now));
        let mut fact = |title: &str, text: String| lines.push(format!("  {title:<13}{text}"));
        fact("Stored in", format!("{} by {}", self.place, self.provider));
        fact("Access", self.access.clone());
        fact("Checked", when(self.checked));
        if let Some(facts) = &self.bucket {
            if let Some(versions) = facts.versions {
                fact("Versions", versions.to_string());
            }
            match (&facts.lock, &facts.unknown) {
                (Some(lock), _) => fact("Object lock", lock.to_string()),
                (None, Some(why)) => fact("Object lock", format!("not known: {}", plain(why))),
                (None, None) => {}
            }
            if let Some(why) = &facts.not_removable {
                fact("Deletions", format!("refused: {}", plain(why)));
            }
        }
        let problem = self.sync_problem.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        fact("Synced", format!("{}{problem}", when(self.synced)));
        if self.sync_problem.is_some() {
            lines.extend([
                String::new(),
                style.title("NEXT"),
                format!("  kubectl backup sync {}", self.name),
            ]);
        }
        lines.join("\n") + "\n"
    }
}
