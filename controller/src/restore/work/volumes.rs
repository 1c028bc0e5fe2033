//! How the data of each volume is restored: decided once, before any item. The outcome is reported
//! once, at the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use backup_actions::{
    csi::SNAPSHOTS,
    restore::{self, json, volume},
};
use backup_core::{
    names::is_object_name,
    repository_data::RepositoryVolume,
    resources::{CLAIMS, VOLUMES},
    volume_data::{DataSource, Evidence, StoredVolume, VolumeRecord},
};
use backup_plugins::log_line::Level;
use backup_store::Scope;
use parking_lot::Mutex;
use serde_json::Value;

use super::{Restoring, provisioned::ProvisionedClaim};
use crate::restore::{
    about::About,
    volume_outcomes::{DataOutcome, PlannedClaim},
};

/// Where the data of each claim comes from, by its namespace and name in the backup.
#[derive(Debug, Default)]
pub(crate) struct VolumePlan {
    by_claim: BTreeMap<(String, String), PlannedVolume>,
    /// Why classes provision no volumes, or `None` if they do, by class name.
    pub(super) classes: Mutex<BTreeMap<String, Option<String>>>,
    /// Created claims that get new volumes.
    pub(super) provisioned: Mutex<Vec<ProvisionedClaim>>,
}

#[derive(Debug)]
struct PlannedVolume {
    /// Its name in the backup.
    volume: String,
    data: DataSource,
    record: Option<VolumeRecord>,
}

