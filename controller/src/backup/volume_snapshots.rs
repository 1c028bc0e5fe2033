//! Snapshots of volumes that plugins take for a backup: of which volumes, in which location, and what became of them (Velero
//! `pkg/backup/item_backupper.go`, `takePVSnapshot`, v1.18).

use std::{collections::BTreeMap, sync::Arc};

use backup_actions::{
    backup::{BackupVolumes, ClaimVolume, VolumeDecision},
    json::text,
};
use backup_core::{
    api::Backup,
    snapshot::{SnapshotPhase, VolumeSnapshot, VolumeSnapshotSpec},
};
use backup_plugins::{PluginLog, error::PluginError, snapshotter::VolumeSnapshotter};
use backup_runtime::errors::is_transient;
use backup_store::{Scope, StoreError, crash};
use kube::ResourceExt as _;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::report::Report;
use crate::{
    backup::Backups,
    job::journal::{JournalWriter, undecodable},
    snapshot_locations::{SnapshotLocationError, zone},
};

#[cfg(test)]
pub(crate) mod fake;

const BEGUN: &str = "snapshotBegun";
const ENDED: &str = "snapshotEnded";

/// A VolumeSnapshotLocation, and the plugin with its settings.
pub(crate) struct SnapshotLocation {
    pub(crate) name: String,
    pub(crate) snapshotter: Arc<dyn VolumeSnapshotter>,
}

pub(crate) struct VolumeSnapshots {
    locations: Vec<SnapshotLocation>,
    journal: SnapshotJournal,
    /// Volumes of CSI drivers have actions of their own.
    csi: bool,
    volumes: Arc<BackupVolumes>,
    taken: Vec<VolumeSnapshot>,
}

impl VolumeSnapshots {
    /// Opens the locations of a backup. One that cannot be used is an error of the backup.
    pub(crate) async fn open(
        kind: &Backups,
        backup: &Backup,
        journal: SnapshotJournal,
        volumes: &Arc<BackupVolumes>,
        report: &mut Report,
        log: &PluginLog,
    ) -> Result<Self, kube::Error> {
        let mut locations = Vec::new();
        for name in &backup.spec.volume_snapshot_locations {
            match kind.snapshot_locations.open(name, Some(log)).await {
                Ok(snapshotter) => locations.push(SnapshotLocation { name: name.clone(), snapshotter }),
                Err(SnapshotLocationError::Api { source, .. }) if is_transient(&source) => {
                    return Err(source);
                }
                Err(error) => report.error(Scope::Velero, format!("no snapshots are taken there: {error}")),
            }
        }
        Ok(Self::new(locations, journal, kind.settings.csi, Arc::clone(volumes)))
    }

    pub(crate) fn new(
        locations: Vec<SnapshotLocation>,
        journal: SnapshotJournal,
        csi: bool,
        volumes: Arc<BackupVolumes>,
    ) -> Self {
        Self { locations, journal, csi, volumes, taken: Vec::new() }
    }

    /// Whether a snapshot of this PersistentVolume was asked for.
    pub(crate) fn has(&self, volume: &str) -> bool {
        self.taken.iter().any(|one| one.spec.persistent_volume_name == volume)
    }

