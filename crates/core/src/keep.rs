//! Which backups of a schedule are kept beyond their ttl, by the rules of its `spec.keep`, and
//! which copies of them, by the rules of each copy: those of `restic forget --keep-*`. Pure.
//!
//! - For each rule the newest backup of each of the last `n` periods that have one is kept. Periods
//!   without a backup do not count, so an older one takes their place.
//! - While there are fewer periods than a rule asks for, it also keeps the oldest backup.
//! - A backup is kept if any rule keeps it. Only good backups take part
//!   ([`crate::restorability::Restorability::is_good`]).
//! - Periods are those of the calendar in the time zone of the schedule's expression, else in UTC:
//!   weeks begin on Monday, and the hour that a clock change repeats is two hours.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp, ToSpan as _, tz::TimeZone};
use serde::{Deserialize, Serialize};

use crate::{
    api::schedule::{KeepRules, ScheduleSpec},
    cron::{named_zone, zone_of},
};

/// Maximum number of periods in a rule: more than a year of hours.
pub const MAX_PERIODS: i64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    Last,
    Hourly,
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

impl Rule {
    pub const ALL: [Self; 6] = [
        Self::Last,
        Self::Hourly,
        Self::Daily,
        Self::Weekly,
        Self::Monthly,
        Self::Yearly,
    ];

    /// Its name: the field of `spec.keep`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
        }
    }

    /// Its number of periods, as given.
    pub fn periods(self, rules: &KeepRules) -> i64 {
        match self {
            Self::Last => rules.last,
            Self::Hourly => rules.hourly,
            Self::Daily => rules.daily,
            Self::Weekly => rules.weekly,
            Self::Monthly => rules.monthly,
            Self::Yearly => rules.yearly,
        }
    }

    pub fn periods_mut(self, rules: &mut KeepRules) -> &mut i64 {
        match self {
            Self::Last => &mut rules.last,
            Self::Hourly => &mut rules.hourly,
            Self::Daily => &mut rules.daily,
            Self::Weekly => &mut rules.weekly,
            Self::Monthly => &mut rules.monthly,
            Self::Yearly => &mut rules.yearly,
        }
    }
}

/// A good backup of the schedule. The order is that of age: by start, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation {
    pub began: Timestamp,
    pub name: String,
}

/// Rules, and the time zone of their periods.
#[derive(Clone, Debug, PartialEq)]
pub struct Keep {
    rules: KeepRules,
    zone: TimeZone,
}

/// The rules of a schedule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleKeep {
    /// For its backups.
    pub backups: Option<Keep>,
    /// For copies of its backups, by location of the copies.
    pub copies: BTreeMap<String, Keep>,
}

/// A period of the calendar. Its numbers mean different things for each rule.
type Period = [i32; 3];

/// The rules as an annotation of a backup.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeepRecord {
    rules: KeepRules,
    #[serde(default)]
    zone: String,
    /// The rules for copies, by location of the copies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    copies: BTreeMap<String, KeepRules>,
}

const UTC: &str = "UTC";

impl Keep {
    /// The rules in a zone. Numbers that are not valid count as 0.
    pub fn new(rules: KeepRules, zone: TimeZone) -> Self {
        Self { rules, zone }
    }

    pub fn rules(&self) -> &KeepRules {
        &self.rules
    }

