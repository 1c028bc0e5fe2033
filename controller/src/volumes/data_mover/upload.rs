//! DataUploads: the data of a CSI snapshot is saved in the repository of its namespace.
//!
//! The phases are Velero's: New, Accepted, Prepared, InProgress, and Completed, Failed or Canceled.
//! `observe` reads what the phase needs, `decide` returns the next step, and this module carries it
//! out; each step can be repeated. `source` describes the snapshot, `copy` makes a volume of it in
//! our namespace, `cleanup` removes that, `forget` removes snapshots in the repository that no
//! backup will name, and `patches` are the writes to the DataUpload.

mod cleanup;
mod copy;
mod decide;
mod forget;
mod observe;
mod patches;
mod source;

use std::{collections::HashSet, sync::Arc, time::Duration};

use backup_actions::csi::SnapshotApi;
use backup_client::errors::found;
use backup_core::{
    api::{DataUpload, transfer::MovePhase},
    data_movement::repository_name,
};
use backup_runtime::{
    health::Health,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    DataMover,
    objects::{Refusal, active_transfers, is_made_for_claim},
};
use crate::error::ReconcileError;
use decide::{Ending, Facts, Step, unneeded::is_marked};
use source::SourceSnapshot;

/// Maximum number of DataUploads that are reconciled concurrently.
const CONCURRENCY: usize = 8;
/// Delay before an upload that waits to be accepted is checked again.
const ACCEPT_INTERVAL: Duration = Duration::from_secs(5);
/// The same while other transfers have to end first; many may wait.
const QUEUE_INTERVAL: Duration = Duration::from_secs(15);
/// Delay before a volume or pod that is not ready is checked again.
const PREPARE_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between reads of the progress; as often as `backup-mover` writes it.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before objects that are being removed are checked again.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(2);
/// Delay before the removal of snapshots from the repository is tried again.
const FORGET_INTERVAL: Duration = Duration::from_secs(30);
/// Reconcile again at once, through the queue.
const REQUEUE_NOW: Action = Action::RequeueAfter(Duration::from_millis(100));

/// Runs until the process is asked to end.
pub(super) async fn run(mover: Arc<DataMover>, health: Health, stop: CancellationToken) {
    // Uploads that need no work, as the watch has shown: they are not read again. Most uploads are
    // of that kind, as they stay as long as their backup.
    let settled = Arc::new(Mutex::new(HashSet::new()));
    let watched = Arc::clone(&settled);
    let keys = watch::keys_with::<DataUpload>(
        &mover.cluster,
        &health,
        "data uploads",
        move |key, upload| {
            let mut settled = watched.lock();
            if upload.is_some_and(|upload| decide::is_settled(&upload)) {
                settled.insert(key.clone());
            } else {
                settled.remove(key);
            }
        },
    );
    let uploads = Uploads { mover };
    run_queue("data upload", keys, CONCURRENCY, stop, move |key| {
        let is_settled = settled.lock().remove(&key);
        let uploads = uploads.clone();
        async move {
            if is_settled {
                Ok(Action::AwaitChange)
            } else {
                Box::pin(uploads.reconcile(&key)).await
            }
        }
    })
    .await;
}

/// The controller of DataUploads. Cheap to clone.
#[derive(Clone)]
struct Uploads {
    mover: Arc<DataMover>,
}

impl Uploads {
    async fn reconcile(&self, key: &Key) -> Result<Action, ReconcileError> {
        let api = self.mover.cluster.api::<DataUpload>();
        let Some(upload) = found(api.get(&key.name).await, &key.name)? else {
            return Ok(Action::AwaitChange);
        };
        if decide::is_settled(&upload) {
            return Ok(Action::AwaitChange);
        }
        let facts = self.facts(&upload).await?;
        let step = decide::decide(&upload, &facts, Timestamp::now());
        Box::pin(self.carry_out(&upload, &facts, step)).await
    }

