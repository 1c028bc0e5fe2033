//! Which namespaces are protected: for each its last good backup, and whether that is as recent as
//! schedules promise. Pure.

mod absence;
mod copies;
mod damage;
mod held;
mod promise;
mod scope;
mod screen;

use std::collections::HashMap;

use backup_core::{
    api::{Backup, BackupStorageLocation, Schedule},
    drill::DrillResult,
    labels::{DRILLED_ANNOTATION, annotation},
    namespace_names::included_by_name,
    restorability::{Answer, Evidence, Places, Restorability},
    stored_scope,
    text::{counted, shortened},
    verification::Verification,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde::Serialize;

pub(crate) use held::{ClusterObject, HeldByBackup, HeldItems, UnreadBackup, lists_to_read};
pub(crate) use screen::text;

use absence::ScheduleAbsence;
use held::LastGoodBackup;
use promise::Promise;
use scope::Scope;

use super::{
    LocationSummary, WorkStatus, Workload, related::began, repository::DamagedRepository,
    retention, sync::tone, verdict,
};
use crate::{
    fetched::FetchResult,
    print::{Tone, human, plain},
};

/// Maximum length of the failure of a drill in a remark.
const MAX_FAILURE_CHARS: usize = 120;

/// Data that was read from the cluster.
pub(crate) struct ClusterData {
    pub(crate) namespaces: FetchResult<Vec<ClusterObject>>,
    /// PersistentVolumeClaims.
    pub(crate) claims: FetchResult<Vec<ClusterObject>>,
    /// Definitions of custom resources.
    pub(crate) types: FetchResult<Vec<ClusterObject>>,
    /// Contents of the last good backups, as far as they were read; or why the user may not read
    /// them.
    pub(crate) held: FetchResult<HeldByBackup>,
    pub(crate) backups: Vec<BackupFacts>,
    pub(crate) restores: Vec<WorkLine>,
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) locations: FetchResult<Vec<BackupStorageLocation>>,
    pub(crate) damaged: Vec<DamagedRepository>,
    /// Why only a part of the backups and schedules was read; `None` if it is all of them.
    pub(crate) restriction: Option<String>,
    /// Holders and waiting objects.
    pub(crate) lock: FetchResult<Vec<String>>,
    /// Why the lock grants nothing, and the remedy.
    pub(crate) lock_problem: Option<String>,
}

/// The user's requirements besides the schedules' promises.
pub(crate) struct Requirements<'a> {
    /// Maximum age of the last good backup; overrides the schedules.
    pub(crate) rpo: Option<SignedDuration>,
    /// Namespaces that need no backups.
    pub(crate) except: &'a [String],
}

/// The fields of a Backup that are kept: there may be thousands of Backups.
pub(crate) struct BackupFacts {
    name: String,
    uid: String,
    scope: Scope,
    phase: String,
    began: Option<Timestamp>,
    evidence: Evidence,
    /// Whether data of its volumes is in repositories.
    moves_data: bool,
    drilled: Option<DrillResult>,
    /// A sentence for each copy that has failed, or waits.
    stopped_copies: Vec<String>,
    /// The schedule that made it.
    schedule: Option<String>,
    work: Option<WorkLine>,
}

/// A Backup, and whether it can be restored.
struct JudgedBackup<'a> {
    facts: &'a BackupFacts,
    restorable: Restorability,
}

impl<'a> JudgedBackup<'a> {
    /// Without `places` the state of its location does not count.
    fn of(facts: &'a BackupFacts, places: Option<&Places>) -> Self {
        let evidence = &facts.evidence;
        let place = places.map(|places| places.of_backup(evidence));
        Self {
            facts,
            restorable: evidence.judge(place.as_ref()),
        }
    }

    /// "its newest backup, nightly-1, is PartiallyFailed", or another problem of the backup.
    fn sentence(&self) -> String {
        let BackupFacts { name, phase, .. } = self.facts;
        let Restorability {
            answer, reasons, ..
        } = &self.restorable;
        let why = plain(&reasons.join("; "));
        if phase == "Completed" && matches!(answer, Answer::No | Answer::Unknown) {
            let how = if *answer == Answer::No {
                "cannot be restored"
            } else {
                "may not be restorable"
            };
            return format!("its newest backup, {name}, {how}: {why}");
        }
        format!("its newest backup, {name}, is {phase}")
    }
}

