//! BackupRepositories: whether they can be used, and their maintenance and checks. The number of
//! series is bounded by the number of BackupRepositories: one for each namespace and location with
//! moved data.

use std::collections::{BTreeMap, HashMap};

use backup_core::{
    api::{
        BackupRepository,
        backup_repository::{BackupRepositoryPhase, MaintenanceResult},
        transfer::UploaderType,
    },
    data_movement::repository_name,
    repository_records::DataCheck,
};
use backup_runtime::watch::{Decoded, WatchEvent};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::Stored;
use crate::metrics::Metrics;

/// Values of the label `phase`. A phase that this version does not know counts as the last one.
const PHASES: [&str; 4] = ["New", READY, "NotReady", "Unknown"];
const READY: &str = "Ready";
#[derive(Debug, Default)]
pub(super) struct StoredRepositories {
    known: HashMap<String, KnownRepository>,
    is_listed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownRepository {
    namespace: String,
    location: String,
    phase: &'static str,
    /// Begin of the last maintenance that is known.
    maintained: Option<Timestamp>,
}

impl KnownRepository {
    fn of(repository: &BackupRepository) -> Self {
        let recent = repository.status.recent_maintenance.iter();
        let starts = recent.filter_map(|maintenance| maintenance.start_timestamp.as_ref());
        Self {
            namespace: repository.spec.volume_namespace.clone(),
            location: repository.spec.backup_storage_location.clone(),
            phase: phase(repository),
            maintained: starts.map(|time| time.0).max(),
        }
    }

    /// Values of the labels of its gauges.
    fn labels(&self) -> [&str; 2] {
        [&self.namespace, &self.location]
    }
}

fn phase(repository: &BackupRepository) -> &'static str {
    match &repository.status.phase {
        None | Some(BackupRepositoryPhase::New) => "New",
        Some(BackupRepositoryPhase::Ready) => READY,
        Some(BackupRepositoryPhase::NotReady) => "NotReady",
        Some(BackupRepositoryPhase::Unknown(_)) => "Unknown",
    }
}

/// Whether it is a repository of our data mover.
fn is_ours(repository: &BackupRepository) -> bool {
    let spec = &repository.spec;
    let name = repository_name(&spec.volume_namespace, &spec.backup_storage_location);
    spec.repository_type == UploaderType::Restic && repository.name_any() == name
}

impl Stored<BackupRepository> for StoredRepositories {
    fn touched(&mut self, event: &WatchEvent<Decoded<BackupRepository>>, metrics: &Metrics) {
        match event {
            WatchEvent::Applied(Ok(repository)) => self.applied(repository, metrics),
            WatchEvent::Applied(Err(bad)) => self.gone(&bad.name, metrics),
            WatchEvent::Deleted(key) => self.gone(&key.name, metrics),
            WatchEvent::Listed(names) => {
                self.is_listed = true;
                let known = self.known.keys();
                let gone: Vec<String> = known
                    .filter(|name| !names.contains(*name))
                    .cloned()
                    .collect();
                for name in gone {
                    self.gone(&name, metrics);
                }
            }
        }
        self.publish(metrics);
    }
}

impl StoredRepositories {
    fn applied(&mut self, repository: &BackupRepository, metrics: &Metrics) {
        if !is_ours(repository) {
            return;
        }
        let name = repository.name_any();
        let now = KnownRepository::of(repository);
        set_gauges(repository, &now, metrics);
        let counted = match self.known.get(&name) {
            Some(before) => before.maintained,
            // Maintenances before the first list were counted by the process that led then.
            None => now.maintained.filter(|_| !self.is_listed),
        };
        count_maintenances(repository, counted, metrics);
        self.known.insert(name, now);
    }

    fn gone(&mut self, name: &str, metrics: &Metrics) {
        let Some(known) = self.known.remove(name) else {
            return;
        };
        let series = &metrics.series;
        for gauges in [
            &series.repository_ready,
            &series.repository_last_maintenance_timestamp_seconds,
            &series.repository_maintenance_period_seconds,
            &series.repository_last_check_timestamp_seconds,
            &series.repository_check_failed,
            &series.repository_damaged,
        ] {
            gauges.remove(known.labels());
        }
        for counters in [
            &series.repo_maintenance_success,
            &series.repo_maintenance_failure,
        ] {
            counters.remove([name]);
        }
    }

    /// Sets the number of repositories in each phase, once all are known.
    fn publish(&self, metrics: &Metrics) {
        if !self.is_listed {
            return;
        }
        let mut counts = BTreeMap::from(PHASES.map(|phase| (phase, 0)));
        for known in self.known.values() {
            *counts.entry(known.phase).or_default() += 1;
        }
        for (phase, count) in counts {
            metrics.series.repositories.of([phase]).set(count);
        }
    }
}

