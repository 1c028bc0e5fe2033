//! Looks into the bucket for a repository, and has one made if there is none.

use backup_core::{api::BackupRepository, data_movement::repository_path};
use backup_runtime::{list, queue::Action};
use kube::ResourceExt as _;

use super::{
    REQUEUE_SOON,
    decide::{self, BucketFacts, Facts, InspectionPlan, Verdict},
    password::PasswordSecret,
};
use crate::{
    data_mover::{
        DataMover,
        pod::{PodRequest, PodWork},
    },
    error::ReconcileError,
};

impl DataMover {
    /// Publishes whether the repository can be used, or has it made.
    pub(super) async fn inspect(&self, facts: &Facts<'_>) -> Result<Action, ReconcileError> {
        let repository = facts.repository;
        let verdict = match self.bucket_facts(facts).await {
            Ok(bucket) => match decide::inspected(facts, &bucket) {
                InspectionPlan::Publish(verdict) => verdict,
                InspectionPlan::MakePassword => {
                    self.make_password().await?;
                    return Ok(REQUEUE_SOON);
                }
                InspectionPlan::Init => match self.begin_init(facts).await {
                    Ok(()) => return Ok(REQUEUE_SOON),
                    Err(ReconcileError::Impossible(why)) => Verdict::lasting(why),
                    Err(error) => return Err(error),
                },
            },
            Err(error @ ReconcileError::NotLeader(_)) => return Err(error),
            // The reason is published for the transfers that wait for the repository.
            Err(error) => Verdict::retried(error.to_string()),
        };
        self.publish_verdict(repository, &facts.inputs, &verdict)
            .await?;
        Ok(REQUEUE_SOON)
    }

    /// Publishes whether the repository exists after a pod has reported that it made it.
    pub(super) async fn confirm_init(&self, facts: &Facts<'_>) -> Result<(), ReconcileError> {
        let verdict = match self.bucket_facts(facts).await {
            Ok(bucket) if !bucket.exists => Verdict::retried(format!(
                "backup-mover has made the repository, but there is none at {}: the pod and this controller see different \
                 stores; check endpoint and credentials of the BackupStorageLocation",
                bucket.url
            )),
            Ok(bucket) => match decide::inspected(facts, &bucket) {
                InspectionPlan::Publish(verdict) => verdict,
                // The Secret was deleted meanwhile; the next check says what to do.
                InspectionPlan::MakePassword | InspectionPlan::Init => return Ok(()),
            },
            Err(error) => Verdict::retried(error.to_string()),
        };
        self.publish_verdict(facts.repository, &facts.inputs, &verdict)
            .await
    }

    async fn bucket_facts(&self, facts: &Facts<'_>) -> Result<BucketFacts, ReconcileError> {
        let spec = &facts.repository.spec;
        let (location, store) = self.locations.open(&spec.backup_storage_location).await?;
        let namespace = &spec.volume_namespace;
        let exists = store.has_repository(namespace).await?;
        // Whether there are others matters only without a password.
        let has_others = if exists || *facts.password != PasswordSecret::Absent {
            false
        } else {
            store.has_repositories().await? || self.has_used_repositories().await?
        };
        Ok(BucketFacts {
            url: format!("{}/{}", store.url(), repository_path(namespace)),
            is_read_only: crate::location::is_read_only(&location),
            exists,
            has_others,
        })
    }

    /// Whether there are BackupRepositories, in any location, that could be used once.
    async fn has_used_repositories(&self) -> Result<bool, ReconcileError> {
        let used = list::raw::<BackupRepository, _>(&self.cluster, "", |repository| {
            let is_used = repository.data["status"]["lastMaintenanceTime"].is_string();
            is_used.then(|| repository.name_any())
        });
        Ok(!used.await?.is_empty())
    }

    /// Creates the pod that makes the repository.
    async fn begin_init(&self, facts: &Facts<'_>) -> Result<(), ReconcileError> {
        let repository = facts.repository;
        let Some(location) = facts.location else {
            return Ok(());
        };
        let name = repository.name_any();
        let request = PodRequest {
            name: &name,
            owner: Self::owner(repository),
            location,
            repository: &repository.spec.volume_namespace,
            work: PodWork::Init,
        };
        self.create_pod(&request).await
    }
}
