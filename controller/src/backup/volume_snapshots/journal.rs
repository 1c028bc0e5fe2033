//! The journal of snapshots, with one entry before a plugin is called and one after its answer:
//! after a crash no snapshot is taken twice, and snapshots without an end are reported, as their
//! outcome is unknown.
//!
//! It owns the tasks that take snapshots: a collection that ends early leaves them running, and
//! their outcomes are noted before anything else is done with the backup.

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
    /// Snapshots that earlier attempts have begun, as [`prior_snapshots`] reads them.
    pub(super) prior: BTreeMap<String, VolumeSnapshot>,
    /// Tasks that take snapshots; they are aborted with the last clone.
    pub(super) tasks: Arc<Mutex<JoinSet<()>>>,
    /// Cancelled when they must begin no other snapshot.
    pub(super) stop: CancellationToken,
}

impl SnapshotJournal {
    /// Loads these entries, and ignores entries that are not about snapshots. Fails if an entry
    /// cannot be decoded: then it is unknown which were taken.
    pub(crate) fn take_over(
        writer: Arc<dyn JournalWriter>,
        entries: &[Value],
    ) -> Result<Self, StoreError> {
        let prior = prior_snapshots(entries)
            .map_err(|error| undecodable("snapshots of volumes", &error))?;
        Ok(Self {
            notes: SnapshotNotes(writer),
            prior,
            tasks: Arc::default(),
            stop: CancellationToken::new(),
        })
    }

    /// Waits until the outcomes of all begun snapshots are noted. No other snapshot is begun.
    pub(crate) async fn settle(&self) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}

/// The journal entries of a task.
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

/// Snapshots that were begun and are not known to have failed, by the names of their
/// PersistentVolumes. If the phase is New, the outcome is unknown.
pub(crate) fn prior_snapshots(
    entries: &[Value],
) -> Result<BTreeMap<String, VolumeSnapshot>, serde_json::Error> {
    let mut all = BTreeMap::new();
    for entry in entries {
        let Some(snapshot) = entry.get(BEGUN).or_else(|| entry.get(ENDED)) else {
            continue;
        };
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
