//! The screen of `status`: unprotected namespaces first, and few lines even for many namespaces.

use std::collections::{BTreeMap, BTreeSet};

use backup_core::{
    drill::DrillResult,
    restorability::Answer,
    text::{counted, listed},
};
use jiff::Timestamp;

use super::{ClusterStatus, NamespaceStatus, WorkLine};
use crate::{
    fetched::FetchResult,
    print::{Screen, Style, Tone, ago, table, until},
    view::table_kind::{age, dash},
};

/// Maximum number of rows of unprotected namespaces, unless all are shown.
const MAX_UNPROTECTED_ROWS: usize = 20;
/// Up to this number protected namespaces get a row each; more are counted by schedule.
const MAX_PROTECTED_ROWS: usize = 20;
/// Place of the column with the number of copies, which is left out if there are none.
const COPIES_COLUMN: usize = 3;
/// Maximum number of namespaces in a suggested command.
const MAX_NAMES: usize = 5;

pub(crate) fn text(
    status: &ClusterStatus,
    now: Timestamp,
    style: Style,
    all: bool,
) -> std::io::Result<String> {
    let (good, others): (Vec<_>, Vec<_>) = status.namespaces.iter().partition(|one| one.protected);
    let (bad, unknown): (Vec<_>, Vec<_>) = others.into_iter().partition(|one| one.checked);
    let (tone, verdict) = verdict(status, bad.len(), unknown.len());
    let mut screen = Screen::of(style, tone, &status.namespace, &[&verdict]);
    screen.line("");
    screen.facts(11, facts(status, now, style));
    let most = if all {
        usize::MAX
    } else {
        MAX_UNPROTECTED_ROWS
    };
    section(&mut screen, "NOT PROTECTED", &bad, most, now)?;
    section(&mut screen, "NOT CHECKED", &unknown, most, now)?;
    if all || good.len() <= MAX_PROTECTED_ROWS {
        section(&mut screen, "PROTECTED", &good, usize::MAX, now)?;
    } else {
        screen.section("PROTECTED");
        screen.lines(summary(&good, now));
        screen.line("  -o wide has a row for each");
    }
    let next = next(status, &bad);
    if !next.is_empty() {
        screen.section("NEXT");
        screen.lines(next);
    }
    Ok(screen.text)
}

/// The tone and the text of the first line.
fn verdict(status: &ClusterStatus, bad: usize, unknown: usize) -> (Tone, String) {
    let total = counted(status.namespaces.len(), "namespace");
    if bad > 0 && unknown > 0 {
        let sentence = format!("{bad} of {total} not protected, {unknown} not checked");
        (Tone::Bad, sentence)
    } else if bad > 0 {
        (Tone::Bad, format!("{bad} of {total} not protected"))
    } else if unknown > 0 {
        (Tone::Warn, format!("{unknown} of {total} not checked"))
    } else if status.namespaces.is_empty() {
        (Tone::Unknown, "no namespace is checked".to_owned())
    } else if status.unchecked.is_empty() {
        let tone = if status.absent_namespaces.is_empty() {
            Tone::Good
        } else {
            Tone::Warn
        };
        (tone, format!("{total}, all protected"))
    } else {
        (Tone::Warn, format!("{total} checked, all protected"))
    }
}

