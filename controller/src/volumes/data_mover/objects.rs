//! Requests to the cluster that transfers and repositories share: their pods, and the removal of
//! objects that they have created.
//!
//! Creations are create-only: names are derived from what an object is for, so one that exists is
//! the one that was wanted. Deletions carry the uid of the object that was read. Both are sent only
//! while this replica leads.

use std::{fmt::Debug, time::Duration};

use backup_client::{
    errors::{found, is_conflict, is_final, is_gone, plain},
    retry::timed,
};
use backup_core::{
    api::{DataDownload, DataUpload, transfer::MovePhase},
    data_movement::MoverProgress,
};
use backup_runtime::retry::WRITE_TIMEOUT;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, PersistentVolume, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, LogParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{DataMover, pod::PodRequest};
use crate::error::ReconcileError;

/// Label of a DataUpload or DataDownload between its acceptance and its end, so that those are
/// found among all that have ended; the value is `true`.
pub(super) const ACTIVE_LABEL: &str = "backup-controller/active";
/// Time after which Events are read for why pod or claim are not ready.
pub(super) const EVENT_DELAY: Duration = Duration::from_secs(15);
/// Timeout of reads that only make a status or a message better.
const BEST_EFFORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a pod that is being deleted counts as lost with its node.
pub(super) const REMOVAL_TIMEOUT: Duration = Duration::from_mins(10);
/// Number of lines at the end of a log in which the progress is looked for: warnings may follow it.
const LOG_LINES: i64 = 30;
/// Maximum number of Events that are read of an object.
const MAX_EVENTS: u32 = 50;

impl DataMover {
    pub(super) async fn pod(&self, name: &str) -> Result<Option<Pod>, ReconcileError> {
        Ok(found(self.cluster.api::<Pod>().get(name).await, name)?)
    }

    /// Creates a pod, unless there is one of its name. Errors: [`ReconcileError::Impossible`] if no
    /// pod can use the location.
    pub(super) async fn create_pod(&self, request: &PodRequest<'_>) -> Result<(), ReconcileError> {
        self.create_changed_pod(request, |_| ()).await
    }

    /// The same, with a change of the pod.
    pub(super) async fn create_changed_pod(
        &self,
        request: &PodRequest<'_>,
        change: impl FnOnce(&mut Pod) + Send,
    ) -> Result<(), ReconcileError> {
        let mut pod = request
            .pod(&self.cluster.namespace, &self.settings)
            .map_err(ReconcileError::Impossible)?;
        change(&mut pod);
        create_once(self, &self.cluster.api(), &pod).await
    }

    /// Deletes an object. Returns whether it is gone: finalizers, or a container that is still to
    /// stop, may keep it for a while.
    pub(super) async fn remove<K>(&self, api: &Api<K>, name: &str) -> Result<bool, ReconcileError>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send,
    {
        let Some(object) = found(api.get(name).await, name)? else {
            return Ok(true);
        };
        let meta = object.meta();
        if meta.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: meta.uid.clone(),
            resource_version: None,
        });
        let leadership = &self.cluster.leadership;
        match leadership
            .write(WRITE_TIMEOUT, api.delete(name, &params))
            .await
        {
            // Gone, or replaced by another one of its name; the next call looks again.
            Ok(_) => {}
            Err(error) if is_gone(&error, name) || is_conflict(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(found(api.get(name).await, name)?.is_none())
    }

    /// How far a pod is, from the end of its log; `None` if that is not known now.
    pub(super) async fn progress(&self, pod: &str) -> Option<MoverProgress> {
        let params = LogParams {
            tail_lines: Some(LOG_LINES),
            ..LogParams::default()
        };
        let api = self.cluster.api::<Pod>();
        match timed(BEST_EFFORT_TIMEOUT, api.logs(pod, &params)).await {
            Ok(log) => log.lines().rev().find_map(MoverProgress::of_line),
            Err(error) => {
                tracing::debug!(pod, error = plain(&error), "the log could not be read");
                None
            }
        }
    }

    /// The reference by which an object belongs to `object`, and is removed with it.
    pub(super) fn owner<K: Resource<DynamicType = ()>>(object: &K) -> OwnerReference {
        object.controller_owner_ref(&()).unwrap_or_default()
    }
}

