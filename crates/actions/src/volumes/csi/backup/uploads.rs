//! Requests for DataUploads. The controller's data mover works on them.
//!
//! All requests are retried for half a minute. A creation is create-only: the name is derived from
//! the uids of backup and claim. A cancellation sets a fixed value on an object that belongs to
//! only one backup, so it carries no resourceVersion. Writes are only made while this replica
//! leads.

use std::{future::Future, time::Duration};

use backup_client::{
    errors::{found, is_conflict},
    retry,
};
use backup_core::{
    api::{DataUpload, transfer::MovePhase},
    labels::BACKUP_UID,
};
use backup_runtime::{leader::Leadership, retry::WRITE_TIMEOUT};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

/// Time limit for one request, retries included.
const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// The DataUploads of an installation.
#[derive(Clone)]
pub struct UploadApi {
    api: Api<DataUpload>,
    namespace: String,
    leadership: Leadership,
}

impl UploadApi {
    pub fn new(client: &Client, namespace: &str, leadership: &Leadership) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            leadership: leadership.clone(),
        }
    }

    /// Namespace of the DataUploads.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    async fn write<T, F, Fut>(&self, request: F) -> Result<T, kube::Error>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        retry::read(RETRY_BUDGET, || async {
            self.leadership.write(WRITE_TIMEOUT, request()).await
        })
        .await
    }

    /// Creates a DataUpload, or finds the one that an earlier attempt of the backup has created.
    /// Errors: one of that name belongs to another backup, or it was stored without its labels, so
    /// that the end of the backup would not find it.
    pub(super) async fn create(&self, wanted: &DataUpload) -> Result<(), kube::Error> {
        let name = wanted.name_any();
        let params = PostParams::default();
        let stored = match self.write(|| self.api.create(&params, wanted)).await {
            Err(error) if is_conflict(&error) => {
                let there = retry::read(RETRY_BUDGET, || self.api.get(&name)).await?;
                if there.labels().get(BACKUP_UID) != wanted.labels().get(BACKUP_UID) {
                    return Err(error);
                }
                there
            }
            other => other?,
        };
        let lost = wanted
            .labels()
            .iter()
            .find(|(key, value)| stored.labels().get(*key) != Some(*value));
        match lost {
            None => Ok(()),
            Some((key, _)) => {
                let what = format!(
                    "the API server stored it without its label {key}. Look for a mutating webhook that takes it away"
                );
                Err(kube::Error::Service(what.into()))
            }
        }
    }

    pub(super) async fn get(&self, name: &str) -> Result<Option<DataUpload>, kube::Error> {
        found(retry::read(RETRY_BUDGET, || self.api.get(name)).await, name)
    }

    /// The DataUploads of a backup that are in the cluster.
    pub async fn of_backup(&self, uid: &str) -> Result<Vec<DataUpload>, kube::Error> {
        let params = ListParams::default().labels(&format!("{BACKUP_UID}={uid}"));
        Ok(retry::read(RETRY_BUDGET, || self.api.list(&params))
            .await?
            .items)
    }

    /// Asks the data mover to stop; nothing is done if the DataUpload is gone.
    pub(super) async fn cancel(&self, name: &str) -> Result<(), kube::Error> {
        let params = PatchParams::default();
        let merge = Patch::Merge(json!({ "spec": { "cancel": true } }));
        let written = self.write(|| self.api.patch(name, &params, &merge)).await;
        found(written, name).map(|_| ())
    }

    /// Asks the data mover to stop all uploads of a backup that have not ended.
    pub async fn cancel_all(&self, uid: &str) -> Result<(), kube::Error> {
        for upload in self.of_backup(uid).await? {
            let phase = upload.status.transfer.phase.as_ref();
            if !phase.is_some_and(MovePhase::has_ended) && !upload.spec.mover.cancel {
                self.cancel(&upload.name_any()).await?;
            }
        }
        Ok(())
    }
}
