//! Which backups are kept although their ttl is over: by the rules of their schedule
//! ([`crate::keep`]), and as the last good backup of what they protect. One answer for the
//! controller and for user interfaces. Pure.
//!
//! - Backups of a schedule in one location are a series, to which the rules apply. The rules are
//!   those of the Schedule; if it is gone, those that the newest good backup of the series records.
//! - Copies of these backups in another location are a series, too, if the schedule has rules for
//!   copies there: those in the states of backups, and those that were imported as backups.
//! - A good backup without a newer good one that replaces it ([`ProtectedScope`]) is the last one.
//!   No program removes it, wherever it is stored.
//! - While such a backup cannot be read where it is stored, its copies stay, too, unless a newer
//!   good copy in the same location replaces them.
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
    keep::{Generation, Keep, Rule, ScheduleKeep},
    labels::{GC_FAILURE, KEEP_ANNOTATION, annotation},
    restorability::{Answer, Evidence, Place, Places},
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
    record: ScheduleKeep,
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
            record: ScheduleKeep::read(annotation(backup, KEEP_ANNOTATION)),
        }
    }

    /// Name of its location; empty if it has none.
    pub fn location(&self) -> &str {
        &self.evidence.location
    }

    /// Whether it is a copy of a backup in another location, and was imported.
    pub fn is_copy(&self) -> bool {
        self.evidence.is_copy
    }

    /// Whether the location has a complete copy: the backup itself, if it was imported, or another.
    pub fn has_copy_in(&self, location: &str) -> bool {
        let is_here = self.is_copy() && self.location() == location;
        is_here || self.evidence.copies.iter().any(|other| other == location)
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

/// Why a backup, or a copy of it, is kept beyond its ttl.
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
#[derive(Clone, Copy)]
struct JudgedBackup<'a> {
    facts: &'a RetentionFacts,
    /// Whether its removal has not been requested.
    stays: bool,
    /// Whether it counts for the rules of its series, whatever the state of its location.
    is_good: bool,
    /// Whether older ones may go because it can be restored.
    can_replace: bool,
    /// Whether it is not known to be bad.
    may_be_good: bool,
}

