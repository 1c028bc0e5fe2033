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

use crate::job::{
    journal::JournalWriter,
    step_journal::{self, StepJournal, StepState},
};

#[derive(Clone)]
pub(crate) struct SnapshotJournal {
    pub(super) steps: Arc<StepJournal<VolumeSnapshot>>,
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
        Ok(Self {
            steps: Arc::new(StepJournal::take_over(writer, entries)?),
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

/// Snapshots are recorded by the names of their PersistentVolumes. A snapshot has no state once it
/// has failed; if its phase is New, the outcome is unknown.
impl StepState for VolumeSnapshot {
    const STEPS: &'static str = "snapshots of volumes";
    const BEGUN: &'static str = "snapshotBegun";
    const ENDED: &'static str = "snapshotEnded";
    type Step = Self;
    type Key = String;
    /// The snapshot itself has the outcome.
    type End<'a> = ();

    fn begun(snapshot: Self) -> (String, Self) {
        (snapshot.spec.persistent_volume_name.clone(), snapshot)
    }

    fn end_entry(snapshot: &Self, (): ()) -> Value {
        json!({ Self::ENDED: snapshot })
    }

    fn ended(entry: &Value) -> Result<(String, Option<Self>), serde_json::Error> {
        let snapshot = Self::deserialize(&entry[Self::ENDED])?;
        let volume = snapshot.spec.persistent_volume_name.clone();
        let state = (snapshot.status.phase != SnapshotPhase::Failed).then_some(snapshot);
        Ok((volume, state))
    }
}

/// Snapshots that were begun and are not known to have failed, by the names of their
/// PersistentVolumes. If the phase is New, the outcome is unknown.
pub(crate) fn prior_snapshots(
    entries: &[Value],
) -> Result<BTreeMap<String, VolumeSnapshot>, serde_json::Error> {
    step_journal::states(entries)
}
