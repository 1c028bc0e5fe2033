//! Restores of claims that exist (`existingVolumeDataPolicy`).

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Restore, RestorePhase},
    data_movement::TRANSFER_LABEL,
};
use backup_tests::{
    api::ApiExt as _,
    install::NAMESPACE,
    node::Node,
    wait::{eventually, when},
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt as _};

use crate::{
    installation::{SOON, rolled_out},
    steps::{LONG, missing_data, moving, restores, while_data_moves, with_state},
    volumes::{BACKUPS, claims_are_as_before, nothing_of_movers_is_left},
    writer::{CLAIMS, FILES, LARGE, has_attribute, in_pod, is_same, listing, wait_for_application},
};

/// Changes, removes and adds files in both volumes.
const CHANGE: &str = "set -e
dd if=/dev/zero of=/first/large bs=1M count=2 conv=notrunc
rm /first/program /second/file-7
echo other > /second/file-1
echo more > /second/extra";

/// The last backup has what the volumes hold before the change.
pub(crate) async fn data_is_restored_into_claims_that_exist_once_no_pod_uses_them(
    node: &mut Node,
) -> anyhow::Result<()> {
    let before = listing(node).await?;
    in_pod(node, CHANGE).await?;
    leaves_claims_alone(node).await?;
    let names = volume_names(node).await?;
    let contents = node.csi.volumes()?;
    stop_application(node).await?;
    restore_in_place(node, &names[LARGE]).await?;
    nothing_of_movers_is_left(node).await?;
    claims_are_as_before(node).await?;
    let after = volume_names(node).await?;
    ensure!(after == names, "other volumes: {names:?}, {after:?}");
    let left = node.csi.volumes()?;
    ensure!(
        left.iter().all(|volume| contents.contains(volume)),
        "other contents: {contents:?}, {left:?}"
    );
    scale(node, "1").await?;
    wait_for_application(node).await?;
    is_same(&before, &listing(node).await?)?;
    ensure!(has_attribute(node)?, "the extended attribute is gone");
    Ok(())
}

/// Checks that a restore leaves the claims alone: without a policy for their data, and while pods use
/// them.
async fn leaves_claims_alone(node: &Node) -> anyhow::Result<()> {
    const KEPT: &str = "files-kept";
    const USED: &str = "files-used";
    let changed = listing(node).await?;
    restore_claims(node, KEPT, "none", 0).await?;
    for (claim, why) in missing(node, KEPT, &RestorePhase::Completed).await? {
        ensure!(why.contains("keeps the data that it has"), "{claim}: {why}");
    }
    let described = restore_claims(node, USED, "full", 3).await?;
    for part in [
        "is used by writer-",
        "(of Deployment writer)",
        "scale down what runs these pods",
    ] {
        ensure!(described.contains(part), "no {part:?} in {described}");
    }
    missing(node, USED, &RestorePhase::PartiallyFailed).await?;
    is_same(&changed, &listing(node).await?)?;
    claims_are_as_before(node).await?;
    nothing_of_movers_is_left(node).await
}

/// Restores all data of the last backup; the controllers are killed while the claim of this volume is
/// without it.
async fn restore_in_place(node: &Node, volume: &str) -> anyhow::Result<()> {
    const RESTORE: &str = "files-in-place";
    let named = format!("--name={RESTORE}");
    let [.., backup] = BACKUPS;
    let create = [
        "restore",
        "--from-backup",
        backup,
        &named,
        "--include-resources=persistentvolumeclaims",
        "--existing-volume-data-policy=full",
        "--delete-extra-files",
    ];
    let ended = async {
        while_data_moves(node, "DataDownload", &create, async |download| {
            is_taken_over(node, volume, &download).await?;
            node.kill_all("/backup-controller")?;
            ensure!(
                moving(node, "DataDownload").await?.is_some(),
                "the data had been moved before the controllers were killed"
            );
            Ok(())
        })
        .await?;
        rolled_out(node, "backup-controller").await?;
        let completed = |restore: &Restore| restore.phase() == RestorePhase::Completed;
        let all = restores(node);
        all.wait_until(RESTORE, "is completed", LONG, completed)
            .await
            .map(drop)
    }
    .await;
    let describe = ["restore", "describe", RESTORE, "--details"];
    with_state(node, &describe, ended).await
}