    async fn carry_out(
        &self,
        upload: &DataUpload,
        facts: &Facts,
        step: Step,
    ) -> Result<Action, ReconcileError> {
        match step {
            Step::Nothing => Ok(Action::AwaitChange),
            Step::Queue(why) => self.wait(upload, &why, QUEUE_INTERVAL).await,
            Step::AwaitSource(why) => self.wait(upload, &why, ACCEPT_INTERVAL).await,
            Step::AwaitRepository(why) => self.await_repository(upload, &why).await,
            Step::AwaitPod(why) => {
                self.report_to_repository(upload, facts).await;
                self.wait(upload, &why, PREPARE_INTERVAL).await
            }
            Step::Accept => self.accept(upload).await,
            Step::Prepare(source) => self.prepare(upload, &source).await,
            Step::Start { node } => {
                if let Some(ending) = self.wrong_volume(upload).await? {
                    return self.end(upload, &ending).await;
                }
                let patch = patches::started(Timestamp::now(), node.as_deref());
                self.publish(upload, patch, "runs").await
            }
            Step::Follow => self.follow(upload, facts).await,
            Step::Retry { pod, attempt, why } => {
                let patch = patches::retried(Timestamp::now(), &pod, attempt, &why);
                self.publish(upload, patch, &why).await
            }
            Step::RemovePod => {
                let pods: Api<Pod> = self.mover.cluster.api();
                let is_gone = self.mover.remove(&pods, &upload.name_any()).await?;
                Ok(if is_gone {
                    REQUEUE_NOW
                } else {
                    Action::RequeueAfter(REMOVAL_INTERVAL)
                })
            }
            Step::End(ending) => {
                self.report_to_repository(upload, facts).await;
                let wrong = match &ending.saved {
                    Some(_) => self.wrong_volume(upload).await?,
                    None => None,
                };
                self.end(upload, &wrong.unwrap_or(ending)).await
            }
            Step::Clean => self.clean(upload).await,
        }
    }

    /// The end of an upload whose claim was bound to a volume that existed before, and so does not
    /// hold the data of the snapshot.
    async fn wrong_volume(&self, upload: &DataUpload) -> Result<Option<Ending>, ReconcileError> {
        let name = upload.name_any();
        let claims = self.mover.cluster.api::<PersistentVolumeClaim>();
        let Some(claim) = found(claims.get(&name).await, &name)? else {
            return Ok(Some(Ending::failed(format!(
                "PersistentVolumeClaim {name}, which was read, was deleted by another client"
            ))));
        };
        let spec = claim.spec.as_ref();
        let volume = spec.and_then(|spec| spec.volume_name.as_deref());
        let Some(volume) = volume else {
            return Ok(Some(Ending::failed(format!(
                "PersistentVolumeClaim {name}, which was read, has no volume"
            ))));
        };
        let volumes: Api<PersistentVolume> = Api::all(self.mover.cluster.client.clone());
        let is_wrong = found(volumes.get(volume).await, volume)?
            .is_none_or(|volume| !is_made_for_claim(&volume));
        Ok(is_wrong.then(|| {
            Ending::failed(format!(
                "PersistentVolumeClaim {name} was bound to PersistentVolume {volume}, which was not \
                 made of the snapshot: reserve that one for its own claim (spec.claimRef), and back up \
                 again"
            ))
        }))
    }

    /// Publishes what an upload waits for.
    async fn wait(
        &self,
        upload: &DataUpload,
        why: &str,
        interval: Duration,
    ) -> Result<Action, ReconcileError> {
        let phase = &upload.status.transfer.phase;
        retry::status_patch(&self.mover.cluster, upload, |current| {
            let patch = patches::waiting(current, why);
            patch.filter(|_| current.status.transfer.phase == *phase)
        })
        .await?;
        Ok(Action::RequeueAfter(interval))
    }

    /// Publishes why an upload waits for its repository, and since when.
    async fn await_repository(
        &self,
        upload: &DataUpload,
        why: &str,
    ) -> Result<Action, ReconcileError> {
        let now = Timestamp::now();
        retry::status_patch(&self.mover.cluster, upload, |current| {
            let patch = patches::awaiting_repository(current, why, now);
            patch.filter(|_| decide::may_be_accepted(current))
        })
        .await?;
        Ok(Action::RequeueAfter(ACCEPT_INTERVAL))
    }

    /// Accepts an upload, unless the maintenance of its repository or too many other transfers have
    /// begun meanwhile.
    async fn accept(&self, upload: &DataUpload) -> Result<Action, ReconcileError> {
        let spec = &upload.spec;
        let repository = repository_name(&spec.source_namespace, &spec.backup_storage_location);
        let exclusion = self.mover.exclusion.lock().await;
        if self.mover.awaited_maintenance(&repository).await?.is_some()
            || active_transfers(&self.mover).await? >= self.mover.settings.concurrency
        {
            return Ok(Action::RequeueAfter(ACCEPT_INTERVAL));
        }
        let now = Timestamp::now();
        let outcome = retry::status_patch(&self.mover.cluster, upload, |current| {
            decide::may_be_accepted(current).then(|| patches::accepted(current, now))
        })
        .await?;
        drop(exclusion);
        if let PatchOutcome::Written(upload) = outcome {
            tracing::info!(upload = upload.name_any(), "accepted");
        }
        Ok(REQUEUE_NOW)
    }