/// A backup or restore that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WorkLine {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) verdict: String,
    pub(crate) tone: Tone,
}

impl WorkLine {
    /// `None` if it has ended.
    pub(crate) fn of<W: Workload>(work: &W, now: Timestamp) -> Option<Self> {
        let WorkStatus { stage, phase, .. } = work.status();
        if stage.is_terminal() {
            return None;
        }
        let verdict = verdict(work, now);
        Some(Self {
            kind: W::KIND,
            name: work.name_any(),
            phase,
            verdict: verdict.sentence,
            tone: verdict.tone,
        })
    }
}

impl BackupFacts {
    pub(crate) fn of(backup: &Backup, now: Timestamp) -> Self {
        Self {
            name: backup.name_any(),
            uid: backup.uid().unwrap_or_default(),
            scope: Scope::of(&stored_scope::scope(backup)),
            phase: plain(backup.phase().as_str()),
            began: began(backup),
            evidence: Evidence::of(backup),
            moves_data: backup.may_move_data(),
            drilled: DrillResult::read(annotation(backup, DRILLED_ANNOTATION)),
            stopped_copies: copies::stopped(backup),
            schedule: backup.schedule().filter(|name| !name.is_empty()).map(plain),
            work: WorkLine::of(backup, now),
        }
    }
}

/// The status page of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterStatus {
    pub(crate) namespace: String,
    /// Whether every namespace is protected.
    pub(crate) protected: bool,
    pub(crate) namespaces: Vec<NamespaceStatus>,
    /// Namespaces that are left out: those that need no backups, and the installation's own.
    pub(crate) except: Vec<String>,
    /// Types that were created after every last good backup.
    pub(crate) new_types: Vec<String>,
    /// Schedules that include namespaces which do not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) absent_namespaces: Vec<ScheduleAbsence>,
    pub(crate) running: Vec<WorkLine>,
    pub(crate) locations: FetchResult<Vec<LocationLine>>,
    pub(crate) lock: FetchResult<Vec<String>>,
    /// Whether only a part of the backups and schedules was read.
    #[serde(skip)]
    pub(crate) is_partial: bool,
    /// Why no Backup or Restore can be created, if the lock is the reason, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lock_problem: Option<String>,
    /// Checks that could not be made, one sentence each.
    pub(crate) unchecked: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NamespaceStatus {
    pub(crate) name: String,
    pub(crate) protected: bool,
    /// Whether its last good backup was checked; otherwise the namespace does not count as
    /// protected.
    pub(crate) checked: bool,
    pub(crate) last_good: Option<GoodBackup>,
    pub(crate) next_run: Option<Timestamp>,
    /// The schedule that promises the most recent backups.
    pub(crate) schedule: Option<String>,
    /// The command that shows or starts its schedule, even if the schedule makes no lasting
    /// backups.
    #[serde(skip)]
    pub(crate) schedule_command: Option<String>,
    /// Why it is not protected; for a protected namespace: points worth a look.
    pub(crate) reasons: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct GoodBackup {
    pub(crate) name: String,
    pub(crate) began: Option<Timestamp>,
    /// Whether it can be restored: `yes`, or `partly`.
    pub(crate) restorable: Restorability,
    /// The last verification of its files, which has found no faults; null if there was none.
    pub(crate) verified: Option<Verification>,
    /// The last drill of it; null if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drilled: Option<DrillResult>,
    /// The schedule that made it; `None` if a user did.
    #[serde(skip)]
    pub(crate) schedule: Option<String>,
    /// Locations of its complete copies that can be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) copies: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LocationLine {
    pub(crate) name: String,
    pub(crate) phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    pub(crate) tone: Tone,
}

/// The backups of one scope: the good ones, newest first, and the newest one that has ended.
struct ScopeBackups<'a> {
    scope: &'a Scope,
    good: Vec<&'a JudgedBackup<'a>>,
    ended: Option<&'a JudgedBackup<'a>>,
}

/// The backups and schedules that cover one namespace.
#[derive(Clone, Default)]
struct Coverage<'a> {
    newest: Vec<&'a ScopeBackups<'a>>,
    promises: Vec<&'a Promise>,
}

