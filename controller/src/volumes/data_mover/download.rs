//! DataDownloads: the data of a volume comes from the repository into a new volume, which is then
//! given to the claim that waits for it.
//!
//! A pod fills a claim in our namespace, and the PersistentVolume of that claim is handed over to
//! the target claim (`handover`). The next step is decided from what is in the cluster (`decide`),
//! so any replica continues after a crash. The target claim has the DataDownload as its data source,
//! by which no provisioner fills it: it stays Pending until it gets the volume.
//!
//! With `spec.restoreType` the data goes into the volume that the target claim has
//! (`decide/in_place`).

mod claim;
mod decide;
mod handover;
#[cfg(test)]
mod model;
mod observe;
mod patches;
mod placement;
#[cfg(test)]
mod tests;
mod users;

use std::{sync::Arc, time::Duration};

use backup_client::errors::{found, is_final};
use backup_core::{
    api::{DataDownload, transfer::MovePhase},
    data_movement::DATA_MOVER,
    labels::MOVER_USER_ANNOTATION,
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
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    DataMover,
    objects::{active_transfers, create_or_find},
    pod::{PodRequest, PodWork},
    pod_state::PodState,
};
use crate::error::ReconcileError;
use decide::{Ending, Step, decide};
use observe::{Observation, observe};
pub(crate) use users::claim_in_use;

/// Maximum number of DataDownloads that are reconciled concurrently. Their pods run meanwhile.
const CONCURRENCY: usize = 8;
/// Reconcile again at once, through the queue.
const REQUEUE_NOW: Action = Action::RequeueAfter(Duration::from_millis(100));
/// Delay before pods, claims and volumes are looked at again.
const REQUEUE_SOON: Action = Action::RequeueAfter(Duration::from_secs(2));
/// Delay before a running pod, or the number of running transfers, is looked at again.
const REQUEUE_LATER: Action = Action::RequeueAfter(Duration::from_secs(5));

/// Runs until the process is asked to end.
pub(super) async fn run(mover: Arc<DataMover>, health: Health, stop: CancellationToken) {
    let keys = watch::keys::<DataDownload>(&mover.cluster, &health, "data downloads");
    run_queue("data download", keys, CONCURRENCY, stop, move |key| {
        reconcile(Arc::clone(&mover), key)
    })
    .await;
}

async fn reconcile(mover: Arc<DataMover>, key: Key) -> Result<Action, ReconcileError> {
    let downloads = mover.cluster.api::<DataDownload>();
    let Some(download) = found(downloads.get(&key.name).await, &key.name)? else {
        return Ok(Action::AwaitChange);
    };
    let is_ours = download.spec.mover.datamover.as_deref() == Some(DATA_MOVER);
    let is_over = patches::has_ended(&download) && !patches::has_finalizer(&download);
    if !is_ours || is_over {
        return Ok(Action::AwaitChange);
    }
    // The observation may create the repository.
    mover.cluster.leadership.check()?;
    let seen = observe(&mover, &download).await?;
    let step = decide(&download, &seen.facts, Timestamp::now());
    let work = Work {
        mover: &mover,
        download: &download,
        seen: &seen,
    };
    work.act(step).await
}

/// What a pod is created for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PodPurpose {
    /// Only to have its claim bound.
    Bind,
    Restore,
}

/// One step of a DataDownload.
struct Work<'a> {
    mover: &'a DataMover,
    download: &'a DataDownload,
    seen: &'a Observation,
}