/// Restores the claims of the last backup; the command has to end with this code. Returns the
/// description of the restore.
async fn restore_claims(
    node: &Node,
    name: &str,
    policy: &str,
    code: i32,
) -> anyhow::Result<String> {
    let plugin = node.kubectl_backup();
    let [.., backup] = BACKUPS;
    let named = format!("--name={name}");
    let policy = format!("--existing-volume-data-policy={policy}");
    let args = [
        "restore",
        "--from-backup",
        backup,
        &named,
        "--include-resources=persistentvolumeclaims",
        &policy,
        "--wait",
        "--timeout=150s",
    ];
    let describe = ["restore", "describe", name, "--details"];
    let ended = plugin.fails(code, &args).await;
    with_state(node, &describe, ended).await?;
    plugin.stdout(&describe).await
}

/// What a restore that has ended so says about the missing data of all volumes.
async fn missing(
    node: &Node,
    restore: &str,
    phase: &RestorePhase,
) -> anyhow::Result<BTreeMap<String, String>> {
    let restore = restores(node).get(restore).await?;
    ensure!(restore.phase() == *phase, "{restore:?}");
    let missing = missing_data(&restore)?;
    ensure!(missing.volumes.len() == CLAIMS, "{missing:?}");
    Ok(missing.volumes)
}

/// Waits until the large claim is `Lost`, and checks that its volume is kept for it.
async fn is_taken_over(node: &Node, volume: &str, download: &str) -> anyhow::Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(node.client.clone(), FILES);
    eventually("the claim is lost", SOON, async || {
        let status = claims.get(LARGE).await?.status;
        let phase = status.and_then(|status| status.phase).unwrap_or_default();
        anyhow::Ok(when(phase == "Lost", phase))
    })
    .await?;
    let volumes: Api<PersistentVolume> = Api::all(node.client.clone());
    let volume = volumes.get(volume).await?;
    let mark = volume.labels().get(TRANSFER_LABEL);
    ensure!(mark.is_some_and(|mark| mark == download), "{volume:?}");
    let spec = volume.spec.context("no spec")?;
    let policy = spec.persistent_volume_reclaim_policy.as_deref();
    ensure!(policy == Some("Retain"), "{spec:?}");
    let holder = spec.claim_ref.context("no claim")?;
    let holder = (holder.namespace.as_deref(), holder.name.as_deref());
    ensure!(holder == (Some(NAMESPACE), Some(download)), "{holder:?}");
    Ok(())
}

/// The names of the PersistentVolumes, by claim.
async fn volume_names(node: &Node) -> anyhow::Result<BTreeMap<String, String>> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(node.client.clone(), FILES);
    let mut names = BTreeMap::new();
    for claim in claims.list_all().await? {
        let name = claim.name_any();
        let volume = claim.spec.and_then(|spec| spec.volume_name);
        names.insert(name, volume.context("no volume")?);
    }
    Ok(names)
}

async fn stop_application(node: &Node) -> anyhow::Result<()> {
    scale(node, "0").await?;
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), FILES);
    eventually("the application's pods are gone", SOON, async || {
        let left = pods.names().await?;
        anyhow::Ok(when(left.is_empty(), format!("{left:?}")))
    })
    .await
}

/// Changes the number of the application's pods.
async fn scale(node: &Node, replicas: &str) -> anyhow::Result<()> {
    let replicas = format!("--replicas={replicas}");
    let scale = [
        "scale",
        "deployment/writer",
        "--namespace",
        FILES,
        &replicas,
    ];
    node.kubectl()?.succeeds(&scale).await.map(drop)
}