/// Why the API server, or a location, does not allow what is needed.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// The same request is refused each time.
    Final(String),
    /// It may be allowed later, such as within a quota.
    ForNow(String),
}

impl Refusal {
    pub(super) fn of(error: &ReconcileError) -> Option<Self> {
        match error {
            ReconcileError::Impossible(why) => Some(Self::Final(why.clone())),
            ReconcileError::Api(error) if is_final(error) => Some(Self::Final(plain(error))),
            ReconcileError::Api(kube::Error::Api(status)) if status.is_forbidden() => {
                Some(Self::ForNow(status.message.clone()))
            }
            _ => None,
        }
    }
}

/// Creates an object, unless there is one of its name.
pub(super) async fn create_once<K>(
    mover: &DataMover,
    api: &Api<K>,
    object: &K,
) -> Result<(), ReconcileError>
where
    K: Resource + Serialize + Clone + DeserializeOwned + Debug + Send + Sync,
{
    create_or_find(mover, api, object).await.map(|_| ())
}

/// The same. Returns what is stored; `None` if there was one of its name.
pub(super) async fn create_or_find<K>(
    mover: &DataMover,
    api: &Api<K>,
    object: &K,
) -> Result<Option<K>, ReconcileError>
where
    K: Resource + Serialize + Clone + DeserializeOwned + Debug + Send + Sync,
{
    let params = PostParams::default();
    let created = mover
        .cluster
        .leadership
        .write(WRITE_TIMEOUT, api.create(&params, object))
        .await;
    match created {
        Ok(stored) => Ok(Some(stored)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Number of transfers between their acceptance and their end. To be called while `exclusion` is
/// held, if one is to be accepted.
pub(super) async fn active_transfers(mover: &DataMover) -> Result<usize, ReconcileError> {
    let params = ListParams::default().labels(&format!("{ACTIVE_LABEL}=true"));
    let uploads = mover.cluster.api::<DataUpload>().list(&params).await?;
    let downloads = mover.cluster.api::<DataDownload>().list(&params).await?;
    let uploads = uploads.items.iter().map(|upload| &upload.status.transfer);
    let downloads = downloads
        .items
        .iter()
        .map(|download| &download.status.transfer);
    let active = uploads
        .chain(downloads)
        .filter(|transfer| transfer.phase.as_ref().is_some_and(is_active));
    Ok(active.count())
}

/// The latest warning among the Events of an object of the installation, such as why its volume
/// cannot be provisioned; `None` if there is none, or they cannot be read now.
pub(super) async fn last_warning(mover: &DataMover, kind: &str, name: &str) -> Option<String> {
    let fields = format!("involvedObject.kind={kind},involvedObject.name={name},type=Warning");
    let params = ListParams::default().fields(&fields).limit(MAX_EVENTS);
    let api = mover.cluster.api::<Event>();
    match timed(BEST_EFFORT_TIMEOUT, api.list(&params)).await {
        Ok(events) => {
            let latest = events.items.into_iter().max_by_key(time_of)?;
            latest.message.filter(|message| !message.is_empty())
        }
        Err(error) => {
            tracing::debug!(kind, name, error = plain(&error), "Events were not read");
            None
        }
    }
}

/// When an Event was seen last.
fn time_of(event: &Event) -> Option<Timestamp> {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let at = event.event_time.as_ref().map(|time| time.0);
    let created = event.metadata.creation_timestamp.as_ref();
    last.max(at).or(created.map(|time| time.0))
}

/// Whether a transfer was accepted and has not ended.
fn is_active(phase: &MovePhase) -> bool {
    match phase {
        MovePhase::Accepted
        | MovePhase::Prepared
        | MovePhase::InProgress
        | MovePhase::Canceling
        | MovePhase::Unknown(_) => true,
        MovePhase::New | MovePhase::Canceled | MovePhase::Completed | MovePhase::Failed => false,
    }
}

/// Annotation of a volume by the provisioner that made it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation of a volume that existed before the claim that it was bound to: a provisioner reserves
/// a new volume for its claim, so the binder does not choose it.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Whether a volume was made for the claim that it is bound to. A claim is also bound to any free
/// volume of its class that is large enough, whatever data source it names (kubernetes#101878):
/// such a volume may hold other data.
pub(crate) fn is_made_for_claim(volume: &PersistentVolume) -> bool {
    is_provisioned(volume) && !volume.annotations().contains_key(BOUND_BY_CONTROLLER)
}

/// Whether a provisioner made a volume, for whichever claim.
pub(crate) fn is_provisioned(volume: &PersistentVolume) -> bool {
    volume.annotations().contains_key(PROVISIONED_BY)
}

#[cfg(test)]
mod tests {
    use backup_core::api::{BackupStorageLocation, BackupStorageLocationSpec};
    use backup_testkit::FakeApi;
    use serde_json::json;

    use super::*;
    use crate::{testing, volumes::data_mover::pod::PodWork};

    const POD: &str = "/api/v1/namespaces/velero/pods/p";

    fn mover(fake: &FakeApi) -> DataMover {
        testing::data_mover(testing::cluster(fake.client()))
    }

    fn location() -> BackupStorageLocation {
        let mut spec = BackupStorageLocationSpec {
            provider: "aws".to_owned(),
            ..BackupStorageLocationSpec::default()
        };
        spec.object_storage.bucket = "b".to_owned();
        BackupStorageLocation::new("default", spec)
    }

    fn request<'a>(location: &'a BackupStorageLocation, work: PodWork<'a>) -> PodRequest<'a> {
        PodRequest {
            name: "p",
            owner: OwnerReference::default(),
            location,
            repository: "shop",
            work,
        }
    }

    #[tokio::test]
    async fn a_pod_is_created_once_and_removed_by_its_uid() {
        let fake = FakeApi::new();
        let mover = mover(&fake);
        let location = location();
        assert!(mover.pod("p").await.unwrap().is_none());
        for _ in 0..2 {
            let request = request(&location, PodWork::Init);
            mover.create_pod(&request).await.unwrap();
        }
        assert!(mover.pod("p").await.unwrap().is_some());
        fake.edit(POD, |pod| pod["metadata"]["finalizers"] = json!(["kept"]));
        let pods: Api<Pod> = mover.cluster.api();
        assert!(!mover.remove(&pods, "p").await.unwrap(), "it is kept");
        assert!(!mover.remove(&pods, "p").await.unwrap(), "still");
        fake.delete(POD);
        assert!(mover.remove(&pods, "p").await.unwrap());
        let deletions: Vec<_> = fake
            .requests()
            .into_iter()
            .filter(|request| request.method == "DELETE")
            .collect();
        assert_eq!(
            deletions.len(),
            1,
            "one that is being deleted is left alone"
        );
        assert!(deletions[0].body["preconditions"]["uid"].is_string());
    }

    #[tokio::test]
    async fn transfers_count_from_acceptance_to_end() {
        let fake = FakeApi::new();
        let mover = mover(&fake);
        for (number, (kind, phase, label)) in [
            ("dataupload", "Accepted", true),
            ("dataupload", "InProgress", true),
            ("dataupload", "Completed", true),
            ("dataupload", "New", false),
            ("datadownload", "Prepared", true),
            ("datadownload", "Failed", false),
        ]
        .into_iter()
        .enumerate()
        {
            let mut object = json!({
                "apiVersion": "velero.io/v2alpha1",
                "kind": if kind == "dataupload" { "DataUpload" } else { "DataDownload" },
                "metadata": { "name": format!("t{number}"), "namespace": "velero" },
                "status": { "phase": phase },
            });
            if label {
                object["metadata"]["labels"] = json!({ ACTIVE_LABEL: "true" });
            }
            let path = format!("/apis/velero.io/v2alpha1/namespaces/velero/{kind}s/t{number}");
            fake.put(&path, object);
        }
        assert_eq!(active_transfers(&mover).await.unwrap(), 3);
    }
}