    /// Takes a snapshot of a PersistentVolume, if it is wanted and a plugin knows the volume. `claim` may be null. What went
    /// wrong, as sentences. After an error of the journal no snapshot is begun, or the next attempt reports that its outcome is
    /// unknown.
    pub(crate) async fn take(
        &mut self,
        volume: &Value,
        claim: &Value,
        backup: &Backup,
    ) -> Result<Vec<String>, StoreError> {
        let csi = self.csi && text(volume, "/spec/csi/driver").is_some();
        let Some(name) = text(volume, "/metadata/name").filter(|_| !csi && !self.is_idle()) else {
            return Ok(Vec::new());
        };
        let seen = ClaimVolume::of_volume(volume);
        let mut problems = Vec::new();
        if let Some(prior) = self.journal.prior.remove(name) {
            self.keep(seen, take_over(prior, &mut problems));
            return Ok(problems);
        }
        if let VolumeDecision::Skip(reason) = self.volumes.decide(claim, volume, backup) {
            self.volumes.skipped(seen, &reason);
            return Ok(problems);
        }
        let Some((location, id)) = self.find(volume, name, &mut problems).await else {
            let names: Vec<_> = self.locations.iter().map(|location| location.name.as_str()).collect();
            let reason =
                format!("it is not of a kind that the VolumeSnapshotLocations ({}) know", names.join(", "));
            self.volumes.left(seen, &reason);
            return Ok(problems);
        };
        let mut spec = VolumeSnapshotSpec {
            backup_name: backup.name_any(),
            backup_uid: backup.uid().unwrap_or_default(),
            location: location.name.clone(),
            persistent_volume_name: name.to_owned(),
            provider_volume_id: id,
            volume_az: zone::of(volume),
            ..VolumeSnapshotSpec::default()
        };
        match location.snapshotter.volume_info(&spec.provider_volume_id, &spec.volume_az).await {
            Ok((kind, iops)) => (spec.volume_type, spec.volume_iops) = (kind, iops),
            Err(error) => {
                let problem = missing_data(name, &error.to_string());
                self.volumes.skipped(seen, &problem);
                problems.push(problem);
                return Ok(problems);
            }
        }
        let snapshotter = &*location.snapshotter;
        let wanted = VolumeSnapshot::new(spec);
        let snapshot = self.snapshot(snapshotter, wanted, backup, &mut problems).await?;
        self.keep(seen, snapshot);
        Ok(problems)
    }

    /// Whether no plugin takes snapshots, and none ever did.
    fn is_idle(&self) -> bool {
        self.locations.is_empty() && self.journal.prior.is_empty()
    }

    /// Finds the first location whose plugin knows the volume, and the id by which it does.
    async fn find(
        &self,
        volume: &Value,
        name: &str,
        problems: &mut Vec<String>,
    ) -> Option<(&SnapshotLocation, String)> {
        for location in &self.locations {
            match location.snapshotter.volume_id(volume).await {
                Ok(Some(id)) => return Some((location, id)),
                Ok(None) => {}
                Err(error) => problems.push(missing_data(name, &error.to_string())),
            }
        }
        None
    }

    async fn snapshot(
        &self,
        snapshotter: &dyn VolumeSnapshotter,
        wanted: VolumeSnapshot,
        backup: &Backup,
        problems: &mut Vec<String>,
    ) -> Result<VolumeSnapshot, StoreError> {
        let (id, zone) = (&wanted.spec.provider_volume_id, &wanted.spec.volume_az);
        let mut tags = backup.labels().clone();
        tags.insert("velero.io/backup".to_owned(), wanted.spec.backup_name.clone());
        tags.insert("velero.io/pv".to_owned(), wanted.spec.persistent_volume_name.clone());
        self.journal.begin(&wanted).await?;
        crash::point("before-snapshot");
        let answer = snapshotter.snapshot(id, zone, tags).await;
        crash::point("after-snapshot");
        let snapshot = match answer {
            // Not ended in the journal: an attempt that takes this backup over must not try it again either.
            Err(error) if is_unknown(&error) => {
                problems.push(unknown_outcome(&wanted, &error.to_string()));
                wanted.failed()
            }
            answer => {
                let snapshot = match answer {
                    Ok(id) => wanted.completed(id),
                    Err(error) => {
                        problems.push(missing_data(&wanted.spec.persistent_volume_name, &error.to_string()));
                        wanted.failed()
                    }
                };
                self.journal.end(&snapshot).await?;
                snapshot
            }
        };
        crash::point("after-snapshot-recorded");
        Ok(snapshot)
    }

    fn keep(&mut self, seen: ClaimVolume, snapshot: VolumeSnapshot) {
        self.volumes.native(seen, snapshot.clone());
        self.taken.push(snapshot);
    }