    /// IANA name of the time zone.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or(UTC)
    }

    fn periods(&self, rule: Rule) -> usize {
        let given = rule.periods(&self.rules);
        usize::try_from(given.min(MAX_PERIODS)).unwrap_or_default()
    }

    /// The backups that are kept, by name, each with the rules that keep it.
    pub fn kept<'a>(&self, backups: &'a [Generation]) -> BTreeMap<&'a str, Vec<Rule>> {
        let mut newest_first: Vec<&Generation> = backups.iter().collect();
        newest_first.sort_unstable_by(|a, b| b.cmp(a));
        let oldest = newest_first.last().copied();
        let mut kept = BTreeMap::<&str, Vec<Rule>>::new();
        for rule in Rule::ALL {
            let mut left = self.periods(rule);
            let mut seen = BTreeSet::new();
            for backup in &newest_first {
                if left == 0 {
                    break;
                }
                let is_first_of_period = self
                    .period(rule, backup.began)
                    .is_none_or(|period| seen.insert(period));
                if is_first_of_period || Some(*backup) == oldest {
                    kept.entry(&backup.name).or_default().push(rule);
                    left -= 1;
                }
            }
        }
        kept
    }

    /// The run after which a rule no longer keeps a backup that it keeps now, if each run after
    /// `now` makes a good backup. `None` if there is no such run.
    pub fn kept_until(
        &self,
        rule: Rule,
        backup: &Generation,
        backups: &[Generation],
        now: Timestamp,
        next_run: impl Fn(Timestamp) -> Option<Timestamp>,
    ) -> Option<Timestamp> {
        let own = self.period(rule, backup.began);
        let is_oldest = backups.iter().all(|other| other >= backup);
        let mut seen = BTreeSet::new();
        let mut newer = 0;
        for other in backups.iter().filter(|other| *other > backup) {
            newer += usize::from(
                self.period(rule, other.began)
                    .is_none_or(|period| seen.insert(period)),
            );
        }
        let mut run = next_run(now)?;
        // The first run may be in a period that has a backup; each later one begins a new period.
        for _ in 0..=self.periods(rule) {
            let period = self.period(rule, run);
            if period.is_some() && period == own && !is_oldest {
                return Some(run);
            }
            newer += usize::from(period.is_none_or(|period| seen.insert(period)));
            if newer >= self.periods(rule) {
                return Some(run);
            }
            run = next_run(self.last_moment(rule, run)?)?;
        }
        None
    }

    /// The period of a time; `None` if each backup has a period of its own.
    fn period(&self, rule: Rule, at: Timestamp) -> Option<Period> {
        let at = at.to_zoned(self.zone.clone());
        let date = at.date();
        let year = i32::from(date.year());
        match rule {
            Rule::Last => None,
            Rule::Hourly => {
                let hour = i32::from(date.day_of_year()) * 24 + i32::from(at.hour());
                Some([year, hour, at.offset().seconds()])
            }
            Rule::Daily => Some([year, i32::from(date.day_of_year()), 0]),
            Rule::Weekly => {
                let week = date.iso_week_date();
                Some([i32::from(week.year()), i32::from(week.week()), 0])
            }
            Rule::Monthly => Some([year, i32::from(date.month()), 0]),
            Rule::Yearly => Some([year, 0, 0]),
        }
    }

    /// The last second of the period of a time; the time itself for [`Rule::Last`].
    fn last_moment(&self, rule: Rule, at: Timestamp) -> Option<Timestamp> {
        let local = at.to_zoned(self.zone.clone());
        let date = local.date();
        let next = match rule {
            Rule::Last => return Some(at),
            Rule::Hourly => {
                let passed = i64::from(local.minute()) * 60 + i64::from(local.second());
                let left = SignedDuration::from_secs(3599 - passed);
                return at.checked_add(left).ok();
            }
            Rule::Daily => date.tomorrow(),
            Rule::Weekly => {
                let passed = i64::from(date.weekday().to_monday_zero_offset());
                date.checked_add((7 - passed).days())
            }
            Rule::Monthly => date.first_of_month().checked_add(1.month()),
            Rule::Yearly => date.first_of_year().checked_add(1.year()),
        };
        let begin = next
            .and_then(|next| next.to_zoned(self.zone.clone()))
            .ok()?;
        begin
            .timestamp()
            .checked_sub(SignedDuration::from_secs(1))
            .ok()
    }
}

impl ScheduleKeep {
    pub fn of(spec: &ScheduleSpec) -> Self {
        let zone = zone_of(&spec.schedule);
        let copies = spec.copies.iter().filter_map(|one| {
            let keep = Keep::new(one.keep.clone()?, zone.clone());
            Some((one.copy.location.clone(), keep))
        });
        Self {
            copies: copies.collect(),
            backups: spec.keep.clone().map(|rules| Keep::new(rules, zone)),
        }
    }

    /// Reads the annotation; no rules if it is missing or unreadable.
    pub fn read(annotation: Option<&str>) -> Self {
        let record = annotation.and_then(|text| serde_json::from_str::<KeepRecord>(text).ok());
        record.and_then(KeepRecord::keep).unwrap_or_default()
    }

    /// The annotation; `None` without any rules.
    pub fn annotation(&self) -> Option<String> {
        let mut all = self.backups.iter().chain(self.copies.values());
        let zone = all.next()?.zone_name().to_owned();
        let copies = self.copies.iter();
        let record = KeepRecord {
            rules: self
                .backups
                .as_ref()
                .map(|keep| keep.rules.clone())
                .unwrap_or_default(),
            zone,
            copies: copies
                .map(|(location, keep)| (location.clone(), keep.rules.clone()))
                .collect(),
        };
        serde_json::to_string(&record).ok()
    }
}

impl KeepRecord {
    /// The rules that keep anything; `None` if the zone is not known.
    fn keep(self) -> Option<ScheduleKeep> {
        let zone = if self.zone == UTC || self.zone.is_empty() {
            TimeZone::UTC
        } else {
            named_zone(&self.zone).ok()?
        };
        let keep = |rules: KeepRules| {
            let keep = Keep::new(rules, zone.clone());
            Rule::ALL
                .iter()
                .any(|rule| keep.periods(*rule) > 0)
                .then_some(keep)
        };
        let copies = self.copies.into_iter();
        Some(ScheduleKeep {
            backups: keep(self.rules),
            copies: copies
                .filter_map(|(location, rules)| Some((location, keep(rules)?)))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests;
