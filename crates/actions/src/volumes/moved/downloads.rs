//! Requests for DataDownloads. The controller's data mover works on them.
//!
//! All requests are retried for half a minute. A creation is create-only: the name is derived from
//! the uid of the restore and the claim. A cancellation sets a fixed value on an object that
//! belongs to only one restore, so it carries no resourceVersion. Writes are only made while this
//! replica leads.

use std::time::Duration;

use backup_client::{
    errors::{found, is_conflict},
    retry,
};
use backup_core::{
    api::{DataDownload, transfer::MovePhase},
    labels::RESTORE_UID,
};
use backup_runtime::{leader::Leadership, retry::WRITE_TIMEOUT};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::csi::WriteGate;

/// Time limit for one request, retries included.
const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// The DataDownloads of an installation.
#[derive(Clone)]
pub struct DownloadApi {
    api: Api<DataDownload>,
    namespace: String,
    leadership: Leadership,
    gate: Option<WriteGate>,
}

impl DownloadApi {
    pub fn new(client: &Client, namespace: &str, leadership: &Leadership) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            leadership: leadership.clone(),
            gate: None,
        }
    }

    /// The same, with writes only while the gate allows them.
    #[must_use]
    pub fn gated(self, gate: WriteGate) -> Self {
        Self {
            gate: Some(gate),
            ..self
        }
    }

    /// Namespace of the DataDownloads.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    async fn write<T, F, Fut>(&self, request: F) -> Result<T, kube::Error>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        retry::read(RETRY_BUDGET, || async {
            if let Some(gate) = &self.gate {
                gate()
                    .await
                    .map_err(|why| kube::Error::Service(why.into()))?;
            }
            self.leadership.write(WRITE_TIMEOUT, request()).await
        })
        .await
    }

    /// Creates a DataDownload, or finds the one that an earlier attempt of the restore has created.
    /// Errors: one of that name belongs to another restore.
    pub(super) async fn create(&self, wanted: &DataDownload) -> Result<(), kube::Error> {
        let name = wanted.name_any();
        let params = PostParams::default();
        let Err(error) = self.write(|| self.api.create(&params, wanted)).await else {
            return Ok(());
        };
        if !is_conflict(&error) {
            return Err(error);
        }
        let there = retry::read(RETRY_BUDGET, || self.api.get(&name)).await?;
        if there.labels().get(RESTORE_UID) == wanted.labels().get(RESTORE_UID) {
            Ok(())
        } else {
            Err(error)
        }
    }

    pub(super) async fn get(&self, name: &str) -> Result<Option<DataDownload>, kube::Error> {
        found(retry::read(RETRY_BUDGET, || self.api.get(name)).await, name)
    }

    /// Asks the data mover to stop; nothing is done if the DataDownload is gone.
    pub async fn cancel(&self, name: &str) -> Result<(), kube::Error> {
        let params = PatchParams::default();
        let merge = Patch::Merge(json!({ "spec": { "cancel": true } }));
        let written = self.write(|| self.api.patch(name, &params, &merge)).await;
        found(written, name).map(|_| ())
    }

    /// Asks the data mover to stop all downloads of a restore that have not ended.
    pub async fn cancel_all(&self, uid: &str) -> Result<(), kube::Error> {
        let params = ListParams::default().labels(&format!("{RESTORE_UID}={uid}"));
        let all = retry::read(RETRY_BUDGET, || self.api.list(&params)).await?;
        for download in all.items {
            let phase = download.status.transfer.phase.as_ref();
            if !phase.is_some_and(MovePhase::has_ended) && !download.spec.mover.cancel {
                self.cancel(&download.name_any()).await?;
            }
        }
        Ok(())
    }
}
