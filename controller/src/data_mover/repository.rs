//! BackupRepositories: the repository of a namespace in a location, as our data mover uses it.
//!
//! The repository itself is in the bucket, and the object only records what is known of it: it is
//! made when a transfer needs it, and can be deleted and made again. A pod makes the repository
//! (`init`) or maintains it (`maintenance`); both have the name of the BackupRepository, so there
//! are never two. The result of a check is valid for the location, password and image that it was
//! made with (`check`). A change of one of them is noticed at the next use, and at the latest after
//! five minutes.

mod check;
mod decide;
mod inspection;
mod maintenance;
#[cfg(test)]
mod model;
mod password;
mod patches;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backup_client::errors::found;
use backup_core::{
    api::{
        BackupRepository, BackupStorageLocation, backup_repository::BackupRepositorySpec,
        transfer::UploaderType,
    },
    data_movement::{MoverOutcome, REPOSITORY_TYPE, failure_reason, repository_name},
    event_reason::EventReason,
    labels::{STORAGE_LOCATION, valid_value},
};
use backup_runtime::{
    health::Health,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{DataMover, objects::create_once};
use crate::error::ReconcileError;
use check::{CHECK_ANNOTATION, Check};
use decide::{Facts, KnownState, Plan, PodEnd, PodFacts, Verdict, Work};

/// Label of a BackupRepository: namespace whose volumes it holds (Velero
/// `pkg/apis/velero/v1/labels_annotations.go`, v1.18).
const VOLUME_NAMESPACE_LABEL: &str = "velero.io/volume-namespace";
/// Label of a BackupRepository: format of the repository (Velero, in the same file).
const REPOSITORY_TYPE_LABEL: &str = "velero.io/repository-type";

/// Maximum number of BackupRepositories that are reconciled concurrently.
const CONCURRENCY: usize = 4;
/// Delay before something that was just begun is checked again.
const REQUEUE_SOON: Action = Action::RequeueAfter(Duration::from_secs(1));

/// Whether a repository can be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RepositoryState {
    Ready,
    /// What is awaited.
    Waiting(String),
    /// Why it cannot be used, and what to do.
    Unusable(String),
}

/// Runs until the process is asked to end.
pub(super) async fn run(mover: Arc<DataMover>, health: Health, stop: CancellationToken) {
    let keys = watch::keys::<BackupRepository>(&mover.cluster, &health, "backup repositories");
    run_queue("backup repository", keys, CONCURRENCY, stop, move |key| {
        Arc::clone(&mover).reconcile_repository(key)
    })
    .await;
}

impl DataMover {
    /// The location of this name; `None` if there is none.
    pub(super) async fn location(
        &self,
        name: &str,
    ) -> Result<Option<BackupStorageLocation>, ReconcileError> {
        Ok(self.locations.find(name).await?)
    }

    /// Whether the repository of a namespace in a location can be used. Creates its
    /// BackupRepository if there is none. A running maintenance does not count: see `exclusion`.
    pub(super) async fn repository(
        &self,
        namespace: &str,
        location: &str,
    ) -> Result<RepositoryState, ReconcileError> {
        let Some(place) = self.location(location).await? else {
            let reason = decide::location_is_gone(location);
            return Ok(RepositoryState::Unusable(reason));
        };
        let Some(repository) = self.existing_repository(namespace, location).await? else {
            self.create_repository(namespace, location).await?;
            return Ok(RepositoryState::Waiting(decide::is_prepared(namespace)));
        };
        let password = self.password_secret().await?;
        let inputs = decide::inputs(Some(&place), &password, &self.settings.image);
        Ok(match decide::known(&repository, &inputs) {
            KnownState::Ready => RepositoryState::Ready,
            KnownState::Waiting(reason) => RepositoryState::Waiting(reason),
            KnownState::Unusable(reason) => RepositoryState::Unusable(reason),
            KnownState::Stale => {
                self.forget_check(&repository).await?;
                RepositoryState::Waiting(decide::is_prepared(namespace))
            }
        })
    }

    /// Records how a pod that has used a repository ended, if that says whether the next pod can
    /// use it.
    pub(super) async fn note_outcome(
        &self,
        namespace: &str,
        location: &str,
        outcome: &MoverOutcome,
    ) -> Result<(), ReconcileError> {
        let is_missing = outcome.reason.as_deref() == Some(failure_reason::REPOSITORY_MISSING);
        let verdict = Verdict::of_outcome(outcome);
        if verdict.is_none() && !is_missing {
            return Ok(());
        }
        let Some(repository) = self.existing_repository(namespace, location).await? else {
            return Ok(());
        };
        let Some(verdict) = verdict else {
            return self.forget_check(&repository).await;
        };
        let place = self.location(location).await?;
        let password = self.password_secret().await?;
        let inputs = decide::inputs(place.as_ref(), &password, &self.settings.image);
        self.publish_verdict(&repository, &inputs, &verdict).await
    }

    async fn existing_repository(
        &self,
        namespace: &str,
        location: &str,
    ) -> Result<Option<BackupRepository>, ReconcileError> {
        let name = repository_name(namespace, location);
        Ok(found(
            self.cluster.api::<BackupRepository>().get(&name).await,
            &name,
        )?)
    }

