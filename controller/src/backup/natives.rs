//! Snapshots of volumes that plugins take for a backup: of which volumes, in which location, and what became of them (Velero
//! `pkg/backup/item_backupper.go`, `takePVSnapshot`, v1.18).

use std::sync::Arc;

use backup_actions::{
    backup::{BackupVolumes, ClaimVolume, VolumeDecision},
    json::text,
};
use backup_core::{
    api::Backup,
    snapshot::{VolumeSnapshot, VolumeSnapshotSpec},
};
use backup_store::{Scope, StoreError, crash};
use kube::ResourceExt as _;
use serde_json::Value;

use super::report::Report;
use crate::{
    context::Context,
    snapshots::{self, zone},
};
use backup_plugins::{PluginLog, error::PluginError, snapshotter::VolumeSnapshotter};

#[cfg(test)]
pub mod fake;
pub mod noted;
mod remove;

use noted::Noted;
pub use remove::remove;

/// A location, and who takes snapshots in it.
pub struct Place {
    /// Name of the VolumeSnapshotLocation.
    pub name: String,
    /// The plugin, with the settings of the location.
    pub by: Arc<dyn VolumeSnapshotter>,
}

/// The snapshots of one backup.
pub struct Natives {
    places: Vec<Place>,
    noted: Noted,
    /// Volumes of CSI drivers are the business of their own actions.
    csi: bool,
    volumes: Arc<BackupVolumes>,
    taken: Vec<VolumeSnapshot>,
}

/// Opens the locations of a backup. One that can't be used is an error of the backup; what plugins say goes into `log`.
///
/// # Errors
/// The API server could not be asked.
pub async fn open(
    ctx: &Context,
    backup: &Backup,
    noted: Noted,
    volumes: &Arc<BackupVolumes>,
    (report, log): (&mut Report, &PluginLog),
) -> Result<Natives, kube::Error> {
    let mut places = Vec::new();
    for name in &backup.spec.volume_snapshot_locations {
        match snapshots::open(ctx, name, Some(log)).await {
            Ok(by) => places.push(Place { name: name.clone(), by }),
            Err(snapshots::LocationError::Api { source, .. })
                if backup_runtime::errors::is_transient(&source) =>
            {
                return Err(source);
            }
            Err(error) => report.error(Scope::Velero, format!("no snapshots are taken there: {error}")),
        }
    }
    Ok(Natives::new(places, noted, ctx.args.csi(), Arc::clone(volumes)))
}

impl Natives {
    /// Takes none yet.
    pub fn new(places: Vec<Place>, noted: Noted, csi: bool, volumes: Arc<BackupVolumes>) -> Self {
        Self { places, noted, csi, volumes, taken: Vec::new() }
    }

    /// Whether a snapshot of this PersistentVolume was asked for.
    pub fn has(&self, volume: &str) -> bool {
        self.taken.iter().any(|one| one.spec.persistent_volume_name == volume)
    }

    /// Takes a snapshot of a PersistentVolume, if that is wanted and somebody can, and notes what became of it. `claim` may be
    /// null. What went wrong, as sentences.
    ///
    /// # Errors
    /// Of the notes: then no snapshot is begun, or whoever comes next has to tell what became of it.
    pub async fn take(
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
        if let Some(earlier) = self.noted.earlier.remove(name) {
            return Ok(self.again(seen, earlier));
        }
        if let VolumeDecision::Skip(reason) = self.volumes.decide(claim, volume, backup) {
            self.volumes.skipped(seen, &reason);
            return Ok(Vec::new());
        }
        let (found, mut problems) = self.find(volume, name).await;
        let Some((place, id)) = found else {
            let names: Vec<_> = self.places.iter().map(|place| place.name.as_str()).collect();
            let reason =
                format!("it is not of a kind that the VolumeSnapshotLocations ({}) know", names.join(", "));
            self.volumes.left(seen, &reason);
            return Ok(problems);
        };
        let (location, by) = (place.name.clone(), Arc::clone(&place.by));
        let mut spec = VolumeSnapshotSpec {
            backup_name: backup.name_any(),
            backup_uid: backup.uid().unwrap_or_default(),
            location,
            persistent_volume_name: name.to_owned(),
            provider_volume_id: id,
            volume_az: zone::of(volume),
            ..VolumeSnapshotSpec::default()
        };
        match by.volume_info(&spec.provider_volume_id, &spec.volume_az).await {
            Ok((kind, iops)) => (spec.volume_type, spec.volume_iops) = (kind, iops),
            Err(error) => {
                let problem = problem(name, &error.to_string());
                self.volumes.skipped(seen, &problem);
                problems.push(problem);
                return Ok(problems);
            }
        }
        let snapshot = self.snapshot(&*by, VolumeSnapshot::new(spec), backup, &mut problems).await?;
        self.keep(seen, snapshot);
        Ok(problems)
    }

