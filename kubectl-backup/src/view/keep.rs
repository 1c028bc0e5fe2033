//! Which backups of a schedule are kept, why and until when, and which of their copies: the
//! document and the table of `schedules keep`. Pure.

use std::collections::BTreeMap;

use backup_core::{
    api::{Schedule, schedule::KeepRules},
    cron::zone_of,
    keep::{Generation, Keep, ScheduleKeep},
    labels::valid_value,
    restorability::Places,
    retention::{Retention, RetentionFacts, RetentionVerdict, ScheduleRules},
    text::counted,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::{
    schedule::{rules, runs},
    table_kind::age,
};
use crate::print::{Style, Tone, plain, table, until};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeepPlan {
    pub(crate) namespace: String,
    pub(crate) schedule: String,
    pub(crate) rules: KeepRules,
    /// Time zone of the periods.
    pub(crate) zone: String,
    /// Rules for copies, by location of the copies.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) copy_rules: BTreeMap<String, KeepRules>,
    /// Newest first.
    pub(crate) backups: Vec<PlannedBackup>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlannedBackup {
    pub(crate) name: String,
    pub(crate) location: String,
    pub(crate) phase: String,
    pub(crate) began: Timestamp,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) kept_by: Vec<KeepReason>,
    /// When the last reason ends, if each run makes a good backup; null if that is not known, or
    /// never.
    pub(crate) goes: Option<Timestamp>,
    /// Its complete copies in locations with rules for copies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) copies: Vec<PlannedCopy>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlannedCopy {
    pub(crate) location: String,
    /// Rules, or `last good`; a copy that nothing keeps goes when its time is over.
    pub(crate) kept_by: Vec<KeepReason>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct KeepReason {
    /// `ttl`, a rule, `last good`, or `unknown rules`.
    pub(crate) by: String,
    pub(crate) until: Option<Timestamp>,
}

impl KeepReason {
    fn new(by: &str, until: Option<Timestamp>) -> Self {
        Self {
            by: by.to_owned(),
            until,
        }
    }
}

/// A schedule, and what was read about its backups.
pub(crate) struct PlannedSchedule<'a> {
    pub(crate) schedule: &'a Schedule,
    /// All backups of the installation.
    pub(crate) backups: &'a [RetentionFacts],
    pub(crate) places: &'a Places,
}

/// Backups or copies to which the same rules apply.
struct Series<'a> {
    keep: &'a Keep,
    generations: Vec<Generation>,
}

/// The copies of the schedule's backups in a location.
struct CopySeries<'a> {
    location: &'a str,
    verdicts: BTreeMap<&'a str, RetentionVerdict>,
    series: Series<'a>,
}

