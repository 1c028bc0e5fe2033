//! BackupRepositories: the repository of a namespace in a location, as our data mover uses it.
//!
//! The repository itself is in the bucket, and the object only records what is known of it: it is
//! made when a transfer needs it, and can be deleted and made again. A pod makes the repository,
//! opens it, maintains it (`maintenance`), checks its data (`data_check`) or changes its keys
//! (`rotation`); all have the name of the BackupRepository, so there are never two. Whether a
//! repository can be used is valid for the location, password and image that it was found out with
//! (`check`). A change of one of them is noticed at the next use, and at the latest after five
//! minutes; if the repository cannot be used, a change of the password within a minute (`rotation`).

mod check;
mod data_check;
mod decide;
mod inspection;
mod maintenance;
#[cfg(test)]
mod model;
mod password;
mod patches;
mod publish;
mod rotation;
mod stuck_pod;
#[cfg(test)]
mod tests;
mod verdict;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backup_client::errors::found;
use backup_core::{
    api::{
        BackupRepository, BackupStorageLocation,
        backup_repository::{BackupRepositoryPhase, BackupRepositorySpec},
        transfer::UploaderType,
    },
    data_movement::{
        MoverOutcome, PASSWORD_SECRET, REPOSITORY_TYPE, failure_reason, repository_name,
    },
    labels::{STORAGE_LOCATION, valid_value},
};
use backup_runtime::{
    health::Health,
    queue::{Action, Key, run_queue},
    watch,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use tokio_util::sync::CancellationToken;

use super::{
    DataMover,
    objects::{Refusal, create_once, last_warning},
    pod::{PodRequest, PodWork},
    pod_state::PodState,
};
use crate::error::ReconcileError;
use check::NO_INPUTS;
use data_check::has_met_damage;
use decide::{Facts, NodeState, Plan, PodEnd, PodFacts, Work};
use verdict::{KnownState, Verdict};

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
    /// A pod works on it, which has a deadline of its own. What is awaited.
    Busy(String),
    /// What is awaited before it can be used, for the prepare timeout at most: a pod makes or opens
    /// it, or could not so far, or another one does not end.
    Waiting(String),
    /// Why it cannot be used, and what to do.
    Unusable(String),
}

