//! Gauges about stored objects, computed from the watch: they are right after a restart, after a
//! deletion, and for backups that another process has ended.

pub(crate) mod volume_data;

use std::collections::{BTreeSet, HashMap, HashSet};

use backup_core::{
    api::{Backup, BackupPhase, Restore},
    labels::{VERIFIED_ANNOTATION, annotation},
    phase::{Phase as _, Stage},
    restorability::Evidence,
    verification::Verification,
};
use backup_runtime::watch::{Decoded, WatchEvent};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Metrics, gauge};

/// Values of the label `kind`.
const BACKUPS: &str = "Backup";
const RESTORES: &str = "Restore";

pub(crate) trait Stored<O> {
    fn touched(&mut self, event: &WatchEvent<Decoded<O>>, metrics: &Metrics);
}

impl Stored<Backup> for StoredBackups {
    fn touched(&mut self, event: &WatchEvent<Decoded<Backup>>, metrics: &Metrics) {
        match event {
            WatchEvent::Applied(Ok(backup)) => self.applied(backup, metrics),
            WatchEvent::Applied(Err(bad)) => self.gone(&bad.name, metrics),
            WatchEvent::Deleted(key) => self.gone(&key.name, metrics),
            WatchEvent::Listed(names) => self.listed(names, metrics),
        }
    }
}

impl Stored<Restore> for StoredRestores {
    fn touched(&mut self, event: &WatchEvent<Decoded<Restore>>, metrics: &Metrics) {
        match event {
            WatchEvent::Applied(Ok(restore)) => {
                self.known.insert(restore.name_any());
                self.queue.applied(restore, restore.phase().stage());
            }
            WatchEvent::Applied(Err(bad)) => {
                self.known.insert(bad.name.clone());
                self.queue.gone(&bad.name);
            }
            WatchEvent::Deleted(key) => {
                self.known.remove(&key.name);
                self.queue.gone(&key.name);
            }
            WatchEvent::Listed(names) => {
                self.known.retain(|name| names.contains(name));
                self.queue.retain(names);
            }
        }
        metrics
            .series
            .restore_total
            .set(gauge(self.known.len() as u64));
        self.queue.publish(RESTORES, metrics);
    }
}

/// The objects of a kind that have not begun, with the time of their creation.
#[derive(Debug, Default)]
struct Queue {
    waiting: HashMap<String, Timestamp>,
    is_new: bool,
}

impl Queue {
    fn applied(&mut self, object: &impl ResourceExt, stage: Stage) {
        let waits = matches!(stage, Stage::New | Stage::Queued | Stage::ReadyToStart);
        let created = object.creation_timestamp().filter(|_| waits);
        match created {
            Some(created) => {
                self.is_new |= self.waiting.insert(object.name_any(), created.0) != Some(created.0);
            }
            None => self.gone(&object.name_any()),
        }
    }

    fn gone(&mut self, name: &str) {
        self.is_new |= self.waiting.remove(name).is_some();
    }

    fn retain(&mut self, names: &BTreeSet<String>) {
        self.waiting.retain(|name, _| names.contains(name));
        self.is_new = true;
    }