impl PlannedSchedule<'_> {
    /// What these rules would keep; copies by the rules of the schedule.
    pub(crate) fn plan(&self, rules: &KeepRules, now: Timestamp) -> KeepPlan {
        let name = self.schedule.name_any();
        let zone = zone_of(&self.schedule.spec.schedule);
        let keep = Keep::new(rules.clone(), zone);
        let mut all_rules = ScheduleKeep::of(&self.schedule.spec);
        all_rules.backups = Some(keep.clone());
        let mut all = ScheduleRules::default();
        all.set(&name, all_rules.clone());
        let retention = Retention::new(self.backups, self.places, |_| false);
        let mut verdicts = retention.verdicts(&all);
        let label = valid_value(&name);
        let series_of_copies = all_rules.copies.iter().map(|(location, keep)| CopySeries {
            location,
            verdicts: retention.copies(&all, &label, location).unwrap_or_default(),
            series: Series {
                keep,
                generations: retention.copied_generations(&label, location),
            },
        });
        let series_of_copies: Vec<CopySeries<'_>> = series_of_copies.collect();
        let own = self.backups.iter().filter(|one| one.schedule == label);
        let mut backups: Vec<PlannedBackup> = own
            .map(|one| {
                let verdict = verdicts.remove(one.name.as_str()).unwrap_or_default();
                let mut copies = series_of_copies.iter();
                let as_copy = copies.find(|of| one.is_copy() && of.location == one.location());
                let of_backups = Series {
                    keep: &keep,
                    generations: retention.generations(&label, one.location()),
                };
                let series = as_copy.map_or(&of_backups, |of| &of.series);
                let mut planned = self.backup(one, &verdict, series, now);
                let elsewhere = series_of_copies
                    .iter()
                    .filter(|of| of.location != one.location() && one.has_copy_in(of.location));
                planned.copies = elsewhere
                    .map(|of| self.copy(one, of, &retention, now))
                    .collect();
                planned
            })
            .collect();
        backups.sort_by(|a, b| (b.began, &b.name).cmp(&(a.began, &a.name)));
        KeepPlan {
            namespace: self.schedule.namespace().unwrap_or_default(),
            zone: keep.zone_name().to_owned(),
            schedule: name,
            rules: rules.clone(),
            copy_rules: series_of_copies
                .iter()
                .map(|of| (plain(of.location), of.series.keep.rules().clone()))
                .collect(),
            backups,
        }
    }

    fn backup(
        &self,
        one: &RetentionFacts,
        verdict: &RetentionVerdict,
        series: &Series<'_>,
        now: Timestamp,
    ) -> PlannedBackup {
        let mut kept_by = Vec::new();
        if one.expiration.is_none_or(|expiration| expiration > now) {
            kept_by.push(KeepReason::new("ttl", one.expiration));
        }
        kept_by.extend(self.rules_for(one, verdict, series, now));
        if verdict.is_last_good {
            let next_run = runs(self.schedule).and_then(|runs| runs.next(now));
            kept_by.push(KeepReason::new("last good", next_run));
        }
        let ends: Option<Vec<Timestamp>> = kept_by.iter().map(|reason| reason.until).collect();
        PlannedBackup {
            name: one.name.clone(),
            location: plain(one.location()),
            phase: plain(one.phase.as_str()),
            began: one.began,
            expires: one.expiration,
            goes: ends.map(|ends| ends.into_iter().max().unwrap_or(now)),
            kept_by,
            copies: Vec::new(),
        }
    }

    fn copy(
        &self,
        one: &RetentionFacts,
        of: &CopySeries<'_>,
        retention: &Retention<'_>,
        now: Timestamp,
    ) -> PlannedCopy {
        let verdict = of.verdicts.get(one.name.as_str());
        let by_rules = verdict.map(|verdict| self.rules_for(one, verdict, &of.series, now));
        let mut kept_by = by_rules.unwrap_or_default();
        if retention.is_last_good_copy(&one.name, of.location) {
            kept_by.push(KeepReason::new("last good", None));
        }
        PlannedCopy {
            location: plain(of.location),
            kept_by,
        }
    }

    /// The rules that keep a member of a series.
    fn rules_for(
        &self,
        one: &RetentionFacts,
        verdict: &RetentionVerdict,
        series: &Series<'_>,
        now: Timestamp,
    ) -> Vec<KeepReason> {
        let runs = runs(self.schedule);
        let next_run = |after| runs.as_ref()?.next(after);
        let generation = Generation {
            began: one.began,
            name: one.name.clone(),
        };
        let all = &series.generations;
        let by_rules = verdict.rules.iter().map(|rule| {
            let until = series
                .keep
                .kept_until(*rule, &generation, all, now, next_run);
            KeepReason::new(rule.as_str(), until)
        });
        let unknown = verdict.unknown_rules.iter();
        let unknown = unknown.map(|_| KeepReason::new("unknown rules", None));
        by_rules.chain(unknown).collect()
    }
}

