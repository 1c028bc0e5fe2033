//! Schedules: rows of `schedules get`, and the document behind `schedules describe`. Pure.

use backup_core::{
    api::{Backup, Schedule, schedule::SchedulePhase},
    cron::Reading,
    labels::{CRON_ANNOTATION, SKIPPED_ANNOTATION},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::{
    backup::{scope, selectors},
    description::API_VERSION,
    part::Part,
};
use crate::print::{
    age::{human, seconds, until},
    style::{Style, Tone},
    table::plain,
};

/// Headers of schedules; the first [`NARROW`] unless wide.
pub const HEADERS: [&str; 9] =
    ["NAME", "STATUS", "SCHEDULE", "NEXT", "LAST BACKUP", "AGE", "TTL", "NEXT RUNS (UTC)", "SELECTOR"];
/// Columns unless wide.
pub const NARROW: usize = 6;
/// Runs that are told.
const RUNS: usize = 3;

/// A schedule's row, all columns.
pub fn row(schedule: &Schedule, now: Timestamp, style: Style) -> Vec<String> {
    let (spec, template) = (&schedule.spec, &schedule.spec.template);
    let (state, tone) = state(schedule);
    let runs = next(schedule, now);
    let dash = || "-".to_owned();
    let age = |time: Option<Timestamp>| time.map_or_else(dash, |at| human(seconds(at, now).max(0)));
    vec![
        schedule.name_any(),
        style.tone(tone, &state),
        plain(&spec.schedule),
        runs.first().map_or_else(dash, |at| until(*at, now)),
        age(schedule.status.last_backup.as_ref().map(|at| at.0)),
        age(schedule.metadata.creation_timestamp.as_ref().map(|at| at.0)),
        template.ttl.map_or_else(dash, |ttl| ttl.to_string()),
        if runs.is_empty() { dash() } else { runs.iter().map(short).collect::<Vec<_>>().join(", ") },
        selectors(template.label_selector.as_ref(), template.or_label_selectors.as_deref())
            .map_or_else(dash, |text| text.trim_start_matches("labels ").to_owned()),
    ]
}

fn short(at: &Timestamp) -> String {
    at.strftime("%-d %b %H:%M").to_string()
}

/// How it stands, in a word.
fn state(schedule: &Schedule) -> (String, Tone) {
    let phase = schedule.status.phase.clone().unwrap_or(SchedulePhase::New);
    match (&phase, schedule.spec.paused) {
        (SchedulePhase::FailedValidation, _) => (phase.to_string(), Tone::Bad),
        (_, true) => ("Paused".to_owned(), Tone::Warn),
        (SchedulePhase::Enabled, _) => (phase.to_string(), Tone::Good),
        (SchedulePhase::New, _) => (phase.to_string(), Tone::Busy),
        _ => (plain(phase.as_str()), Tone::Unknown),
    }
}

/// How the controller has said that it reads the expression.
fn reading(schedule: &Schedule) -> Option<Reading> {
    schedule.annotations().get(CRON_ANNOTATION)?.parse().ok()
}

/// The runs that are to come, as the controller reads the expression; by default where it has not said how. None where none
/// will be made.
fn next(schedule: &Schedule, now: Timestamp) -> Vec<Timestamp> {
    if schedule.spec.paused || schedule.status.phase == Some(SchedulePhase::FailedValidation) {
        return Vec::new();
    }
    let Ok(cron) = reading(schedule).unwrap_or_default().cron(&schedule.spec.schedule) else {
        return Vec::new();
    };
    std::iter::successors(cron.next(now), |at| cron.next(*at)).take(RUNS).collect()
}

/// What `schedules describe -o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleView {
    /// The version of the document.
    pub api_version: &'static str,
    /// Always `ScheduleDescription`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The phase, or `Paused`.
    pub state: String,
    /// How it stands.
    pub tone: Tone,
    /// The cron expression.
    pub schedule: String,
    /// The next runs, if any.
    pub next_runs: Vec<Timestamp>,
    /// By which library and in which time zone the controller reads the expression, `robfig UTC`; none if it has not said so: then
    /// the next runs are those of that one.
    pub read_as: Option<String>,
    /// Whether Velero's two libraries read the expression differently.
    pub ambiguous: bool,
    /// When it made a backup last.
    pub last_backup: Option<Timestamp>,
    /// What it skipped last, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_skipped: Option<Skipped>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What its backups hold, in words.
    pub scope: String,
    /// How long they are kept.
    pub ttl: Option<String>,
    /// Where they are stored.
    pub location: Option<String>,
    /// Its latest backups, newest first.
    pub backups: Part<Vec<BackupLine>>,
}

/// A run that was left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// Its time.
    pub at: Timestamp,
    /// Why, if that is known.
    pub reason: Option<String>,
}

/// One of its backups.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupLine {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: String,
    /// How it stands.
    pub tone: Tone,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub completed: Option<Timestamp>,
}

/// The document.
pub fn describe(schedule: &Schedule, backups: Part<Vec<Backup>>, now: Timestamp) -> ScheduleView {
    let (state, tone) = state(schedule);
    let (spec, template) = (&schedule.spec, &schedule.spec.template);
    let reason = schedule.annotations().get(SKIPPED_ANNOTATION).map(|text| plain(text));
    let reading = reading(schedule);
    let cron = reading.clone().unwrap_or_default().cron(&spec.schedule);
    ScheduleView {
        api_version: API_VERSION,
        kind: "ScheduleDescription",
        name: schedule.name_any(),
        namespace: schedule.namespace().unwrap_or_default(),
        state,
        tone,
        schedule: plain(&spec.schedule),
        next_runs: next(schedule, now),
        read_as: reading.as_ref().map(ToString::to_string),
        ambiguous: cron.is_ok_and(|cron| cron.is_ambiguous()),
        last_backup: schedule.status.last_backup.as_ref().map(|at| at.0),
        last_skipped: schedule.status.last_skipped.as_ref().map(|at| Skipped { at: at.0, reason }),
        problems: schedule.status.validation_errors.iter().map(|text| plain(text)).collect(),
        scope: scope(template),
        ttl: template.ttl.map(|ttl| ttl.to_string()),
        location: template.storage_location.as_deref().map(plain),
        backups: backups.map(|all| lines(all, now)),
    }
}

fn lines(mut all: Vec<Backup>, now: Timestamp) -> Vec<BackupLine> {
    let began = |backup: &Backup| {
        let time = backup.status.start_timestamp.as_ref().or(backup.metadata.creation_timestamp.as_ref());
        time.map(|at| at.0)
    };
    all.sort_by_key(|backup| std::cmp::Reverse(began(backup)));
    all.truncate(FEW);
    all.iter()
        .map(|backup| BackupLine {
            name: backup.name_any(),
            phase: plain(backup.phase().as_str()),
            tone: super::backup::verdict(backup, now).tone,
            started: began(backup),
            completed: backup.status.completion_timestamp.as_ref().map(|at| at.0),
        })
        .collect()
}

/// Backups that are told.
const FEW: usize = 5;