pub(crate) fn status(
    namespace: &str,
    seen: ClusterData,
    asked: &Requirements<'_>,
    now: Timestamp,
) -> ClusterStatus {
    let mut unchecked = held::unchecked(&seen);
    let absent_namespaces = absence::absences(&seen);
    let (except, there) = split(&seen, namespace, asked);
    let ClusterData {
        namespaces,
        claims,
        types,
        held,
        backups,
        restores,
        schedules,
        locations,
        damaged,
        restriction,
        lock,
        lock_problem,
    } = seen;
    let is_partial = restriction.is_some();
    unchecked.extend(restriction);
    let knows_namespaces = namespaces.known().is_some();
    if let FetchResult::Missing { unavailable } = namespaces {
        unchecked.push(format!("only namespaces that a backup or schedule names are shown, and whether one of them was created after its backups is not known: {unavailable}"));
    }
    let places = locations.known().map(Places::of);
    let judged = judged(&backups, places.as_ref());
    let newest = newest(&judged);
    let promises: Vec<Promise> = schedules
        .iter()
        .map(|one| Promise::of(one, places.as_ref(), now))
        .collect();
    let locations = locations.map(|all| all.iter().map(location).collect());
    let names: Vec<String> = there.iter().map(|one| one.name.clone()).collect();
    let covering = covering(&names, &newest, &promises);
    let since = ComparisonData {
        held: held.known(),
        places: places.as_ref(),
        damaged: &damaged,
        claims: &claims,
        knows_namespaces,
        is_partial,
    };
    let namespaces: Vec<NamespaceStatus> = there
        .iter()
        .zip(&covering)
        .map(|(one, covering)| of_namespace(one, covering, &promises, &since, asked.rpo, now))
        .collect();
    let everything = newest.iter().filter(|one| one.scope.is_everything);
    let last_of_everything = everything
        .filter_map(|one| one.good.first()?.facts.began)
        .max();
    let running = backups
        .iter()
        .filter_map(|backup| backup.work.clone())
        .chain(restores)
        .collect();
    ClusterStatus {
        namespace: namespace.to_owned(),
        protected: namespaces.iter().all(|one| one.protected),
        namespaces,
        except: except.into_iter().map(|one| one.name).collect(),
        new_types: held::new_types(last_of_everything, &types, held.known()),
        absent_namespaces,
        running,
        locations,
        lock,
        is_partial,
        lock_problem,
        unchecked,
    }
}

fn judged<'a>(backups: &'a [BackupFacts], places: Option<&Places>) -> Vec<JudgedBackup<'a>> {
    backups
        .iter()
        .map(|backup| JudgedBackup::of(backup, places))
        .collect()
}

/// Splits the namespaces into those that need no backups, and the others.
fn split(
    seen: &ClusterData,
    installation: &str,
    asked: &Requirements<'_>,
) -> (Vec<ClusterObject>, Vec<ClusterObject>) {
    let names = match &seen.namespaces {
        FetchResult::Known(names) => names.clone(),
        FetchResult::Missing { .. } => named(&seen.backups, &seen.schedules)
            .into_iter()
            .map(|name| ClusterObject {
                namespace: String::new(),
                name,
                at: None,
                status_changed: None,
            })
            .collect(),
    };
    names
        .into_iter()
        .partition(|one| held::is_left_out(&one.name, installation, asked))
}

/// The namespaces that backups and schedules name without a pattern.
fn named(backups: &[BackupFacts], schedules: &[Schedule]) -> Vec<String> {
    let of_backups = backups
        .iter()
        .flat_map(|backup| included_by_name(backup.scope.namespaces.included()));
    let of_schedules = schedules
        .iter()
        .flat_map(|one| included_by_name(&one.spec.template.included_namespaces));
    let mut all: Vec<String> = of_backups.chain(of_schedules).map(str::to_owned).collect();
    all.sort();
    all.dedup();
    all
}