fn set_gauges(repository: &BackupRepository, known: &KnownRepository, metrics: &Metrics) {
    let series = &metrics.series;
    let labels = known.labels();
    let is_ready = known.phase == READY;
    series.repository_ready.of(labels).set(i64::from(is_ready));
    let maintained = repository.status.last_maintenance_time.as_ref();
    series
        .repository_last_maintenance_timestamp_seconds
        .set(labels, maintained.map(|time| time.0.as_second()));
    let period = repository.spec.maintenance_frequency.as_secs();
    series
        .repository_maintenance_period_seconds
        .set(labels, Some(period).filter(|seconds| *seconds > 0));
    // A check that is not known is not one without damage.
    let check = DataCheck::known(repository.annotations());
    let checked = check.as_ref().and_then(|check| check.checked);
    series
        .repository_last_check_timestamp_seconds
        .set(labels, checked.map(Timestamp::as_second));
    let has_failed = check.as_ref().map(|check| check.failed.is_some());
    series
        .repository_check_failed
        .set(labels, has_failed.map(i64::from));
    let is_damaged = check.as_ref().map(|check| !check.damage.is_empty());
    series
        .repository_damaged
        .set(labels, is_damaged.map(i64::from));
}

/// Counts the maintenances that began after `counted`. The counters are exported from 0 on.
fn count_maintenances(
    repository: &BackupRepository,
    counted: Option<Timestamp>,
    metrics: &Metrics,
) {
    let name = repository.name_any();
    let succeeded = metrics.series.repo_maintenance_success.of([&name]);
    let failed = metrics.series.repo_maintenance_failure.of([&name]);
    for maintenance in &repository.status.recent_maintenance {
        let start = maintenance.start_timestamp.as_ref().map(|time| time.0);
        if start <= counted {
            continue;
        }
        match &maintenance.result {
            Some(MaintenanceResult::Succeeded) => {
                succeeded.inc();
            }
            Some(MaintenanceResult::Failed) => {
                failed.inc();
            }
            None | Some(MaintenanceResult::Unknown(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use backup_core::repository_records::DATA_CHECK_ANNOTATION;
    use backup_runtime::queue::Key;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing;

    fn repository(namespace: &str, status: &Value) -> BackupRepository {
        let object = json!({
            "apiVersion": "velero.io/v1", "kind": "BackupRepository",
            "metadata": { "name": repository_name(namespace, "default") },
            "spec": {
                "volumeNamespace": namespace, "backupStorageLocation": "default",
                "repositoryType": "restic", "maintenanceFrequency": "24h0m0s",
            },
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn applied(stored: &mut StoredRepositories, metrics: &Metrics, repository: BackupRepository) {
        stored.touched(&WatchEvent::Applied(Ok(repository)), metrics);
    }

    fn listed(stored: &mut StoredRepositories, metrics: &Metrics, namespaces: &[&str]) {
        let names = namespaces
            .iter()
            .map(|namespace| repository_name(namespace, "default"));
        stored.touched(&WatchEvent::Listed(names.collect()), metrics);
    }

    #[test]
    fn repositories_are_counted_by_phase_and_shown_with_their_maintenance() {
        let (metrics, mut stored) = (Metrics::default(), StoredRepositories::default());
        let ready = json!({ "phase": "Ready", "lastMaintenanceTime": "1970-01-01T00:01:40Z" });
        applied(&mut stored, &metrics, repository("shop", &ready));
        let refused = json!({ "phase": "NotReady", "message": "wrong password" });
        applied(&mut stored, &metrics, repository("db", &refused));
        applied(&mut stored, &metrics, repository("new", &json!({})));
        let mut theirs = repository("theirs", &refused);
        theirs.spec.repository_type = UploaderType::Kopia;
        applied(&mut stored, &metrics, theirs);
        listed(&mut stored, &metrics, &["shop", "db", "new", "theirs"]);
        let of = |name: &str, namespace: &str, value: i64| {
            format!(
                "velero_repository_{name}{{volume_namespace=\"{namespace}\",backup_location_name=\"default\"}} {value}"
            )
        };
        for line in [
            of("ready", "shop", 1),
            of("ready", "db", 0),
            of("ready", "new", 0),
            of("last_maintenance_timestamp_seconds", "shop", 100),
            of("maintenance_period_seconds", "shop", 86400),
            "velero_repositories{phase=\"New\"} 1".to_owned(),
            "velero_repositories{phase=\"Ready\"} 1".to_owned(),
            "velero_repositories{phase=\"NotReady\"} 1".to_owned(),
            "velero_repositories{phase=\"Unknown\"} 0".to_owned(),
        ] {
            testing::assert_exported(&metrics, &[line.as_str()]);
        }
        assert!(!metrics.encode().contains("theirs"));
        assert!(
            !metrics
                .encode()
                .contains("maintenance_timestamp_seconds{volume_namespace=\"db\"")
        );
        // One is deleted, and one is missing in the next list.
        let deleted = Key {
            namespace: "velero".to_owned(),
            name: repository_name("db", "default"),
        };
        stored.touched(&WatchEvent::Deleted(deleted), &metrics);
        listed(&mut stored, &metrics, &["new"]);
        let text = metrics.encode();
        let left = ["shop", "db"].map(|namespace| text.contains(&format!("\"{namespace}\"")));
        assert_eq!(left, [false, false], "{text}");
        testing::assert_exported(&metrics, &["velero_repositories{phase=\"NotReady\"} 0"]);
    }

    #[test]
    fn damage_and_a_check_that_was_not_completed_are_shown() {
        let (metrics, mut stored) = (Metrics::default(), StoredRepositories::default());
        let mut shown = |check: Option<&Value>| {
            let mut repository = repository("shop", &json!({ "phase": "Ready" }));
            let annotation =
                check.map(|check| (DATA_CHECK_ANNOTATION.to_owned(), check.to_string()));
            repository.metadata.annotations = Some(annotation.into_iter().collect());
            applied(&mut stored, &metrics, repository);
            let text = metrics.encode();
            ["last_check_timestamp_seconds", "check_failed", "damaged"].map(|name| {
                let prefix = format!(
                    "velero_repository_{name}{{volume_namespace=\"shop\",backup_location_name=\"default\"}} "
                );
                let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
                line.map(|value| value.parse::<i64>().unwrap())
            })
        };
        assert_eq!(shown(None), [None; 3]);
        let whole = json!({ "checked": "1970-01-01T00:01:40Z", "part": 1 });
        assert_eq!(shown(Some(&whole)), [Some(100), Some(0), Some(0)]);
        let damaged = json!({ "checked": "1970-01-01T00:03:20Z", "damage": "2 packs are missing" });
        assert_eq!(shown(Some(&damaged)), [Some(200), Some(0), Some(1)]);
        let failed = json!({ "failed": "1970-01-01T00:03:20Z", "failure": "no answer" });
        assert_eq!(shown(Some(&failed)), [None, Some(1), Some(0)]);
        assert_eq!(shown(Some(&json!("no check"))), [None; 3]);
    }

    #[test]
    fn each_maintenance_counts_once() {
        let (metrics, mut stored) = (Metrics::default(), StoredRepositories::default());
        let name = repository_name("shop", "default");
        let ran = |ends: &[(&str, u8)]| {
            let recent: Vec<Value> = ends
                .iter()
                .map(|(result, hour)| {
                    let start = format!("2026-11-01T0{hour}:00:00Z");
                    json!({ "result": result, "startTimestamp": start })
                })
                .collect();
            repository(
                "shop",
                &json!({ "phase": "Ready", "recentMaintenance": recent }),
            )
        };
        let counts = |succeeded: u8, failed: u8| {
            for (result, count) in [("success", succeeded), ("failure", failed)] {
                let line = format!(
                    "velero_repo_maintenance_{result}_total{{repository_name=\"{name}\"}} {count}"
                );
                testing::assert_exported(&metrics, &[line.as_str()]);
            }
        };
        applied(&mut stored, &metrics, ran(&[("Succeeded", 1)]));
        listed(&mut stored, &metrics, &["shop"]);
        counts(0, 0);
        let next = [("Succeeded", 1), ("Failed", 2)];
        for _ in 0..2 {
            applied(&mut stored, &metrics, ran(&next));
            counts(0, 1);
        }
        // Two that were not seen one by one.
        let last = [("Failed", 2), ("Failed", 3), ("Succeeded", 4)];
        applied(&mut stored, &metrics, ran(&last));
        counts(1, 2);
        // One that is made while this process watches has no earlier maintenance.
        let (metrics, mut stored) = (Metrics::default(), StoredRepositories::default());
        listed(&mut stored, &metrics, &[]);
        applied(&mut stored, &metrics, ran(&[("Failed", 5)]));
        let line = format!("velero_repo_maintenance_failure_total{{repository_name=\"{name}\"}} 1");
        testing::assert_exported(&metrics, &[line.as_str()]);
    }
}
