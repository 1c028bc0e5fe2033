//! CSI snapshots without storage: the real definitions of `snapshot.storage.k8s.io`, and a
//! controller and driver that treat snapshots like real ones, as far as the API shows.

use std::{collections::BTreeSet, path::PathBuf, process::Command, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::{Api, Client, ResourceExt as _, api::DynamicObject};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    api::{ApiExt as _, objects},
    binaries::go_available,
    install,
    skip::Skip,
    wait::{TIMEOUT, eventually, when},
};

/// Source of the definitions: the Go module of their authors.
const MODULE: &str = "github.com/kubernetes-csi/external-snapshotter/client/v8@v8.4.0";
/// Name of the simulated driver.
pub const DRIVER: &str = "disk.example.com";
const FINALIZER: &str = "snapshot.storage.kubernetes.io/test-protection";
const PERIOD: Duration = Duration::from_millis(150);

/// Behaviour of a class's snapshots.
#[derive(Clone, Copy, Debug)]
pub enum Behaviour {
    /// Cut at once, ready after this time.
    Ready(Duration),
    /// Cut after this time (of whole seconds), and ready then.
    CutAfter(Duration),
    /// Cut at once, then an error with this text.
    Errs(&'static str),
    /// Cut at once, and not ready until the class is applied again with another behaviour.
    NeverReady,
    /// Never cut; the error has this text.
    NeverCut(&'static str),
    /// Not cut until the class is applied again with another behaviour.
    Held,
}

/// The definitions of the published module, downloaded unless cached.
pub fn definitions() -> anyhow::Result<PathBuf> {
    let output = Command::new("go")
        .current_dir(std::env::temp_dir())
        .args(["mod", "download", "-json", MODULE])
        .output()
        .context("run go, which fetches the definitions of snapshot.storage.k8s.io")?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let Some(folder) = answer["Dir"].as_str() else {
        bail!("go mod download {MODULE}: {answer}")
    };
    Ok(PathBuf::from(folder).join("config/crd"))
}

/// Applies the definitions, and waits until they are served.
pub async fn install_definitions(client: &Client) -> anyhow::Result<()> {
    let folder = definitions()?;
    let files = [
        "volumesnapshotclasses",
        "volumesnapshotcontents",
        "volumesnapshots",
    ];
    let files = files.map(|plural| folder.join(format!("snapshot.storage.k8s.io_{plural}.yaml")));
    install::install_definitions(client, &files).await
}

/// Objects of a kind of `snapshot.storage.k8s.io/v1`, in all namespaces or one.
pub fn api(client: &Client, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    objects(client, namespace, "snapshot.storage.k8s.io/v1", kind)
}

/// Waits until the cluster has no VolumeSnapshot and no content.
pub async fn none_left(client: &Client) -> anyhow::Result<()> {
    eventually("no snapshot is left in the cluster", TIMEOUT, async || {
        let mut left = Vec::new();
        for kind in ["VolumeSnapshot", "VolumeSnapshotContent"] {
            left.extend(api(client, kind, None).names().await?);
        }
        Ok::<_, kube::Error>(when(left.is_empty(), left.join(", ")))
    })
    .await
}

/// A VolumeSnapshotClass of the driver. Claims select it by annotation; `label` makes it the
/// default for all others.
pub async fn class(
    client: &Client,
    name: &str,
    behaviour: Behaviour,
    label: bool,
) -> anyhow::Result<()> {
    let parameters = match behaviour {
        Behaviour::Ready(after) => json!({ "readyAfterMillis": after.as_millis().to_string() }),
        Behaviour::CutAfter(after) => {
            json!({ "cutAfterSeconds": after.as_secs().to_string(), "readyAfterMillis": "0" })
        }
        Behaviour::Errs(text) => json!({ "errs": text }),
        Behaviour::NeverReady => json!({ "neverReady": "true" }),
        Behaviour::NeverCut(text) => json!({ "neverCut": text }),
        Behaviour::Held => json!({ "held": "true" }),
    };
    let labels = if label {
        json!({ "velero.io/csi-volumesnapshot-class": "true" })
    } else {
        json!({})
    };
    let object = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": { "name": name, "labels": labels },
        "driver": DRIVER, "deletionPolicy": "Delete", "parameters": parameters,
    });
    api(client, "VolumeSnapshotClass", None)
        .apply_object(name, &object)
        .await?;
    Ok(())
}

/// A claim that is bound to a new CSI volume; its snapshots are made by this class.
pub async fn claim(
    client: &Client,
    namespace: &str,
    name: &str,
    class: &str,
) -> anyhow::Result<()> {
    let source = json!({ "csi": { "driver": DRIVER, "volumeHandle": format!("handle-{namespace}-{name}") } });
    bound(client, namespace, name, class, &source).await
}

