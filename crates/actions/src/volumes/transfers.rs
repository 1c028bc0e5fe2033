//! Requests for DataUploads and DataDownloads. The controller's data mover works on them.
//!
//! All requests are retried for half a minute. A creation is create-only: the name is derived from
//! the claim and the uid of the backup or restore. A cancellation, and the mark of an abandoned
//! backup, set a fixed value on an object that belongs to only one of them, so they carry no
//! resourceVersion.

use backup_client::{
    errors::{found, is_conflict},
    retry,
};
use backup_core::{
    api::{
        DataDownload, DataUpload, NamespacedKind,
        transfer::{DataMover, MovePhase, TransferStatus},
    },
    data_movement::{ABANDONED_ANNOTATION, FINALIZER},
    labels::{BACKUP_UID, RESTORE_UID},
};
use backup_runtime::leader::Leadership;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::gated_writes::{GatedWrites, RETRY_BUDGET, WriteGate, found_whole, whole};

/// A kind that records a transfer of volume data.
pub trait Transfer: NamespacedKind {
    /// Label with the uid of the backup or restore that it belongs to.
    const OWNER_LABEL: &'static str;

    fn mover(&self) -> &DataMover;

    fn transfer(&self) -> &TransferStatus;
}

impl Transfer for DataUpload {
    const OWNER_LABEL: &'static str = BACKUP_UID;

    fn mover(&self) -> &DataMover {
        &self.spec.mover
    }

    fn transfer(&self) -> &TransferStatus {
        &self.status.transfer
    }
}

impl Transfer for DataDownload {
    const OWNER_LABEL: &'static str = RESTORE_UID;

    fn mover(&self) -> &DataMover {
        &self.spec.mover
    }

    fn transfer(&self) -> &TransferStatus {
        &self.status.transfer
    }
}

/// The DataUploads of an installation.
pub type UploadApi = TransferApi<DataUpload>;
/// The DataDownloads of an installation.
pub type DownloadApi = TransferApi<DataDownload>;

/// The transfers of an installation.
#[derive(Clone)]
pub struct TransferApi<K> {
    api: Api<K>,
    namespace: String,
    writes: GatedWrites,
}

impl<K: Transfer> TransferApi<K> {
    pub fn new(client: &Client, namespace: &str, leadership: &Leadership) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            writes: GatedWrites::new(leadership),
        }
    }

    /// The same, with writes only while the gate allows them.
    #[must_use]
    pub fn gated(self, gate: WriteGate) -> Self {
        Self {
            writes: self.writes.gated(gate),
            ..self
        }
    }

    /// Namespace of the transfers.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Creates a transfer, or finds the one that an earlier attempt of the backup or restore has
    /// created. Returns what is stored. Errors: one of that name belongs to another one, or what is
    /// stored lacks something, such as the labels by which it is found.
    pub(super) async fn create(&self, wanted: &K) -> Result<K, kube::Error> {
        let params = PostParams::default();
        let asked = json!(wanted);
        let error = match self.writes.send(|| self.api.create(&params, wanted)).await {
            Err(error) if is_conflict(&error) => error,
            other => return whole(&asked, other?),
        };
        let name = wanted.name_any();
        let there = retry::read(RETRY_BUDGET, || self.api.get(&name)).await?;
        if there.labels().get(K::OWNER_LABEL) == wanted.labels().get(K::OWNER_LABEL) {
            found_whole(&asked, there)
        } else {
            Err(error)
        }
    }

    pub(super) async fn get(&self, name: &str) -> Result<Option<K>, kube::Error> {
        found(retry::read(RETRY_BUDGET, || self.api.get(name)).await, name)
    }

    /// The transfers of a backup or restore that are in the cluster.
    pub async fn of_owner(&self, uid: &str) -> Result<Vec<K>, kube::Error> {
        let params = ListParams::default().labels(&format!("{}={uid}", K::OWNER_LABEL));
        Ok(retry::read(RETRY_BUDGET, || self.api.list(&params))
            .await?
            .items)
    }

    /// Asks the data mover to stop; nothing is done if the transfer is gone.
    pub async fn cancel(&self, name: &str) -> Result<(), kube::Error> {
        self.merge(name, &json!({ "spec": { "cancel": true } }))
            .await
    }

    /// Sends a merge patch; nothing is done if the transfer is gone.
    async fn merge(&self, name: &str, patch: &Value) -> Result<(), kube::Error> {
        let params = PatchParams::default();
        let merge = Patch::Merge(patch);
        let written = self
            .writes
            .send(|| self.api.patch(name, &params, &merge))
            .await;
        found(written, name).map(|_| ())
    }

    /// Asks the data mover to stop all transfers of a backup or restore that have not ended.
    pub async fn cancel_all(&self, uid: &str) -> Result<(), kube::Error> {
        for transfer in self.of_owner(uid).await? {
            let phase = transfer.transfer().phase.as_ref();
            if !phase.is_some_and(MovePhase::has_ended) && !transfer.mover().cancel {
                self.cancel(&transfer.name_any()).await?;
            }
        }
        Ok(())
    }
}

impl UploadApi {
    /// Marks the DataUploads of a backup that will never be stored, and asks the data mover to stop
    /// those that have not ended: it removes their snapshots, also one that a pod writes until
    /// then. One that has ended and was cleaned up is left alone, as it names all that is left.
    pub async fn abandon_all(&self, backup_uid: &str) -> Result<(), kube::Error> {
        for upload in self.of_owner(backup_uid).await? {
            let phase = upload.transfer().phase.as_ref();
            let has_ended = phase.is_some_and(MovePhase::has_ended);
            let has_finalizer = upload.finalizers().iter().any(|name| name == FINALIZER);
            let is_marked = upload.annotations().contains_key(ABANDONED_ANNOTATION);
            if is_marked || (has_ended && !has_finalizer) {
                continue;
            }
            let mut patch =
                json!({ "metadata": { "annotations": { ABANDONED_ANNOTATION: "true" } } });
            if !has_ended {
                patch["spec"] = json!({ "cancel": true });
            }
            self.merge(&upload.name_any(), &patch).await?;
        }
        Ok(())
    }
}