impl Restoring<'_> {
    /// Decides for each volume of the backup. Volumes that are restored themselves are bound to
    /// their claims again.
    pub(super) fn plan_volumes(&mut self) {
        let with_csi = self.restore.spec.restore_pvs != Some(false)
            && !self.contents.items(SNAPSHOTS).is_empty();
        let records = std::mem::take(&mut self.saved.records);
        let by_volume: BTreeMap<&str, &VolumeRecord> = records
            .iter()
            .map(|record| (record.pv_name.as_str(), record))
            .collect();
        let by_claim: BTreeMap<(&str, &str), &VolumeRecord> = records
            .iter()
            .map(|record| ((record.namespace(), record.claim()), record))
            .collect();
        // By namespace and name of the claim: its volume, and whether it names a CSI snapshot.
        // Several claims may name one volume.
        let mut claims = BTreeMap::new();
        for item in self.contents.items(CLAIMS) {
            let Ok(claim) = self.contents.object(item) else {
                continue;
            };
            // The field may hold any text, and it is kept.
            if let Some(volume) =
                volume::volume_of_claim(&claim).filter(|name| is_object_name(name))
            {
                let csi = with_csi && restore::snapshot_of_claim(&claim).is_some();
                let namespace = self
                    .contents
                    .namespace_of(item)
                    .unwrap_or_default()
                    .to_owned();
                let name = json::text(&claim, &["metadata"], "name")
                    .unwrap_or_default()
                    .to_owned();
                claims.insert((namespace, name), (volume.to_owned(), csi));
            }
        }
        let mut claims: Vec<(String, String, String, bool)> = claims
            .into_iter()
            .map(|((namespace, name), (volume, csi))| (volume, namespace, name, csi))
            .collect();
        let claimed: BTreeSet<String> = claims.iter().map(|(volume, ..)| volume.clone()).collect();
        let mut kept = BTreeSet::new();
        let mut stored = BTreeMap::new();
        for item in self.contents.items(VOLUMES) {
            let Ok(volume) = self.contents.object(item) else {
                continue;
            };
            let Some(name) = json::text(&volume, &["metadata"], "name") else {
                continue;
            };
            if volume::is_kept(&volume) {
                kept.insert(name.to_owned());
            }
            stored.insert(name.to_owned(), StoredVolume::of(&volume));
            if !claimed.contains(name) {
                claims.push((name.to_owned(), String::new(), String::new(), false));
            }
        }
        for (volume, namespace, claim, csi) in claims {
            let record = by_claim
                .get(&(namespace.as_str(), claim.as_str()))
                .filter(|_| !claim.is_empty());
            let record = record.or_else(|| by_volume.get(volume.as_str())).copied();
            let failed = self.snapshots.failed.contains(&volume);
            let evidence = Evidence {
                native: self.snapshots.has(&volume),
                csi,
                kept: kept.contains(&volume),
                failed,
                volume: stored.get(&volume).copied().unwrap_or_default(),
            };
            let source = DataSource::of(record, evidence);
            if failed && source == DataSource::Kept {
                let message = format!(
                    "the backup has no snapshot of PersistentVolume {volume:?}: taking it had failed"
                );
                self.report.warn(Scope::Cluster, message);
            }
            if source.restores_volume() {
                Arc::make_mut(&mut self.rules.kept_volumes).insert(volume.clone());
            }
            if !claim.is_empty() {
                let planned = PlannedVolume {
                    volume,
                    data: source,
                    record: record.cloned(),
                };
                self.plan.by_claim.insert((namespace, claim), planned);
            }
        }
        self.plan_repository_data();
    }

    /// Backups of old servers record that files are in a repository, and not of which volume.
    fn plan_repository_data(&mut self) {
        let mut pods = BTreeSet::new();
        for RepositoryVolume {
            namespace,
            claim,
            mount,
        } in &self.saved.in_repository
        {
            match (claim, mount) {
                (Some(claim), _) => {
                    let none = PlannedVolume {
                        volume: String::new(),
                        data: DataSource::Repository,
                        record: None,
                    };
                    let key = (namespace.clone(), claim.clone());
                    let planned = self.plan.by_claim.entry(key).or_insert(none);
                    if matches!(planned.data, DataSource::Unsaved(_)) {
                        planned.data = DataSource::Repository;
                    }
                }
                (None, Some((pod, _))) => {
                    pods.insert((self.rules.target(namespace).to_owned(), pod.clone()));
                }
                (None, None) => {}
            }
        }
        self.report.watch_pods(pods);
    }

    /// Called for a created claim: its volume, if provisioned again, gets its properties back.
    pub(super) fn expect_provisioned(&self, source: Option<&str>, claim: About<'_>) {
        let key = (source.unwrap_or_default().to_owned(), claim.name.to_owned());
        let Some(PlannedVolume { data, record, .. }) = self.plan.by_claim.get(&key) else {
            return;
        };
        if let (false, Some(namespace), Some(record)) =
            (data.restores_volume(), claim.namespace, record)
        {
            self.plan
                .provisioned
                .lock()
                .extend(ProvisionedClaim::of(namespace, claim.name, record));
        }
    }

    /// Whether data is restored with a claim of the backup.
    pub(super) fn brings_data(&self, source: &str, claim: &str) -> bool {
        let planned = self
            .plan
            .by_claim
            .get(&(source.to_owned(), claim.to_owned()));
        planned.is_some_and(|planned| {
            planned.data.restores_volume() || planned.data == DataSource::CsiSnapshot
        })
    }

    /// Reports the outcome of the data of each volume that was reached, and the sources of volumes.
    pub(super) fn report_volumes(&self) {
        let mut entries = self.snapshots.restored().entries();
        if self.calls.is_dry_run() {
            // Only a real restore would create their snapshots.
            entries.extend(self.snapshots.restored().expected());
        }
        let wanted = self.restore.spec.restore_pvs != Some(false);
        let outcomes = self.report.volume_outcomes();
        let mut missing = Vec::new();

        for ((source, name), PlannedVolume { volume, data, .. }) in &self.plan.by_claim {
            let namespace = self.rules.target(source);
            let claim = PlannedClaim {
                source,
                namespace,
                name,
                volume,
                data,
            };
            let outcome = outcomes.of_claim(claim, wanted, &entries);
            missing.extend(self.report_data(Scope::Namespace(namespace), outcome));
        }
        for volume in self
            .saved
            .in_repository
            .iter()
            .filter(|volume| volume.claim.is_none())
        {
            let namespace = self.rules.target(&volume.namespace);
            let scope = if namespace.is_empty() {
                Scope::Velero
            } else {
                Scope::Namespace(namespace)
            };
            let outcome = outcomes.in_repository(namespace, volume);
            missing.extend(self.report_data(scope, outcome));
        }
        entries.extend(missing);
        self.report.volumes(entries);
    }

    /// Reports the outcome of the data of a volume. Returns the entry of a volume whose data is
    /// missing.
    fn report_data(&self, scope: Scope<'_>, outcome: Option<DataOutcome>) -> Option<Value> {
        let DataOutcome { message, missing } = outcome?;
        match message {
            Some((Level::Error, text)) => self.report.error(scope, text),
            Some((Level::Warning, text)) => self.report.warn(scope, text),
            Some((Level::Info | Level::Debug, text)) => self.report.info(&text),
            None => {}
        }
        missing
    }
}