    /// All snapshots, also those that an earlier attempt has begun of volumes that are gone: they are deleted with the
    /// backup. And what went wrong, as sentences.
    pub(crate) fn finish(mut self) -> (Vec<VolumeSnapshot>, Vec<String>) {
        let mut problems = Vec::new();
        for prior in std::mem::take(&mut self.journal.prior).into_values() {
            let known = problems.len();
            let snapshot = take_over(prior, &mut problems);
            if problems.len() == known {
                problems.push(format!(
                    "PersistentVolume {}, which an earlier try of this backup has snapshotted, is not in this backup any more; its \
                     snapshot {} is deleted with the backup",
                    snapshot.spec.persistent_volume_name, snapshot.status.provider_snapshot_id
                ));
            }
            self.taken.push(snapshot);
        }
        (self.taken, problems)
    }
}

/// What an earlier attempt has begun: it exists, or its outcome is unknown.
fn take_over(prior: VolumeSnapshot, problems: &mut Vec<String>) -> VolumeSnapshot {
    if prior.usable().is_some() {
        return prior;
    }
    let reason = "it was asked for by an earlier try of this backup that was ended before there was an answer, so it is not asked \
                  for again";
    problems.push(unknown_outcome(&prior, reason));
    prior.failed()
}

/// Whether there may be a snapshot all the same.
fn is_unknown(error: &PluginError) -> bool {
    error.leaves_outcome_unknown() || matches!(error, PluginError::Nonsense { .. })
}

fn missing_data(volume: &str, reason: &str) -> String {
    format!("the data of PersistentVolume {volume} is not in this backup: {reason}")
}

fn unknown_outcome(snapshot: &VolumeSnapshot, reason: &str) -> String {
    let spec = &snapshot.spec;
    missing_data(
        &spec.persistent_volume_name,
        &format!(
            "{reason}; whether there is a snapshot is not known: look in VolumeSnapshotLocation {} for one of {} with the tag \
             velero.io/backup={}, and delete it",
            spec.location, spec.provider_volume_id, spec.backup_name
        ),
    )
}

/// The journal of snapshots, one entry before a plugin is asked and one when it has answered: after a crash nothing is taken
/// twice, and what was begun and never ended is reported, as its outcome is unknown.
#[derive(Clone)]
pub(crate) struct SnapshotJournal {
    writer: Arc<dyn JournalWriter>,
    /// What earlier attempts have begun, as [`prior_snapshots`] reads it.
    prior: BTreeMap<String, VolumeSnapshot>,
}

impl SnapshotJournal {
    /// Goes on from these entries; those about other things are passed over. An entry that cannot be decoded is an error: then it
    /// is not known what was taken.
    pub(crate) fn take_over(writer: Arc<dyn JournalWriter>, entries: &[Value]) -> Result<Self, StoreError> {
        let prior = prior_snapshots(entries).map_err(|error| undecodable("snapshots of volumes", &error))?;
        Ok(Self { writer, prior })
    }

    async fn begin(&self, snapshot: &VolumeSnapshot) -> Result<(), StoreError> {
        self.writer.append(json!({ BEGUN: snapshot })).await
    }

    async fn end(&self, snapshot: &VolumeSnapshot) -> Result<(), StoreError> {
        self.writer.append(json!({ ENDED: snapshot })).await
    }
}

/// Snapshots that were begun and are not known to have failed, by the names of their PersistentVolumes. The outcome of one that is
/// New is unknown.
pub(crate) fn prior_snapshots(
    entries: &[Value],
) -> Result<BTreeMap<String, VolumeSnapshot>, serde_json::Error> {
    let mut all = BTreeMap::new();
    for entry in entries {
        let Some(snapshot) = entry.get(BEGUN).or_else(|| entry.get(ENDED)) else { continue };
        let snapshot = VolumeSnapshot::deserialize(snapshot)?;
        let volume = snapshot.spec.persistent_volume_name.clone();
        if snapshot.status.phase == SnapshotPhase::Failed {
            all.remove(&volume);
        } else {
            all.insert(volume, snapshot);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
