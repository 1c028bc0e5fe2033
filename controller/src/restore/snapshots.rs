//! Volumes that come back from snapshots which plugins have taken (Velero `pkg/restore/restore.go`,
//! `handlePVHasNativeSnapshot`, and `pv_restorer.go`, v1.18).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backup_actions::restore::{
    RestoreRules, RestoredVolumes, existing,
    json::{self, Object},
};
use backup_core::{names, snapshot::VolumeSnapshot};
use backup_runtime::backoff::Backoff;
use backup_store::{StoreError, crash};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    calls::{CallError, Calls},
    work::WorkError,
};
use crate::job::cancellation::StopReason;
use backup_plugins::{
    error::PluginError,
    snapshotter::{From, VolumeSnapshotter},
};

mod load;
mod noted;
#[cfg(test)]
pub mod tests;

pub use load::load;
use noted::Earlier;
pub use noted::Noted;

/// What a volume was called in the backup, if it is called otherwise now.
const ORIGINAL_NAME: &str = "velero.io/original-pv-name";
/// Between looks at a volume that is going away.
const STEPS: Backoff = Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(5) };

/// Who takes snapshots in each location; the error says why nobody does.
pub type Places = BTreeMap<String, Result<Arc<dyn VolumeSnapshotter>, String>>;

/// The snapshots of the backup that is restored.
pub struct Snapshots {
    by_volume: BTreeMap<String, VolumeSnapshot>,
    places: Places,
    /// Uid of the Restore.
    uid: String,
    noted: Noted,
    /// Volumes that have another name here, by the name that they have in the backup.
    renamed: Mutex<BTreeMap<String, String>>,
    restored: RestoredVolumes,
}

/// What the restore of a volume depends on.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// How names of namespaces change, and by what our objects are known.
    pub rules: &'a RestoreRules,
    /// `metadata.creationTimestamp` of the Restore.
    pub created: Option<&'a str>,
    /// How long a volume that is going away is waited for.
    pub patience: Duration,
}

impl Snapshots {
    /// Those that a volume can be made of; others are as if they had not been taken.
    pub fn new(all: Vec<VolumeSnapshot>, places: Places, uid: &str, noted: Noted) -> Self {
        let usable = all.into_iter().filter(|snapshot| snapshot.usable().is_some());
        let by_volume = usable.map(|one| (one.spec.persistent_volume_name.clone(), one)).collect();
        let restored = RestoredVolumes::default();
        Self { by_volume, places, uid: uid.to_owned(), noted, renamed: Mutex::default(), restored }
    }

    /// Whether there is one of this volume.
    pub fn has(&self, volume: &str) -> bool {
        self.by_volume.contains_key(volume)
    }

    /// What volumes were made of so far.
    pub fn restored(&self) -> &RestoredVolumes {
        &self.restored
    }

