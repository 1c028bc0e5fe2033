//! A drill with volumes: new ones, of the CSI snapshots of a backup.
//!
//! The class of the claim keeps volumes, so Kubernetes itself would leave those of the drill.

use std::collections::BTreeSet;

use anyhow::ensure;
use backup_tests::{
    api::ApiExt as _,
    node::{Node, TOOLS, csi::DRIVER},
    snapshots,
    wait::{eventually, when},
};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::{
    drills::{drill, has_passed, wait_until_over},
    installation::SOON,
    steps::{in_pod_of, lose, restore, wait_for_deployment, with_state},
};

/// Namespace of the application.
const VAULT: &str = "vault";
const BACKUP: &str = "vault-first";
/// Name of the application's Deployment.
const KEEPER: &str = "keeper";
/// Name of its claim.
const DATA: &str = "data";
/// StorageClass that keeps volumes whose claims are gone.
const KEEPING_CLASS: &str = "folders-kept";
/// Contents of the file in the volume.
const WORD: &str = "swordfish";

pub(crate) async fn the_data_of_volumes_is_restored_on_trial_and_no_volume_is_left(
    node: &mut Node,
) -> anyhow::Result<()> {
    let earlier = node.csi.snapshots()?.len();
    node.apply(&application()).await?;
    wait_for_deployment(node, VAULT, KEEPER).await?;
    let write = format!("echo {WORD} > /data/word");
    in_pod_of(node, VAULT, KEEPER, &write).await?;
    let scope = format!("--include-namespaces={VAULT}");
    let create = ["create", BACKUP, &scope, "--wait", "--timeout=150s"];
    let completed = node.kubectl_backup().succeeds(&create).await.map(drop);
    with_state(node, &["describe", BACKUP], completed).await?;
    let before = Storage::read(node).await?;
    ensure!(before.snapshots == earlier + 1, "{before:?}");

    let flags = ["--volumes", "--wait", "--timeout=3m"];
    let drilled = drill(node, BACKUP, &[reads_word()], &flags, 0).await;
    let drilled = with_state(node, &["describe", BACKUP], drilled).await?;
    let ended = wait_until_over(node, &drilled).await;
    let result = with_state(node, &["restore", "describe", &drilled], ended).await?;
    println!("    {}", result.counts());
    has_passed(&result)?;
    eventually("nothing of the drill's volumes is left", SOON, async || {
        let now = Storage::read(node).await?;
        anyhow::Ok(when(now == before, format!("{now:?}, not {before:?}")))
    })
    .await?;

    // The snapshot of the backup is whole.
    lose_vault(node).await?;
    restore(node, BACKUP, "vault-back").await?;
    wait_for_deployment(node, VAULT, KEEPER).await?;
    let word = in_pod_of(node, VAULT, KEEPER, "cat /data/word").await?;
    ensure!(word.trim() == WORD, "{word:?} came back");
    clean_up(node).await
}

/// The volumes in the cluster, and volumes and snapshots in the storage system.
#[derive(Debug, PartialEq)]
struct Storage {
    /// Names of PersistentVolumes.
    volumes: BTreeSet<String>,
    /// Names of VolumeSnapshotContents.
    contents: BTreeSet<String>,
    /// Number of volumes in the storage system.
    stored: usize,
    /// Number of snapshots in the storage system.
    snapshots: usize,
}

impl Storage {
    async fn read(node: &Node) -> anyhow::Result<Self> {
        let volumes: Api<PersistentVolume> = Api::all(node.client.clone());
        let contents = snapshots::api(&node.client, "VolumeSnapshotContent", None);
        Ok(Self {
            volumes: volumes.names().await?.into_iter().collect(),
            contents: contents.names().await?.into_iter().collect(),
            stored: node.csi.volumes()?.len(),
            snapshots: node.csi.snapshots()?.len(),
        })
    }
}

/// Deletes the namespace of the application with its volume.
async fn lose_vault(node: &Node) -> anyhow::Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(node.client.clone());
    for volume in volumes.list_all().await? {
        let policy = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
        volumes.merge_patch(&volume.name_any(), policy).await?;
    }
    lose(node, VAULT).await
}

/// Removes the backup and the application. The restore has left a content that keeps the snapshot.
async fn clean_up(node: &Node) -> anyhow::Result<()> {
    lose_vault(node).await?;
    let contents = snapshots::api(&node.client, "VolumeSnapshotContent", None);
    for name in contents.names().await? {
        contents.delete_object(&name).await?;
        contents.wait_gone(&name, SOON).await?;
    }
    let delete = ["delete", BACKUP, "--yes", "--wait", "--timeout=2m"];
    node.kubectl_backup().succeeds(&delete).await?;
    let delete = ["delete", "storageclass", KEEPING_CLASS];
    node.kubectl()?.succeeds(&delete).await.map(drop)
}

/// A check that reads the file in the volume of the claim.
fn reads_word() -> Value {
    let script = format!(r#"test "$(cat /data/word)" = {WORD}"#);
    json!({ "name": "word", "namespace": VAULT, "job": { "template": { "spec": pod(&script) } } })
}

/// The spec of a pod that runs a script with the volume of the claim.
fn pod(script: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": KEEPER, "image": TOOLS, "args": ["sh", "-c", script],
            "volumeMounts": [{ "name": DATA, "mountPath": "/data" }] }],
        "volumes": [{ "name": DATA, "persistentVolumeClaim": { "claimName": DATA } }],
    })
}

/// A claim of a class that keeps volumes, and a pod with its volume.
fn application() -> [Value; 4] {
    let labels = json!({ "app": KEEPER });
    [
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": { "name": KEEPING_CLASS }, "provisioner": DRIVER,
            "reclaimPolicy": "Retain", "volumeBindingMode": "Immediate" }),
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": VAULT } }),
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": DATA, "namespace": VAULT },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": KEEPING_CLASS,
                "resources": { "requests": { "storage": "10Mi" } } } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": KEEPER, "namespace": VAULT },
            "spec": { "replicas": 1, "strategy": { "type": "Recreate" },
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod("exec sleep 1000000") } } }),
    ]
}