    /// Makes the volume and its pod, as far as they do not exist.
    async fn prepare(
        &self,
        upload: &DataUpload,
        source: &SourceSnapshot,
    ) -> Result<Action, ReconcileError> {
        match self.copy(upload, source).await {
            Ok(None) => {
                let patch = patches::prepared();
                self.publish(upload, patch, "its volume is being made")
                    .await
            }
            Ok(Some(awaited)) => self.wait(upload, &awaited, PREPARE_INTERVAL).await,
            Err(error) => match Refusal::of(&error) {
                Some(Refusal::Final(why)) => self.end(upload, &Ending::failed(why)).await,
                Some(Refusal::ForNow(why)) => self.wait(upload, &why, ACCEPT_INTERVAL).await,
                None => Err(error),
            },
        }
    }

    /// Publishes the progress of a running pod.
    async fn follow(&self, upload: &DataUpload, facts: &Facts) -> Result<Action, ReconcileError> {
        if let Some(progress) = facts.progress {
            retry::status_patch(&self.mover.cluster, upload, |current| {
                let is_running = current.status.transfer.phase == Some(MovePhase::InProgress);
                let patch = patches::progress(current, &progress);
                patch.filter(|_| is_running)
            })
            .await?;
        }
        Ok(Action::RequeueAfter(PROGRESS_INTERVAL))
    }

    /// Records in the BackupRepository what the pod says about it: the repository may be missing, or
    /// have another password. An error is only logged, as the repository is checked by itself, too.
    async fn report_to_repository(&self, upload: &DataUpload, facts: &Facts) {
        let Some(pod) = &facts.pod else {
            return;
        };
        let namespace = &upload.spec.source_namespace;
        let location = &upload.spec.backup_storage_location;
        let noted = self.mover.note_pod(namespace, location, &pod.state).await;
        if let Err(error) = noted {
            tracing::warn!(namespace, location, %error, "the outcome was not noted in the repository");
        }
    }

    async fn end(&self, upload: &DataUpload, ending: &Ending) -> Result<Action, ReconcileError> {
        let patch = patches::ended(upload, ending, Timestamp::now());
        let message = ending.message.as_deref().unwrap_or("its data is saved");
        self.publish(upload, patch, message).await
    }

    /// Removes all that was made for an upload that has ended, then its finalizer.
    async fn clean(&self, upload: &DataUpload) -> Result<Action, ReconcileError> {
        if !self.remove_copy(&upload.name_any()).await? {
            return Ok(Action::RequeueAfter(REMOVAL_INTERVAL));
        }
        if !self.forget_unneeded(upload).await? {
            return Ok(Action::RequeueAfter(FORGET_INTERVAL));
        }
        // If the backup was abandoned meanwhile, more snapshots are unneeded.
        let was_marked = is_marked(upload);
        let outcome = retry::status_patch(&self.mover.cluster, upload, |current| {
            let patch = patches::released(current);
            patch.filter(|_| is_marked(current) == was_marked)
        })
        .await?;
        Ok(match outcome {
            PatchOutcome::Stale => REQUEUE_NOW,
            PatchOutcome::Written(_) | PatchOutcome::Gone => Action::AwaitChange,
        })
    }

    /// Writes a patch, unless the phase has changed meanwhile.
    async fn publish(
        &self,
        upload: &DataUpload,
        patch: Value,
        message: &str,
    ) -> Result<Action, ReconcileError> {
        let phase = &upload.status.transfer.phase;
        let outcome = retry::status_patch(&self.mover.cluster, upload, |current| {
            (current.status.transfer.phase == *phase).then(|| patch.clone())
        })
        .await?;
        if let PatchOutcome::Written(upload) = outcome {
            let phase = upload.status.transfer.phase.as_ref();
            tracing::info!(
                upload = upload.name_any(),
                phase = phase.map(MovePhase::as_str),
                message,
                "data upload"
            );
        }
        Ok(REQUEUE_NOW)
    }

    fn snapshots(&self) -> SnapshotApi {
        let cluster = &self.mover.cluster;
        SnapshotApi::new(&cluster.client, &cluster.leadership)
    }
}

#[cfg(test)]
mod tests;