    /// Sets the gauges, if they have changed.
    fn publish(&mut self, kind: &str, metrics: &Metrics) {
        if std::mem::take(&mut self.is_new) {
            metrics.queue(
                kind,
                self.waiting.len(),
                self.waiting.values().min().copied(),
            );
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct StoredBackups {
    known: HashMap<String, KnownBackup>,
    queue: Queue,
    listed: bool,
    /// Locations with a gauge of incomplete copies.
    copied_to: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownBackup {
    schedule: String,
    end: Option<End>,
    /// Whether its last verification has found faults.
    is_damaged: bool,
    /// Locations of copies that are due and not complete.
    incomplete_copies: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    at: Timestamp,
    /// Times are whole seconds: if two ended in the same second, the one written last counts as the
    /// last.
    version: u64,
    /// Whether everything in it can be restored, according to the object; the location has its own
    /// series.
    good: bool,
    /// Number of items and errors, if it has collected something.
    contents: Option<(i64, i64)>,
}

impl End {
    fn of(backup: &Backup) -> Option<Self> {
        let status = &backup.status;
        let phase = backup.phase();
        let ended = phase.is_terminal() && phase != BackupPhase::Deleting;
        // A refused backup has neither the first nor the second.
        let at = status
            .completion_timestamp
            .as_ref()
            .or(status.start_timestamp.as_ref())
            .or(backup.metadata.creation_timestamp.as_ref())
            .map(|time| time.0);
        let contents =
            matches!(phase, BackupPhase::Completed | BackupPhase::PartiallyFailed).then(|| {
                let items = status
                    .progress
                    .as_ref()
                    .map_or(0, |progress| progress.items_backed_up);
                (items, status.errors)
            });
        let version = backup.metadata.resource_version.as_deref();
        let version = version
            .and_then(|version| version.parse().ok())
            .unwrap_or_default();
        at.filter(|_| ended).map(|at| Self {
            at,
            version,
            good: Evidence::of(backup).judge(None).is_good,
            contents,
        })
    }
}

impl StoredBackups {
    pub(crate) fn applied(&mut self, backup: &Backup, metrics: &Metrics) {
        self.queue.applied(backup, backup.phase().stage());
        self.queue.publish(BACKUPS, metrics);
        let schedule = backup.schedule().unwrap_or_default().to_owned();
        let verified = Verification::read(annotation(backup, VERIFIED_ANNOTATION));
        let now = KnownBackup {
            schedule: schedule.clone(),
            end: End::of(backup),
            is_damaged: verified.is_some_and(|last| last.findings > 0),
            incomplete_copies: backup
                .incomplete_copies()
                .into_iter()
                .map(str::to_owned)
                .collect(),
        };
        let before = self.known.insert(backup.name_any(), now.clone());
        if before.as_ref() == Some(&now) {
            return; // most changes: progress, places in the queue
        }
        self.update(&schedule, metrics);
        let copies_before = before
            .as_ref()
            .map(|known| known.incomplete_copies.as_slice());
        if copies_before.unwrap_or_default() != now.incomplete_copies {
            self.update_copies(metrics);
        }
        if let Some(before) = before.filter(|before| before.schedule != schedule) {
            self.update(&before.schedule, metrics);
        }
    }

    pub(crate) fn gone(&mut self, name: &str, metrics: &Metrics) {
        self.queue.gone(name);
        self.queue.publish(BACKUPS, metrics);
        if let Some(known) = self.known.remove(name) {
            metrics.forget_backup(&known.schedule, name);
            self.update(&known.schedule, metrics);
            if !known.incomplete_copies.is_empty() {
                self.update_copies(metrics);
            }
        }
    }

    /// All existing objects have been delivered: an entry that is not among these is gone.
    pub(crate) fn listed(&mut self, names: &BTreeSet<String>, metrics: &Metrics) {
        self.listed = true;
        let mut schedules: Vec<String> = self
            .known
            .values()
            .map(|known| known.schedule.clone())
            .collect();
        self.known.retain(|name, known| {
            let exists = names.contains(name);
            if !exists {
                metrics.forget_backup(&known.schedule, name);
            }
            exists
        });
        self.queue.retain(names);
        self.queue.publish(BACKUPS, metrics);
        schedules.sort_unstable();
        schedules.dedup();
        metrics.series.backup_total.set(0);
        for schedule in schedules {
            self.update(&schedule, metrics);
        }
        self.update_copies(metrics);
    }

    /// Sets the gauges of incomplete copies, once all Backups are known. A gauge stays at zero.
    fn update_copies(&mut self, metrics: &Metrics) {
        if !self.listed {
            return;
        }
        let mut counts: HashMap<&str, i64> = HashMap::new();
        for known in self.known.values() {
            for location in &known.incomplete_copies {
                *counts.entry(location.as_str()).or_default() += 1;
            }
        }
        self.copied_to
            .extend(counts.keys().map(|location| (*location).to_owned()));
        for location in &self.copied_to {
            let count = counts.get(location.as_str()).copied().unwrap_or_default();
            let series = &metrics.series.backup_copies_incomplete;
            series.set([location.as_str()], Some(count));
        }
    }

    /// Sets the gauges of a schedule. Until all Backups are known, the gauges of the last one are
    /// not set.
    fn update(&self, schedule: &str, metrics: &Metrics) {
        if !self.listed {
            return;
        }
        metrics
            .series
            .backup_total
            .set(gauge(self.known.len() as u64));
        let series = &metrics.series;
        let last = latest(self.ends(schedule));
        let contents = latest(self.ends(schedule).filter(|end| end.contents.is_some()))
            .and_then(|end| end.contents);
        let completed = latest(self.ends(schedule).filter(|end| end.good));
        series
            .backup_last_status
            .set([schedule], last.map(|end| i64::from(end.good)));
        series
            .backup_items_total
            .set([schedule], contents.map(|(items, _)| items));
        series
            .backup_items_errors
            .set([schedule], contents.map(|(_, errors)| errors));
        let completed = completed.map(|end| end.at.as_second());
        series
            .backup_last_successful_timestamp
            .set([schedule], completed);
        let mut backups = self.of_schedule(schedule).peekable();
        let damaged = backups.peek().is_some().then(|| {
            let damaged = backups.filter(|known| known.is_damaged);
            gauge(damaged.count() as u64)
        });
        series.backup_damaged.set([schedule], damaged);
    }

    fn of_schedule(&self, schedule: &str) -> impl Iterator<Item = &KnownBackup> {
        self.known
            .values()
            .filter(move |known| known.schedule == schedule)
    }

    /// The ends of the backups of a schedule.
    fn ends(&self, schedule: &str) -> impl Iterator<Item = End> {
        self.of_schedule(schedule).filter_map(|known| known.end)
    }
}

fn latest(ends: impl Iterator<Item = End>) -> Option<End> {
    ends.max_by_key(|end| (end.at, end.version))
}

#[derive(Debug, Default)]
pub(crate) struct StoredRestores {
    known: HashSet<String>,
    queue: Queue,
}

#[cfg(test)]
mod tests {
    use backup_core::{
        api::RestoreSpec,
        labels::{FILES_MISSING_ANNOTATION, SCHEDULE_NAME},
    };
    use backup_runtime::queue::Key;
    use serde_json::json;

    use super::*;

    fn backup(
        name: &str,
        schedule: &str,
        phase: &str,
        minute: u8,
        items: i64,
        errors: i64,
    ) -> Backup {
        let at = format!("2026-01-01T00:{minute:02}:00Z");
        let completion = matches!(phase, "Completed" | "PartiallyFailed").then_some(&at);
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "spec": {},
            "metadata": { "name": name, "labels": { SCHEDULE_NAME: schedule }, "creationTimestamp": at },
            "status": { "phase": phase, "startTimestamp": at, "completionTimestamp": completion, "errors": errors,
                "progress": { "itemsBackedUp": items, "totalItems": items } } });
        serde_json::from_value(object).unwrap()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The gauges of a schedule: status, items, errors, last success in minutes.
    fn gauges(metrics: &Metrics, schedule: &str) -> [Option<i64>; 4] {
        let text = metrics.encode();
        let start = "2026-01-01T00:00:00Z"
            .parse::<Timestamp>()
            .unwrap()
            .as_second();
        [
            "last_status",
            "items_total",
            "items_errors",
            "last_successful_timestamp",
        ]
        .map(|name| {
            let prefix = format!("velero_backup_{name}{{schedule=\"{schedule}\"}} ");
            let value: i64 = text
                .lines()
                .find_map(|line| line.strip_prefix(&prefix))?
                .parse()
                .unwrap();
            Some(if name.ends_with("timestamp") {
                (value - start) / 60
            } else {
                value
            })
        })
    }

    #[test]
    fn the_last_backup_of_each_schedule_counts_in_whatever_order_they_are_seen() {
        let all = [
            backup("a", "nightly", "Completed", 1, 10, 0),
            backup("b", "nightly", "PartiallyFailed", 2, 20, 3),
            backup("c", "nightly", "InProgress", 3, 5, 0),
            backup("d", "", "Completed", 1, 7, 0),
            backup("e", "hourly", "FailedValidation", 1, 0, 0),
        ];
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 4, 0, 3, 2]] {
            let (metrics, mut stored) = (Metrics::default(), StoredBackups::default());
            for at in order {
                stored.applied(&all[at], &metrics);
            }
            assert_eq!(
                gauges(&metrics, "nightly"),
                [None; 4],
                "not all are known yet"
            );
            stored.listed(&names(&["a", "b", "c", "d", "e"]), &metrics);
            assert_eq!(
                gauges(&metrics, "nightly"),
                [Some(0), Some(20), Some(3), Some(1)]
            );
            assert_eq!(gauges(&metrics, ""), [Some(1), Some(7), Some(0), Some(1)]);
            assert_eq!(gauges(&metrics, "hourly"), [Some(0), None, None, None]);
            assert!(metrics.encode().contains("velero_backup_total 5"));
            // Another one ends; one is deleted.
            stored.applied(&backup("c", "nightly", "Completed", 4, 30, 0), &metrics);
            assert_eq!(
                gauges(&metrics, "nightly"),
                [Some(1), Some(30), Some(0), Some(4)]
            );
            stored.gone("c", &metrics);
            assert_eq!(
                gauges(&metrics, "nightly"),
                [Some(0), Some(20), Some(3), Some(1)]
            );
            stored.gone("d", &metrics);
            assert_eq!(gauges(&metrics, ""), [None; 4]);
            assert!(metrics.encode().contains("velero_backup_total 3"));
        }
    }

    #[test]
    fn incomplete_copies_are_counted_by_location_and_fall_to_zero() {
        let metrics = Metrics::default();
        let mut stored = StoredBackups::default();
        let copied = |name: &str, state: &str| {
            let mut backup = backup(name, "", "Completed", 1, 1, 0);
            let copies = json!([{ "location": "second" }]);
            backup.spec.copies = serde_json::from_value(copies).unwrap();
            let states = json!([{ "location": "second", "phase": state }]);
            backup.status.copies = serde_json::from_value(states).unwrap();
            backup
        };
        let counted = |metrics: &Metrics| {
            let text = metrics.encode();
            let start = "velero_backup_copies_incomplete{backup_location_name=\"second\"} ";
            text.lines()
                .find_map(|line| Some(line.strip_prefix(start)?.to_owned()))
        };
        stored.applied(&copied("a", "New"), &metrics);
        stored.applied(&copied("b", "Failed"), &metrics);
        assert_eq!(counted(&metrics), None, "not all Backups are known");
        stored.listed(&names(&["a", "b"]), &metrics);
        assert_eq!(counted(&metrics).as_deref(), Some("2"));
        stored.applied(&copied("a", "Completed"), &metrics);
        assert_eq!(counted(&metrics).as_deref(), Some("1"));
        stored.gone("b", &metrics);
        assert_eq!(counted(&metrics).as_deref(), Some("0"));
    }

    #[test]
    fn one_whose_files_are_gone_is_no_success() {
        let (metrics, mut stored) = (Metrics::default(), StoredBackups::default());
        stored.listed(&names(&[]), &metrics);
        stored.applied(&backup("a", "nightly", "Completed", 1, 10, 0), &metrics);
        let mut newer = backup("b", "nightly", "Completed", 2, 20, 0);
        stored.applied(&newer, &metrics);
        assert_eq!(
            gauges(&metrics, "nightly"),
            [Some(1), Some(20), Some(0), Some(2)]
        );
        newer.metadata.annotations =
            Some([(FILES_MISSING_ANNOTATION.to_owned(), String::new())].into());
        stored.applied(&newer, &metrics);
        assert_eq!(
            gauges(&metrics, "nightly"),
            [Some(0), Some(20), Some(0), Some(1)]
        );
    }

    #[test]
    fn backups_with_faults_are_counted_until_they_are_gone_or_found_whole() {
        let (metrics, mut stored) = (Metrics::default(), StoredBackups::default());
        let damaged = |schedule: &str| {
            let text = metrics.encode();
            let prefix = format!("velero_backup_damaged{{schedule=\"{schedule}\"}} ");
            text.lines()
                .find_map(|line| line.strip_prefix(&prefix)?.parse::<i64>().ok())
        };
        let verified = |name: &str, findings: usize| {
            let mut one = backup(name, "nightly", "Completed", 1, 10, 0);
            let record = format!(r#"{{"at":"2026-01-01T01:00:00Z","findings":{findings}}}"#);
            one.metadata.annotations = Some([(VERIFIED_ANNOTATION.to_owned(), record)].into());
            one
        };
        stored.listed(&names(&[]), &metrics);
        assert_eq!(damaged("nightly"), None);
        stored.applied(&backup("a", "nightly", "Completed", 1, 10, 0), &metrics);
        stored.applied(&backup("d", "", "Completed", 1, 10, 0), &metrics);
        assert_eq!(damaged("nightly"), Some(0));
        stored.applied(&verified("a", 2), &metrics);
        stored.applied(&verified("b", 1), &metrics);
        stored.applied(&verified("c", 0), &metrics);
        assert_eq!((damaged("nightly"), damaged("")), (Some(2), Some(0)));
        stored.applied(&verified("a", 0), &metrics);
        assert_eq!(damaged("nightly"), Some(1));
        for name in ["b", "a", "c"] {
            stored.gone(name, &metrics);
        }
        assert_eq!(damaged("nightly"), None);
    }

    #[test]
    fn of_two_that_end_in_the_same_second_the_one_written_last_counts() {
        let mut all: Vec<Backup> = (0..8)
            .map(|n| {
                let phase = if n == 5 {
                    "Completed"
                } else {
                    "PartiallyFailed"
                };
                let mut one = backup(&format!("b{n}"), "nightly", phase, 1, n, 0);
                one.metadata.resource_version = Some(if n == 5 { 100 } else { 90 + n }.to_string());
                one
            })
            .collect();
        for _ in 0..all.len() {
            all.rotate_left(1);
            let (metrics, mut stored) = (Metrics::default(), StoredBackups::default());
            stored.listed(&names(&[]), &metrics);
            for one in &all {
                stored.applied(one, &metrics);
            }
            assert_eq!(
                gauges(&metrics, "nightly"),
                [Some(1), Some(5), Some(0), Some(1)]
            );
        }
    }

    #[test]
    fn the_oldest_that_has_not_begun_is_how_long_the_queue_waits() {
        let (metrics, mut stored) = (Metrics::default(), StoredBackups::default());
        let queue = |kind: &str| {
            let text = metrics.encode();
            let value = |name: &str| {
                let prefix = format!("velero_queue_{name}{{kind=\"{kind}\"}} ");
                text.lines()
                    .find_map(|line| line.strip_prefix(&prefix)?.parse::<i64>().ok())
            };
            (value("length"), value("oldest_timestamp_seconds"))
        };
        let minute = |minute: i64| {
            let start = "2026-01-01T00:00:00Z"
                .parse::<Timestamp>()
                .unwrap()
                .as_second();
            Some(start + 60 * minute)
        };
        stored.listed(&names(&[]), &metrics);
        assert_eq!(queue("Backup"), (Some(0), None));
        for (name, phase, created) in [
            ("a", "Queued", 2),
            ("b", "New", 1),
            ("c", "ReadyToStart", 3),
        ] {
            stored.applied(&backup(name, "", phase, created, 0, 0), &metrics);
        }
        stored.applied(&backup("d", "", "InProgress", 0, 0, 0), &metrics);
        assert_eq!(queue("Backup"), (Some(3), minute(1)));
        stored.applied(&backup("b", "", "InProgress", 1, 0, 0), &metrics);
        assert_eq!(queue("Backup"), (Some(2), minute(2)));
        stored.gone("a", &metrics);
        assert_eq!(queue("Backup"), (Some(1), minute(3)));
        // Another backup with the same name.
        stored.applied(&backup("c", "", "New", 4, 0, 0), &metrics);
        assert_eq!(queue("Backup"), (Some(1), minute(4)));
        // A list without it.
        stored.listed(&names(&["d"]), &metrics);
        assert_eq!(queue("Backup"), (Some(0), None));

        let mut restores = StoredRestores::default();
        let mut restore = Restore::new("r", RestoreSpec::default());
        restore.metadata.creation_timestamp =
            backup("r", "", "", 5, 0, 0).metadata.creation_timestamp;
        restores.touched(&WatchEvent::Applied(Ok(restore.clone())), &metrics);
        assert_eq!(queue("Restore"), (Some(1), minute(5)));
        restore.status.phase = Some(backup_core::api::RestorePhase::InProgress);
        restores.touched(&WatchEvent::Applied(Ok(restore)), &metrics);
        assert_eq!(queue("Restore"), (Some(0), None));
    }

    #[test]
    fn what_names_a_backup_goes_with_it() {
        let (metrics, mut stored) = (Metrics::default(), StoredBackups::default());
        let mut one = backup("a", "nightly", "Completed", 1, 10, 0);
        one.status.csi_volume_snapshots_attempted = 2;
        let series = |name: &str| format!("{{schedule=\"nightly\",backupName=\"{name}\"}}");
        let shown = |name: &str| metrics.encode().matches(&series(name)).count();
        for name in ["a", "b"] {
            one.metadata.name = Some(name.to_owned());
            stored.applied(&one, &metrics);
            metrics.backup_ended("nightly", name, &one);
        }
        stored.listed(&names(&["a", "b"]), &metrics);
        assert_eq!((shown("a"), shown("b")), (3, 3));
        stored.gone("a", &metrics);
        assert_eq!((shown("a"), shown("b")), (0, 3));
        // A list without it.
        stored.listed(&names(&[]), &metrics);
        assert_eq!(shown("b"), 0);
    }

    #[test]
    fn what_a_new_list_does_not_show_is_gone() {
        let (metrics, mut stored) = (Metrics::default(), StoredBackups::default());
        stored.applied(&backup("a", "nightly", "Completed", 1, 10, 0), &metrics);
        stored.applied(&backup("b", "nightly", "Completed", 2, 20, 0), &metrics);
        stored.listed(&names(&["a", "b"]), &metrics);
        stored.applied(&backup("a", "nightly", "Completed", 1, 10, 0), &metrics);
        stored.listed(&names(&["a"]), &metrics);
        assert_eq!(
            gauges(&metrics, "nightly"),
            [Some(1), Some(10), Some(0), Some(1)]
        );
        stored.listed(&names(&[]), &metrics);
        assert_eq!(gauges(&metrics, "nightly"), [None; 4]);
        assert!(metrics.encode().contains("velero_backup_total 0"));

        let mut restores = StoredRestores::default();
        let restore =
            |name: &str| WatchEvent::Applied(Ok(Restore::new(name, RestoreSpec::default())));
        for name in ["r", "s", "s"] {
            restores.touched(&restore(name), &metrics);
        }
        restores.touched(&WatchEvent::Listed(names(&["r", "s"])), &metrics);
        assert!(metrics.encode().contains("velero_restore_total 2"));
        restores.touched(&restore("s"), &metrics);
        restores.touched(&WatchEvent::Listed(names(&["s"])), &metrics);
        let gone = Key {
            namespace: "velero".to_owned(),
            name: "r".to_owned(),
        };
        restores.touched(&WatchEvent::Deleted(gone), &metrics);
        assert!(metrics.encode().contains("velero_restore_total 1"));
    }
}
