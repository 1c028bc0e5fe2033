//! Schedules: rows of `schedules get`, and the document and the screen of `schedules describe`.
//! Pure.

mod copies;
mod obstacle;
mod verify;

use backup_core::{
    api::{
        Backup, BackupSpec, Schedule,
        schedule::{KeepRules, SchedulePhase},
    },
    cron::{Cron, Reading},
    keep::Rule,
    labels::{CRON_ANNOTATION, SKIPPED_ANNOTATION},
    namespace_names::absence,
    restorability::Places,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use copies::ScheduledCopyView;
pub(crate) use obstacle::Obstacle;
use verify::VerifyView;

use super::{
    Columns, TableKind, WorkStatus, Workload as _,
    backup::scope,
    drill::DrillsView,
    related::began,
    selection::selectors,
    table_kind::{age, dash},
    verdict,
};
use crate::{
    fetched::FetchResult,
    print::{Screen, Style, Tone, ago, ago_or_never, aligned, minute, plain, seconds, took, until},
};

const MAX_BACKUPS: usize = 5;
const MAX_NEXT_RUNS: usize = 3;

impl TableKind for Schedule {
    const KIND: &'static str = "schedule";
    const COLUMNS: Columns = Columns {
        headers: &[
            "NAME",
            "STATUS",
            "SCHEDULE",
            "NEXT",
            "LAST RUN",
            "AGE",
            "TTL",
            "NEXT RUNS (UTC)",
            "SELECTOR",
            "OTHER READING",
        ],
        narrow: 6,
        status: 1,
    };

    const HAS_LOCATION: bool = true;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        self.row_among(None, now, style)
    }

    fn row_among(&self, places: Option<&Places>, now: Timestamp, style: Style) -> Vec<String> {
        let template = &self.spec.template;
        let obstacle = Obstacle::of(self, places, now);
        let (mut state, tone) = state(self, obstacle.as_ref());
        if let Some(remark) = obstacle.as_ref().and_then(Obstacle::remark) {
            state = format!("{state} ({remark})");
        }
        let runs = next(self, now);
        vec![
            self.name_any(),
            style.tone(tone, &state),
            plain(&self.spec.schedule),
            runs.first().map_or_else(dash, |at| until(*at, now)),
            age(self.status.last_backup.as_ref().map(|at| at.0), now),
            age(
                self.metadata.creation_timestamp.as_ref().map(|at| at.0),
                now,
            ),
            ttl(template).unwrap_or_else(dash),
            if runs.is_empty() {
                dash()
            } else {
                short(&runs)
            },
            selectors(
                template.label_selector.as_ref(),
                template.or_label_selectors.as_deref(),
            )
            .unwrap_or_else(dash),
            difference(self, now).unwrap_or_else(dash),
        ]
    }
}

/// How long its backups are kept; `None` if that is the server's default, which zero means, too.
fn ttl(template: &BackupSpec) -> Option<String> {
    let ttl = template.ttl.filter(|ttl| !ttl.is_zero())?;
    Some(ttl.to_string())
}

