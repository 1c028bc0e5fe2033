//! Storage of the node: the CSI driver of `tests/csi`, whose volumes are folders or block devices,
//! and the sidecars of clusters: csi-provisioner, csi-snapshotter and snapshot-controller.

use std::path::{Path, PathBuf};

use k8s_openapi::api::storage::v1::CSINode;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{NAME, START, start};
use crate::{
    api::{ApiExt as _, all_objects},
    binaries::build_csi,
    control_plane::ControlPlane,
    process::Process,
    snapshots,
    wait::until,
};

/// Name of the driver.
pub const DRIVER: &str = "folders.example.com";
/// StorageClass whose claims are provisioned at once.
pub const STORAGE_CLASS: &str = "folders";
/// StorageClass whose claims are provisioned once a pod uses them.
pub const LATE_STORAGE_CLASS: &str = "folders-late";
/// Folder in which kubelet looks for sockets of drivers.
const KUBELET_PLUGINS: &str = "/var/lib/kubelet/plugins_registry";

/// The driver and its sidecars; they end when dropped.
pub struct Csi {
    processes: [Process; 4],
    /// Folder with volumes and snapshots.
    storage: PathBuf,
}

impl Csi {
    /// Starts driver and sidecars, and creates their classes.
    pub(super) async fn start(
        client: &Client,
        plane: &ControlPlane,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        // The snapshot controller ends if there are no definitions.
        snapshots::install_definitions(client).await?;
        for object in objects() {
            let api = all_objects(
                client,
                object["apiVersion"].as_str().unwrap_or_default(),
                object["kind"].as_str().unwrap_or_default(),
            );
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            api.apply_object(name, &object).await?;
        }
        let programs = build_csi()?;
        let folder = folder.join("csi");
        std::fs::create_dir_all(&folder)?;
        let (socket, storage) = (folder.join("csi.sock"), folder.join("storage"));
        let driver = vec![
            format!("--name={DRIVER}"),
            format!("--node={NAME}"),
            format!("--endpoint={}", socket.display()),
            format!("--root={}", storage.display()),
            format!("--registration={KUBELET_PLUGINS}/{DRIVER}.sock"),
        ];
        let config = plane.user_kubeconfig("csi", "csi", &["system:masters"])?;
        let config = format!("--kubeconfig={}", config.display());
        // The snapshot of a large volume takes a while.
        let calls = [
            config.clone(),
            format!("--csi-address={}", socket.display()),
            "--timeout=60s".to_owned(),
        ];
        let processes = [
            start("csi-driver", &programs.driver, driver, &folder)?,
            start(
                "csi-provisioner",
                &programs.provisioner,
                calls.to_vec(),
                &folder,
            )?,
            start(
                "csi-snapshotter",
                &programs.snapshotter,
                calls.to_vec(),
                &folder,
            )?,
            start(
                "snapshot-controller",
                &programs.snapshot_controller,
                vec![config],
                &folder,
            )?,
        ];
        Ok(Self { processes, storage })
    }

    /// Waits until kubelet has found the driver.
    pub(super) async fn wait_registered(&mut self, client: &Client) -> anyhow::Result<()> {
        let nodes: Api<CSINode> = Api::all(client.clone());
        until("kubelet knows the CSI driver", START, async || {
            self.check()?;
            let node = nodes.get(NAME).await?;
            anyhow::Ok(node.spec.drivers.iter().any(|one| one.name == DRIVER))
        })
        .await
    }

    /// Fails if one of the processes has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.processes.iter_mut().try_for_each(Process::check)
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter()
    }

    /// Contents of all volumes in the storage system: a folder, or the file of a block volume.
    pub fn volumes(&self) -> anyhow::Result<Vec<PathBuf>> {
        self.contents("volumes")
    }

    /// Contents of all snapshots in the storage system.
    pub fn snapshots(&self) -> anyhow::Result<Vec<PathBuf>> {
        self.contents("snapshots")
    }

    fn contents(&self, kind: &str) -> anyhow::Result<Vec<PathBuf>> {
        let mut contents = Vec::new();
        for entry in std::fs::read_dir(self.storage.join(kind))? {
            contents.push(entry?.path().join("data"));
        }
        Ok(contents)
    }
}

/// The driver as the cluster knows it, and its classes.
fn objects() -> Vec<Value> {
    let class = |name: &str, binding: &str| {
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
            "provisioner": DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": binding })
    };
    vec![
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
            "spec": { "attachRequired": false } }),
        class(STORAGE_CLASS, "Immediate"),
        class(LATE_STORAGE_CLASS, "WaitForFirstConsumer"),
        json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": { "name": "folders" }, "driver": DRIVER, "deletionPolicy": "Delete" }),
    ]
}
