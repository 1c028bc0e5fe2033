//! Looks into the bucket for a repository, and has one made if there is none.

use backup_core::{
    api::{BackupRepository, BackupStorageLocation},
    data_movement::{REPOSITORY_TYPE, repository_path},
};
use backup_runtime::{list, queue::Action};
use backup_store::{Location, is_built_in};
use kube::ResourceExt as _;

use super::{
    REQUEUE_SOON,
    decide::{self, BucketFacts, Facts, InspectionPlan, OtherRepositories},
    password::PasswordSecret,
    verdict::Verdict,
};
use crate::{
    error::ReconcileError,
    location::LocationError,
    volumes::data_mover::{DataMover, pod::PodWork},
};

impl DataMover {
    /// Publishes whether the repository can be used, or has it made or opened.
    pub(super) async fn inspect(&self, facts: &Facts<'_>) -> Result<Action, ReconcileError> {
        let verdict = match self.bucket_facts(facts).await {
            Ok(bucket) => match decide::inspected(facts, bucket) {
                InspectionPlan::Publish(verdict) => verdict,
                InspectionPlan::MakePassword => {
                    self.make_password().await?;
                    return Ok(REQUEUE_SOON);
                }
                InspectionPlan::Init => return self.begin_init(facts).await,
                InspectionPlan::Open => {
                    let Some(location) = facts.location else {
                        return Ok(REQUEUE_SOON);
                    };
                    let inputs = &facts.inputs;
                    let work = PodWork::Open { inputs };
                    return self.begin_pod(facts, location, work).await;
                }
            },
            Err(error @ ReconcileError::NotLeader(_)) => return Err(error),
            // The reason is published for the transfers that wait for the repository.
            Err(error) => Verdict::retried(error.to_string()),
        };
        self.publish_verdict(facts.repository, &facts.inputs, &verdict)
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
            Ok(bucket) => match decide::inspected(facts, bucket) {
                InspectionPlan::Publish(verdict) => verdict,
                // A pod that makes a repository opens it.
                InspectionPlan::Open => Verdict::ready(),
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
        let others = if exists || *facts.password != PasswordSecret::Absent {
            OtherRepositories::None
        } else {
            self.other_repositories().await?
        };
        Ok(BucketFacts {
            url: format!("{}/{}", store.url(), repository_path(namespace)),
            is_read_only: crate::location::is_read_only(&location),
            exists,
            others,
        })
    }

    /// Whether there are repositories in any location of the installation, or have been in one that
    /// is gone.
    async fn other_repositories(&self) -> Result<OtherRepositories, ReconcileError> {
        let mut unknown = None;
        for name in self.location_names().await? {
            match self.has_repositories(&name).await {
                Ok(None) => {}
                Ok(Some(place)) => return Ok(OtherRepositories::At(place)),
                Err(error) => unknown = Some(error.to_string()),
            }
        }
        if let Some(used) = self.used_repository().await? {
            return Ok(OtherRepositories::At(used));
        }
        Ok(unknown.map_or(OtherRepositories::None, OtherRepositories::Unknown))
    }

    /// The names of all locations, also of those that cannot be decoded.
    pub(super) async fn location_names(&self) -> Result<Vec<String>, ReconcileError> {
        let names = list::raw::<BackupStorageLocation, _>(&self.cluster, "", |location| {
            Some(location.name_any())
        });
        Ok(names.await?)
    }

    /// A location that can hold repositories, and its store; `None` if only a plugin serves it.
    pub(super) async fn repository_store(
        &self,
        name: &str,
    ) -> Result<Option<(BackupStorageLocation, Location)>, LocationError> {
        let location = self.locations.get(name).await?;
        if !is_built_in(&location.spec.provider) {
            return Ok(None);
        }
        let store = self.locations.store(&location).await?;
        Ok(Some((location, store)))
    }

    /// Where the repositories in a location are; `None` if there are none.
    async fn has_repositories(&self, name: &str) -> Result<Option<String>, LocationError> {
        let Some((_, store)) = self.repository_store(name).await? else {
            return Ok(None);
        };
        let has_some = store.has_repositories().await;
        let has_some = has_some.map_err(|error| LocationError::of_store(name, error))?;
        let url = store.url();
        Ok(has_some.then(|| format!("{url}/{REPOSITORY_TYPE} (BackupStorageLocation {name})")))
    }

    /// A BackupRepository, in any location, that could be used once.
    async fn used_repository(&self) -> Result<Option<String>, ReconcileError> {
        let used = list::raw::<BackupRepository, _>(&self.cluster, "", |repository| {
            let is_used = repository.data["status"]["lastMaintenanceTime"].is_string();
            let location = repository.data["spec"]["backupStorageLocation"].as_str();
            let location = location.unwrap_or_default();
            let name = repository.name_any();
            is_used.then(|| {
                format!("BackupStorageLocation {location}, as BackupRepository {name} says")
            })
        });
        Ok(used.await?.into_iter().next())
    }

    /// Creates the pod that makes the repository. Not while the password is replaced: a repository
    /// with a key of the previous one alone would be unreadable (see [`super::rotation`]).
    async fn begin_init(&self, facts: &Facts<'_>) -> Result<Action, ReconcileError> {
        let Some(location) = facts.location else {
            return Ok(REQUEUE_SOON);
        };
        let _exclusion = self.exclusion.lock().await;
        self.begin_pod(facts, location, PodWork::Init).await
    }
}