/// Groups backups by scope. There are few scopes, even with many backups and namespaces.
fn newest<'a>(backups: &'a [JudgedBackup<'a>]) -> Vec<ScopeBackups<'a>> {
    let mut all: Vec<ScopeBackups<'_>> = Vec::new();
    for judged in backups {
        let backup = judged.facts;
        let at = all
            .iter()
            .position(|one| *one.scope == backup.scope)
            .unwrap_or_else(|| {
                all.push(ScopeBackups {
                    scope: &backup.scope,
                    good: Vec::new(),
                    ended: None,
                });
                all.len() - 1
            });
        let newest = &mut all[at];
        let is_later = newest
            .ended
            .is_none_or(|before| before.facts.began < backup.began);
        if backup.work.is_none() && is_later {
            newest.ended = Some(judged);
        }
        if judged.restorable.is_good {
            newest.good.push(judged);
        }
    }
    for one in &mut all {
        one.good
            .sort_by_key(|good| std::cmp::Reverse(good.facts.began));
    }
    all
}

/// Backups and schedules of each namespace.
fn covering<'a>(
    names: &[String],
    newest: &'a [ScopeBackups<'a>],
    promises: &'a [Promise],
) -> Vec<Coverage<'a>> {
    let places: HashMap<&str, usize> = (0..)
        .zip(names)
        .map(|(place, name)| (name.as_str(), place))
        .collect();
    let mut all = vec![Coverage::default(); names.len()];
    for one in newest {
        for place in one.scope.among(names, &places) {
            all[place].newest.push(one);
        }
    }
    for one in promises {
        for place in one.scope.among(names, &places) {
            all[place].promises.push(one);
        }
    }
    all
}

/// Data with which a last good backup is compared.
struct ComparisonData<'a> {
    held: Option<&'a HeldByBackup>,
    /// `None` if the locations could not be read.
    places: Option<&'a Places>,
    damaged: &'a [DamagedRepository],
    claims: &'a FetchResult<Vec<ClusterObject>>,
    /// Whether the namespaces of the cluster could be listed.
    knows_namespaces: bool,
    /// Whether there may be backups and schedules that were not read.
    is_partial: bool,
}

fn of_namespace(
    namespace: &ClusterObject,
    covering: &Coverage<'_>,
    promises: &[Promise],
    since: &ComparisonData<'_>,
    rpo: Option<SignedDuration>,
    now: Timestamp,
) -> NamespaceStatus {
    let name = namespace.name.as_str();
    let LastGoodBackup {
        good,
        passed_over,
        unread,
    } = held::last_good(namespace, covering, since.held, |at| {
        human(now.duration_since(at).as_secs().max(0))
    });
    let ended = covering
        .newest
        .iter()
        .filter_map(|one| one.ended)
        .max_by_key(|backup| backup.facts.began);
    let running = covering
        .promises
        .iter()
        .copied()
        .filter(|one| one.next.is_some());
    let strictest = running
        .clone()
        .min_by_key(|one| one.every.unwrap_or(SignedDuration::MAX));
    let mut reasons: Vec<String> = good
        .map(|good| of_good(good.facts, name, strictest, rpo, now))
        .unwrap_or_default();
    let is_recent = good.is_some() && reasons.is_empty();
    if let Some((unread, why)) = unread {
        reasons.push(not_checked(&unread.facts.name, why));
    } else if !is_recent && let Some(why) = &passed_over {
        reasons.insert(0, why.clone());
    } else if good.is_none() {
        reasons.push(ended.map_or_else(
            || "there is no backup of all of it".to_owned(),
            JudgedBackup::sentence,
        ));
    }
    if strictest.is_none() && rpo.is_none() {
        reasons.push(no_schedule(name, covering, promises));
    }
    let protected = reasons.is_empty();
    if protected
        && let Some(good) = good
        && let Some(ended) = ended
        && ended.facts.began > good.facts.began
    {
        reasons.push(passed_over.unwrap_or_else(|| ended.sentence()));
    }
    reasons.extend(good.and_then(|good| failed_drill(good.facts)));
    reasons.extend(good.and_then(|good| damage::remark(name, good.facts, since.damaged)));
    reasons.extend(
        good.map(|good| held::new_claims(name, good.facts.began, since.claims))
            .unwrap_or_default(),
    );
    reasons.extend(
        good.map(|good| copies::remarks(good.facts, since.places))
            .unwrap_or_default(),
    );
    let is_known = since.knows_namespaces;
    if !is_known {
        reasons.push("whether it exists, and since when, is not known".to_owned());
    }
    NamespaceStatus {
        name: name.to_owned(),
        protected: protected && is_known,
        checked: unread.is_none() && is_known && (protected || !since.is_partial),
        last_good: good.map(|good| GoodBackup {
            name: good.facts.name.clone(),
            began: good.facts.began,
            restorable: good.restorable.clone(),
            verified: good.facts.evidence.verified.clone(),
            drilled: good.facts.drilled.clone(),
            schedule: good.facts.schedule.clone(),
            copies: copies::readable(good.facts, since.places),
        }),
        next_run: running.filter_map(|one| one.next).min(),
        schedule: strictest.map(|one| one.name.clone()),
        schedule_command: strictest
            .or(covering.promises.first().copied())
            .map(Promise::command),
        reasons,
    }
}