impl JudgedBackup<'_> {
    /// Judges its copy in a location; `None` if it has none there.
    fn copy_in(&self, location: &str) -> Option<Self> {
        let has_copy = self.facts.has_copy_in(location);
        has_copy.then(|| {
            if self.facts.location() == location {
                *self
            } else {
                self.copied()
            }
        })
    }

    /// Judges its copies in other locations.
    fn copied(&self) -> Self {
        // The files of the backup may be missing while those of the copy are not.
        let place = Place::Copied(String::new());
        let found = self.facts.evidence.judge(Some(&place));
        // A deletion that leaves the copy may have begun, and has replaced the phase.
        let may_be_good = match self.facts.phase {
            BackupPhase::Completed => found.answer != Answer::No,
            BackupPhase::Deleting => true,
            _ => false,
        };
        Self {
            is_good: self.is_good || (self.stays && found.is_good),
            may_be_good: self.may_be_good || may_be_good,
            ..*self
        }
    }
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
                stays,
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
        one.may_be_good && !self.is_replaced(one.facts, |newer| newer.can_replace)
    }

    /// The newest good backup that protects the same as this one, which may be good; `None` if there
    /// is none, or if nothing is lost with this one.
    pub fn replacement(&self, name: &str) -> Option<&'a RetentionFacts> {
        let one = self.backups.iter().find(|one| one.facts.name == name)?;
        let newest = self.newest_instead_of(one.facts, |newer| newer.can_replace)?;
        one.may_be_good.then_some(newest)
    }

    /// Whether a newer backup that counts protects the same.
    fn is_replaced(
        &self,
        older: &RetentionFacts,
        counts: impl Fn(&JudgedBackup<'_>) -> bool,
    ) -> bool {
        self.newest_instead_of(older, counts).is_some()
    }

    fn newest_instead_of(
        &self,
        older: &RetentionFacts,
        counts: impl Fn(&JudgedBackup<'_>) -> bool,
    ) -> Option<&'a RetentionFacts> {
        let newer = self.backups.iter();
        let mut newer = newer.take_while(|one| one.facts.is_newer_than(older));
        let newest = newer.find(|one| counts(one) && one.facts.scope.replaces(&older.scope));
        newest.map(|one| one.facts)
    }

    /// Whether a backup cannot be read where it is stored, and no newer good backup, nor a newer
    /// good copy in this location, replaces its copy there.
    pub fn is_last_good_copy(&self, name: &str, location: &str) -> bool {
        let Some(one) = self.backups.iter().find(|one| one.facts.name == name) else {
            return false;
        };
        let may_be_good = one.copy_in(location).is_some_and(|copy| copy.may_be_good);
        may_be_good
            && !one.can_replace
            && !self.is_replaced(one.facts, |newer| {
                newer.can_replace || newer.copy_in(location).is_some_and(|copy| copy.is_good)
            })
    }

    /// The verdicts on all backups, by name.
    pub fn verdicts(&self, rules: &ScheduleRules) -> BTreeMap<&'a str, RetentionVerdict> {
        let mut verdicts = BTreeMap::new();
        let mut series = BTreeMap::<_, Vec<JudgedBackup<'a>>>::new();
        for one in &self.backups {
            let verdict = RetentionVerdict {
                is_last_good: self.is_last(one),
                ..RetentionVerdict::default()
            };
            verdicts.insert(one.facts.name.as_str(), verdict);
            if !one.facts.schedule.is_empty() {
                let place = (one.facts.schedule.as_str(), one.facts.location());
                series.entry(place).or_default().push(*one);
            }
        }
        for ((schedule, location), mut members) in series {
            let mut decided = BTreeMap::new();
            if members.iter().any(|one| one.facts.is_copy())
                && let Some(mut of_copies) = self.copies(rules, schedule, location)
            {
                members.retain(|one| {
                    let verdict = of_copies.remove_entry(one.facts.name.as_str());
                    decided.extend(verdict.filter(|_| one.facts.is_copy()));
                    !one.facts.is_copy()
                });
            }
            let keep = rules_of(rules, schedule, &members, |all| all.backups.as_ref());
            decided.extend(
                keep.into_iter()
                    .flat_map(|keep| judged_series(keep, &members)),
            );
            for (name, of_series) in decided {
                let verdict = verdicts.entry(name).or_default();
                verdict.rules = of_series.rules;
                verdict.unknown_rules = of_series.unknown_rules;
            }
        }
        verdicts
    }

    /// The verdicts on the copies of a schedule's backups in a location, by name of the backup;
    /// `None` if the schedule has no rules for copies there.
    pub fn copies(
        &self,
        rules: &ScheduleRules,
        schedule: &str,
        location: &str,
    ) -> Option<BTreeMap<&'a str, RetentionVerdict>> {
        let members = self.copies_in(schedule, location);
        let keep = rules_of(rules, schedule, &members, |all| all.copies.get(location))?;
        Some(judged_series(keep, &members))
    }

    /// The copies of a schedule's backups in a location, newest first.
    fn copies_in(&self, schedule: &str, location: &str) -> Vec<JudgedBackup<'a>> {
        let own = self.backups.iter();
        let own = own.filter(|one| one.facts.schedule == schedule);
        own.filter_map(|one| one.copy_in(location)).collect()
    }

    /// The good copies of a schedule's backups in a location.
    pub fn copied_generations(&self, schedule: &str, location: &str) -> Vec<Generation> {
        let copies = self.copies_in(schedule, location).into_iter();
        let good = copies.filter(|one| one.is_good);
        good.map(|one| one.facts.generation()).collect()
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

/// The rules of a series, or why they are not known; `None` if it has none. If the schedule is
/// gone, those that the newest good member records, of the members that record any.
fn rules_of<'r>(
    rules: &'r ScheduleRules,
    schedule: &str,
    members: &[JudgedBackup<'r>],
    of: impl Fn(&'r ScheduleKeep) -> Option<&'r Keep>,
) -> Option<Result<&'r Keep, &'r str>> {
    match rules.of(schedule) {
        Some(Ok(all)) => of(all).map(Ok),
        Some(Err(why)) => Some(Err(why.as_str())),
        None => {
            let mut good = members.iter().filter(|one| one.is_good);
            good.find_map(|one| of(&one.facts.record)).map(Ok)
        }
    }
}

/// The verdicts on the members of a series, by name. Rules that are not known may keep all.
fn judged_series<'a>(
    keep: Result<&Keep, &str>,
    members: &[JudgedBackup<'a>],
) -> BTreeMap<&'a str, RetentionVerdict> {
    let keep = match keep {
        Ok(keep) => keep,
        Err(why) => {
            let verdict = RetentionVerdict {
                unknown_rules: Some(why.to_owned()),
                ..RetentionVerdict::default()
            };
            let in_doubt = members.iter().filter(|one| one.may_be_good);
            let names = in_doubt.map(|one| one.facts.name.as_str());
            return names.map(|name| (name, verdict.clone())).collect();
        }
    };
    let kept = kept(keep, members).into_iter();
    kept.map(|(name, rules)| {
        let verdict = RetentionVerdict {
            rules,
            ..RetentionVerdict::default()
        };
        (name, verdict)
    })
    .collect()
}

/// The members of a series that its rules keep, with these rules.
fn kept<'a>(keep: &Keep, members: &[JudgedBackup<'a>]) -> Vec<(&'a str, Vec<Rule>)> {
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