    /// Whether there is nobody to take snapshots, and never was.
    fn is_idle(&self) -> bool {
        self.places.is_empty() && self.noted.earlier.is_empty()
    }

    /// The first location whose plugin knows the volume, and what it calls it there.
    async fn find(&self, volume: &Value, name: &str) -> (Option<(&Place, String)>, Vec<String>) {
        let mut problems = Vec::new();
        for place in &self.places {
            match place.by.volume_id(volume).await {
                Ok(Some(id)) => return (Some((place, id)), problems),
                Ok(None) => {}
                Err(error) => problems.push(problem(name, &error.to_string())),
            }
        }
        (None, problems)
    }

    async fn snapshot(
        &self,
        by: &dyn VolumeSnapshotter,
        wanted: VolumeSnapshot,
        backup: &Backup,
        problems: &mut Vec<String>,
    ) -> Result<VolumeSnapshot, StoreError> {
        let (id, zone) = (wanted.spec.provider_volume_id.clone(), wanted.spec.volume_az.clone());
        let mut tags = backup.labels().clone();
        tags.insert("velero.io/backup".to_owned(), wanted.spec.backup_name.clone());
        tags.insert("velero.io/pv".to_owned(), wanted.spec.persistent_volume_name.clone());
        self.noted.begun(&wanted).await?;
        crash::point("before-snapshot");
        let answer = by.snapshot(&id, &zone, tags).await;
        crash::point("after-snapshot");
        let snapshot = match answer {
            Ok(id) => {
                let snapshot = wanted.completed(id);
                self.noted.ended(&snapshot).await?;
                snapshot
            }
            Err(error) if is_open(&error) => {
                // Not noted as ended: whoever takes this backup up must not try it again either.
                problems.push(unknown(&wanted, &error.to_string()));
                wanted.failed()
            }
            Err(error) => {
                problems.push(problem(&wanted.spec.persistent_volume_name, &error.to_string()));
                let snapshot = wanted.failed();
                self.noted.ended(&snapshot).await?;
                snapshot
            }
        };
        crash::point("after-snapshot-recorded");
        Ok(snapshot)
    }

    /// What an earlier try of the backup has begun.
    fn again(&mut self, seen: ClaimVolume, earlier: VolumeSnapshot) -> Vec<String> {
        let (snapshot, problems) = judged(earlier);
        self.keep(seen, snapshot);
        problems
    }

    fn keep(&mut self, seen: ClaimVolume, snapshot: VolumeSnapshot) {
        self.volumes.native(seen, snapshot.clone());
        self.taken.push(snapshot);
    }

    /// All snapshots, and what there is to tell of those that an earlier try has begun and whose volumes were not met again: they are
    /// recorded, so that they are deleted with the backup.
    pub fn end(mut self) -> (Vec<VolumeSnapshot>, Vec<String>) {
        let mut problems = Vec::new();
        for earlier in std::mem::take(&mut self.noted.earlier).into_values() {
            let (snapshot, mut found) = judged(earlier);
            if found.is_empty() {
                found.push(format!(
                    "PersistentVolume {}, which an earlier try of this backup has snapshotted, is not in this backup any more; its \
                     snapshot {} is deleted with the backup",
                    snapshot.spec.persistent_volume_name, snapshot.status.provider_snapshot_id
                ));
            }
            problems.append(&mut found);
            self.taken.push(snapshot);
        }
        (self.taken, problems)
    }
}

/// What an earlier try has begun: there, or nobody knows.
fn judged(earlier: VolumeSnapshot) -> (VolumeSnapshot, Vec<String>) {
    if earlier.usable().is_some() {
        return (earlier, Vec::new());
    }
    let reason = "it was asked for by an earlier try of this backup that was ended before there was an answer, so it is not asked \
                  for again";
    let problem = unknown(&earlier, reason);
    (earlier.failed(), vec![problem])
}

/// Whether there may be a snapshot all the same.
fn is_open(error: &PluginError) -> bool {
    error.leaves_outcome_unknown() || matches!(error, PluginError::Nonsense { .. })
}

fn problem(volume: &str, reason: &str) -> String {
    format!("the data of PersistentVolume {volume} is not in this backup: {reason}")
}

fn unknown(snapshot: &VolumeSnapshot, reason: &str) -> String {
    let spec = &snapshot.spec;
    problem(
        &spec.persistent_volume_name,
        &format!(
            "{reason}; whether there is a snapshot is not known: look in VolumeSnapshotLocation {} for one of {} with the tag \
             velero.io/backup={}, and delete it",
            spec.location, spec.provider_volume_id, spec.backup_name
        ),
    )
}

#[cfg(test)]
mod tests;