fn facts(status: &ClusterStatus, now: Timestamp, style: Style) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for WorkLine {
        kind,
        name,
        phase,
        verdict,
        tone,
    } in &status.running
    {
        facts.push((
            "Running",
            format!("{kind} {name}: {}. {verdict}", style.tone(*tone, phase)),
        ));
    }
    for location in status.locations.known().into_iter().flatten() {
        let message = location
            .message
            .as_ref()
            .map_or_else(String::new, |why| format!(": {why}"));
        let phase = style.tone(location.tone, &location.phase);
        facts.push(("Location", format!("{} {phase}{message}", location.name)));
    }
    let none = || style.tone(Tone::Bad, "there is none: nothing can be stored");
    let without = status.locations.shown(|all| all.is_empty().then(none));
    facts.extend(without.map(|text| ("Location", text)));
    let lock = status
        .lock
        .shown(|held| Some(held.join("; ")).filter(|held| !held.is_empty()));
    facts.push((
        "Lock",
        lock.unwrap_or_else(|| "nothing holds it".to_owned()),
    ));
    if let Some(why) = &status.lock_problem {
        let sentence = format!("nothing can be created: {why}");
        facts.push(("Lock", style.tone(Tone::Bad, &sentence)));
    }
    for absence in &status.absent_namespaces {
        facts.push(("Schedule", style.tone(Tone::Warn, &absence.to_string())));
    }
    facts.extend(verified(status, now).map(|text| ("Verified", text)));
    facts.extend(drilled(status, now, style).map(|text| ("Drilled", text)));
    if !status.except.is_empty() {
        facts.push(("Left out", status.except.join(", ")));
    }
    if !status.new_types.is_empty() {
        let shown = status.new_types.len().min(MAX_NAMES);
        let names = listed(&status.new_types[..shown], status.new_types.len());
        facts.push((
            "New types",
            format!("{names}: in no last good backup, and younger than the last one of everything"),
        ));
    }
    facts.extend(
        status
            .unchecked
            .iter()
            .map(|sentence| ("Note", sentence.clone())),
    );
    facts
}

/// How many of the last good backups were verified; `None` if no one was.
fn verified(status: &ClusterStatus, now: Timestamp) -> Option<String> {
    let good = status
        .namespaces
        .iter()
        .filter_map(|one| one.last_good.as_ref());
    // Many namespaces have one last good backup.
    let backups: BTreeMap<&str, Option<Timestamp>> = good
        .map(|good| {
            let at = good.verified.as_ref().map(|verified| verified.at);
            (good.name.as_str(), at)
        })
        .collect();
    let times = backups.values().flatten();
    let last = times.clone().max()?;
    let count = times.count();
    let total = counted(backups.len(), "last good backup");
    Some(format!(
        "{count} of {total} found whole, last {}",
        ago(*last, now)
    ))
}

/// How many of the last good backups were restored on trial, and how many of these trials have
/// failed, of which schedules; `None` if no one was.
fn drilled(status: &ClusterStatus, now: Timestamp, style: Style) -> Option<String> {
    let good = status
        .namespaces
        .iter()
        .filter_map(|one| one.last_good.as_ref());
    let backups: BTreeMap<&str, Option<&DrillResult>> = good
        .map(|good| (good.name.as_str(), good.drilled.as_ref()))
        .collect();
    let results = backups.values().copied().flatten();
    let last = results.clone().map(|result| result.at).max()?;
    let failed = results.clone().filter(|result| result.has_failed()).count();
    let restored = results.count() - failed;
    let total = counted(backups.len(), "last good backup");
    let rest = if failed > 0 {
        let text = format!("{failed} failed ({})", failed_sources(status));
        format!(", {}", style.tone(Tone::Warn, &text))
    } else {
        String::new()
    };
    Some(format!(
        "{restored} of {total} restored on trial{rest}, last {}",
        ago(last, now)
    ))
}

/// "schedule nightly, backup by-hand": where the last good backups come from whose last drill has
/// failed.
fn failed_sources(status: &ClusterStatus) -> String {
    let good = status
        .namespaces
        .iter()
        .filter_map(|one| one.last_good.as_ref());
    let sources: BTreeSet<String> = good
        .filter(|good| good.drilled.as_ref().is_some_and(DrillResult::has_failed))
        .map(|good| match &good.schedule {
            Some(schedule) => format!("schedule {schedule}"),
            None => format!("backup {}", good.name),
        })
        .collect();
    let names: Vec<String> = sources.into_iter().collect();
    listed(&names[..names.len().min(MAX_NAMES)], names.len())
}

