//! Snapshots of volumes that plugins take for a backup: which volumes, in which location, and their
//! outcomes (Velero `pkg/backup/item_backupper.go`, `takePVSnapshot`, v1.18).

use std::{collections::HashMap, sync::Arc};

use backup_actions::{
    backup::{BackupVolumes, ClaimVolume},
    json::text,
};
use backup_client::errors::may_be_read_later;
use backup_core::{api::Backup, snapshot::VolumeSnapshot};
use backup_plugins::PluginLog;
use backup_store::{Scope, StoreError};
use serde_json::Value;
use tokio::sync::oneshot;

use super::report::Report;
use crate::{backup::Backups, volumes::snapshot_locations::SnapshotLocationError};

mod attempt;
mod journal;

pub(crate) use attempt::SnapshotLocation;
use attempt::{Attempt, Outcome, Snapshots, unknown_outcome};
pub(crate) use journal::{SnapshotJournal, prior_snapshots};

/// A PersistentVolume, and the claim that it is bound to, if a resource policy may need it; else
/// null.
pub(crate) struct VolumeWithClaim {
    pub(crate) volume: Value,
    pub(crate) claim: Value,
}

/// The outcome of a snapshot; `None` if it was not begun after all.
type Answer = Result<Option<Attempt>, StoreError>;

pub(crate) struct VolumeSnapshots {
    snapshots: Arc<Snapshots>,
    journal: SnapshotJournal,
    /// Snapshots begun ahead of their turn, by the names of the volumes.
    begun: HashMap<String, oneshot::Receiver<Answer>>,
    /// Volumes of CSI drivers have actions of their own.
    csi: bool,
    taken: Vec<VolumeSnapshot>,
}

