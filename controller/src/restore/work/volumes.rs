//! How the data of each volume comes back: decided once, before anything is restored, and told of each claim that is created.

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
    volume_data::{self, DataSource, Evidence, VolumeRecord},
};
use backup_store::{ItemRef, Scope, StoreError};
use parking_lot::Mutex;
use serde_json::Value;

use super::{Work, provisioned::Provisioned};
use crate::restore::{
    report::About,
    select::Selection,
    volume_outcomes::{IN_REPOSITORY, PlannedClaim},
};

pub(crate) const VOLUMES: &str = "persistentvolumes";
pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const PODS: &str = "pods";

/// Where the data of each claim comes from, by its namespace and name in the backup.
#[derive(Debug, Default)]
pub(crate) struct VolumePlan {
    by_claim: BTreeMap<(String, String), PlannedVolume>,
    /// Entries of volumes of pods, without claims, whose data does not come back.
    of_pods: Mutex<Vec<Value>>,
    /// Claims that were created, and get other volumes than they had.
    pub(super) provisioned: Mutex<Vec<Provisioned>>,
}

#[derive(Debug)]
struct PlannedVolume {
    /// Its name in the backup.
    volume: String,
    data: DataSource,
    record: Option<VolumeRecord>,
}

impl Work<'_> {
    /// Decides for each volume of the backup. Those that are restored themselves come along with their claims.
    pub(super) fn plan_volumes(&mut self) {
        let with_csi =
            self.restore.spec.restore_pvs != Some(false) && !self.contents.items(SNAPSHOTS).is_empty();
        let records = std::mem::take(&mut self.saved.records);
        let by_volume: BTreeMap<&str, &VolumeRecord> =
            records.iter().map(|record| (record.pv_name.as_str(), record)).collect();
        let of_claim = |record| (VolumeRecord::namespace(record), VolumeRecord::claim(record));
        let by_claim: BTreeMap<_, &VolumeRecord> =
            records.iter().map(|record| (of_claim(record), record)).collect();
        // Volumes of claims: each with the claim, and whether that names a CSI snapshot.
        let mut claims = BTreeMap::new();
        for item in self.contents.items(CLAIMS) {
            let Ok(claim) = self.contents.object(item) else { continue };
            // Any text may stand there, and it is kept.
            if let Some(volume) = volume::volume_of_claim(&claim).filter(|name| is_object_name(name)) {
                let csi = with_csi && restore::snapshot_of_claim(&claim).is_some();
                let namespace = self.contents.namespace_of(item).unwrap_or_default().to_owned();
                let name = json::text(&claim, &["metadata"], "name").unwrap_or_default().to_owned();
                claims.insert(volume.to_owned(), (namespace, name, csi));
            }
        }
        let mut kept = BTreeSet::new();
        for item in self.contents.items(VOLUMES) {
            let Ok(volume) = self.contents.object(item) else { continue };
            let Some(name) = json::text(&volume, &["metadata"], "name") else { continue };
            if volume::is_kept(&volume) {
                kept.insert(name.to_owned());
            }
            if !claims.contains_key(name) {
                claims.insert(name.to_owned(), Default::default());
            }
        }
        for (volume, (namespace, claim, csi)) in claims {
            let record = by_claim.get(&(namespace.as_str(), claim.as_str())).filter(|_| !claim.is_empty());
            let record = record.or_else(|| by_volume.get(volume.as_str())).copied();
            let failed = self.snapshots.failed.contains(&volume);
            let evidence =
                Evidence { native: self.snapshots.has(&volume), csi, kept: kept.contains(&volume), failed };
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
                let planned = PlannedVolume { volume, data: source, record: record.cloned() };
                self.plan.by_claim.insert((namespace, claim), planned);
            }
        }
    }

    /// Says what becomes of the data of a claim that was created; `source` is its namespace in the backup.
    pub(super) fn report_claim(&self, source: Option<&str>, claim: About<'_>) {
        let key = (source.unwrap_or_default().to_owned(), claim.name.to_owned());
        let Some(PlannedVolume { data, record, .. }) = self.plan.by_claim.get(&key) else { return };
        let scope = claim.namespace.map_or(Scope::Cluster, Scope::Namespace);
        let name = claim.name;
        match data {
            _ if self.restore.spec.restore_pvs == Some(false) && *data != DataSource::Kept => {
                self.report.info(&format!("claim {name:?} comes back empty: spec.restorePVs is false"));
            }
            DataSource::Kept => {
                self.report.info(&format!("claim {name:?} comes back with its volume as it is"));
            }
            DataSource::NativeSnapshot => {
                self.report.info(&format!("claim {name:?} comes back with a volume of the snapshot"));
            }
            DataSource::CsiSnapshot => {
                self.report.info(&format!("claim {name:?} is provisioned from its CSI snapshot"));
            }
            // The list of these is an error of its own: it holds volumes of pods, too.
            DataSource::Repository => {}
            DataSource::Lost(why) => self.report.error(
                scope,
                format!("the data of claim {name:?} cannot be brought back: {why}; its volume is empty"),
            ),
            DataSource::Unsaved(why) => {
                self.report.warn(scope, format!("claim {name:?} comes back empty: {why}"));
            }
        }
        if let (false, Some(namespace), Some(record)) = (data.restores_volume(), claim.namespace, record) {
            self.plan.provisioned.lock().extend(Provisioned::of(namespace, name, record));
        }
    }

    /// What volumes were made of, and those whose data did not come back; where volumes are wanted at all.
    pub(super) fn volume_entries(&self) -> Vec<Value> {
        let mut entries = self.snapshots.restored().entries();
        if self.calls.is_dry_run() {
            // Their snapshots would only come into being.
            entries.extend(self.snapshots.restored().expected());
        }
        if self.restore.spec.restore_pvs == Some(false) {
            return entries;
        }
        let outcomes = self.report.volume_outcomes();
        let missing = self.plan.by_claim.iter().filter_map(|((namespace, name), planned)| {
            let PlannedVolume { volume, data, .. } = planned;
            let namespace = self.rules.target(namespace);
            outcomes.missing(PlannedClaim { namespace, name, volume, data }, &entries)
        });
        let missing: Vec<Value> = missing.collect();
        entries.extend(missing);
        entries.append(&mut self.plan.of_pods.lock());
        entries
    }

    /// Says of each volume that is restored, and whose data is in a repository of files, that it comes back empty.
    pub(super) fn report_repository_data(&self, selection: &Selection) -> Result<(), StoreError> {
        if self.saved.in_repository.is_empty() {
            return Ok(());
        }
        let [claims, pods] = [CLAIMS, PODS].map(|types| self.names(selection, types));
        let (claims, pods) = (claims?, pods?);
        for volume in &self.saved.in_repository {
            let RepositoryVolume { namespace, claim, mount } = volume;
            let named = |name: &String| (namespace.clone(), name.clone());
            let selected = match (claim, mount) {
                (Some(claim), _) => claims.contains(&named(claim)),
                (None, Some((pod, _))) => pods.contains(&named(pod)),
                (None, None) => true,
            };
            if selected {
                let target = self.rules.target(namespace);
                let entry = volume_data::not_restored_of_pod(target, volume, IN_REPOSITORY);
                self.plan.of_pods.lock().extend(entry);
                let scope = if namespace.is_empty() { Scope::Velero } else { Scope::Namespace(target) };
                self.report.error(
                    scope,
                    format!(
                        "the data of {volume} is not restored: Velero has saved it in a repository of files, which only its \
                         node agents read, so the volume is empty; restore it with a Velero server that uses this bucket"
                    ),
                );
            }
        }
        Ok(())
    }

    /// Namespace and name of the selected items of a type.
    fn names(
        &self,
        selection: &Selection,
        group_resource: &str,
    ) -> Result<BTreeSet<(String, String)>, StoreError> {
        let items = selection.items(self.contents, group_resource)?;
        let named = |item: &ItemRef| {
            let object = self.contents.object(item).ok()?;
            let name = json::text(&object, &["metadata"], "name")?.to_owned();
            Some((self.contents.namespace_of(item).unwrap_or_default().to_owned(), name))
        };
        Ok(items.iter().filter_map(named).collect())
    }
}
