//! Volumes that are restored from snapshots which plugins have taken (Velero
//! `pkg/restore/restore.go`, `handlePVHasNativeSnapshot`, and `pv_restorer.go`, v1.18).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use backup_actions::restore::{
    RestoredVolumes, existing,
    json::{self, Object},
    volume,
};
use backup_core::{
    api::{Backup, Restore},
    names,
    snapshot::VolumeSnapshot,
    volume_info::NativeSnapshotInfo,
};
use backup_plugins::{
    PluginLog,
    error::PluginError,
    snapshotter::{From as FromSnapshot, VolumeSnapshotter},
};
use backup_store::{Location, StoreError, crash};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::Value;

use super::{apply::Policy, calls::Calls};
use crate::{
    job::{
        cancellation::{NotSent, StopReason},
        worker::WorkerError,
    },
    volumes::snapshot_locations::{SnapshotLocationError, SnapshotLocations},
};

mod journal;
#[cfg(test)]
pub(super) mod tests;

use journal::PriorVolume;
pub(super) use journal::VolumeJournal;

/// Annotation with the name of a volume in the backup, if it was renamed.
const ORIGINAL_NAME: &str = "velero.io/original-pv-name";

/// The plugin of each location; the error says why there is none.
pub(super) type Snapshotters = BTreeMap<String, Result<Arc<dyn VolumeSnapshotter>, String>>;

/// The snapshots of the backup that is restored.
pub(super) struct Snapshots {
    by_volume: BTreeMap<String, VolumeSnapshot>,
    /// Volumes that the backup failed to snapshot.
    pub(super) failed: Vec<String>,
    snapshotters: Snapshotters,
    uid: String,
    journal: VolumeJournal,
    /// New names of renamed volumes, by their names in the backup.
    renamed: Mutex<BTreeMap<String, String>>,
    restored: RestoredVolumes,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    #[error(transparent)]
    Stopped(#[from] StopReason),
    /// The journal cannot be written, so the volume is not created.
    #[error(transparent)]
    Journal(StoreError),
    /// An error of this volume only.
    #[error("{0}")]
    Failed(String),
}

impl From<NotSent> for VolumeError {
    fn from(error: NotSent) -> Self {
        match error {
            NotSent::Stopped(reason) => Self::Stopped(reason),
            NotSent::Unconfirmed => Self::Failed(error.to_string()),
        }
    }
}

impl Snapshots {
    /// Reads the snapshots of a backup, and opens their locations. Messages of plugins go into
    /// `log`.
    pub(super) async fn load(
        snapshot_locations: &SnapshotLocations,
        store: &Location,
        backup: &Backup,
        restore: &Restore,
        journal: VolumeJournal,
        log: &PluginLog,
    ) -> Result<Self, WorkerError> {
        let wanted = restore.spec.restore_pvs != Some(false);
        let name = backup.name_any();
        let values = if wanted {
            store.read_volume_snapshots(&name).await?
        } else {
            Some(Vec::new())
        };
        let values = if let Some(values) = values {
            values
        } else if backup.status.volume_snapshots_attempted == 0 {
            Vec::new()
        } else {
            return Err(refused(format!(
                "{name}-volumesnapshots.json.gz is not there, which names its snapshots of volumes; put it back, or restore \
                 without volumes (spec.restorePVs: false)"
            )));
        };
        let all = values
            .into_iter()
            .map(serde_json::from_value)
            .collect::<Result<Vec<VolumeSnapshot>, _>>();
        let all = all.map_err(|error| {
            refused(format!(
                "a snapshot that is recorded for it cannot be read: {error}"
            ))
        })?;
        if let Some(other) = all
            .iter()
            .map(|one| &one.spec.backup_name)
            .find(|of| !of.is_empty() && **of != name)
        {
            return Err(refused(format!(
                "{name}-volumesnapshots.json.gz is that of backup {other:?}; put back its own, or restore without volumes \
                 (spec.restorePVs: false)"
            )));
        }
        let usable = all.iter().filter(|snapshot| snapshot.usable().is_some());
        let locations: BTreeSet<&str> = usable.map(|one| one.spec.location.as_str()).collect();
        let mut snapshotters = Snapshotters::new();
        for location in locations {
            let snapshotter = snapshot_locations.open(location, Some(log)).await;
            if let Err(error @ SnapshotLocationError::Api { .. }) = &snapshotter
                && error.is_transient()
            {
                return Err(WorkerError::Blocked {
                    reason: error.to_string(),
                    retryable: true,
                });
            }
            let snapshotter = snapshotter.map_err(|error| error.to_string());
            snapshotters.insert(location.to_owned(), snapshotter);
        }
        Ok(Self::new(
            all,
            snapshotters,
            &restore.uid().unwrap_or_default(),
            journal,
        ))
    }