    /// Makes a volume from the snapshot of one in the backup, unless the volume is there; then it is left to be compared. What
    /// is to be created; the inner error is a sentence.
    pub async fn restore(
        &self,
        calls: &Calls,
        collection: &str,
        mut volume: Object,
        how: How<'_>,
    ) -> Result<Result<Object, String>, WorkError> {
        let name = json::text(&volume, &["metadata"], "name").unwrap_or_default().to_owned();
        let Some(snapshot) = self.by_volume.get(&name) else { return Ok(Ok(volume)) };
        let claimed_in = json::text(&volume, &["spec", "claimRef"], "namespace");
        let claimed_in = claimed_in.map(|namespace| how.rules.target(namespace).to_owned());
        let moved = claimed_in.as_deref() != json::text(&volume, &["spec", "claimRef"], "namespace");
        let made_before = matches!(self.noted.earlier(&name), Some(Earlier::Made(_)));
        let tell = |made: &Object| self.restored.native(made, claimed_in.as_deref(), &snapshot.info());
        match self.there(calls, collection, &name, how).await? {
            Ok(None) => {}
            Ok(Some(found)) if !moved || existing::is_ours(&found, how.rules, how.created) => {
                if made_before {
                    tell(&volume);
                }
                return Ok(Ok(volume));
            }
            // The one that is there stays with its own claim.
            Ok(Some(_)) => {
                let clone = names::derived("velero-clone", &name, &[&self.uid, &name]);
                self.rename(&mut volume, &name, &clone);
                match self.there(calls, collection, &clone, how).await? {
                    Ok(None) => {}
                    Ok(Some(_)) => {
                        if made_before {
                            tell(&volume);
                        }
                        return Ok(Ok(volume));
                    }
                    Err(reason) => return Ok(Err(reason)),
                }
            }
            Err(reason) => return Ok(Err(reason)),
        }
        let by = match self.places.get(&snapshot.spec.location) {
            Some(Ok(by)) => by,
            Some(Err(reason)) => return Ok(Err(reason.clone())),
            None => {
                return Ok(Err(format!("nobody serves VolumeSnapshotLocation {}", snapshot.spec.location)));
            }
        };
        calls.cancellation().check()?;
        let id = match self.make(&**by, snapshot).await.map_err(WorkError::Notes)? {
            Ok(id) => id,
            Err(reason) => return Ok(Err(reason)),
        };
        let renamed = json::text(&volume, &["metadata"], "name").unwrap_or_default().to_owned();
        let made = match by.set_volume_id(&Value::Object(volume), &id).await {
            Ok(Value::Object(made)) => Ok(made),
            Ok(_) => Err("the plugin made something of it that is no object".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let mut made = match made {
            Ok(made) => made,
            Err(reason) => {
                return Ok(Err(format!(
                    "volume {id}, which was made of its snapshot, is of no use: {reason}"
                )));
            }
        };
        // Plugins may rename what they are given.
        let given = json::text(&made, &["metadata"], "name").unwrap_or_default().to_owned();
        if given != renamed {
            self.rename(&mut made, &name, &given);
        }
        tell(&made);
        Ok(Ok(made))
    }

    /// Has a claim follow its volume to another name.
    pub fn follow(&self, claim: &mut Object) {
        let renamed = self.renamed.lock().unwrap_or_else(PoisonError::into_inner);
        let name = json::text(claim, &["spec"], "volumeName").and_then(|name| renamed.get(name));
        if let Some(name) = name.cloned() {
            json::set(claim, &["spec"], "volumeName", Value::from(name));
        }
    }

    fn rename(&self, volume: &mut Object, from: &str, to: &str) {
        json::set(volume, &["metadata"], "name", Value::from(to));
        json::set(volume, &["metadata", "annotations"], ORIGINAL_NAME, Value::from(from));
        let mut renamed = self.renamed.lock().unwrap_or_else(PoisonError::into_inner);
        renamed.insert(from.to_owned(), to.to_owned());
    }

    /// The volume of this name in the cluster; one that is going away is waited for. The inner error is a sentence.
    async fn there(
        &self,
        calls: &Calls,
        collection: &str,
        name: &str,
        how: How<'_>,
    ) -> Result<Result<Option<Object>, String>, StopReason> {
        let (started, mut looks) = (Instant::now(), 0);
        loop {
            let found = match calls.get(collection, name).await {
                Ok(found) => found,
                Err(CallError::Stopped(halt)) => return Err(halt),
                Err(error) => {
                    return Ok(Err(format!("whether it is in the cluster could not be read: {error}")));
                }
            };
            let Some(found) = found else { return Ok(Ok(None)) };
            if json::text(&found, &["metadata"], "deletionTimestamp").is_none() {
                return Ok(Ok(Some(found)));
            }
            if started.elapsed() >= how.patience {
                let reason = format!(
                    "one of this name has been going away for longer than {:?}: see its finalizers, and restore again",
                    how.patience
                );
                return Ok(Err(reason));
            }
            looks += 1;
            calls.cancellation().wait(STEPS.delay(looks)).await?;
        }
    }

    /// Makes a volume of a snapshot, unless an earlier run has; its id. The inner error is a sentence, the outer one keeps it
    /// from being made.
    async fn make(
        &self,
        by: &dyn VolumeSnapshotter,
        snapshot: &VolumeSnapshot,
    ) -> Result<Result<String, String>, StoreError> {
        let (spec, volume) = (&snapshot.spec, &snapshot.spec.persistent_volume_name);
        let id = snapshot.usable().unwrap_or_default();
        let open = |reason: &str| {
            format!(
                "{reason}; whether there is a new volume is not known: look in VolumeSnapshotLocation {} for one made of snapshot {id}, \
                 delete it, and restore again",
                spec.location
            )
        };
        match self.noted.earlier(volume) {
            Some(Earlier::Made(made)) => return Ok(Ok(made.clone())),
            Some(Earlier::Unknown) => {
                let reason =
                    "an earlier run of this restore was ended while it was made, so it is not made again";
                return Ok(Err(open(reason)));
            }
            None => {}
        }
        self.noted.begun(volume).await?;
        crash::point("before-volume");
        let from =
            From { snapshot: id, kind: &spec.volume_type, zone: &spec.volume_az, iops: spec.volume_iops };
        let made = by.create_volume(from).await;
        crash::point("after-volume");
        let made = match made {
            // Stays open: whoever takes this up must not try it again either.
            Err(error) if error.leaves_outcome_unknown() || matches!(error, PluginError::Nonsense { .. }) => {
                return Ok(Err(open(&error.to_string())));
            }
            made => made.map_err(|error| error.to_string()),
        };
        self.noted.ended(volume, made.as_deref().ok()).await?;
        crash::point("after-volume-recorded");
        Ok(made)
    }
}
