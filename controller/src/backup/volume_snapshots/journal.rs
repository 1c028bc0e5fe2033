//! The journal of snapshots, one entry before a plugin is asked and one when it has answered: after a crash nothing is taken
//! twice, and what was begun and never ended is reported, as its outcome is unknown.
//!
//! The tasks that take snapshots belong to it: a collection that ends early leaves them behind, and what they were at is noted
//! before anything else is done with the backup.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::snapshot::{SnapshotPhase, VolumeSnapshot};
use backup_store::StoreError;
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::job::journal::{JournalWriter, undecodable};

const BEGUN: &str = "snapshotBegun";
const ENDED: &str = "snapshotEnded";

#[derive(Clone)]
pub(crate) struct SnapshotJournal {
    pub(super) notes: SnapshotNotes,
    /// What earlier attempts have begun, as [`prior_snapshots`] reads it.
    pub(super) prior: BTreeMap<String, VolumeSnapshot>,
    /// Those who take snapshots; they end with the last clone.
    pub(super) tasks: Arc<Mutex<JoinSet<()>>>,
    /// They begin no other one.
    pub(super) stop: CancellationToken,
}

impl SnapshotJournal {
    /// Goes on from these entries; those about other things are passed over. An entry that cannot be decoded is an error: then it
    /// is not known what was taken.
    pub(crate) fn take_over(writer: Arc<dyn JournalWriter>, entries: &[Value]) -> Result<Self, StoreError> {
        let prior = prior_snapshots(entries).map_err(|error| undecodable("snapshots of volumes", &error))?;
        Ok(Self {
            notes: SnapshotNotes(writer),
            prior,
            tasks: Arc::default(),
            stop: CancellationToken::new(),
        })
    }

    /// Waits until what plugins were asked for is noted. No other snapshot is begun.
    pub(crate) async fn settle(&self) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}

/// Where a task notes what it does.
#[derive(Clone)]
pub(super) struct SnapshotNotes(Arc<dyn JournalWriter>);

impl SnapshotNotes {
    pub(super) async fn begin(&self, snapshot: &VolumeSnapshot) -> Result<(), StoreError> {
        self.0.append(json!({ BEGUN: snapshot })).await
    }

    pub(super) async fn end(&self, snapshot: &VolumeSnapshot) -> Result<(), StoreError> {
        self.0.append(json!({ ENDED: snapshot })).await
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
