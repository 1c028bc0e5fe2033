//! Notes of snapshots: one before a plugin is asked to take it, one when it has answered. After a crash the volumes are looked at
//! again: what was taken is not taken a second time, and what was begun and never ended is told, as nobody knows what came of it.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::snapshot::{SnapshotPhase, VolumeSnapshot};
use backup_store::StoreError;
use serde_json::{Value, json};

use crate::job::journal::JournalWriter;

const BEGUN: &str = "snapshotBegun";
const ENDED: &str = "snapshotEnded";

/// Snapshots by the names of their PersistentVolumes. One that is New was begun, and nobody knows what came of it.
pub type Earlier = BTreeMap<String, VolumeSnapshot>;

/// The notes of one backup.
pub struct Noted {
    journal: Arc<dyn JournalWriter>,
    /// What earlier tries of the backup have begun, and not seen fail.
    pub earlier: Earlier,
}

impl Noted {
    /// Goes on from these notes; those about other things are passed over.
    ///
    /// # Errors
    /// A note about snapshots that can't be understood: then nobody knows what was taken.
    pub fn take_over(journal: Arc<dyn JournalWriter>, found: &[Value]) -> Result<Self, StoreError> {
        let earlier = read(found).map_err(|error| StoreError::Corrupt {
            url: "the notes of this backup".to_owned(),
            detail: format!("a note about snapshots of volumes can't be understood: {error}"),
        })?;
        Ok(Self { journal, earlier })
    }

    /// One is about to be taken.
    pub async fn begun(&self, snapshot: &VolumeSnapshot) -> Result<(), StoreError> {
        self.journal.append(json!({ BEGUN: snapshot })).await
    }

    /// It is there, or is known not to be.
    pub async fn ended(&self, snapshot: &VolumeSnapshot) -> Result<(), StoreError> {
        self.journal.append(json!({ ENDED: snapshot })).await
    }
}

/// What was begun and is not known to have failed.
///
/// # Errors
/// A note about snapshots that can't be understood.
pub fn read(notes: &[Value]) -> Result<Earlier, serde_json::Error> {
    let mut all = Earlier::new();
    for note in notes {
        let Some(snapshot) = note.get(BEGUN).or_else(|| note.get(ENDED)) else { continue };
        let snapshot: VolumeSnapshot = serde_json::from_value(snapshot.clone())?;
        let volume = snapshot.spec.persistent_volume_name.clone();
        if snapshot.status.phase == SnapshotPhase::Failed {
            all.remove(&volume);
        } else {
            all.insert(volume, snapshot);
        }
    }
    Ok(all)
}