impl KeepPlan {
    /// The table, and a sentence below.
    pub(crate) fn text(&self, now: Timestamp, style: Style) -> std::io::Result<String> {
        let mut headers = vec![
            "BACKUP", "AGE", "PHASE", "LOCATION", "EXPIRES", "KEPT BY", "GOES",
        ];
        if !self.copy_rules.is_empty() {
            headers.push("COPIES KEPT BY");
        }
        let rows = self.backups.iter().map(|one| one.row(now, style));
        let backups = if self.backups.is_empty() {
            format!("{} has no backups.\n", self.schedule)
        } else {
            table(&headers, true, rows)?
        };
        let going = self.backups.iter().filter(|one| one.kept_by.is_empty());
        let going = counted(going.count(), "backup");
        let of_copies = self.copy_rules.iter().map(|(location, of)| {
            let of = rules(of);
            format!("Rules of copies in {location}: {of}. Others go when their time is over.\n")
        });
        Ok(format!(
            "{backups}\nRules of {}: {} ({}). {going} would be removed now.\n{}",
            self.schedule,
            rules(&self.rules),
            self.zone,
            of_copies.collect::<String>(),
        ))
    }
}

impl PlannedBackup {
    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        let goes = match self.goes {
            Some(_) if self.kept_by.is_empty() => style.tone(Tone::Warn, "now"),
            Some(at) => until(at, now),
            None => "not known".to_owned(),
        };
        let copies = self.copies.iter();
        let copies = copies.map(|copy| format!("{}: {}", copy.location, named(&copy.kept_by)));
        vec![
            self.name.clone(),
            age(Some(self.began), now),
            self.phase.clone(),
            self.location.clone(),
            self.expires
                .map_or_else(|| "never".to_owned(), |at| until(at, now)),
            named(&self.kept_by),
            goes,
            copies.collect::<Vec<_>>().join("; "),
        ]
    }
}