fn short(runs: &[Timestamp]) -> String {
    runs.iter()
        .map(|at| minute(*at))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The state in one word.
fn state(schedule: &Schedule, obstacle: Option<&Obstacle>) -> (String, Tone) {
    let phase = schedule.status.phase.clone().unwrap_or(SchedulePhase::New);
    let (state, tone) = match (&phase, schedule.spec.paused) {
        (SchedulePhase::FailedValidation, _) => (phase.to_string(), Tone::Bad),
        (_, true) => ("Paused".to_owned(), Tone::Warn),
        (SchedulePhase::Enabled, _) => (phase.to_string(), Tone::Good),
        (SchedulePhase::New, _) => (phase.to_string(), Tone::Busy),
        _ => (plain(phase.as_str()), Tone::Unknown),
    };
    (state, obstacle.map_or(tone, Obstacle::tone))
}

/// How the controller reads the expression, from its annotation.
pub(super) fn reading(schedule: &Schedule) -> Option<Reading> {
    schedule.annotations().get(CRON_ANNOTATION)?.parse().ok()
}

/// The difference between Velero's two libraries for this expression.
pub(crate) fn difference(schedule: &Schedule, now: Timestamp) -> Option<String> {
    let found = reading(schedule)
        .unwrap_or_default()
        .difference(&schedule.spec.schedule, now)?;
    Some(plain(&found.to_string()))
}

/// The next runs, as the controller reads the expression; with the default reading if it has not
/// recorded one. Empty if the schedule will make no backups.
pub(super) fn next(schedule: &Schedule, now: Timestamp) -> Vec<Timestamp> {
    let Some(cron) = runs(schedule) else {
        return Vec::new();
    };
    std::iter::successors(cron.next(now), |at| cron.next(*at))
        .take(MAX_NEXT_RUNS)
        .collect()
}

/// The expression, by the same rules; `None` if the schedule makes no backups.
pub(super) fn runs(schedule: &Schedule) -> Option<Cron> {
    if schedule.spec.paused || schedule.status.phase == Some(SchedulePhase::FailedValidation) {
        return None;
    }
    let reading = reading(schedule).unwrap_or_default();
    reading.cron(&schedule.spec.schedule).ok()
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduleView {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) state: String,
    pub(crate) tone: Tone,
    pub(crate) schedule: String,
    pub(crate) next_runs: Vec<Timestamp>,
    /// The library and the time zone by which the controller reads the expression, such as `robfig
    /// UTC`. Null if it has not recorded them: then the next runs are by `robfig UTC`.
    pub(crate) read_as: Option<String>,
    /// Whether Velero's two libraries read the expression differently.
    pub(crate) ambiguous: bool,
    /// The difference between the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) difference: Option<String>,
    pub(crate) last_backup: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_skipped: Option<SkippedRun>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) problems: Vec<String>,
    /// Scope of its backups, in words.
    pub(crate) scope: String,
    /// Null for the server's default.
    pub(crate) ttl: Option<String>,
    /// Number of periods by rule of retention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keep: Option<KeepRules>,
    pub(crate) location: Option<String>,
    /// The copies of each of its backups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) copies: Vec<ScheduledCopyView>,
    /// How the files of its backups are verified; null if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verify: Option<VerifyView>,
    /// How its backups are restored on trial; null if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drill: Option<DrillsView>,
    pub(crate) backups: FetchResult<Vec<BackupLine>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SkippedRun {
    pub(crate) at: Timestamp,
    pub(crate) reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupLine {
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) tone: Tone,
    pub(crate) started: Option<Timestamp>,
    pub(crate) completed: Option<Timestamp>,
}

/// `absent`: the namespaces that it includes by name, and that do not exist.
pub(crate) fn describe(
    schedule: &Schedule,
    backups: FetchResult<Vec<Backup>>,
    places: &Places,
    absent: &[String],
    now: Timestamp,
) -> ScheduleView {
    let obstacle = Obstacle::of(schedule, Some(places), now);
    let (state, mut tone) = state(schedule, obstacle.as_ref());
    let absence = absence(absent);
    if absence.is_some() && tone == Tone::Good {
        tone = Tone::Warn;
    }
    // For other obstacles the state says it.
    let obstacle = obstacle.filter(|obstacle| obstacle.remark().is_some());
    let errors = schedule
        .status
        .validation_errors
        .iter()
        .map(|text| plain(text));
    let spec = &schedule.spec;
    let template = &spec.template;
    let reason = schedule
        .annotations()
        .get(SKIPPED_ANNOTATION)
        .map(|text| plain(text));
    let reading = reading(schedule);
    let difference = difference(schedule, now);
    ScheduleView {
        name: schedule.name_any(),
        namespace: schedule.namespace().unwrap_or_default(),
        state,
        tone,
        schedule: plain(&spec.schedule),
        next_runs: next(schedule, now),
        read_as: reading.as_ref().map(ToString::to_string),
        ambiguous: difference.is_some(),
        difference,
        last_backup: schedule.status.last_backup.as_ref().map(|at| at.0),
        last_skipped: schedule
            .status
            .last_skipped
            .as_ref()
            .map(|at| SkippedRun { at: at.0, reason }),
        problems: errors
            .chain(obstacle.map(|obstacle| format!("It {obstacle}.")))
            .chain(absence.map(|absence| format!("It {absence}.")))
            .collect(),
        scope: scope(template),
        ttl: ttl(template),
        keep: spec.keep.clone(),
        location: template.storage_location.as_deref().map(plain),
        copies: copies::of(schedule),
        verify: VerifyView::of(schedule),
        drill: DrillsView::of(schedule),
        backups: backups.map(|all| lines(all, now)),
    }
}

fn lines(mut all: Vec<Backup>, now: Timestamp) -> Vec<BackupLine> {
    all.sort_by_key(|backup| std::cmp::Reverse(began(backup)));
    all.truncate(MAX_BACKUPS);
    all.iter().map(|backup| backup_line(backup, now)).collect()
}

fn backup_line(backup: &Backup, now: Timestamp) -> BackupLine {
    let WorkStatus {
        phase, completed, ..
    } = backup.status();
    BackupLine {
        name: backup.name_any(),
        phase,
        tone: verdict(backup, now).tone,
        started: began(backup),
        completed,
    }
}

pub(crate) fn text(view: &ScheduleView, now: Timestamp, style: Style) -> std::io::Result<String> {
    let next = view
        .next_runs
        .first()
        .map_or_else(String::new, |at| format!("   next run {}", until(*at, now)));
    let state = style.tone(view.tone, &view.state);
    let mut screen = Screen::of(
        style,
        view.tone,
        &view.name,
        &[&state, &format!("{}{next}", view.schedule)],
    );
    screen.lines(
        view.problems
            .iter()
            .map(|problem| style.tone(view.tone, problem)),
    );
    screen.line("");
    screen.facts(13, facts(view, now));
    match &view.backups {
        FetchResult::Missing { unavailable } => {
            screen.line(&format!(
                "\n{}  unavailable: {unavailable}",
                style.title("BACKUPS")
            ));
        }
        FetchResult::Known(all) => {
            if all.is_empty() {
                screen.line("\n  It has made no backups that are still there.");
            } else {
                screen.section("BACKUPS");
                screen.lines(aligned(all.iter().map(|one| line(one, now, style)))?.lines());
            }
        }
    }
    Ok(screen.text)
}

fn facts(view: &ScheduleView, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if !view.next_runs.is_empty() {
        let how = match &view.read_as {
            Some(reading) => format!("the controller reads the expression as {reading}"),
            None => {
                "assumed that it is read as robfig UTC: the controller has not said so".to_owned()
            }
        };
        facts.push((
            "Next runs",
            format!("{} (UTC; {how})", short(&view.next_runs)),
        ));
    }
    if let Some(difference) = &view.difference {
        facts.push((
            "Mind",
            format!("Velero's two libraries differ: {difference} (docs/use/schedules.md)"),
        ));
    }
    facts.push(("Last run", ago_or_never(view.last_backup, now)));
    if let Some(skipped) = &view.last_skipped {
        let why = skipped
            .reason
            .as_ref()
            .map_or_else(String::new, |why| format!(": {why}"));
        facts.push(("Last skipped", format!("{}{why}", ago(skipped.at, now))));
    }
    facts.push(("Backs up", view.scope.clone()));
    facts.push((
        "Kept for",
        view.ttl
            .clone()
            .unwrap_or_else(|| "as the server is set".to_owned()),
    ));
    facts.extend(view.keep.as_ref().map(|keep| ("Keeps", rules(keep))));
    facts.extend(
        view.location
            .clone()
            .map(|name| ("Stored in", format!("location {name}"))),
    );
    facts.extend(copies::line(&view.copies).map(|text| ("Copies", text)));
    facts.extend(
        view.verify
            .as_ref()
            .map(|verify| ("Verified", verify.text(now))),
    );
    facts.extend(
        view.drill
            .as_ref()
            .map(|drills| ("Drilled", drills.text(now))),
    );
    facts
}

/// "daily 7, weekly 4"; "nothing" without a rule.
pub(super) fn rules(keep: &KeepRules) -> String {
    let rules = Rule::ALL.into_iter().filter_map(|rule| {
        let periods = rule.periods(keep);
        (periods != 0).then(|| format!("{} {periods}", rule.as_str()))
    });
    let rules: Vec<String> = rules.collect();
    if rules.is_empty() {
        "nothing".to_owned()
    } else {
        rules.join(", ")
    }
}

fn line(backup: &BackupLine, now: Timestamp, style: Style) -> Vec<String> {
    vec![
        backup.name.clone(),
        style.tone(backup.tone, &backup.phase),
        backup.started.map_or_else(String::new, |at| ago(at, now)),
        backup
            .started
            .zip(backup.completed)
            .map_or_else(String::new, |(from, to)| {
                format!("took {}", took(seconds(from, to)))
            }),
    ]
}
