//! One attempt to snapshot one volume: whether it is wanted, which plugin takes it, and its
//! outcome.

use std::{collections::BTreeMap, sync::Arc};

use backup_actions::{
    backup::{BackupVolumes, VolumeDecision},
    json::text,
};
use backup_core::{
    api::Backup,
    resource_policy::Volume,
    snapshot::{VolumeSnapshot, VolumeSnapshotSpec},
};
use backup_plugins::{error::PluginError, snapshotter::VolumeSnapshotter};
use backup_store::{StoreError, crash};
use kube::ResourceExt as _;
use serde_json::Value;

use crate::{job::step_journal::StepJournal, volumes::snapshot_locations::zone};

/// A VolumeSnapshotLocation, and the plugin with its settings.
pub(crate) struct SnapshotLocation {
    pub(crate) name: String,
    pub(crate) snapshotter: Arc<dyn VolumeSnapshotter>,
}

/// Asks plugins for snapshots. May be called for several volumes concurrently, as in Velero
/// (`pkg/backup/backup.go`, item block workers, v1.18): a plugin serves each call by itself.
pub(super) struct Snapshots {
    pub(super) locations: Vec<SnapshotLocation>,
    pub(super) journal: Arc<StepJournal<VolumeSnapshot>>,
    pub(super) volumes: Arc<BackupVolumes>,
}

pub(super) struct Attempt {
    pub(super) outcome: Outcome,
    /// Messages about errors.
    pub(super) problems: Vec<String>,
}

pub(super) enum Outcome {
    /// No snapshot is wanted, or none is possible; the reason.
    Skipped(String),
    /// No plugin knows the volume; the reason.
    Left(String),
    Taken(VolumeSnapshot),
    Failed(VolumeSnapshot),
    /// It is unknown whether the snapshot exists.
    Unknown(VolumeSnapshot),
}

impl Snapshots {
    /// Takes a snapshot of a PersistentVolume, if it is wanted and a plugin knows the volume.
    /// `claim` may be null. After an error of the journal no snapshot is begun, or the next attempt
    /// at the backup reports that its outcome is unknown.
    pub(super) async fn attempt(
        &self,
        volume: &Value,
        claim: &Value,
        backup: &Backup,
    ) -> Result<Attempt, StoreError> {
        let mut problems = Vec::new();
        let outcome = self.outcome(volume, claim, backup, &mut problems).await?;
        Ok(Attempt { outcome, problems })
    }

    async fn outcome(
        &self,
        volume: &Value,
        claim: &Value,
        backup: &Backup,
        problems: &mut Vec<String>,
    ) -> Result<Outcome, StoreError> {
        if let VolumeDecision::Skip(reason) = self.volumes.decide(claim, volume, backup) {
            return Ok(Outcome::Skipped(reason));
        }
        let name = text(volume, "/metadata/name").unwrap_or_default();
        let Some((location, id)) = self.find(volume, name, problems).await else {
            let names: Vec<_> = self
                .locations
                .iter()
                .map(|location| location.name.as_str())
                .collect();
            let kind = Volume::persistent(Some(volume), None).kind;
            let kind = if kind.is_empty() {
                String::new()
            } else {
                format!(" ({kind})")
            };
            let reason = format!(
                "it is not of a kind{kind} that the VolumeSnapshotLocations ({}) know",
                names.join(", ")
            );
            return Ok(Outcome::Left(reason));
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
        match location
            .snapshotter
            .volume_info(&spec.provider_volume_id, &spec.volume_az)
            .await
        {
            Ok((kind, iops)) => {
                spec.volume_type = kind;
                spec.volume_iops = iops;
            }
            Err(error) => {
                let problem = missing_data(name, &error.to_string());
                problems.push(problem.clone());
                return Ok(Outcome::Skipped(problem));
            }
        }
        self.snapshot(
            &*location.snapshotter,
            VolumeSnapshot::new(spec),
            backup,
            problems,
        )
        .await
    }

    /// Finds the first location whose plugin knows the volume, and the plugin's id of the volume.
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
    ) -> Result<Outcome, StoreError> {
        let id = &wanted.spec.provider_volume_id;
        let zone = &wanted.spec.volume_az;
        let mut tags: BTreeMap<String, String> = backup.labels().clone();
        tags.insert(
            "velero.io/backup".to_owned(),
            wanted.spec.backup_name.clone(),
        );
        tags.insert(
            "velero.io/pv".to_owned(),
            wanted.spec.persistent_volume_name.clone(),
        );
        self.journal.begin(&wanted).await?;
        crash::point("before-snapshot");
        let answer = snapshotter.snapshot(id, zone, tags).await;
        crash::point("after-snapshot");
        let outcome = match answer {
            Ok(id) => {
                let snapshot = wanted.completed(id);
                self.journal.end(&snapshot, ()).await?;
                Outcome::Taken(snapshot)
            }
            Err(error) if is_unknown(&error) => {
                // No end is recorded: an attempt that resumes this backup must not retry it either.
                problems.push(unknown_outcome(&wanted, &error.to_string()));
                Outcome::Unknown(wanted.failed())
            }
            Err(error) => {
                problems.push(missing_data(
                    &wanted.spec.persistent_volume_name,
                    &error.to_string(),
                ));
                let snapshot = wanted.failed();
                self.journal.end(&snapshot, ()).await?;
                Outcome::Failed(snapshot)
            }
        };
        crash::point("after-snapshot-recorded");
        Ok(outcome)
    }

    /// Deletes a snapshot that is in no backup, and notes that. The inner error says why it is
    /// left.
    pub(super) async fn remove(
        &self,
        snapshot: &VolumeSnapshot,
    ) -> Result<Result<(), String>, StoreError> {
        let location = self
            .locations
            .iter()
            .find(|location| location.name == snapshot.spec.location);
        let (Some(location), Some(id)) = (location, snapshot.usable()) else {
            return Ok(Ok(()));
        };
        if let Err(error) = location.snapshotter.delete(id).await {
            return Ok(Err(error.to_string()));
        }
        self.journal.end(&snapshot.clone().failed(), ()).await?;
        Ok(Ok(()))
    }
}

/// Whether the snapshot may exist in spite of the error.
fn is_unknown(error: &PluginError) -> bool {
    error.leaves_outcome_unknown() || matches!(error, PluginError::Nonsense { .. })
}

fn missing_data(volume: &str, reason: &str) -> String {
    format!("the data of PersistentVolume {volume} is not in this backup: {reason}")
}

pub(super) fn unknown_outcome(snapshot: &VolumeSnapshot, reason: &str) -> String {
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