/// A claim that is bound to this folder of a node.
pub async fn host_path_claim(
    client: &Client,
    namespace: &str,
    name: &str,
    path: &str,
) -> anyhow::Result<()> {
    bound(
        client,
        namespace,
        name,
        "none",
        &json!({ "hostPath": { "path": path } }),
    )
    .await
}

async fn bound(
    client: &Client,
    namespace: &str,
    name: &str,
    class: &str,
    source: &Value,
) -> anyhow::Result<()> {
    install::ensure_namespace(client, namespace).await?;
    // No provisioner makes volumes here, but restored claims have a class.
    let fast = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast" },
        "provisioner": DRIVER });
    objects(client, None, "storage.k8s.io/v1", "StorageClass")
        .apply_object("fast", &fast)
        .await?;
    let volume = format!("pv-{namespace}-{name}");
    let (volumes, claims) = (
        core(client, "PersistentVolume", None),
        core(client, "PersistentVolumeClaim", Some(namespace)),
    );
    let size = json!({ "storage": "1Gi" });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": namespace,
            "annotations": { "velero.io/csi-volumesnapshot-class": class } },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeName": volume,
            "resources": { "requests": size } },
    });
    let made = claims.create_json(claim).await?;
    let mut object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
        "spec": { "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": { "kind": "PersistentVolumeClaim", "name": name, "namespace": namespace, "uid": made.uid() } },
    });
    json_patch::merge(&mut object["spec"], source);
    volumes.create_json(object).await?;
    // No controller binds claims here.
    set_status(&volumes, &volume, json!({ "phase": "Bound" })).await?;
    set_status(&claims, name, json!({ "phase": "Bound", "capacity": size })).await
}

fn core(client: &Client, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    objects(client, namespace, "v1", kind)
}

async fn set_status(api: &Api<DynamicObject>, name: &str, status: Value) -> anyhow::Result<()> {
    api.merge_patch_status(name, status).await?;
    Ok(())
}

/// A snapshot controller and its driver; both end when dropped.
#[derive(Debug)]
pub struct SnapshotController {
    task: tokio::task::JoinHandle<()>,
    storage: Storage,
}

/// Handles of the snapshots that exist in the storage system.
type Storage = Arc<Mutex<BTreeSet<String>>>;

impl SnapshotController {
    /// Installs the definitions and starts the controller; skips the test if Go is missing, which
    /// downloads them.
    pub async fn start(client: &Client) -> anyhow::Result<Self> {
        if !go_available() {
            return Err(Skip("the definitions of snapshots come from a Go module").into());
        }
        install_definitions(client).await?;
        let storage = Storage::default();
        let play = Play {
            client: client.clone(),
            storage: Arc::clone(&storage),
        };
        let task = tokio::spawn(async move {
            loop {
                // Failures are retried in the next round.
                let _ = play.round().await;
                tokio::time::sleep(PERIOD).await;
            }
        });
        Ok(Self { task, storage })
    }

    /// Puts a snapshot into the storage system, as another cluster would.
    pub fn store(&self, handle: &str) {
        self.storage.lock().insert(handle.to_owned());
    }

    /// Removes a snapshot from the storage system.
    pub fn lose(&self, handle: &str) {
        self.storage.lock().remove(handle);
    }

    /// Handles of the snapshots that exist in the storage system.
    pub fn stored(&self) -> BTreeSet<String> {
        self.storage.lock().clone()
    }
}

impl Drop for SnapshotController {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Play {
    client: Client,
    storage: Storage,
}

impl Play {
    async fn round(&self) -> anyhow::Result<()> {
        let snapshots = api(&self.client, "VolumeSnapshot", None).list_all().await?;
        let contents = api(&self.client, "VolumeSnapshotContent", None)
            .list_all()
            .await?;
        for snapshot in &snapshots {
            self.snapshot(snapshot, &contents).await?;
        }
        for content in &contents {
            self.content(content).await?;
        }
        for claim in &core(&self.client, "PersistentVolumeClaim", None)
            .list_all()
            .await?
        {
            self.provision(claim).await?;
        }
        Ok(())
    }

