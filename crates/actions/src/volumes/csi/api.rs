//! The fields of `snapshot.storage.k8s.io/v1` objects that we use, and requests for these objects.
//!
//! All requests are retried for half a minute. Patches and deletions are idempotent: they set fixed
//! values on objects that belong to only one backup, so they carry no resourceVersion; deletions
//! carry the uid. Writes are only made while this replica leads: the objects have the same names on
//! all replicas, so a late write would interfere with the leader.
//!
//! The answer to each write is compared with the request: without its labels a snapshot cannot be
//! found again, and a content that kept another deletion policy would delete its snapshot with it.

use std::fmt;

use backup_client::{
    errors::{found, is_conflict, is_gone},
    retry,
};
use backup_core::{
    api::{Backup, BackupPhase},
    labels::{BACKUP_UID, DRILL_INSTALLATION_LABEL, SYNCED_FOR, valid_value},
    volume_info::CsiSnapshotInfo,
};
use backup_runtime::leader::Leadership;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{DynamicObject, GroupVersionKind},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::volumes::gated_writes::{GatedWrites, RETRY_BUDGET, WriteGate, whole};

pub const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
pub const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
pub(crate) const CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SnapshotStatus {
    pub bound_volume_snapshot_content_name: Option<String>,
    pub creation_time: Option<String>,
    pub ready_to_use: Option<bool>,
    pub error: Option<SnapshotError>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContentStatus {
    /// The storage system's handle of the snapshot.
    pub snapshot_handle: Option<String>,
    pub ready_to_use: Option<bool>,
    /// Minimum size of a volume created from it (bytes).
    pub restore_size: Option<u64>,
    pub error: Option<SnapshotError>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SnapshotError {
    pub message: Option<String>,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or("it does not say why"))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContentSpec {
    /// `Delete` or `Retain`: whether the snapshot is deleted with the content.
    pub deletion_policy: String,
    pub driver: String,
}

/// The `status` of an object; the default if it is missing or does not fit.
pub(crate) fn status<T: DeserializeOwned + Default>(object: &DynamicObject) -> T {
    part(object, "status")
}

/// The `spec` of an object; the default if it is missing or does not fit.
pub(crate) fn spec<T: DeserializeOwned + Default>(object: &DynamicObject) -> T {
    part(object, "spec")
}

fn part<T: DeserializeOwned + Default>(object: &DynamicObject, part: &str) -> T {
    object
        .data
        .get(part)
        .and_then(|value| T::deserialize(value).ok())
        .unwrap_or_default()
}

/// The part of an entry of `-volumeinfo.json.gz` that a content knows.
pub(crate) fn snapshot_info(content: &DynamicObject) -> CsiSnapshotInfo {
    let (made_of, seen): (ContentSpec, ContentStatus) = (spec(content), status(content));
    let size = seen.restore_size.and_then(|size| i64::try_from(size).ok());
    CsiSnapshotInfo {
        snapshot_handle: seen.snapshot_handle.unwrap_or_default(),
        size: size.unwrap_or_default(),
        driver: made_of.driver,
        vsc_name: content.name_any(),
        ..CsiSnapshotInfo::default()
    }
}

#[derive(Clone)]
pub struct SnapshotApi {
    client: Client,
    writes: GatedWrites,
}

impl SnapshotApi {
    pub fn new(client: &Client, leadership: &Leadership) -> Self {
        Self {
            client: client.clone(),
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

    fn resource(kind: &str) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(
            "snapshot.storage.k8s.io",
            "v1",
            kind,
        ))
    }

    fn snapshots(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.client.clone(),
            namespace,
            &Self::resource("VolumeSnapshot"),
        )
    }

    fn contents(&self) -> Api<DynamicObject> {
        self.all("VolumeSnapshotContent")
    }

    fn all(&self, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &Self::resource(kind))
    }

    /// The objects with this label; empty if the kind is not served.
    async fn labelled(
        &self,
        api: &Api<DynamicObject>,
        label: &str,
        value: &str,
    ) -> Result<Vec<DynamicObject>, kube::Error> {
        let params = ListParams::default().labels(&format!("{label}={value}"));
        match retry::read(RETRY_BUDGET, || api.list(&params)).await {
            Ok(list) => Ok(list.items),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Creates an object, unless its name exists.
    async fn create_once(
        &self,
        api: &Api<DynamicObject>,
        object: &DynamicObject,
    ) -> Result<(), kube::Error> {
        let params = PostParams::default();
        match self.writes.send(|| api.create(&params, object)).await {
            Ok(stored) => whole(&json!(object), stored).map(|_| ()),
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub async fn classes(&self) -> Result<Vec<DynamicObject>, kube::Error> {
        let api = self.all("VolumeSnapshotClass");
        let all = ListParams::default(); // a cluster has a handful
        Ok(retry::read(RETRY_BUDGET, || api.list(&all)).await?.items)
    }

    pub async fn volume(&self, name: &str) -> Result<Option<Value>, kube::Error> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "PersistentVolume"));
        self.object(Api::all_with(self.client.clone(), &resource), name)
            .await
    }

    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Value>, kube::Error> {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim"));
        self.object(
            Api::namespaced_with(self.client.clone(), namespace, &resource),
            name,
        )
        .await
    }

    async fn object(
        &self,
        api: Api<DynamicObject>,
        name: &str,
    ) -> Result<Option<Value>, kube::Error> {
        let found = found(retry::read(RETRY_BUDGET, || api.get(name)).await, name)?;
        Ok(found.and_then(|object| serde_json::to_value(object).ok()))
    }

    pub async fn snapshot(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, kube::Error> {
        let api = self.snapshots(namespace);
        found(retry::read(RETRY_BUDGET, || api.get(name)).await, name)
    }

    pub async fn content(&self, name: &str) -> Result<Option<DynamicObject>, kube::Error> {
        let api = self.contents();
        found(retry::read(RETRY_BUDGET, || api.get(name)).await, name)
    }

    /// The snapshots that a backup has taken and not removed yet, in all namespaces.
    pub async fn of_backup(&self, uid: &str) -> Result<Vec<DynamicObject>, kube::Error> {
        self.labelled(&self.all("VolumeSnapshot"), BACKUP_UID, uid)
            .await
    }

    /// Creates a VolumeSnapshot, or finds it: its name is derived from its purpose, so one with
    /// that name and label is ours.
    pub async fn create(
        &self,
        namespace: &str,
        object: &DynamicObject,
    ) -> Result<DynamicObject, kube::Error> {
        let api = self.snapshots(namespace);
        let name = object.name_any();
        let params = PostParams::default();
        match self.writes.send(|| api.create(&params, object)).await {
            Err(error) if is_conflict(&error) => {
                let there = retry::read(RETRY_BUDGET, || api.get(&name)).await?;
                if there.labels().get(BACKUP_UID) == object.labels().get(BACKUP_UID) {
                    Ok(there)
                } else {
                    Err(error)
                }
            }
            other => whole(&json!(object), other?),
        }
    }

    pub async fn create_class(&self, object: &DynamicObject) -> Result<(), kube::Error> {
        self.create_once(&self.all("VolumeSnapshotClass"), object)
            .await
    }

    /// The contents that were created for a backup of this uid when it was imported from a bucket.
    pub async fn synced_for(&self, uid: &str) -> Result<Vec<DynamicObject>, kube::Error> {
        self.labelled(&self.contents(), SYNCED_FOR, uid).await
    }

    /// The contents that drills of the installation in this namespace have created.
    pub async fn of_drills(&self, installation: &str) -> Result<Vec<DynamicObject>, kube::Error> {
        let own = valid_value(installation);
        self.labelled(&self.contents(), DRILL_INSTALLATION_LABEL, &own)
            .await
    }

    pub async fn create_content(&self, object: &DynamicObject) -> Result<(), kube::Error> {
        self.create_once(&self.contents(), object).await
    }

    pub async fn patch(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<DynamicObject, kube::Error> {
        self.patched(&self.snapshots(namespace), name, patch).await
    }

    /// Merges a patch into a content; `None` if it does not exist.
    pub(crate) async fn patch_content(
        &self,
        name: &str,
        patch: &Value,
    ) -> Result<Option<DynamicObject>, kube::Error> {
        found(self.patched(&self.contents(), name, patch).await, name)
    }

    async fn patched(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        patch: &Value,
    ) -> Result<DynamicObject, kube::Error> {
        let params = PatchParams::default();
        let merge = Patch::Merge(patch);
        whole(
            patch,
            self.writes
                .send(|| api.patch(name, &params, &merge))
                .await?,
        )
    }

    /// Removes a VolumeSnapshot together with its snapshot in the storage system.
    pub async fn destroy(&self, snapshot: &DynamicObject) -> Result<(), kube::Error> {
        self.remove(snapshot, "Delete").await
    }

    /// Removes a VolumeSnapshot and its content from the cluster, and keeps the snapshot in the
    /// storage system.
    pub async fn release(&self, snapshot: &DynamicObject) -> Result<(), kube::Error> {
        self.remove(snapshot, "Retain").await
    }

    async fn remove(&self, snapshot: &DynamicObject, policy: &str) -> Result<(), kube::Error> {
        let status: SnapshotStatus = status(snapshot);
        if let Some(content) = status.bound_volume_snapshot_content_name {
            let patch = json!({ "spec": { "deletionPolicy": policy } });
            let content = self.patch_content(&content, &patch).await?;
            if let Some(content) = content.filter(|_| policy == "Retain") {
                self.delete(&self.contents(), &content).await?;
            }
        }
        self.delete(
            &self.snapshots(&snapshot.namespace().unwrap_or_default()),
            snapshot,
        )
        .await
    }

    /// Deletes a content after setting its policy: `Delete` also deletes the snapshot in the
    /// storage system, `Retain` keeps it.
    pub async fn remove_content(
        &self,
        content: &DynamicObject,
        policy: &str,
    ) -> Result<(), kube::Error> {
        let patch = json!({ "spec": { "deletionPolicy": policy } });
        match self.patch_content(&content.name_any(), &patch).await? {
            Some(content) => self.delete_content(&content).await,
            None => Ok(()),
        }
    }

    /// Deletes a content, and its snapshot in the storage system if its policy says so.
    pub(crate) async fn delete_content(&self, content: &DynamicObject) -> Result<(), kube::Error> {
        self.delete(&self.contents(), content).await
    }

    async fn delete(
        &self,
        api: &Api<DynamicObject>,
        object: &DynamicObject,
    ) -> Result<(), kube::Error> {
        let name = object.name_any();
        let uid = Preconditions {
            uid: object.uid(),
            resource_version: None,
        };
        let params = DeleteParams::default().preconditions(uid);
        match self.writes.send(|| api.delete(&name, &params)).await {
            Err(error) if !is_gone(&error, &name) && !is_conflict(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether the items of a backup are being read for the second time, after their operations.
pub(crate) fn is_finalizing(backup: &Backup) -> bool {
    matches!(
        backup.phase(),
        BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed
    )
}

#[cfg(test)]
mod tests {
    use backup_testkit::{FakeApi, Fault, status as answer};
    use serde_json::json;

    use super::*;
    use crate::csi::fake::{GROUP, snapshot_api};

    /// Simulates a server that stores a change only partly, as with a mutating webhook.
    fn takes_away(fake: &FakeApi, method: &'static str, at: &'static str) {
        fake.fault(move |fake, request| {
            if request.method != method {
                return None;
            }
            let mut object = fake
                .get(&request.path)
                .unwrap_or_else(|| request.body.clone());
            *object.pointer_mut(at)? = Value::Null;
            Some(Fault::Answer(answer(200, object)))
        });
    }

    #[tokio::test]
    async fn a_content_that_keeps_its_policy_is_not_deleted() {
        let fake = FakeApi::new();
        let path = format!("{GROUP}/volumesnapshotcontents/c");
        let content = json!({ "metadata": { "name": "c", "uid": "1" }, "spec": { "deletionPolicy": "Delete" } });
        fake.put(&path, content);
        let snapshot = json!({ "metadata": { "name": "s", "namespace": "shop", "uid": "2" },
            "status": { "boundVolumeSnapshotContentName": "c" } });
        let snapshot = serde_json::from_value(snapshot).unwrap();
        takes_away(&fake, "PATCH", "/spec/deletionPolicy");
        let error = snapshot_api(&fake).release(&snapshot).await.unwrap_err();
        assert!(
            format!("{error:?}").contains("spec.deletionPolicy"),
            "{error:?}"
        );
        assert!(
            !fake.log().iter().any(|line| line.starts_with("DELETE")),
            "{:?}",
            fake.log()
        );
    }

    #[tokio::test]
    async fn a_snapshot_that_is_stored_without_its_label_is_an_error() {
        let fake = FakeApi::new();
        let snapshot: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": "s", "namespace": "shop", "labels": { (BACKUP_UID): "u" } },
            "spec": { "source": { "persistentVolumeClaimName": "data" } } }))
        .unwrap();
        let api = snapshot_api(&fake);
        takes_away(&fake, "POST", "/metadata/labels");
        let error = api.create("shop", &snapshot).await.unwrap_err();
        assert!(
            format!("{error:?}").contains("metadata.labels"),
            "{error:?}"
        );
        fake.recover();
        api.create("shop", &snapshot).await.unwrap();
    }
}