impl Work<'_> {
    async fn act(&self, step: Step) -> Result<Action, ReconcileError> {
        let claims = &self.seen.claims;
        match step {
            Step::Nothing => Ok(Action::AwaitChange),
            Step::Wait(reason) => {
                tracing::debug!(reason, "the data download waits");
                self.report_to_repository().await;
                Ok(REQUEUE_SOON)
            }
            Step::AwaitRepository(reason) => {
                let now = Timestamp::now();
                self.record(|current| patches::awaiting_repository(current, &reason, now))
                    .await?;
                Ok(REQUEUE_LATER)
            }
            Step::Accept(target_uid) => self.accept(&target_uid).await,
            Step::CreateClaim => self.create_claim().await,
            Step::CreateProbe => self.create_pod(PodPurpose::Bind).await,
            Step::CreatePod => self.create_pod(PodPurpose::Restore).await,
            Step::Start(pod) => {
                let spec = self.seen.pod.as_ref().and_then(|pod| pod.spec.as_ref());
                let node = spec.and_then(|spec| spec.node_name.as_deref());
                let now = Timestamp::now();
                self.record(|current| patches::started(current, &pod, node, now))
                    .await
            }
            Step::NoteLoss(why) => {
                self.record(|current| patches::first_loss(current, &why))
                    .await
            }
            Step::Progress => self.progress().await,
            Step::Record(filling) => {
                tracing::info!(
                    volume = filling.fill.volume,
                    bytes = filling.bytes,
                    "a volume was filled; it is handed over"
                );
                self.record(|current| {
                    patches::filled(current, &filling.fill, &filling.message, filling.bytes)
                })
                .await
            }
            Step::Retain => self.change_volume(|volume| claims.retain(volume)).await,
            Step::TakeOver => {
                tracing::info!("the volume of a claim is taken over until its data is restored");
                self.change_volume(|volume| claims.take_over(volume)).await
            }
            Step::RemovePod => self.remove_pod().await,
            Step::RemoveClaim => self.remove_claim().await,
            Step::HandOver => self.change_volume(|volume| claims.hand_over(volume)).await,
            Step::Settle => self.change_volume(|volume| claims.settle(volume)).await,
            Step::Discard => self.change_volume(|volume| claims.discard(volume)).await,
            Step::Keep => {
                tracing::warn!("a volume whose claim was deleted meanwhile is kept");
                self.change_volume(|volume| claims.keep(volume)).await
            }
            Step::End(ending) => {
                self.report_to_repository().await;
                self.end(&ending).await
            }
            Step::Release => self.record(patches::released).await,
        }
    }

    /// Patches the DataDownload with its resourceVersion. If it has changed, `patch` decides again.
    async fn record(
        &self,
        patch: impl Fn(&DataDownload) -> Option<Value> + Send + Sync,
    ) -> Result<Action, ReconcileError> {
        retry::status_patch(&self.mover.cluster, self.download, patch).await?;
        Ok(REQUEUE_NOW)
    }

    /// Patches the PersistentVolume with its resourceVersion. If it has changed, `patch` decides
    /// again, and changes nothing that belongs to another claim by now.
    async fn change_volume(
        &self,
        patch: impl Fn(&PersistentVolume) -> Option<Value> + Send + Sync,
    ) -> Result<Action, ReconcileError> {
        let Some(volume) = &self.seen.volume else {
            return Ok(REQUEUE_NOW);
        };
        let cluster = &self.mover.cluster;
        let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
        let outcome = retry::status_patch_in(
            &volumes,
            &cluster.leadership,
            cluster.patch_budget,
            volume,
            patch,
        )
        .await?;
        match outcome {
            PatchOutcome::Written(_) => Ok(REQUEUE_NOW),
            PatchOutcome::Gone | PatchOutcome::Stale => Ok(REQUEUE_SOON),
        }
    }

    /// Uploads and downloads share the slots, so they are counted and taken under one lock.
    async fn accept(&self, target_uid: &str) -> Result<Action, ReconcileError> {
        let _turn = self.mover.exclusion.lock().await;
        if active_transfers(self.mover).await? >= self.mover.settings.concurrency {
            tracing::debug!("the data download waits until another transfer ends");
            self.record(patches::repository_is_ready).await?;
            return Ok(REQUEUE_LATER);
        }
        let now = Timestamp::now();
        self.record(|current| patches::accepted(current, target_uid, now))
            .await
    }

    /// Create-only: a claim of this name that exists is left alone, and looked at next.
    async fn create_claim(&self) -> Result<Action, ReconcileError> {
        let owner = DataMover::owner(self.download);
        let wanted = if self.seen.claims.is_in_place {
            let volume = self.seen.volume.as_ref();
            volume.map(|volume| claim::claim_in_place(self.download, volume, owner))
        } else {
            let target = self.seen.target.as_ref();
            target.map(|target| claim::claim_to_fill(self.download, target, owner))
        };
        let Some(wanted) = wanted else {
            return Ok(REQUEUE_NOW);
        };
        let claims = self.mover.cluster.api::<PersistentVolumeClaim>();
        match create_or_find(self.mover, &claims, &wanted).await {
            Ok(None) => Ok(REQUEUE_NOW),
            Ok(Some(stored)) => self.check_claim(&wanted, &stored).await,
            Err(error) => self.refused("PersistentVolumeClaim", error).await,
        }
    }

    /// Ends the DataDownload if our claim lacks something: its volume would not fit the target
    /// claim, or be part of backups.
    async fn check_claim(
        &self,
        wanted: &PersistentVolumeClaim,
        stored: &PersistentVolumeClaim,
    ) -> Result<Action, ReconcileError> {
        let lost = claim::lost_fields(wanted, stored);
        if lost.is_empty() {
            return Ok(REQUEUE_NOW);
        }
        let message = format!(
            "PersistentVolumeClaim {}, which the restore of the data needs, was stored without what \
             was asked for: {lost}; look for a mutating webhook that takes that away, and restore \
             the claim again",
            self.download.name_any()
        );
        let phase = MovePhase::Failed;
        self.end(&Ending { phase, message }).await
    }

    async fn create_pod(&self, purpose: PodPurpose) -> Result<Action, ReconcileError> {
        let Some(location) = &self.seen.location else {
            return Ok(REQUEUE_NOW);
        };
        let target = self.seen.target.as_ref();
        let user = target.and_then(|target| target.annotations().get(MOVER_USER_ANNOTATION));
        let name = self.download.name_any();
        let spec = &self.download.spec;
        let request = PodRequest {
            name: &name,
            owner: DataMover::owner(self.download),
            location,
            repository: &spec.source_namespace,
            work: PodWork::Restore {
                claim: &name,
                block: self.seen.facts.is_block,
                snapshot: &spec.snapshot_id,
                user: user.map(String::as_str),
                existing: patches::existing_files(self.download),
                is_repeated: patches::Attempts::of(self.download).count > 0,
            },
        };
        let target = self.seen.target.as_ref();
        let node = target.and_then(claim::selected_node);
        let created = self
            .mover
            .create_changed_pod(&request, |pod| {
                if let Some(node) = node {
                    placement::prefer_node(pod, node);
                }
                if purpose == PodPurpose::Bind {
                    placement::make_probe(pod);
                }
            })
            .await;
        match created {
            Ok(()) => Ok(REQUEUE_SOON),
            Err(error) => self.refused("Pod", error).await,
        }
    }

    /// Ends the DataDownload if an object that it needs will never be accepted. Other errors are
    /// retried, until its time is over.
    async fn refused(&self, kind: &str, error: ReconcileError) -> Result<Action, ReconcileError> {
        let is_permanent = match &error {
            ReconcileError::Api(error) => is_final(error),
            ReconcileError::Write(retry::WriteError::Refused { .. })
            | ReconcileError::Impossible(_) => true,
            _ => false,
        };
        if !is_permanent {
            return Err(error);
        }
        let message = format!(
            "{kind} {}, which the restore of the data needs, was refused: {error}; correct that \
             and restore the claim again",
            self.download.name_any()
        );
        let phase = MovePhase::Failed;
        self.end(&Ending { phase, message }).await
    }

    async fn progress(&self) -> Result<Action, ReconcileError> {
        if let Some(progress) = self.mover.progress(&self.download.name_any()).await {
            self.record(|current| patches::progressed(current, &progress))
                .await?;
        }
        if self.seen.claims.is_in_place {
            let waiting = users::waiting(&self.seen.facts.users);
            self.record(|current| patches::noted(current, &waiting))
                .await?;
        }
        Ok(REQUEUE_LATER)
    }

    async fn remove_pod(&self) -> Result<Action, ReconcileError> {
        let pods = self.mover.cluster.api::<Pod>();
        let is_gone = self.mover.remove(&pods, &self.download.name_any()).await?;
        Ok(if is_gone { REQUEUE_NOW } else { REQUEUE_SOON })
    }

    async fn remove_claim(&self) -> Result<Action, ReconcileError> {
        let claims = self.mover.cluster.api::<PersistentVolumeClaim>();
        let name = self.download.name_any();
        let is_gone = self.mover.remove(&claims, &name).await?;
        Ok(if is_gone { REQUEUE_NOW } else { REQUEUE_SOON })
    }

    /// Records in the BackupRepository what the pod says about it: it may not be opened, or the pod
    /// waits for the password. An error is only logged, as the repository is checked by itself, too.
    async fn report_to_repository(&self) {
        let Some(pod) = &self.seen.pod else {
            return;
        };
        if placement::is_probe(pod) {
            return;
        }
        let spec = &self.download.spec;
        let namespace = &spec.source_namespace;
        let location = &spec.backup_storage_location;
        let state = PodState::of(pod);
        if let Err(error) = self.mover.note_pod(namespace, location, &state).await {
            tracing::warn!(namespace, location, %error, "the repository was not told about the pod");
        }
    }

    async fn end(&self, ending: &Ending) -> Result<Action, ReconcileError> {
        let target = &self.download.spec.target_volume;
        tracing::info!(
            namespace = target.namespace,
            claim = target.pvc,
            phase = ending.phase.as_str(),
            message = ending.message,
            "the data download has ended"
        );
        let now = Timestamp::now();
        self.record(|current| patches::ended(current, &ending.phase, &ending.message, now))
            .await
    }
}
