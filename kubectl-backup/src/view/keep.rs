//! Which backups of a schedule are kept, why and until when: the document and the table of
//! `schedules keep`. Pure.

use backup_core::{
    api::{Schedule, schedule::KeepRules},
    cron::zone_of,
    keep::{Generation, Keep},
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

impl PlannedSchedule<'_> {
    /// What these rules would keep.
    pub(crate) fn plan(&self, rules: &KeepRules, now: Timestamp) -> KeepPlan {
        let name = self.schedule.name_any();
        let zone = zone_of(&self.schedule.spec.schedule);
        let keep = Keep::new(rules.clone(), zone);
        let mut all = ScheduleRules::default();
        all.set(&name, Some(keep.clone()));
        let retention = Retention::new(self.backups, self.places, |_| false);
        let mut verdicts = retention.verdicts(&all);
        let label = valid_value(&name);
        let own = self.backups.iter().filter(|one| one.schedule == label);
        let mut backups: Vec<PlannedBackup> = own
            .map(|one| {
                let verdict = verdicts.remove(one.name.as_str()).unwrap_or_default();
                let series = retention.generations(&label, one.location());
                self.backup(one, &verdict, &keep, &series, now)
            })
            .collect();
        backups.sort_by(|a, b| (b.began, &b.name).cmp(&(a.began, &a.name)));
        KeepPlan {
            namespace: self.schedule.namespace().unwrap_or_default(),
            zone: keep.zone_name().to_owned(),
            schedule: name,
            rules: rules.clone(),
            backups,
        }
    }

    fn backup(
        &self,
        one: &RetentionFacts,
        verdict: &RetentionVerdict,
        keep: &Keep,
        series: &[Generation],
        now: Timestamp,
    ) -> PlannedBackup {
        let runs = runs(self.schedule);
        let next_run = |after| runs.as_ref()?.next(after);
        let generation = Generation {
            began: one.began,
            name: one.name.clone(),
        };
        let mut kept_by = Vec::new();
        if one.expiration.is_none_or(|expiration| expiration > now) {
            kept_by.push(KeepReason::new("ttl", one.expiration));
        }
        kept_by.extend(verdict.rules.iter().map(|rule| {
            let until = keep.kept_until(*rule, &generation, series, now, next_run);
            KeepReason::new(rule.as_str(), until)
        }));
        if verdict.unknown_rules.is_some() {
            kept_by.push(KeepReason::new("unknown rules", None));
        }
        if verdict.is_last_good {
            kept_by.push(KeepReason::new("last good", next_run(now)));
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
        }
    }
}

impl KeepPlan {
    /// The table, and a sentence below.
    pub(crate) fn text(&self, now: Timestamp, style: Style) -> std::io::Result<String> {
        let rows = self.backups.iter().map(|one| one.row(now, style));
        let headers = [
            "BACKUP", "AGE", "PHASE", "LOCATION", "EXPIRES", "KEPT BY", "GOES",
        ];
        let backups = if self.backups.is_empty() {
            format!("{} has no backups.\n", self.schedule)
        } else {
            table(&headers, true, rows)?
        };
        let going = self.backups.iter().filter(|one| one.kept_by.is_empty());
        let going = counted(going.count(), "backup");
        Ok(format!(
            "{backups}\nRules of {}: {} ({}). {going} would be removed now.\n",
            self.schedule,
            rules(&self.rules),
            self.zone,
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
        let reasons: Vec<&str> = self.kept_by.iter().map(|one| one.by.as_str()).collect();
        vec![
            self.name.clone(),
            age(Some(self.began), now),
            self.phase.clone(),
            self.location.clone(),
            self.expires
                .map_or_else(|| "never".to_owned(), |at| until(at, now)),
            if reasons.is_empty() {
                "nothing".to_owned()
            } else {
                reasons.join(", ")
            },
            goes,
        ]
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::{Backup, BackupStorageLocation};
    use serde_json::json;

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
        let location: BackupStorageLocation = serde_json::from_value(json!({ "metadata": { "name": "default" },
            "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } }, "status": { "phase": "Available" } }))
        .unwrap();
        let planned = PlannedSchedule {
            schedule: &schedule,
            backups: &backups,
            places: &Places::of([&location]),
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
        let none = planned.plan(&KeepRules::default(), now);
        assert!(none.backups[1].kept_by.is_empty(), "{none:?}");
    }
}
