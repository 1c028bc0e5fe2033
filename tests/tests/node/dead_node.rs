//! A node that dies while data moves.
//!
//! There is only one node: its kubelet is killed, and the processes of movers with it. All other
//! processes of the node live on.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Backup, BackupPhase, DataUpload, transfer::MovePhase},
    data_movement::ATTEMPTS_ANNOTATION,
};
use backup_tests::{
    api::ApiExt as _,
    install::NAMESPACE,
    node::{NAME, Node},
    wait::{eventually, when},
};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, ResourceExt as _};

use crate::{
    installation::{PROGRAMS, rolled_out},
    steps::{
        LONG, MOVER_PROGRAM, SAVING_PODS, backups, moving, saves_nothing, uploads_of,
        wait_for_uploads, while_data_moves, with_state,
    },
    volumes::{nothing_of_movers_is_left, stored_keys},
    writer::{LARGE, in_pod},
};

/// A backup that waits for the node.
const PATIENT: &str = "files-patient";
/// A backup whose operations have a deadline that passes meanwhile.
const LATE: &str = "files-late";

pub(crate) async fn transfers_of_a_dead_node_end_in_time_or_once_it_is_back(
    node: &mut Node,
) -> anyhow::Result<()> {
    let before = snapshots_and_notes(node).await?;
    // Random data, as known data is not stored again.
    in_pod(node, "dd if=/dev/urandom of=/first/newest bs=1M count=24").await?;
    let begun = begin_both(node).await;
    node.kubelet.kill().await?;
    let killed = node.kill_all(MOVER_PROGRAM);
    let seen = match begun.and(killed) {
        Ok(()) => while_the_node_is_dead(node).await,
        Err(error) => Err(error),
    };
    node.kubelet.restart().await?;
    node.wait_ready().await?;
    with_state(node, &["describe", LATE, "--details"], seen).await?;

    for program in PROGRAMS {
        rolled_out(node, program).await?;
    }
    let completed = |backup: &Backup| backup.phase() == BackupPhase::Completed;
    let all = backups(node);
    let ended = all
        .wait_until(PATIENT, "is completed", LONG, completed)
        .await;
    with_state(node, &["describe", PATIENT, "--details"], ended).await?;
    let upload = upload_of_large(node, PATIENT).await?;
    let attempts = upload.annotations().get(ATTEMPTS_ANNOTATION);
    ensure!(attempts.is_some_and(|count| count == "2"), "{upload:?}");
    saves_nothing(node, LATE, &["timed out"]).await?;
    nothing_of_movers_is_left(node).await?;
    for name in [PATIENT, LATE] {
        let delete = ["delete", name, "--yes", "--wait", "--timeout=2m"];
        node.kubectl_backup().succeeds(&delete).await?;
    }
    let after = snapshots_and_notes(node).await?;
    ensure!(before == after, "{before:?}, {after:?}");
    Ok(())
}

/// Begins both backups. Their movers are paused, that of the large volume in the middle of its work.
async fn begin_both(node: &Node) -> anyhow::Result<()> {
    let create = |name| {
        [
            "create",
            name,
            "--include-namespaces=files",
            "--snapshot-move-data",
        ]
    };
    while_data_moves(node, "DataUpload", &create(PATIENT), async |_| {
        node.pause_all(MOVER_PROGRAM)?;
        ensure!(
            moving(node, "DataUpload").await?.is_some(),
            "the data had been moved before its pod was paused"
        );
        Ok(())
    })
    .await?;
    let deadline = "--item-operation-timeout=1m";
    node.kubectl_backup()
        .succeeds(&[&create(LATE)[..], &[deadline]].concat())
        .await?;
    let running = wait_for_uploads(node, LATE, "run", |upload| {
        upload.status.transfer.phase == Some(MovePhase::InProgress)
    });
    tokio::select! {
        running = running => running,
        never = pause_movers(node) => never,
    }
}

/// Pauses each mover as soon as it runs, for ever.
async fn pause_movers(node: &Node) -> anyhow::Result<()> {
    loop {
        // An error if none runs.
        let _ = node.pause_all(MOVER_PROGRAM);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One backup ends by its deadline. The other one waits, and nothing counts as saved.
async fn while_the_node_is_dead(node: &Node) -> anyhow::Result<()> {
    let ended = |backup: &Backup| backup.phase() == BackupPhase::PartiallyFailed;
    let all = backups(node);
    all.wait_until(LATE, "is partially failed", LONG, ended)
        .await?;
    is_not_ready(node).await?;
    // As Kubernetes does five minutes later. Without a kubelet they stay.
    let selector = format!("--selector={SAVING_PODS}");
    let delete = ["delete", "pods", "--namespace", NAMESPACE, &selector];
    node.kubectl()?
        .succeeds(&[&delete[..], &["--wait=false"]].concat())
        .await?;
    let phase = all.get(PATIENT).await?.phase();
    ensure!(!phase.is_terminal(), "{PATIENT} is {phase}");
    let upload = upload_of_large(node, PATIENT).await?;
    ensure!(
        upload.status.transfer.phase == Some(MovePhase::InProgress)
            && upload.status.stored.snapshot_id.is_none(),
        "{upload:?}"
    );
    Ok(())
}

async fn is_not_ready(node: &Node) -> anyhow::Result<()> {
    let nodes: Api<NodeObject> = Api::all(node.client.clone());
    eventually("the node is not ready", LONG, async || {
        let status = nodes.get(NAME).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions.iter().find(|one| one.type_ == "Ready");
        let is_dead = ready.is_some_and(|ready| ready.status != "True");
        anyhow::Ok(when(is_dead, format!("{ready:?}")))
    })
    .await
}

async fn upload_of_large(node: &Node, backup: &str) -> anyhow::Result<DataUpload> {
    let mut uploads = uploads_of(node, backup).await?.into_iter();
    let large = uploads.find(|upload| upload.spec.source_pvc == LARGE);
    large.context("no upload of the large volume")
}

async fn snapshots_and_notes(node: &Node) -> anyhow::Result<Vec<String>> {
    let mut keys = stored_keys(node, "snapshots/").await?;
    keys.extend(stored_keys(node, "uploads/").await?);
    Ok(keys)
}
