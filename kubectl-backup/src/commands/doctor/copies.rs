//! Whether backups and schedules have copies that are never made, that have failed or wait, or that
//! are lost.

use std::collections::BTreeMap;

use backup_core::{
    restorability::{Place, Places},
    text::{counted, listed},
};

use super::{Finding, Topic, stopped_copies};
use crate::commands::{get::places, prelude::*};

pub(super) const ON: Topic = Topic("copies");
/// Maximum number of backups that a finding names; the others are counted.
pub(super) const MAX_NAMED_BACKUPS: usize = 3;

pub(super) async fn copies(session: &Session) -> Result<Vec<Finding>, Problem> {
    let places = places(session).await;
    if places.0.is_err() {
        // The check of the locations reports it.
        return Ok(Vec::new());
    }
    let schedules = session.list_readable(ListParams::default(), |schedule: Schedule| {
        Some(of_schedule(&schedule, &places))
    });
    let backups = session.list_readable(ListParams::default(), |backup: Backup| {
        Some((
            of_backup(&backup, &places),
            stopped_copies::of_backup(&backup, &places),
        ))
    });
    let (of_schedules, of_backups) = futures::try_join!(schedules, backups)?;
    let mut findings: Vec<Finding> = of_schedules.into_iter().flatten().collect();
    let (problems, stopped): (Vec<_>, Vec<_>) = of_backups.into_iter().unzip();
    findings.extend(grouped(problems.into_iter().flatten()));
    findings.extend(stopped_copies::findings(stopped.into_iter().flatten()));
    Ok(findings)
}

/// The copies of a schedule's backups that are never made.
fn of_schedule(schedule: &Schedule, places: &Places) -> Vec<Finding> {
    let name = plain(&schedule.name_any());
    let spec = &schedule.spec;
    let named = spec.template.storage_location.as_deref();
    let own = named
        .filter(|name| !name.is_empty())
        .or_else(|| places.default_name());
    let copies = spec.copies.iter().map(|one| &one.copy);
    copies
        .chain(&spec.template.copies)
        .filter_map(|copy| {
            let location = plain(&copy.location);
            let why = if own == Some(copy.location.as_str()) {
                "which is its own: no copy is made"
            } else if places.find(&copy.location) == Place::Gone {
                "which does not exist: no copy is made"
            } else {
                return None;
            };
            let text =
                format!("schedule {name} copies its backups into location {location}, {why}");
            let remedy = format!("kubectl backup schedules set {name} --copy-to=LOCATION");
            Some(ON.warn(text, remedy))
        })
        .collect()
}

/// A problem of copies, and the name of the backup that has it.
type BackupProblem = (String, String);

/// The copies of a backup that are never made, and the complete ones whose location is gone.
fn of_backup(backup: &Backup, places: &Places) -> Vec<BackupProblem> {
    let name = plain(&backup.name_any());
    let complete = backup.complete_copies().map(|copy| copy.location.as_str());
    let lost = complete
        .filter(|location| places.find(location) == Place::Gone)
        .map(|location| format!("copied into location {location}, which does not exist"));
    let never_made = backup
        .incomplete_copies()
        .into_iter()
        .filter(|location| places.find(location) == Place::Gone)
        .map(|location| format!("not copied: location {location} does not exist"));
    let own = backup.spec.storage_location.as_deref().unwrap_or_default();
    let into_own = (backup.has_copyable_files() && backup.names_own_location())
        .then(|| format!("not copied into location {own}, which is the original's"));
    lost.chain(never_made)
        .chain(into_own)
        .map(|problem| (plain(&problem), name.clone()))
        .collect()
}

/// One finding for the backups with the same problem.
fn grouped(problems: impl Iterator<Item = BackupProblem>) -> Vec<Finding> {
    const REMEDY: &str =
        "Create the location, or copy into another one: kubectl backup copy NAME --to=LOCATION";
    let mut by_problem = BTreeMap::<String, Vec<String>>::new();
    for (problem, name) in problems {
        by_problem.entry(problem).or_default().push(name);
    }
    by_problem
        .into_iter()
        .map(|(problem, mut names)| {
            names.sort_unstable();
            let total = names.len();
            let verb = if total == 1 { "is" } else { "are" };
            let shown = listed(&names[..total.min(MAX_NAMED_BACKUPS)], total);
            let text = format!("{} {verb} {problem} ({shown})", counted(total, "backup"));
            ON.warn(text, REMEDY)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        let location = |name: &str, default: bool| -> BackupStorageLocation {
            serde_json::from_value(json!({ "metadata": { "name": name },
                "spec": { "provider": "aws", "default": default, "objectStorage": { "bucket": "b" } } }))
            .unwrap()
        };
        Places::of(&[location("here", true), location("offsite", false)])
    }

    fn texts(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_schedule_with_copies_that_are_never_made_is_named() {
        let found = |template: serde_json::Value, copies: serde_json::Value| {
            let object = json!({ "metadata": { "name": "s" },
                "spec": { "schedule": "@daily", "template": template, "copies": copies } });
            let schedule = serde_json::from_value(object).unwrap();
            texts(of_schedule(&schedule, &places()))
        };
        let offsite = json!([{ "location": "offsite" }]);
        assert!(found(json!({}), offsite.clone()).is_empty());
        let own = "schedule s copies its backups into location offsite, which is its own: no copy is made";
        assert_eq!(
            found(json!({ "storageLocation": "offsite" }), offsite),
            [own]
        );
        let own =
            "schedule s copies its backups into location here, which is its own: no copy is made";
        let absent = "schedule s copies its backups into location gone, which does not exist: no copy is made";
        assert_eq!(
            found(
                json!({ "copies": [{ "location": "gone" }] }),
                json!([{ "location": "here" }])
            ),
            [own, absent]
        );
    }

    #[test]
    fn lost_copies_of_backups_are_counted_by_location() {
        let backup = |name: &str, phase: &str| -> Backup {
            serde_json::from_value(json!({ "metadata": { "name": name },
                "spec": { "storageLocation": "here", "copies": [{ "location": "gone" }, { "location": "here" }] },
                "status": { "phase": phase, "copies": [{ "location": "gone", "phase": "Completed" }, { "location": "offsite", "phase": "Completed" }] } }))
            .unwrap()
        };
        let all = [backup("b", "Completed"), backup("a", "Completed")];
        let problems = all.iter().flat_map(|one| of_backup(one, &places()));
        assert_eq!(
            texts(grouped(problems)),
            [
                "2 backups are copied into location gone, which does not exist (a, b)",
                "2 backups are not copied into location here, which is the original's (a, b)",
            ]
        );
        let mut waiting = backup("c", "Completed");
        waiting.status.copies.clear();
        waiting.spec.copies.truncate(1);
        assert_eq!(
            texts(grouped(of_backup(&waiting, &places()).into_iter())),
            ["1 backup is not copied: location gone does not exist (c)"]
        );
    }
}
