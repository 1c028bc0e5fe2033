//! Which backups are kept although their ttl is over: by the rules of their schedule
//! ([`crate::keep`]), and as the last good backup of what they protect. One answer for the
//! controller and for user interfaces. Pure.
//!
//! - Backups of a schedule in one location are a series, to which the rules apply. The rules are
//!   those of the Schedule; if it is gone, those that the newest good backup of the series records.
//! - A good backup without a newer good one that replaces it ([`ProtectedScope`]) is the last one.
//!   No program removes it, wherever it is stored.
//! - A backup that is not known to be good, and not known to be bad, is kept as if it were good, and
//!   takes no other's place.

mod record;
mod rules;
mod scope;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::{
    api::{Backup, BackupPhase},
    keep::{Generation, Keep, Rule},
    labels::{GC_FAILURE, KEEP_ANNOTATION, annotation},
    restorability::{Answer, Evidence, Places},
};

pub use record::{RetentionDecision, RetentionLoad, RetentionRecord};
pub use rules::ScheduleRules;
pub use scope::ProtectedScope;

/// The properties of a Backup that decide on its removal.
#[derive(Clone, Debug)]
pub struct RetentionFacts {
    pub name: String,
    pub uid: String,
    /// Label value of the name of its schedule; empty if it has none.
    pub schedule: String,
    /// Start of the work, or creation of the object if there is none.
    pub began: Timestamp,
    pub expiration: Option<Timestamp>,
    pub phase: BackupPhase,
    /// Whether the object is being deleted.
    pub is_deleted: bool,
    /// Whether it was refused, and never stored anything.
    pub was_refused: bool,
    /// Why it was not deleted: the value of Velero's label.
    pub failure: Option<String>,
    scope: ProtectedScope,
    evidence: Evidence,
    /// The rules that its Schedule had when it was made.
    record: Option<Keep>,
}

impl RetentionFacts {
    pub fn of(backup: &Backup) -> Self {
        let time = backup
            .status
            .start_timestamp
            .as_ref()
            .or(backup.metadata.creation_timestamp.as_ref());
        Self {
            name: backup.name_any(),
            uid: backup.uid().unwrap_or_default(),
            schedule: backup.schedule().unwrap_or_default().to_owned(),
            began: time.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            expiration: backup.status.expiration.as_ref().map(|time| time.0),
            phase: backup.phase(),
            is_deleted: backup.metadata.deletion_timestamp.is_some(),
            was_refused: !backup.status.validation_errors.is_empty(),
            failure: backup.labels().get(GC_FAILURE).cloned(),
            scope: ProtectedScope::of(backup),
            evidence: Evidence::of(backup),
            record: Keep::read(annotation(backup, KEEP_ANNOTATION)),
        }
    }

    /// Name of its location; empty if it has none.
    pub fn location(&self) -> &str {
        &self.evidence.location
    }

    /// Whether it has ended, and its time is over.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        let is_over = self.expiration.is_some_and(|expiration| expiration <= now);
        is_over && self.phase.is_terminal() && !self.is_deleted
    }

    /// Whether it has data, by its phase.
    pub fn is_stored(&self) -> bool {
        matches!(
            self.phase,
            BackupPhase::Completed | BackupPhase::PartiallyFailed
        ) && !self.is_deleted
    }

    fn generation(&self) -> Generation {
        Generation {
            began: self.began,
            name: self.name.clone(),
        }
    }

    fn is_newer_than(&self, other: &Self) -> bool {
        (self.began, &self.name) > (other.began, &other.name)
    }
}

/// Why a backup is kept beyond its ttl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionVerdict {
    /// The rules of its schedule that keep it.
    pub rules: Vec<Rule>,
    /// Why the rules of its schedule are not known; then they may keep it.
    pub unknown_rules: Option<String>,
    pub is_last_good: bool,
}

impl RetentionVerdict {
    /// Whether its schedule keeps it, or may keep it.
    pub fn is_kept_by_schedule(&self) -> bool {
        !self.rules.is_empty() || self.unknown_rules.is_some()
    }
}

/// A backup, judged by what is known of it.
struct JudgedBackup<'a> {
    facts: &'a RetentionFacts,
    /// Whether it counts for the rules of its series, whatever the state of its location.
    is_good: bool,
    /// Whether older ones may go because it can be restored.
    can_replace: bool,
    /// Whether it is not known to be bad.
    may_be_good: bool,
}

/// All backups of an installation, judged.
pub struct Retention<'a> {
    /// Newest first.
    backups: Vec<JudgedBackup<'a>>,
}