    async fn snapshot(
        &self,
        snapshot: &DynamicObject,
        contents: &[DynamicObject],
    ) -> anyhow::Result<()> {
        let (name, namespace) = (
            snapshot.name_any(),
            snapshot.namespace().unwrap_or_default(),
        );
        let own = api(&self.client, "VolumeSnapshot", Some(&namespace));
        let content = contents.iter().find(|content| {
            content
                .data
                .pointer("/spec/volumeSnapshotRef/uid")
                .and_then(Value::as_str)
                == snapshot.uid().as_deref()
        });
        if snapshot.metadata.deletion_timestamp.is_some() {
            if let Some(content) =
                content.filter(|content| content.data["spec"]["deletionPolicy"] == "Delete")
            {
                if content.metadata.deletion_timestamp.is_none() {
                    let api = api(&self.client, "VolumeSnapshotContent", None);
                    api.delete_object(&content.name_any()).await?;
                }
                return Ok(()); // until it is gone
            }
            return set_finalizers(&own, &name, &[]).await;
        }
        let Some(content) = content else {
            return self.bind(snapshot, &own).await;
        };
        let status = &content.data["status"];
        let wanted = json!({
            "boundVolumeSnapshotContentName": content.name_any(),
            "readyToUse": status["readyToUse"] == true,
            "creationTime": Timestamp::from_nanosecond(i128::from(status["creationTime"].as_i64().unwrap_or_default()))?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        if snapshot.data["status"]["readyToUse"] != wanted["readyToUse"] {
            set_status(&own, &name, wanted).await?;
        }
        Ok(())
    }

    /// Creates a content for a new snapshot.
    async fn bind(&self, snapshot: &DynamicObject, own: &Api<DynamicObject>) -> anyhow::Result<()> {
        let Some(uid) = snapshot.uid() else {
            return Ok(());
        };
        if let Some(content) = snapshot.data["spec"]["source"]["volumeSnapshotContentName"].as_str()
        {
            return self.bind_to(snapshot, own, content).await;
        }
        let class = snapshot.data["spec"]["volumeSnapshotClassName"]
            .as_str()
            .unwrap_or_default();
        let class = api(&self.client, "VolumeSnapshotClass", None)
            .get(class)
            .await?;
        set_finalizers(own, &snapshot.name_any(), &[FINALIZER]).await?;
        let content = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": { "name": format!("snapcontent-{uid}"), "finalizers": [FINALIZER] },
            "spec": {
                "deletionPolicy": class.data["deletionPolicy"], "driver": DRIVER,
                "source": { "volumeHandle": "of-the-volume" }, "volumeSnapshotClassName": class.name_any(),
                "volumeSnapshotRef": { "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                    "name": snapshot.name_any(), "namespace": snapshot.namespace(), "uid": uid },
            },
        });
        api(&self.client, "VolumeSnapshotContent", None)
            .create_json(content)
            .await?;
        Ok(())
    }

    /// Binds a snapshot to the content that it names, if the content names the snapshot.
    async fn bind_to(
        &self,
        snapshot: &DynamicObject,
        own: &Api<DynamicObject>,
        content: &str,
    ) -> anyhow::Result<()> {
        let contents = api(&self.client, "VolumeSnapshotContent", None);
        let Some(found) = contents.get_opt(content).await? else {
            return Ok(());
        };
        let reference = &found.data["spec"]["volumeSnapshotRef"];
        if reference["name"] != json!(snapshot.name_any())
            || reference["namespace"] != json!(snapshot.namespace())
        {
            let error =
                json!({ "error": { "message": "the content belongs to another VolumeSnapshot" } });
            return set_status(own, &snapshot.name_any(), error).await;
        }
        set_finalizers(own, &snapshot.name_any(), &[FINALIZER]).await?;
        let bind = json!({ "spec": { "volumeSnapshotRef": { "uid": snapshot.uid() } } });
        contents.merge_patch(content, bind).await?;
        Ok(())
    }

    /// Gives a claim a volume made from its snapshot, once that is ready, as the driver's
    /// provisioner does.
    async fn provision(&self, claim: &DynamicObject) -> anyhow::Result<()> {
        let (spec, name) = (&claim.data["spec"], claim.name_any());
        let namespace = claim.namespace().unwrap_or_default();
        if spec["dataSource"]["kind"] != "VolumeSnapshot" || spec["volumeName"].is_string() {
            return Ok(());
        }
        let snapshot = spec["dataSource"]["name"].as_str().unwrap_or_default();
        let snapshots = api(&self.client, "VolumeSnapshot", Some(&namespace));
        let Some(snapshot) = snapshots.get_opt(snapshot).await? else {
            return Ok(());
        };
        let content = snapshot.data["status"]["boundVolumeSnapshotContentName"].as_str();
        let (Some(content), Some(true)) =
            (content, snapshot.data["status"]["readyToUse"].as_bool())
        else {
            return Ok(());
        };
        let content = api(&self.client, "VolumeSnapshotContent", None)
            .get(content)
            .await?;
        let handle = content.data["status"]["snapshotHandle"]
            .as_str()
            .unwrap_or_default();
        if !self.storage.lock().contains(handle) {
            return Ok(()); // there is nothing to make it of
        }
        let volume = format!("pvc-{}", claim.uid().unwrap_or_default());
        let volumes = core(&self.client, "PersistentVolume", None);
        if volumes.get_opt(&volume).await?.is_none() {
            let object = json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
                "spec": { "capacity": spec["resources"]["requests"], "accessModes": spec["accessModes"],
                    "storageClassName": spec["storageClassName"],
                    "csi": { "driver": DRIVER, "volumeHandle": format!("made-of-{handle}") },
                    "claimRef": { "kind": "PersistentVolumeClaim", "name": name, "namespace": namespace, "uid": claim.uid() } },
            });
            volumes.create_json(object).await?;
        }
        let claims = core(&self.client, "PersistentVolumeClaim", Some(&namespace));
        claims
            .merge_patch(&name, json!({ "spec": { "volumeName": volume } }))
            .await?;
        set_status(&volumes, &volume, json!({ "phase": "Bound" })).await?;
        set_status(&claims, &name, json!({ "phase": "Bound" })).await
    }