/// Runs until the process is asked to end.
pub(super) async fn run(mover: Arc<DataMover>, health: Health, stop: CancellationToken) {
    let keys = watch::keys::<BackupRepository>(&mover.cluster, &health, "backup repositories");
    let rotation = rotation::run(Arc::clone(&mover), stop.clone());
    let repositories = run_queue("backup repository", keys, CONCURRENCY, stop, move |key| {
        Arc::clone(&mover).reconcile_repository(key)
    });
    tokio::join!(repositories, rotation);
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
        let said = match verdict::known(&repository, &inputs) {
            KnownState::Ready => return Ok(RepositoryState::Ready),
            KnownState::Unusable(reason) => return Ok(RepositoryState::Unusable(reason)),
            KnownState::Waiting(reason) => Some(reason),
            KnownState::Stale => {
                self.forget_check(&repository).await?;
                None
            }
        };
        let pod = self.repository_pod(&repository.name_any()).await?;
        let now = Timestamp::now();
        Ok(decide::awaited(&repository, said, pod.as_ref(), now))
    }

    /// The pod of a repository. If it does not start, its state also says what an Event says.
    async fn repository_pod(&self, name: &str) -> Result<Option<PodFacts>, ReconcileError> {
        let Some(pod) = self.pod(name).await? else {
            return Ok(None);
        };
        let mut facts = PodFacts::of(&pod);
        if facts.is_slow(Timestamp::now())
            && let Some(problem) = last_warning(self, "Pod", name).await
        {
            facts.add_problem(&problem);
        }
        Ok(Some(facts))
    }

    /// Records what the state of a pod that uses a repository says about the next pod: the
    /// repository is missing or cannot be opened, or the pod waits for the password.
    pub(super) async fn note_pod(
        &self,
        namespace: &str,
        location: &str,
        state: &PodState,
    ) -> Result<(), ReconcileError> {
        match state {
            PodState::Ended(outcome) => self.note_outcome(namespace, location, outcome).await,
            PodState::Waiting(why) if why.contains(PASSWORD_SECRET) => {
                let known = self.existing_repository(namespace, location).await?;
                let ready = Some(BackupRepositoryPhase::Ready);
                match known.filter(|repository| repository.status.phase == ready) {
                    Some(repository) => self.forget_check(&repository).await,
                    None => Ok(()),
                }
            }
            PodState::Waiting(_) | PodState::Running | PodState::Lost(_) => Ok(()),
        }
    }

    /// A repository that could not be opened is opened by another pod at once: meanwhile the
    /// password may have been corrected. Data that could not be read is checked at once.
    async fn note_outcome(
        &self,
        namespace: &str,
        location: &str,
        outcome: &MoverOutcome,
    ) -> Result<(), ReconcileError> {
        let is_missing = outcome.reason.as_deref() == Some(failure_reason::REPOSITORY_MISSING);
        let verdict = Verdict::of_outcome(outcome);
        let has_met_damage = has_met_damage(outcome);
        if verdict.is_none() && !is_missing && !has_met_damage {
            return Ok(());
        }
        let Some(repository) = self.existing_repository(namespace, location).await? else {
            return Ok(());
        };
        match verdict {
            Some(verdict) => self.publish_verdict(&repository, NO_INPUTS, &verdict).await,
            None if is_missing => self.forget_check(&repository).await,
            None => self.suspect_damage(&repository, outcome).await,
        }
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
        let pod = self.repository_pod(&key.name).await?;
        let now = Timestamp::now();
        let node = match &pod {
            Some(pod) if pod.is_stuck(now) => self.node_state(pod.node.as_deref()).await,
            _ => NodeState::Unknown,
        };
        let may_need_slot = pod.is_none() && decide::is_check_due(&repository, now);
        let facts = Facts {
            inputs: decide::inputs(location.as_ref(), &password, &self.settings.image),
            repository: &repository,
            location: location.as_ref(),
            password: &password,
            pod,
            node,
            has_check_slot: may_need_slot && self.has_check_slot().await?,
            prepare_timeout: self.settings.prepare_timeout,
            now,
        };
        match decide::decide(&facts) {
            Plan::Nothing => Ok(Action::AwaitChange),
            Plan::Wait(time) => Ok(Action::RequeueAfter(time)),
            Plan::Record(end) => Box::pin(self.record_end(&facts, &end)).await,
            Plan::ReportStuck {
                message,
                holds_up_uploads,
            } => self.report_stuck(&facts, &message, holds_up_uploads).await,
            Plan::Inspect => Box::pin(self.inspect(&facts)).await,
            Plan::Publish(verdict) => {
                self.publish_verdict(&repository, &facts.inputs, &verdict)
                    .await?;
                Ok(REQUEUE_SOON)
            }
            Plan::Remark(remark) => {
                self.publish_remark(&repository, remark.as_deref()).await?;
                Ok(REQUEUE_SOON)
            }
            Plan::ChangeKeys(location, change) => {
                let work = PodWork::ChangeKeys(&change);
                self.begin_pod(&facts, location, work).await
            }
            Plan::Maintain(location) => self.begin_maintenance(&facts, location).await,
            Plan::Check(location) => self.begin_check(&facts, location).await,
        }
    }

    /// Creates the pod of a repository. If no pod can use the location, or the pod that is to make
    /// or open the repository is refused, that is published.
    async fn begin_pod(
        &self,
        facts: &Facts<'_>,
        location: &BackupStorageLocation,
        work: PodWork<'_>,
    ) -> Result<Action, ReconcileError> {
        let repository = facts.repository;
        let name = repository.name_any();
        let command = work.name();
        let is_preparation = matches!(work, PodWork::Init | PodWork::Open { .. });
        let request = PodRequest {
            name: &name,
            owner: Self::owner(repository),
            location,
            repository: &repository.spec.volume_namespace,
            work,
        };
        match self.create_pod(&request).await {
            Ok(()) => tracing::info!(repository = name, command, "the pod of a repository begins"),
            Err(ReconcileError::Impossible(why)) => {
                self.publish_verdict(repository, &facts.inputs, &Verdict::lasting(why))
                    .await?;
            }
            Err(error) => {
                let refusal = Refusal::of(&error).filter(|_| is_preparation);
                let Some(Refusal::Final(why) | Refusal::ForNow(why)) = refusal else {
                    return Err(error);
                };
                let namespace = &repository.spec.volume_namespace;
                let verdict = Verdict::retried(format!(
                    "the pod that prepares the repository of namespace {namespace} cannot be created: {why}"
                ));
                self.publish_verdict(repository, &facts.inputs, &verdict)
                    .await?;
            }
        }
        Ok(REQUEUE_SOON)
    }

    /// Publishes how a pod ended, then removes it. After a crash between, it is published once more.
    async fn record_end(&self, facts: &Facts<'_>, end: &PodEnd) -> Result<Action, ReconcileError> {
        let repository = facts.repository;
        let spec = &repository.spec;
        let failure = end.failure.as_deref();
        match end.work {
            Work::Maintenance => self.record_maintenance(repository, end).await?,
            Work::Init => match failure {
                Some(failure) => {
                    let verdict = Verdict::retried(format!(
                        "the repository of namespace {} could not be made: {failure}",
                        spec.volume_namespace
                    ));
                    self.publish_verdict(repository, &facts.inputs, &verdict)
                        .await?;
                }
                None => self.confirm_init(facts).await?,
            },
            Work::Open => self.record_opening(facts, end).await?,
            Work::Check => self.record_check(repository, end).await?,
            Work::ChangeKeys(work) => self.record_keys(repository, work, end).await?,
        }
        if let Some(outcome) = end.outcome.as_ref().filter(|_| end.work != Work::Open) {
            let location = &spec.backup_storage_location;
            self.note_outcome(&spec.volume_namespace, location, outcome)
                .await?;
        }
        let name = repository.name_any();
        if end.is_forced {
            self.discard_pod(&name).await?;
        } else {
            let pods: Api<Pod> = self.cluster.api();
            self.remove(&pods, &name).await?;
        }
        Ok(REQUEUE_SOON)
    }
}