impl<'a> Retention<'a> {
    /// Judges all backups of an installation. Those for which `leaves` returns true are about to be
    /// removed, and replace no others.
    pub fn new(
        backups: &'a [RetentionFacts],
        places: &Places,
        leaves: impl Fn(&RetentionFacts) -> bool,
    ) -> Self {
        let judged = backups.iter().map(|facts| {
            let alone = facts.evidence.judge(None);
            // A copy does not count: it may have a time of its own.
            let there = facts.evidence.judge(Some(&places.find(facts.location())));
            let stays = !leaves(facts);
            JudgedBackup {
                facts,
                // A comparison of its location may have found the files.
                is_good: stays && (alone.is_good || there.is_good),
                can_replace: stays && there.is_good,
                may_be_good: facts.phase == BackupPhase::Completed && alone.answer != Answer::No,
            }
        });
        let mut backups: Vec<_> = judged.collect();
        backups.sort_unstable_by(|a, b| {
            (b.facts.began, &b.facts.name).cmp(&(a.facts.began, &a.facts.name))
        });
        Self { backups }
    }

    /// Whether no newer good backup replaces this one, and it is not known to be bad.
    pub fn is_last_good(&self, name: &str) -> bool {
        let found = self.backups.iter().find(|one| one.facts.name == name);
        found.is_some_and(|one| self.is_last(one))
    }

    fn is_last(&self, one: &JudgedBackup<'_>) -> bool {
        let mut newer = self
            .backups
            .iter()
            .take_while(|other| other.facts.is_newer_than(one.facts));
        one.may_be_good
            && !newer.any(|other| other.can_replace && other.facts.scope.replaces(&one.facts.scope))
    }

    /// The verdicts on all backups, by name.
    pub fn verdicts(&self, rules: &ScheduleRules) -> BTreeMap<&'a str, RetentionVerdict> {
        let mut verdicts = BTreeMap::new();
        let mut series = BTreeMap::<_, Vec<&JudgedBackup<'_>>>::new();
        for one in &self.backups {
            let verdict = RetentionVerdict {
                is_last_good: self.is_last(one),
                ..RetentionVerdict::default()
            };
            verdicts.insert(one.facts.name.as_str(), verdict);
            if !one.facts.schedule.is_empty() {
                let place = (one.facts.schedule.as_str(), one.facts.location());
                series.entry(place).or_default().push(one);
            }
        }
        for ((schedule, _), members) in series {
            let keep = match rules.of(schedule) {
                Some(Ok(keep)) => keep.as_ref(),
                None => recorded(&members),
                Some(Err(why)) => {
                    for one in members.iter().filter(|one| one.may_be_good) {
                        let verdict = verdicts.entry(one.facts.name.as_str()).or_default();
                        verdict.unknown_rules = Some(why.clone());
                    }
                    continue;
                }
            };
            if let Some(keep) = keep {
                for (name, rules) in kept(keep, &members) {
                    verdicts.entry(name).or_default().rules = rules;
                }
            }
        }
        verdicts
    }

    /// The good backups of a series.
    pub fn generations(&self, schedule: &str, location: &str) -> Vec<Generation> {
        self.backups
            .iter()
            .filter(|one| one.is_good)
            .filter(|one| one.facts.schedule == schedule && one.facts.location() == location)
            .map(|one| one.facts.generation())
            .collect()
    }
}

/// The rules that the newest good backup of a series records, of those that record any.
fn recorded<'a>(members: &[&JudgedBackup<'a>]) -> Option<&'a Keep> {
    let mut good = members.iter().filter(|one| one.is_good);
    good.find_map(|one| one.facts.record.as_ref())
}

/// The members of a series that its rules keep, with these rules.
fn kept<'a>(keep: &Keep, members: &[&JudgedBackup<'a>]) -> Vec<(&'a str, Vec<Rule>)> {
    let good = members.iter().filter(|one| one.is_good);
    let mut generations: Vec<Generation> = good.map(|one| one.facts.generation()).collect();
    let mut kept = Vec::new();
    for (name, rules) in keep.kept(&generations) {
        let member = members.iter().find(|one| one.facts.name == name);
        kept.extend(member.map(|one| (one.facts.name.as_str(), rules)));
    }
    for one in members.iter().filter(|one| one.may_be_good && !one.is_good) {
        let name = one.facts.name.as_str();
        generations.push(one.facts.generation());
        let rules = keep.kept(&generations).remove(name);
        kept.extend(rules.map(|rules| (name, rules)));
        generations.pop();
    }
    kept
}

#[cfg(test)]
mod tests;