/// "daily, weekly"; "nothing" without a reason.
fn named(reasons: &[KeepReason]) -> String {
    let reasons: Vec<&str> = reasons.iter().map(|one| one.by.as_str()).collect();
    if reasons.is_empty() {
        "nothing".to_owned()
    } else {
        reasons.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::{Backup, BackupStorageLocation};
    use serde_json::{Value, json};

    use super::*;

    fn backup(name: &str, day: u8, expires: &str) -> RetentionFacts {
        let began = format!("2026-03-{day:02}T03:00:00Z");
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": name, "creationTimestamp": began, "labels": { "velero.io/schedule-name": "nightly" } },
            "spec": { "storageLocation": "default" },
            "status": { "phase": "Completed", "startTimestamp": began, "expiration": expires } });
        let backup: Backup = serde_json::from_value(object).unwrap();
        RetentionFacts::of(&backup)
    }

    fn location(name: &str) -> BackupStorageLocation {
        let spec = json!({ "provider": "aws", "objectStorage": { "bucket": "b" } });
        let object = json!({ "metadata": { "name": name }, "spec": spec, "status": { "phase": "Available" } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn copies_have_the_reasons_of_their_own_rules() {
        let now: Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
        let made = |name: &str, day: u8, patch: Value| {
            let began = format!("2026-03-{day:02}T03:00:00Z");
            let mut object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
                "metadata": { "name": name, "creationTimestamp": began, "labels": { "velero.io/schedule-name": "nightly" } },
                "spec": { "storageLocation": "default" },
                "status": { "phase": "Completed", "startTimestamp": began, "expiration": "2026-03-09T00:00:00Z" } });
            json_patch::merge(&mut object, &patch);
            let backup: Backup = serde_json::from_value(object).unwrap();
            RetentionFacts::of(&backup)
        };
        let copied =
            json!({ "status": { "copies": [{ "location": "offsite", "phase": "Completed" }] } });
        let imported = json!({ "metadata": { "annotations": { "backup-controller/copy-of": "s3://b",
            "backup-controller/imported": "2026-03-09T00:00:00Z" } }, "spec": { "storageLocation": "offsite" } });
        let backups = [
            made("1-imported", 1, imported.clone()),
            made("2-imported", 8, imported),
            made("3-copied", 9, copied.clone()),
            made("4-copied", 10, copied),
        ];
        let schedule: Schedule = serde_json::from_value(json!({ "metadata": { "name": "nightly" },
            "spec": { "schedule": "0 3 * * *", "template": {}, "keep": { "last": 1 },
                "copies": [{ "location": "offsite", "ttl": "1h", "keep": { "daily": 2, "weekly": 2 } }] } }))
        .unwrap();
        let planned = PlannedSchedule {
            schedule: &schedule,
            backups: &backups,
            places: &Places::of([&location("default"), &location("offsite")]),
        };
        let plan = planned.plan(schedule.spec.keep.as_ref().unwrap(), now);
        let told: Vec<String> = plan
            .backups
            .iter()
            .map(|one| {
                let rules: Vec<String> =
                    one.copies.iter().map(|copy| named(&copy.kept_by)).collect();
                format!("{} [{}] {rules:?}", one.name, named(&one.kept_by))
            })
            .collect();
        assert_eq!(
            told,
            [
                r#"4-copied [last, last good] ["daily, weekly"]"#,
                r#"3-copied [nothing] ["daily"]"#,
                "2-imported [weekly] []",
                "1-imported [nothing] []",
            ]
        );
        let until = plan.backups[0].copies[0].kept_by[0].until;
        assert_eq!(until, Some("2026-03-12T03:00:00Z".parse().unwrap()));
        let away = PlannedSchedule {
            places: &Places::of([&location("offsite")]),
            ..planned
        };
        let without_original = away.plan(&KeepRules::default(), now);
        let newest = &without_original.backups[0].copies[0];
        assert_eq!(named(&newest.kept_by), "daily, weekly, last good");
        let text = plan.text(now, Style::new(false)).unwrap();
        assert_says!(
            text,
            "COPIES KEPT BY",
            "offsite: daily, weekly",
            "Rules of copies in offsite: daily 2, weekly 2. Others go when their time is over."
        );
    }

    #[test]
    fn each_backup_has_its_reasons_and_their_ends() {
        let now: Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
        let over = "2026-03-09T00:00:00Z";
        let backups = [
            backup("old", 1, over),
            backup("kept", 8, over),
            backup("new", 10, "2026-03-20T03:00:00Z"),
        ];
        let schedule: Schedule = serde_json::from_value(json!({ "metadata": { "name": "nightly" },
            "spec": { "schedule": "0 3 * * *", "template": {} } }))
        .unwrap();
        let planned = PlannedSchedule {
            schedule: &schedule,
            backups: &backups,
            places: &Places::of([&location("default")]),
        };
        let rules = KeepRules {
            daily: 2,
            ..KeepRules::default()
        };
        let plan = planned.plan(&rules, now);
        let told: Vec<String> = plan
            .backups
            .iter()
            .map(|one| {
                let by: Vec<&str> = one
                    .kept_by
                    .iter()
                    .map(|reason| reason.by.as_str())
                    .collect();
                let goes = one.goes.map_or_else(String::new, |at| at.to_string());
                format!("{} {} {goes}", one.name, by.join("+"))
            })
            .collect();
        assert_eq!(
            told,
            [
                "new ttl+daily+last good 2026-03-20T03:00:00Z",
                "kept daily 2026-03-11T03:00:00Z",
                "old  2026-03-10T12:00:00Z",
            ]
        );
        let text = plan.text(now, Style::new(false)).unwrap();
        assert_says!(
            text,
            "Rules of nightly: daily 2 (UTC). 1 backup would be removed now."
        );
        assert_says!(text, "nothing", "now", "in 15h");
        assert!(!text.contains("COPIES"), "{text}");
        let none = planned.plan(&KeepRules::default(), now);
        assert!(none.backups[1].kept_by.is_empty(), "{none:?}");
    }
}
