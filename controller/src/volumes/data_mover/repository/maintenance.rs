//! Maintenance of a repository: a pod removes data that no snapshot needs.
//!
//! A maintenance beside an upload may mark data for removal that the upload relies on. So no
//! maintenance begins while an upload into the repository is between its acceptance and its end,
//! and no upload is accepted while there is a pod of a maintenance; both look and act under
//! `exclusion`. If the two meet in spite of that (another cluster writes into the same location),
//! data is only marked: it is removed three days later at the earliest, and a maintenance before
//! that finds that it is needed and keeps it.

use std::time::Duration;

use backup_core::{
    api::{
        BackupRepository, BackupStorageLocation, DataUpload,
        backup_repository::{BackupRepositorySpec, Maintenance, MaintenanceResult},
    },
    data_movement::{DATA_MOVER, FINALIZER},
    repository_records::MAINTENANCE_REQUEST_ANNOTATION,
};
use backup_runtime::{list, queue::Action, retry};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde_json::Value;

use super::{
    RepositoryState,
    decide::{self, Facts, PodEnd, PodFacts, is_in_use},
    patches,
};
use crate::{
    error::ReconcileError,
    volumes::data_mover::{
        DataMover,
        pod::{PodWork, REPOSITORY_LABEL, WORK_LABEL},
    },
};

/// Delay before a maintenance that waits for uploads is considered again.
const BUSY_INTERVAL: Duration = Duration::from_mins(1);

impl DataMover {
    /// Creates the pod of a maintenance, unless an upload uses the repository.
    pub(super) async fn begin_maintenance(
        &self,
        facts: &Facts<'_>,
        location: &BackupStorageLocation,
    ) -> Result<Action, ReconcileError> {
        let repository = facts.repository;
        let exclusion = self.exclusion.lock().await;
        let users = self.uploads_in_use(&repository.spec).await?;
        if users.is_empty() {
            let work = PodWork::Maintain {
                request: patches::request(repository, MAINTENANCE_REQUEST_ANNOTATION),
            };
            return self.begin_pod(facts, location, work).await;
        }
        drop(exclusion);
        let name = repository.name_any();
        tracing::debug!(
            repository = name,
            ?users,
            "its maintenance waits for uploads"
        );
        // A check runs beside uploads.
        if decide::may_be_checked(facts) {
            return self.begin_check(facts, location).await;
        }
        Ok(Action::RequeueAfter(BUSY_INTERVAL))
    }

    /// The state of a repository for an upload that waits for a maintenance pod; `None` if there is
    /// none. To be called while `exclusion` is held, if an upload is to be accepted.
    pub(in crate::volumes::data_mover) async fn awaited_maintenance(
        &self,
        repository: &str,
    ) -> Result<Option<RepositoryState>, ReconcileError> {
        let maintenance = PodWork::Maintain { request: None }.name();
        let selector = format!("{REPOSITORY_LABEL}={repository},{WORK_LABEL}={maintenance}");
        let params = ListParams::default().labels(&selector);
        let pods = self.cluster.api::<Pod>().list(&params).await?;
        let now = Timestamp::now();
        let pod = pods.items.first();
        Ok(pod.map(|pod| decide::held_up_by(&PodFacts::of(pod), &pod.name_any(), now)))
    }

    /// Names of the uploads into a repository between their acceptance and their end. The list is
    /// fresh.
    async fn uploads_in_use(
        &self,
        spec: &BackupRepositorySpec,
    ) -> Result<Vec<String>, ReconcileError> {
        Ok(list::raw::<DataUpload, _>(&self.cluster, "", |upload| {
            uses(&upload, spec).then(|| upload.name_any())
        })
        .await?)
    }

    /// The uploads that wait to be accepted into a repository.
    pub(super) async fn waiting_uploads(
        &self,
        spec: &BackupRepositorySpec,
    ) -> Result<Vec<DataUpload>, ReconcileError> {
        Ok(list::raw::<DataUpload, _>(&self.cluster, "", |upload| {
            let is_new = matches!(text(&upload, "/status/phase"), "" | "New");
            let is_waiting = is_new && is_into(&upload, spec);
            is_waiting
                .then(|| list::decode::<DataUpload>(&upload).ok())
                .flatten()
        })
        .await?)
    }

    /// Records how a maintenance ended. Idempotent: a maintenance is known by its start.
    pub(super) async fn record_maintenance(
        &self,
        repository: &BackupRepository,
        end: &PodEnd,
    ) -> Result<(), ReconcileError> {
        let failure = end.failure.as_deref();
        let result = if failure.is_none() {
            MaintenanceResult::Succeeded
        } else {
            MaintenanceResult::Failed
        };
        let ended = Maintenance {
            result: Some(result),
            start_timestamp: end.started.map(Time),
            complete_timestamp: Some(Time(Timestamp::now())),
            message: failure.map(str::to_owned),
            ..Maintenance::default()
        };
        retry::status_patch(&self.cluster, repository, |current| {
            patches::maintenance(current, &ended, end.valid_for.as_deref())
        })
        .await?;
        let name = repository.name_any();
        match failure {
            None => tracing::info!(repository = name, "it was maintained"),
            Some(failure) => {
                tracing::warn!(repository = name, failure, "its maintenance failed");
            }
        }
        Ok(())
    }
}

/// Whether an upload uses the repository.
fn uses(upload: &DynamicObject, spec: &BackupRepositorySpec) -> bool {
    let has_objects = upload.finalizers().iter().any(|name| name == FINALIZER);
    let phase = text(upload, "/status/phase").into();
    is_into(upload, spec) && is_in_use(&phase, has_objects)
}

/// Whether an upload is into the repository.
fn is_into(upload: &DynamicObject, spec: &BackupRepositorySpec) -> bool {
    text(upload, "/spec/sourceNamespace") == spec.volume_namespace
        && text(upload, "/spec/backupStorageLocation") == spec.backup_storage_location
        && text(upload, "/spec/datamover") == DATA_MOVER
}

fn text<'a>(object: &'a DynamicObject, at: &str) -> &'a str {
    let value = object.data.pointer(at).and_then(Value::as_str);
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::accepted("shop", "default", "backup-mover", "Accepted", true)]
    #[case::of_velero("shop", "default", "velero", "InProgress", false)]
    #[case::of_another_namespace("shops", "default", "backup-mover", "InProgress", false)]
    #[case::in_another_location("shop", "second", "backup-mover", "InProgress", false)]
    #[case::of_another_mover("shop", "default", "theirs", "InProgress", false)]
    #[case::ended("shop", "default", "backup-mover", "Completed", false)]
    #[case::not_begun("shop", "default", "backup-mover", "", false)]
    fn an_upload_uses_the_repository_of_its_namespace_and_location(
        #[case] namespace: &str,
        #[case] location: &str,
        #[case] mover: &str,
        #[case] phase: &str,
        #[case] expected: bool,
    ) {
        let spec = BackupRepositorySpec {
            volume_namespace: "shop".to_owned(),
            backup_storage_location: "default".to_owned(),
            ..BackupRepositorySpec::default()
        };
        let upload = json!({
            "metadata": {"name": "u"},
            "spec": {"sourceNamespace": namespace, "backupStorageLocation": location, "datamover": mover},
            "status": {"phase": phase},
        });
        let mut upload: DynamicObject = serde_json::from_value(upload).unwrap();
        assert_eq!(uses(&upload, &spec), expected);
        upload.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        let is_into = (namespace, location) == ("shop", "default") && mover == "backup-mover";
        assert_eq!(uses(&upload, &spec), is_into, "its pod may still run");
    }
}