impl VolumeSnapshots {
    /// Opens the locations of a backup. A location that cannot be used is an error of the backup.
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
                Ok(snapshotter) => locations.push(SnapshotLocation {
                    name: name.clone(),
                    snapshotter,
                }),
                Err(SnapshotLocationError::Api { source, .. }) if may_be_read_later(&source) => {
                    return Err(source);
                }
                Err(error) => report.error(
                    Scope::Velero,
                    format!("no snapshots are taken there: {error}"),
                ),
            }
        }
        Ok(Self::new(
            locations,
            journal,
            kind.settings.csi,
            Arc::clone(volumes),
        ))
    }

    pub(crate) fn new(
        locations: Vec<SnapshotLocation>,
        journal: SnapshotJournal,
        csi: bool,
        volumes: Arc<BackupVolumes>,
    ) -> Self {
        Self {
            snapshots: Arc::new(Snapshots {
                locations,
                journal: Arc::clone(&journal.steps),
                volumes,
            }),
            journal,
            begun: HashMap::new(),
            csi,
            taken: Vec::new(),
        }
    }

    /// Whether a snapshot of this PersistentVolume was requested.
    pub(crate) fn has(&self, volume: &str) -> bool {
        self.taken
            .iter()
            .any(|one| one.spec.persistent_volume_name == volume)
    }

    /// Called for a bound claim while snapshots of CSI volumes are off: its data is in the backup
    /// only if a plugin takes a snapshot.
    pub(crate) fn note_unsupported(&self, claim: &Value, reason: &str) {
        self.snapshots.volumes.unsupported(claim, reason);
    }

    /// Whether plugins take snapshots at all.
    pub(crate) fn has_locations(&self) -> bool {
        !self.snapshots.locations.is_empty()
    }

    /// Whether a plugin may be asked for a snapshot of this volume, and has not been yet.
    pub(crate) fn can_begin(&self, volume: &Value) -> bool {
        self.has_locations()
            && self.name_of(volume).is_some_and(|name| {
                !self.begun.contains_key(name)
                    && self.journal.steps.prior(&name.to_owned()).is_none()
            })
    }

    /// Begins to take snapshots of the volumes of one block, one after the other, in the
    /// background.
    pub(crate) fn begin(&mut self, volumes: Vec<VolumeWithClaim>, backup: &Backup) {
        let mut turns = Vec::new();
        for of in volumes {
            if let Some(name) = self
                .name_of(&of.volume)
                .filter(|_| self.can_begin(&of.volume))
            {
                let (answer, receiver) = oneshot::channel();
                self.begun.insert(name.to_owned(), receiver);
                turns.push((of, answer));
            }
        }
        if turns.is_empty() {
            return;
        }
        let snapshots = Arc::clone(&self.snapshots);
        let backup = backup.clone();
        let stop = self.journal.stop.clone();
        let mut tasks = self.journal.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            for (VolumeWithClaim { volume, claim }, answer) in turns {
                let attempt = if stop.is_cancelled() {
                    Ok(None)
                } else {
                    snapshots.attempt(&volume, &claim, &backup).await.map(Some)
                };
                if attempt.is_err() {
                    // The next snapshots could not be noted either.
                    stop.cancel();
                }
                let _ = answer.send(attempt);
            }
        });
    }

    /// Takes a snapshot of a PersistentVolume, if it is wanted and a plugin knows the volume, or
    /// waits for the one that was begun. Returns messages about errors. After an error of the
    /// journal no snapshot is begun, or the next attempt reports that its outcome is unknown.
    pub(crate) async fn take(
        &mut self,
        of: VolumeWithClaim,
        backup: &Backup,
    ) -> Result<Vec<String>, StoreError> {
        let Some(name) = self.name_of(&of.volume).map(str::to_owned) else {
            return Ok(Vec::new());
        };
        let seen = ClaimVolume::of_volume(&of.volume);
        if let Some(prior) = self.journal.steps.take_prior(&name) {
            let mut problems = Vec::new();
            self.keep(seen, take_over(prior, &mut problems));
            return Ok(problems);
        }
        self.begin(vec![of], backup);
        let Some(begun) = self.begun.remove(&name) else {
            return Ok(Vec::new());
        };
        let Some(Attempt { outcome, problems }) = answered(begun).await? else {
            return Err(failed("the one before it could not be noted"));
        };
        match outcome {
            Outcome::Skipped(reason) => self.snapshots.volumes.skipped(seen, &reason),
            Outcome::Left(reason) => self.snapshots.volumes.left(seen, &reason),
            Outcome::Taken(snapshot) | Outcome::Failed(snapshot) | Outcome::Unknown(snapshot) => {
                self.keep(seen, snapshot);
            }
        }
        Ok(problems)
    }

    /// Removes snapshots that were begun of volumes that are not in the backup in the end.
    /// Snapshots that cannot be removed are returned as messages, and deleted with the backup.
    pub(crate) async fn end_begun(&mut self) -> Result<Vec<String>, StoreError> {
        self.journal.stop.cancel();
        let mut problems = Vec::new();
        for answer in std::mem::take(&mut self.begun).into_values() {
            let Some(attempt) = answered(answer).await? else {
                continue;
            };
            match attempt.outcome {
                Outcome::Taken(snapshot) => {
                    if let Err(reason) = self.snapshots.remove(&snapshot).await? {
                        problems.push(format!(
                            "PersistentVolume {} is not in this backup, and its snapshot {} could not be removed: {reason}; it is \
                             deleted with the backup",
                            snapshot.spec.persistent_volume_name, snapshot.status.provider_snapshot_id
                        ));
                        self.taken.push(snapshot);
                    }
                }
                Outcome::Unknown(snapshot) => {
                    problems.extend(attempt.problems);
                    self.taken.push(snapshot);
                }
                Outcome::Skipped(_) | Outcome::Left(_) | Outcome::Failed(_) => {}
            }
        }
        Ok(problems)
    }

    /// The name of a volume, unless CSI actions handle it.
    fn name_of<'v>(&self, volume: &'v Value) -> Option<&'v str> {
        let csi = self.csi && text(volume, "/spec/csi/driver").is_some();
        text(volume, "/metadata/name").filter(|_| !csi)
    }

    fn keep(&mut self, seen: ClaimVolume, snapshot: VolumeSnapshot) {
        self.snapshots.volumes.native(seen, snapshot.clone());
        self.taken.push(snapshot);
    }

    /// All snapshots, and messages about errors. Includes snapshots that an earlier attempt has
    /// begun of volumes that are gone: they are deleted with the backup.
    pub(crate) fn finish(self) -> (Vec<VolumeSnapshot>, Vec<String>) {
        let mut taken = self.taken;
        let mut problems = Vec::new();
        for prior in self.journal.steps.left().into_values() {
            let known = problems.len();
            let snapshot = take_over(prior, &mut problems);
            if problems.len() == known {
                problems.push(format!(
                    "PersistentVolume {}, which an earlier try of this backup has snapshotted, is not in this backup any more; its \
                     snapshot {} is deleted with the backup",
                    snapshot.spec.persistent_volume_name, snapshot.status.provider_snapshot_id
                ));
            }
            taken.push(snapshot);
        }
        (taken, problems)
    }
}

async fn answered(answer: oneshot::Receiver<Answer>) -> Answer {
    answer
        .await
        .unwrap_or_else(|_| Err(failed("its task has ended without an answer")))
}

/// Begun snapshots are in the journal: the next attempt at the backup reports them.
fn failed(reason: &str) -> StoreError {
    StoreError::Io {
        action: "snapshot a volume".to_owned(),
        detail: reason.to_owned(),
    }
}

/// A snapshot that an earlier attempt has begun: it exists, or its outcome is unknown.
fn take_over(prior: VolumeSnapshot, problems: &mut Vec<String>) -> VolumeSnapshot {
    if prior.usable().is_some() {
        return prior;
    }
    let reason = "it was asked for by an earlier try of this backup that was ended before there was an answer, so it is not asked \
                  for again";
    problems.push(unknown_outcome(&prior, reason));
    prior.failed()
}

#[cfg(test)]
pub(crate) mod tests;