    fn new(
        all: Vec<VolumeSnapshot>,
        snapshotters: Snapshotters,
        uid: &str,
        journal: VolumeJournal,
    ) -> Self {
        let (usable, failed): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|snapshot| snapshot.usable().is_some());
        Self {
            by_volume: usable
                .into_iter()
                .map(|one| (one.spec.persistent_volume_name.clone(), one))
                .collect(),
            failed: failed
                .into_iter()
                .map(|one| one.spec.persistent_volume_name)
                .collect(),
            snapshotters,
            uid: uid.to_owned(),
            journal,
            renamed: Mutex::default(),
            restored: RestoredVolumes::default(),
        }
    }

    /// The volumes that have a usable snapshot.
    pub(super) fn volumes(&self) -> impl Iterator<Item = &str> {
        self.by_volume.keys().map(String::as_str)
    }

    /// The sources of the volumes created so far.
    pub(super) fn restored(&self) -> &RestoredVolumes {
        &self.restored
    }

    /// Creates a volume from its snapshot in the backup, unless the volume exists; then it is
    /// compared later. Returns the object to create.
    pub(super) async fn restore(
        &self,
        calls: &Calls,
        collection: &str,
        mut volume: Object,
        policy: Policy<'_>,
    ) -> Result<Object, VolumeError> {
        let name = json::text(&volume, &["metadata"], "name")
            .unwrap_or_default()
            .to_owned();
        let Some(snapshot) = self.by_volume.get(&name) else {
            return Ok(volume);
        };
        let source = json::text(&volume, &["spec", "claimRef"], "namespace");
        let namespace = source.map(|source| policy.rules.target(source).to_owned());
        let moved = namespace.as_deref() != source;
        let mut found = self.find(calls, collection, &name).await?;
        let claim = json::text(&volume, &["spec", "claimRef"], "name");
        let claim = claim
            .zip(namespace.as_deref())
            .map(|(claim, namespace)| format!("{namespace}/{claim}"));
        // A volume of another origin stays with its claim, or available to the user who has kept
        // it.
        let is_taken = found.as_ref().is_some_and(|found| {
            !policy.is_ours(found)
                && (moved
                    || volume::is_released(found)
                    || volume::holder(found).is_some_and(|holder| Some(holder) != claim))
        });
        if is_taken {
            let clone = names::derived("velero-clone", &name, &[&self.uid, &name]);
            self.rename(&mut volume, &name, &clone);
            found = self.find(calls, collection, &clone).await?;
        }
        if found.is_some() {
            if matches!(self.journal.prior(&name), Some(PriorVolume::Created(_))) {
                self.record(&volume, namespace.as_deref(), snapshot);
            }
            return Ok(volume);
        }
        if calls.is_dry_run() {
            self.record(&volume, namespace.as_deref(), snapshot);
            return Ok(volume);
        }
        let location = &snapshot.spec.location;
        let snapshotter = match self.snapshotters.get(location) {
            Some(Ok(snapshotter)) => snapshotter,
            Some(Err(reason)) => return Err(VolumeError::Failed(reason.clone())),
            None => {
                return Err(VolumeError::Failed(format!(
                    "no plugin serves VolumeSnapshotLocation {location}"
                )));
            }
        };
        calls.cancellation().may_write(calls.patience()).await?;
        let id = self.create(&**snapshotter, snapshot).await?;
        let wanted = json::text(&volume, &["metadata"], "name")
            .unwrap_or_default()
            .to_owned();
        let changed = match snapshotter.set_volume_id(&Value::Object(volume), &id).await {
            Ok(Value::Object(changed)) => Ok(changed),
            Ok(_) => Err("the plugin made something of it that is no object".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let mut created = changed.map_err(|reason| {
            VolumeError::Failed(format!(
                "volume {id}, which was made of its snapshot, is of no use: {reason}"
            ))
        })?;
        // Plugins may rename the volume.
        let given = json::text(&created, &["metadata"], "name")
            .unwrap_or_default()
            .to_owned();
        if given != wanted {
            self.rename(&mut created, &name, &given);
        }
        self.record(&created, namespace.as_deref(), snapshot);
        Ok(created)
    }

    /// Records the source of a created volume, and the namespace of its claim in the cluster.
    fn record(&self, created: &Object, namespace: Option<&str>, snapshot: &VolumeSnapshot) {
        self.restored
            .native(created, namespace, NativeSnapshotInfo::of(snapshot));
    }

    /// Updates a claim whose volume was renamed.
    pub(super) fn follow(&self, claim: &mut Object) {
        let renamed = self.renamed.lock();
        let name = json::text(claim, &["spec"], "volumeName").and_then(|name| renamed.get(name));
        if let Some(name) = name.cloned() {
            json::set(claim, &["spec"], "volumeName", Value::from(name));
        }
    }

    fn rename(&self, volume: &mut Object, from: &str, to: &str) {
        json::set(volume, &["metadata"], "name", Value::from(to));
        json::set(
            volume,
            &["metadata", "annotations"],
            ORIGINAL_NAME,
            Value::from(from),
        );
        self.renamed.lock().insert(from.to_owned(), to.to_owned());
    }

    /// The volume of this name in the cluster; waits for one that is being deleted.
    async fn find(
        &self,
        calls: &Calls,
        collection: &str,
        name: &str,
    ) -> Result<Option<Object>, VolumeError> {
        let found = match calls
            .until_gone(collection, name, existing::is_volume_going)
            .await
        {
            Ok(found) => found,
            Err(error) => {
                let why = error.unless_stopped()?;
                return Err(VolumeError::Failed(format!(
                    "whether it is in the cluster could not be read: {why}"
                )));
            }
        };
        if found.as_ref().is_some_and(existing::is_going) {
            return Err(VolumeError::Failed(
                "the old one is still being deleted; its finalizers say what holds it: restore again once it is gone"
                    .to_owned(),
            ));
        }
        Ok(found)
    }

    /// Creates a volume from a snapshot, unless an earlier run has, and returns its id.
    async fn create(
        &self,
        snapshotter: &dyn VolumeSnapshotter,
        snapshot: &VolumeSnapshot,
    ) -> Result<String, VolumeError> {
        let spec = &snapshot.spec;
        let volume = &spec.persistent_volume_name;
        match self.journal.prior(volume) {
            Some(PriorVolume::Created(id)) => return Ok(id),
            Some(PriorVolume::Unknown) => {
                return Err(unknown_outcome(
                    snapshot,
                    "an earlier run of this restore was ended while it was made, so it is not made again",
                ));
            }
            None => {}
        }
        self.journal
            .begin(volume)
            .await
            .map_err(VolumeError::Journal)?;
        crash::point("before-volume");
        let from = FromSnapshot {
            snapshot: snapshot.usable().unwrap_or_default(),
            kind: &spec.volume_type,
            zone: &spec.volume_az,
            iops: spec.volume_iops,
        };
        let created = snapshotter.create_volume(from).await;
        crash::point("after-volume");
        let created = match created {
            // No end is recorded: a run that resumes this restore must not retry it either.
            Err(error)
                if error.leaves_outcome_unknown()
                    || matches!(error, PluginError::Nonsense { .. }) =>
            {
                return Err(unknown_outcome(snapshot, &error.to_string()));
            }
            created => created.map_err(|error| VolumeError::Failed(error.to_string())),
        };
        self.journal
            .end(volume, created.as_deref().ok())
            .await
            .map_err(VolumeError::Journal)?;
        crash::point("after-volume-recorded");
        created
    }
}

fn refused(reason: String) -> WorkerError {
    WorkerError::Blocked {
        reason,
        retryable: false,
    }
}

/// The error for a volume that may have been created from a snapshot.
fn unknown_outcome(snapshot: &VolumeSnapshot, reason: &str) -> VolumeError {
    let location = &snapshot.spec.location;
    let id = snapshot.usable().unwrap_or_default();
    VolumeError::Failed(format!(
        "{reason}; whether there is a new volume is not known: look in VolumeSnapshotLocation {location} for one made of snapshot {id}, \
         delete it, and restore again"
    ))
}