    /// Create-only: its name is made of namespace and location.
    async fn create_repository(
        &self,
        namespace: &str,
        location: &str,
    ) -> Result<(), ReconcileError> {
        let spec = BackupRepositorySpec {
            volume_namespace: namespace.to_owned(),
            backup_storage_location: location.to_owned(),
            repository_type: UploaderType::Restic,
            maintenance_frequency: decide::DEFAULT_FREQUENCY,
            ..BackupRepositorySpec::default()
        };
        let mut repository = BackupRepository::new(&repository_name(namespace, location), spec);
        let labels = [
            (VOLUME_NAMESPACE_LABEL, valid_value(namespace)),
            (STORAGE_LOCATION, valid_value(location)),
            (REPOSITORY_TYPE_LABEL, REPOSITORY_TYPE.to_owned()),
        ];
        let labels: BTreeMap<String, String> = labels
            .map(|(label, value)| (label.to_owned(), value))
            .into();
        repository.metadata.labels = Some(labels);
        create_once(self, &self.cluster.api(), &repository).await
    }

    async fn reconcile_repository(self: Arc<Self>, key: Key) -> Result<Action, ReconcileError> {
        let read = self.cluster.api::<BackupRepository>().get(&key.name).await;
        let Some(repository) = found(read, &key.name)? else {
            return Ok(Action::AwaitChange);
        };
        if !decide::is_ours(&repository) {
            return Ok(Action::AwaitChange);
        }
        let location = self
            .location(&repository.spec.backup_storage_location)
            .await?;
        let password = self.password_secret().await?;
        let pod = self.pod(&key.name).await?;
        let facts = Facts {
            inputs: decide::inputs(location.as_ref(), &password, &self.settings.image),
            repository: &repository,
            location: location.as_ref(),
            password: &password,
            pod: pod.as_ref().map(PodFacts::of),
            prepare_timeout: self.settings.prepare_timeout,
            now: Timestamp::now(),
        };
        match decide::decide(&facts) {
            Plan::Nothing => Ok(Action::AwaitChange),
            Plan::Wait(time) => Ok(Action::RequeueAfter(time)),
            Plan::Record(end) => self.record_end(&facts, &end).await,
            Plan::Inspect => self.inspect(&facts).await,
            Plan::Publish(verdict) => {
                self.publish_verdict(&repository, &facts.inputs, &verdict)
                    .await?;
                Ok(REQUEUE_SOON)
            }
            Plan::Maintain(location) => self.begin_maintenance(&repository, location).await,
        }
    }

    /// Publishes how a pod ended, then removes it. After a crash between, it is published once more.
    async fn record_end(&self, facts: &Facts<'_>, end: &PodEnd) -> Result<Action, ReconcileError> {
        let repository = facts.repository;
        let spec = &repository.spec;
        match (end.work, &end.failure) {
            (Work::Maintenance, failure) => {
                self.record_maintenance(repository, end.started, failure.as_deref())
                    .await?;
            }
            (Work::Init, Some(failure)) => {
                let verdict = Verdict::retried(format!(
                    "the repository of namespace {} could not be made: {failure}",
                    spec.volume_namespace
                ));
                self.publish_verdict(repository, &facts.inputs, &verdict)
                    .await?;
            }
            (Work::Init, None) => self.confirm_init(facts).await?,
        }
        if let Some(outcome) = &end.outcome {
            let (namespace, location) = (&spec.volume_namespace, &spec.backup_storage_location);
            self.note_outcome(namespace, location, outcome).await?;
        }
        let pods: Api<Pod> = self.cluster.api();
        self.remove(&pods, &repository.name_any()).await?;
        Ok(REQUEUE_SOON)
    }

    /// Writes a verdict into the status. The write carries the resourceVersion.
    async fn publish_verdict(
        &self,
        repository: &BackupRepository,
        inputs: &str,
        verdict: &Verdict,
    ) -> Result<(), ReconcileError> {
        let check = Check {
            inputs: inputs.to_owned(),
            at: Timestamp::now(),
            is_final: verdict.is_final,
        };
        let outcome = retry::status_patch(&self.cluster, repository, |current| {
            decide::is_ours(current).then(|| patches::verdict(current, verdict, &check))
        })
        .await?;
        let message = verdict.message.as_deref();
        let is_known = repository.status.message.as_deref() == message
            && repository.status.phase.as_ref() == Some(&verdict.phase());
        let PatchOutcome::Written(written) = outcome else {
            return Ok(());
        };
        if is_known {
            return Ok(());
        }
        let name = written.name_any();
        if let Some(message) = message {
            tracing::warn!(repository = name, message, "the repository cannot be used");
            let events = &self.cluster.events;
            events.warning(&written, EventReason::Unavailable, message);
        } else {
            tracing::info!(repository = name, "the repository is ready");
        }
        Ok(())
    }

    /// Removes what is known of a repository, so that it is checked again at once.
    async fn forget_check(&self, repository: &BackupRepository) -> Result<(), ReconcileError> {
        retry::status_patch(&self.cluster, repository, |current| {
            current
                .annotations()
                .contains_key(CHECK_ANNOTATION)
                .then(|| json!({"metadata": {"annotations": {CHECK_ANNOTATION: null}}}))
        })
        .await?;
        Ok(())
    }
}