/// That the last drill of the last good backup has failed, and why.
fn failed_drill(good: &BackupFacts) -> Option<String> {
    let result = good.drilled.as_ref().filter(|last| last.has_failed())?;
    let why = shortened(&plain(&result.failure), MAX_FAILURE_CHARS);
    Some(format!(
        "the last drill of its last good backup failed: {why}"
    ))
}

fn not_checked(backup: &str, why: Option<&str>) -> String {
    let why = why.unwrap_or("there was no time left to read its list of items");
    format!("whether its last good backup, {backup}, holds it was not checked: {why}")
}

/// Problems of the last good backup of a namespace.
fn of_good(
    good: &BackupFacts,
    namespace: &str,
    promised: Option<&Promise>,
    rpo: Option<SignedDuration>,
    now: Timestamp,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let age = good
        .began
        .map_or(SignedDuration::MAX, |began| now.duration_since(began));
    let old = human(age.as_secs());
    if let Some(rpo) = rpo {
        if age > rpo {
            let rpo = human(rpo.as_secs());
            reasons.push(format!(
                "its last good backup is {old} old, and {rpo} is asked for"
            ));
        }
    } else if let Some(Promise {
        name,
        since: Some(since),
        every: Some(every),
        ..
    }) = promised
        && good.began < Some(*since)
    {
        let every = human(every.as_secs());
        reasons.push(format!(
            "its last good backup is {old} old, and schedule {name} promises one every {every}"
        ));
    }
    let not_in_it = good
        .evidence
        .missing
        .iter()
        .map(|data| (data, "is not in its last good backup"));
    let elsewhere = good
        .evidence
        .elsewhere
        .iter()
        .map(|data| (data, "does not come back with its last good backup"));
    for (data, how) in not_in_it.chain(elsewhere) {
        reasons.extend(data.volumes.iter().filter_map(|(volume, why)| {
            let claim = volume.strip_prefix(namespace)?.strip_prefix('/')?;
            Some(plain(&format!("the data of claim {claim} {how} ({why})")))
        }));
        let unnamed = data.missing.saturating_sub(data.volumes.len());
        if unnamed > 0 {
            reasons.push(format!(
                "the data of {}, perhaps of this namespace, {how}",
                counted(unnamed, "more volume")
            ));
        }
    }
    reasons
}

/// Why no schedule makes backups of a namespace.
fn no_schedule(namespace: &str, covering: &Coverage<'_>, promises: &[Promise]) -> String {
    let stopped: Vec<String> = covering
        .promises
        .iter()
        .filter_map(|one| Some(format!("schedule {} {}", one.name, one.obstacle.as_ref()?)))
        .collect();
    if !stopped.is_empty() {
        return stopped.join("; ");
    }
    let partial = promises
        .iter()
        .find(|one| !one.scope.is_whole && one.scope.namespaces.includes(namespace));
    if let Some(Promise { name, .. }) = partial {
        return format!("schedule {name} makes backups of a part of it only (labels or resources)");
    }
    let excluding = promises
        .iter()
        .find(|one| one.scope.namespaces.excludes(namespace));
    match excluding {
        Some(Promise { name, .. }) => format!("schedule {name} excludes it"),
        None => "no schedule makes backups of it".to_owned(),
    }
}

fn location(location: &BackupStorageLocation) -> LocationLine {
    let summary = LocationSummary::of(location, "");
    let tone = tone(summary.phase.as_deref());
    let phase = summary.phase.unwrap_or_else(|| "New".to_owned());
    let message = summary.message.filter(|_| tone == Tone::Bad);
    let stopped = retention::stopped(location).filter(|_| tone != Tone::Bad);
    LocationLine {
        name: summary.name,
        phase,
        tone: if stopped.is_some() { Tone::Warn } else { tone },
        message: message.or(stopped),
    }
}

#[cfg(test)]
mod tests;
