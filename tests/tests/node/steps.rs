//! Steps that the tests of volume data share.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Backup, BackupPhase, DataUpload, Restore, transfer::MovePhase},
    labels::{BACKUP_NAME, MISSING_DATA_ANNOTATION},
    volume_data::MissingData,
};
use backup_tests::{
    api::{ApiExt as _, objects_in},
    install::NAMESPACE,
    kubectl_backup::Ran,
    node::Node,
    proxy::Fault,
    wait::{Probe, eventually, when},
};
use kube::{Api, ResourceExt, api::ListParams};

use crate::{
    installation::SOON,
    writer::{CLAIMS, LARGE},
};

/// Timeout of a backup or restore that is disturbed.
pub(crate) const LONG: Duration = Duration::from_mins(4);
/// Program of a mover in its pod.
pub(crate) const MOVER_PROGRAM: &str = "/backup-mover";
/// Selects the pods that save volumes.
pub(crate) const SAVING_PODS: &str = "backup-controller/mover-work=backup";

/// Waits until the pod of a Deployment is ready.
pub(crate) async fn wait_for_deployment(
    node: &Node,
    namespace: &str,
    name: &str,
) -> anyhow::Result<()> {
    let deployments = objects_in(&node.client, namespace, "apps/v1", "Deployment");
    let what = format!("Deployment {namespace}/{name} is available");
    let available = eventually(&what, SOON, async || {
        let deployment = deployments.get(name).await?;
        let status = &deployment.data["status"];
        anyhow::Ok(when(status["availableReplicas"] == 1, status.to_string()))
    })
    .await;
    with_state(node, &["get"], available).await
}

/// Runs a script in the pod of a Deployment. Returns its output.
pub(crate) async fn in_pod_of(
    node: &Node,
    namespace: &str,
    deployment: &str,
    script: &str,
) -> anyhow::Result<String> {
    let deployment = format!("deployment/{deployment}");
    let exec = ["exec", "--namespace", namespace, &deployment, "--"];
    let shell = ["busybox", "sh", "-c", script];
    let ran = node
        .kubectl()?
        .succeeds(&[&exec[..], &shell].concat())
        .await?;
    Ok(ran.stdout)
}

/// Begins a backup of a namespace with the data of its volumes.
pub(crate) async fn begin_backup(node: &Node, namespace: &str, name: &str) -> anyhow::Result<()> {
    let scope = format!("--include-namespaces={namespace}");
    let create = ["create", name, &scope, "--snapshot-move-data"];
    node.kubectl_backup().succeeds(&create).await.map(drop)
}

/// Makes a backup of a namespace with the data of its volumes.
pub(crate) async fn back_up(node: &Node, namespace: &str, name: &str) -> anyhow::Result<()> {
    begin_backup(node, namespace, name).await?;
    let wait = ["wait", name, "--timeout=150s"];
    let completed = node.kubectl_backup().succeeds(&wait).await.map(drop);
    with_state(node, &["describe", name, "--details"], completed).await
}

/// Restores a backup.
pub(crate) async fn restore(node: &Node, backup: &str, name: &str) -> anyhow::Result<()> {
    let named = format!("--name={name}");
    let args = [
        "restore",
        "--from-backup",
        backup,
        &named,
        "--wait",
        "--timeout=150s",
    ];
    let completed = node.kubectl_backup().succeeds(&args).await.map(drop);
    with_state(node, &["restore", "describe", name, "--details"], completed).await
}

/// Deletes a namespace, and waits until no volume is left in the storage system.
pub(crate) async fn lose(node: &Node, namespace: &str) -> anyhow::Result<()> {
    let delete = ["delete", "namespace", namespace];
    let flags = ["--ignore-not-found", "--timeout=60s"];
    node.kubectl()?
        .succeeds(&[&delete[..], &flags].concat())
        .await?;
    eventually("the volumes are removed", SOON, async || {
        let left = node.csi.volumes()?;
        anyhow::Ok(when(left.is_empty(), format!("{left:?}")))
    })
    .await
}