fn section(
    screen: &mut Screen,
    title: &str,
    namespaces: &[&NamespaceStatus],
    most: usize,
    now: Timestamp,
) -> std::io::Result<()> {
    if namespaces.is_empty() {
        return Ok(());
    }
    screen.section(title);
    let has_copies = namespaces.iter().any(|one| copies(one) > 0);
    let rows = namespaces.iter().take(most).map(|one| {
        let mut row = row(one, now);
        if has_copies {
            row.insert(COPIES_COLUMN, copies(one).to_string());
        }
        row
    });
    let mut headers = vec!["NAMESPACE", "LAST GOOD BACKUP", "AGE", "NEXT RUN", "REMARK"];
    if has_copies {
        headers.insert(COPIES_COLUMN, "COPIES");
    }
    screen.lines(table(&headers, true, rows)?.lines());
    if namespaces.len() > most {
        screen.line(&format!(
            "  and {} more: -o wide has them all",
            namespaces.len() - most
        ));
    }
    Ok(())
}

/// Number of copies of the last good backup.
fn copies(one: &NamespaceStatus) -> usize {
    one.last_good.as_ref().map_or(0, |good| good.copies.len())
}

fn row(one: &NamespaceStatus, now: Timestamp) -> Vec<String> {
    let NamespaceStatus {
        name,
        last_good,
        next_run,
        reasons,
        ..
    } = one;
    vec![
        name.clone(),
        last_good
            .as_ref()
            .map_or_else(dash, |good| good.name.clone()),
        age(last_good.as_ref().and_then(|good| good.began), now),
        next_run.map_or_else(dash, |at| until(at, now)),
        reasons.join("; "),
    ]
}

/// The number of namespaces that each schedule protects, and the age of the oldest of their
/// backups.
fn summary(good: &[&NamespaceStatus], now: Timestamp) -> Vec<String> {
    let mut by_schedule: BTreeMap<Option<&str>, (i64, Option<Timestamp>)> = BTreeMap::new();
    for one in good {
        let began = one.last_good.as_ref().and_then(|good| good.began);
        let (count, oldest) = by_schedule
            .entry(one.schedule.as_deref())
            .or_insert((0, began));
        *count += 1;
        *oldest = (*oldest).min(began);
    }
    by_schedule
        .into_iter()
        .map(|(schedule, (count, oldest))| {
            let by = schedule.map_or_else(
                || "without a schedule".to_owned(),
                |name| format!("by schedule {name}"),
            );
            format!(
                "{} {by}, with backups that are {} old or younger",
                counted(count, "namespace"),
                age(oldest, now)
            )
        })
        .collect()
}

fn next(status: &ClusterStatus, bad: &[&NamespaceStatus]) -> Vec<String> {
    let mut next = Vec::new();
    let mut locations = status.locations.known().into_iter().flatten();
    let down = locations.find(|location| location.tone == Tone::Bad);
    next.extend(
        down.map(|location| format!("kubectl backup locations describe {}", location.name)),
    );
    let unscheduled: Vec<&str> = bad
        .iter()
        .filter(|one| one.schedule_command.is_none())
        .map(|one| one.name.as_str())
        .collect();
    if !unscheduled.is_empty() {
        let named = &unscheduled[..unscheduled.len().min(MAX_NAMES)];
        let rest = if named.len() < unscheduled.len() {
            format!(
                "   # {} of {}: `kubectl backup status -o name` has all",
                named.len(),
                unscheduled.len()
            )
        } else {
            String::new()
        };
        next.push(format!(
            "kubectl backup schedules create NAME --schedule='0 3 * * *' --include-namespaces={}{rest}",
            named.join(",")
        ));
    }
    let of_bad = bad.iter().filter_map(|one| one.schedule_command.clone());
    let of_absences = status
        .absent_namespaces
        .iter()
        .map(|one| format!("kubectl backup schedules describe {}", one.schedule));
    let mut of_schedules: Vec<String> = of_bad.chain(of_absences).collect();
    of_schedules.sort_unstable();
    of_schedules.dedup();
    next.extend(of_schedules.into_iter().take(MAX_NAMES));
    let lacks_data = bad.iter().any(|one| {
        one.last_good
            .as_ref()
            .is_some_and(|good| good.restorable.answer == Answer::Partly)
    });
    // Who reads only a part may not run `doctor` either.
    let is_lock_unknown = matches!(status.lock, FetchResult::Missing { .. }) && !status.is_partial;
    if is_lock_unknown || status.lock_problem.is_some() || lacks_data {
        next.push("kubectl backup doctor".to_owned());
    }
    next
}
