//! What happens to pods: they are killed, replaced and drained, while Backups are created.

use std::time::Duration;

use anyhow::ensure;
use backup_tests::{
    install::NAMESPACE,
    node::{NAME, Node},
    wait::{eventually, when},
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::{
    creations::Creations,
    installation::{PROGRAMS, SOON, is_ready, pods, restarts, rolled_out},
};

/// There is no answer in the place of a process that is killed until the Service leads past it. Creations may fail until then, which
/// is what `failurePolicy: Fail` is for, and no longer.
pub(crate) async fn a_killed_webhook_is_out_of_the_way_within_seconds(node: &mut Node) -> anyhow::Result<()> {
    const SECONDS: Duration = Duration::from_secs(5);
    let creations = Creations::begin(node).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.kill_one("/backup-webhook")?;
    eventually("the webhook was started again", SOON, async || {
        let pods = pods(node, "backup-webhook").await?;
        let again = pods.iter().map(restarts).sum::<i32>() == 1 && pods.iter().all(is_ready);
        anyhow::Ok(when(again, format!("{:?}", pods.iter().map(|pod| &pod.status).collect::<Vec<_>>())))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = creations.end().await?;
    let [first, last] =
        [seen.failed.first(), seen.failed.last()].map(|one| one.map_or(Duration::ZERO, |one| one.0));
    ensure!(last.saturating_sub(first) < SECONDS, "creations fail for too long: {:?}", seen.failed);
    Ok(())
}

pub(crate) async fn a_rollout_of_both_fails_no_creation(node: &mut Node) -> anyhow::Result<()> {
    let kubectl = node.kubectl()?;
    let creations = Creations::begin(node).await?;
    for program in PROGRAMS {
        let before = names(&pods(node, program).await?);
        let deployment = format!("deployment/{program}");
        kubectl.succeeds(&["--namespace", NAMESPACE, "rollout", "restart", &deployment]).await?;
        rolled_out(node, program).await?;
        let after = names(&pods(node, program).await?);
        ensure!(after.len() == 2 && after.iter().all(|name| !before.contains(name)), "{before:?}, {after:?}");
    }
    // The last of the old ones is still going.
    tokio::time::sleep(Duration::from_secs(6)).await;
    creations.end_without_failure().await?;
    // One of the new controllers has taken over.
    let args = ["create", "after-the-rollout", "--include-namespaces=shop", "--wait"];
    node.kubectl_backup().succeeds(&args).await.map(drop)
}

/// Without a kubelet no pod is looked after, and what runs goes on; when it comes back it takes the pods for its own.
pub(crate) async fn a_kubelet_that_is_killed_takes_no_pod_along(node: &mut Node) -> anyhow::Result<()> {
    let creations = Creations::begin(node).await?;
    let before = identities(node).await?;
    node.kubelet.kill().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    node.kubelet.restart().await?;
    node.wait_ready().await?;
    for program in PROGRAMS {
        rolled_out(node, program).await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = identities(node).await?;
    ensure!(before == after, "{before:?}, {after:?}");
    creations.end_without_failure().await?;
    Ok(())
}

/// Pods of both programs, with how often each was started again.
async fn identities(node: &Node) -> anyhow::Result<Vec<(String, i32)>> {
    let mut all = Vec::new();
    for program in PROGRAMS {
        all.extend(pods(node, program).await?.iter().map(|pod| (pod.name_any(), restarts(pod))));
    }
    all.sort();
    Ok(all)
}

/// The only node is drained, so an evicted pod finds no place before it may have pods again.
pub(crate) async fn a_drain_waits_until_another_replica_is_ready(node: &mut Node) -> anyhow::Result<()> {
    let kubectl = node.kubectl()?;
    let before = names(&pods(node, "backup-webhook").await?);
    let creations = Creations::begin(node).await?;
    let drain = kubectl.clone();
    let drain = tokio::spawn(async move {
        let args =
            ["drain", NAME, "--delete-emptydir-data", "--pod-selector=app.kubernetes.io/part-of=backup"];
        drain.run(&[&args[..], &["--timeout=120s"]].concat()).await
    });
    for program in PROGRAMS {
        eventually(&format!("one pod of {program} is evicted"), SOON, async || {
            let left = pods(node, program).await?;
            let waiting =
                left.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()));
            let (all, waiting) = (names(&left), waiting.count());
            anyhow::Ok(when(all.len() == 2 && waiting == 1, format!("{all:?}, {waiting} without a node")))
        })
        .await?;
    }
    // The drain asks for the others again every five seconds.
    tokio::time::sleep(Duration::from_secs(7)).await;
    ensure!(!drain.is_finished(), "the drain did not wait for the last replicas");
    for program in PROGRAMS {
        let running = pods(node, program).await?;
        let running =
            running.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        ensure!(running.count() == 1, "the last replica of {program} was evicted");
    }
    kubectl.succeeds(&["uncordon", NAME]).await?;
    let ran = drain.await??.expect_code(0)?;
    for program in PROGRAMS {
        let budget = "violate the pod's disruption budget";
        ensure!(
            ran.stderr.contains(budget) && ran.stderr.contains(program),
            "{program} was not held: {ran:?}"
        );
        rolled_out(node, program).await?;
    }
    let after = names(&pods(node, "backup-webhook").await?);
    ensure!(after.iter().all(|name| !before.contains(name)), "{before:?}, {after:?}");
    creations.end_without_failure().await?;
    Ok(())
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}