/// Runs a command of the plugin while the store is slow. Once it moves the large volume,
/// `disturb` is called with the name of that transfer.
pub(crate) async fn while_data_moves(
    node: &Node,
    kind: &str,
    command: &[&str],
    disturb: impl AsyncFnOnce(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    /// Delay of each piece of at most 64 KiB in a connection: about 1 MiB per second, so that
    /// no request takes as long as its timeout.
    const DELAY: Duration = Duration::from_millis(60);
    node.store_front.set(Fault::Delay(DELAY));
    let disturbed = async {
        node.kubectl_backup().succeeds(command).await?;
        let what = format!("a {kind} is in progress");
        let transfer = eventually(&what, LONG, async || {
            let moving = moving(node, kind).await?;
            anyhow::Ok(moving.map_or_else(|| Probe::NotYet("none is".to_owned()), Probe::Ready))
        })
        .await?;
        disturb(transfer).await
    }
    .await;
    node.store_front.set(Fault::None);
    disturbed
}

/// Name of the transfer of this kind that moves the large volume now.
pub(crate) async fn moving(node: &Node, kind: &str) -> anyhow::Result<Option<String>> {
    let transfers = objects_in(&node.client, NAMESPACE, "velero.io/v2alpha1", kind);
    let all = transfers.list_all().await?;
    let moving = all.iter().find(|one| {
        let spec = &one.data["spec"];
        let is_large = spec["sourcePVC"] == LARGE || spec["targetVolume"]["pvc"] == LARGE;
        is_large && one.data["status"]["phase"] == MovePhase::InProgress.as_str()
    });
    Ok(moving.map(ResourceExt::name_any))
}

/// The DataUploads of a backup.
pub(crate) async fn uploads_of(node: &Node, backup: &str) -> anyhow::Result<Vec<DataUpload>> {
    let uploads: Api<DataUpload> = Api::namespaced(node.client.clone(), NAMESPACE);
    let params = ListParams::default().labels(&format!("{BACKUP_NAME}={backup}"));
    Ok(uploads.list(&params).await?.items)
}

/// Waits until a backup is partially failed, and checks that its description has these parts, and
/// that the data of all volumes is missing.
pub(crate) async fn saves_nothing(node: &Node, name: &str, parts: &[&str]) -> anyhow::Result<()> {
    let plugin = node.kubectl_backup();
    let describe = ["describe", name, "--details"];
    let ended = plugin.fails(3, &["wait", name, "--timeout=2m"]).await;
    with_state(node, &describe, ended).await?;
    let described = plugin.succeeds(&describe).await?.stdout;
    let backup = backups(node).get(name).await?;
    ensure!(
        backup.phase() == BackupPhase::PartiallyFailed,
        "{described}"
    );
    for part in parts {
        ensure!(described.contains(part), "no {part:?} in {described}");
    }
    let missing = missing_data(&backup).with_context(|| described.clone())?;
    ensure!(missing.missing == CLAIMS, "{missing:?}: {described}");
    Ok(())
}

/// Waits until all uploads of a backup fulfil a condition.
pub(crate) async fn wait_for_uploads(
    node: &Node,
    backup: &str,
    what: &str,
    is_so: impl Fn(&DataUpload) -> bool,
) -> anyhow::Result<()> {
    let waited = eventually(&format!("uploads of {backup} {what}"), SOON, async || {
        let uploads = uploads_of(node, backup).await?;
        let states: Vec<_> = uploads.iter().map(|upload| &upload.status).collect();
        let all = uploads.len() == CLAIMS && uploads.iter().all(&is_so);
        anyhow::Ok(when(all, format!("{states:?}")))
    })
    .await;
    with_state(node, &["describe", backup], waited).await
}

/// What an object says about missing data of volumes.
pub(crate) fn missing_data(object: &impl ResourceExt) -> anyhow::Result<MissingData> {
    let annotation = object.annotations().get(MISSING_DATA_ANNOTATION);
    MissingData::read(annotation.map(String::as_str)).context("no volume is named")
}

pub(crate) fn backups(node: &Node) -> Api<Backup> {
    Api::namespaced(node.client.clone(), NAMESPACE)
}

pub(crate) fn restores(node: &Node) -> Api<Restore> {
    Api::namespaced(node.client.clone(), NAMESPACE)
}

/// Adds the state to an error: the output of this command of the plugin, transfers, pods, claims
/// and warnings.
pub(crate) async fn with_state<T>(
    node: &Node,
    describe: &[&str],
    result: anyhow::Result<T>,
) -> anyhow::Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(error.context(state(node, describe).await)),
    }
}

async fn state(node: &Node, describe: &[&str]) -> String {
    const OBJECTS: &str =
        "datauploads,datadownloads,backuprepositories,pods,persistentvolumeclaims";
    let lists: [&[&str]; 2] = [
        &["get", OBJECTS, "--all-namespaces", "--output=wide"],
        &[
            "get",
            "events",
            "--all-namespaces",
            "--field-selector=type=Warning",
        ],
    ];
    let mut text = shown(node.kubectl_backup().run(describe).await);
    for list in lists {
        let ran = match node.kubectl() {
            Ok(kubectl) => kubectl.run(list).await,
            Err(error) => Err(error),
        };
        text.push_str(&shown(ran));
    }
    text
}

fn shown(ran: anyhow::Result<Ran>) -> String {
    match ran {
        Ok(ran) => format!("{}{}\n", ran.stdout, ran.stderr),
        Err(error) => format!("{error:#}\n"),
    }
}