    /// Does the work of the driver.
    async fn content(&self, content: &DynamicObject) -> anyhow::Result<()> {
        let (name, api) = (
            content.name_any(),
            api(&self.client, "VolumeSnapshotContent", None),
        );
        let (spec, status) = (&content.data["spec"], &content.data["status"]);
        if content.metadata.deletion_timestamp.is_some() {
            if let Some(handle) = status["snapshotHandle"]
                .as_str()
                .filter(|_| spec["deletionPolicy"] == "Delete")
            {
                self.storage.lock().remove(handle);
            }
            return set_finalizers(&api, &name, &[]).await;
        }
        if let Some(handle) = spec["source"]["snapshotHandle"].as_str() {
            if !self.storage.lock().contains(handle) {
                let error =
                    json!({ "error": { "message": format!("there is no snapshot {handle}") } });
                return set_status(&api, &name, error).await;
            }
            if status["readyToUse"] != true {
                set_finalizers(&api, &name, &[FINALIZER]).await?;
                set_status(
                    &api,
                    &name,
                    json!({ "snapshotHandle": handle, "readyToUse": true }),
                )
                .await?;
            }
            return Ok(());
        }
        if status["readyToUse"] == true {
            return Ok(());
        }
        let class = spec["volumeSnapshotClassName"].as_str().unwrap_or_default();
        let class = self::api(&self.client, "VolumeSnapshotClass", None)
            .get(class)
            .await?;
        let parameters = &class.data["parameters"];
        let error = |text: &Value| json!({ "error": { "message": text, "time": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string() } });
        if parameters["held"].is_string() {
            return Ok(());
        }
        if parameters["neverCut"].is_string() {
            if status["error"].is_null() {
                set_status(&api, &name, error(&parameters["neverCut"])).await?;
            }
            return Ok(());
        }
        let waits = parameters["cutAfterSeconds"]
            .as_str()
            .and_then(|after| after.parse::<i64>().ok());
        let made = content
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or_else(Timestamp::now, |made| made.0);
        if waits.is_some_and(|waits| Timestamp::now().duration_since(made).as_secs() < waits) {
            return Ok(());
        }
        let Some(cut) = status["creationTime"].as_i64() else {
            let handle = format!("handle-{name}");
            self.storage.lock().insert(handle.clone());
            let now = i64::try_from(Timestamp::now().as_nanosecond())?;
            let cut = json!({ "snapshotHandle": handle, "creationTime": now, "restoreSize": 2_i64 << 30, "readyToUse": false });
            return set_status(&api, &name, cut).await;
        };
        if parameters["errs"].is_string() && status["error"].is_null() {
            return set_status(&api, &name, error(&parameters["errs"])).await;
        }
        let after = parameters["readyAfterMillis"]
            .as_str()
            .and_then(|after| after.parse::<i64>().ok());
        let age = i64::try_from(Timestamp::now().as_nanosecond())? - cut;
        if after.is_some_and(|after| age >= after * 1_000_000) && status["readyToUse"] != true {
            set_status(&api, &name, json!({ "readyToUse": true })).await?;
        }
        Ok(())
    }
}

async fn set_finalizers(
    api: &Api<DynamicObject>,
    name: &str,
    finalizers: &[&str],
) -> anyhow::Result<()> {
    api.merge_patch(name, json!({ "metadata": { "finalizers": finalizers } }))
        .await?;
    Ok(())
}
