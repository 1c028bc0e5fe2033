//! Disturbances of pods: they are killed, replaced and drained, while Backups are created.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::api::{Backup, BackupPhase, BackupSpec};
use backup_tests::{
    api::ApiExt as _,
    install::{NAMESPACE, ensure_namespace},
    node::{NAME, Node},
    wait::{eventually, when},
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, ResourceExt};

use crate::{
    creations::Creations,
    installation::{PROGRAMS, SOON, is_ready, pods, restarts, rolled_out},
};

/// A killed process does not answer until the Service no longer leads to it. Creations may fail
/// until then, which is what `failurePolicy: Fail` is for, but no longer.
pub(crate) async fn a_killed_webhook_is_out_of_the_way_within_seconds(
    node: &mut Node,
) -> anyhow::Result<()> {
    const SECONDS: Duration = Duration::from_secs(5);
    let creations = Creations::begin(node).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.kill_one("/backup-webhook")?;
    eventually("the webhook was started again", SOON, async || {
        let pods = pods(node, "backup-webhook").await?;
        let again = pods.iter().map(restarts).sum::<i32>() == 1 && pods.iter().all(is_ready);
        anyhow::Ok(when(
            again,
            format!(
                "{:?}",
                pods.iter().map(|pod| &pod.status).collect::<Vec<_>>()
            ),
        ))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = creations.end().await?;
    let [first, last] = [seen.failed.first(), seen.failed.last()]
        .map(|one| one.map_or(Duration::ZERO, |one| one.0));
    ensure!(
        last.saturating_sub(first) < SECONDS,
        "creations fail for too long: {:?}",
        seen.failed
    );
    Ok(())
}

pub(crate) async fn a_rollout_of_both_fails_no_creation(node: &mut Node) -> anyhow::Result<()> {
    let kubectl = node.kubectl()?;
    let creations = Creations::begin(node).await?;
    for program in PROGRAMS {
        let before = names(&pods(node, program).await?);
        let deployment = format!("deployment/{program}");
        kubectl
            .succeeds(&["--namespace", NAMESPACE, "rollout", "restart", &deployment])
            .await?;
        rolled_out(node, program).await?;
        let after = names(&pods(node, program).await?);
        ensure!(
            after.len() == 2 && after.iter().all(|name| !before.contains(name)),
            "{before:?}, {after:?}"
        );
    }
    // The last of the old pods is still terminating.
    tokio::time::sleep(Duration::from_secs(6)).await;
    creations.end_without_failure().await?;
    // One of the new controllers has taken over.
    let args = [
        "create",
        "after-the-rollout",
        "--include-namespaces=shop",
        "--wait",
    ];
    node.kubectl_backup().succeeds(&args).await.map(drop)
}

/// Any client that reaches a port can send anything. The limit is that of `deploy/`.
pub(crate) async fn large_requests_by_the_hundred_take_no_webhook_beyond_its_limit(
    node: &mut Node,
) -> anyhow::Result<()> {
    const SENDERS: usize = 64;
    const SIZE: usize = 8 << 20;
    let before = identities(node).await?;
    let creations = Creations::begin(node).await?;
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .build()?;
    let body = bytes::Bytes::from(vec![b' '; SIZE]);
    let mut urls = Vec::new();
    for pod in pods(node, "backup-webhook").await? {
        let address = pod
            .status
            .and_then(|status| status.pod_ip)
            .context("no address")?;
        urls.push(format!("https://{address}:9443/validate"));
    }
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    let sent = join_all((0..SENDERS).map(async |number| {
        let mut sent = 0;
        while tokio::time::Instant::now() < end {
            // It is refused before or after it was read; in either case, the answer is not waited
            // for long.
            let request = client.post(&urls[number % urls.len()]).body(body.clone());
            let _ = request.timeout(Duration::from_secs(5)).send().await;
            sent += 1;
        }
        sent
    }))
    .await;
    println!(
        "    {} requests of {} MiB were sent",
        sent.iter().sum::<usize>(),
        SIZE >> 20
    );
    creations.end().await?;
    let after = identities(node).await?;
    ensure!(
        before == after,
        "a webhook was started again: {before:?}, {after:?}"
    );
    Ok(())
}

/// The kernel kills any controller that resumes the backup, until the limit is raised.
pub(crate) async fn a_backup_outlives_controllers_that_run_out_of_memory(
    node: &mut Node,
) -> anyhow::Result<()> {
    const NAME: &str = "beyond-the-limit";
    let kubectl = node.kubectl()?;
    let limit = async |memory: &str| {
        let memory = format!("--limits=memory={memory}");
        let args = [
            "set",
            "resources",
            "deployment/backup-controller",
            &memory,
            "--requests=memory=16Mi",
        ];
        kubectl
            .succeeds(&[&args[..], &["--namespace", NAMESPACE]].concat())
            .await?;
        rolled_out(node, "backup-controller").await
    };
    ensure_namespace(&node.client, "large").await?;
    let large: Api<ConfigMap> = Api::namespaced(node.client.clone(), "large");
    for number in 0..60 {
        let data = [("text".to_owned(), "x".repeat(900 << 10))].into();
        let mut one = ConfigMap {
            data: Some(data),
            ..ConfigMap::default()
        };
        one.metadata.name = Some(format!("large-{number}"));
        large.create_object(&one).await?;
    }
    limit("24Mi").await?;
    let backups: Api<Backup> = Api::namespaced(node.client.clone(), NAMESPACE);
    let spec = BackupSpec {
        included_namespaces: vec!["large".to_owned()],
        ..BackupSpec::default()
    };
    backups.create_object(&Backup::new(NAME, spec)).await?;
    eventually("two controllers were killed", SOON, async || {
        let pods = pods(node, "backup-controller").await?;
        let killed = pods.iter().filter(|pod| was_killed_for_memory(pod)).count();
        anyhow::Ok(when(
            killed == 2,
            format!(
                "{:?}",
                pods.iter().map(|pod| &pod.status).collect::<Vec<_>>()
            ),
        ))
    })
    .await?;
    let phase = backups.get(NAME).await?.phase();
    ensure!(!phase.is_terminal(), "it has ended: {phase}");
    limit("2Gi").await?;
    let completed = |backup: &Backup| backup.phase() == BackupPhase::Completed;
    backups
        .wait_until(NAME, "is completed", SOON, completed)
        .await
        .map(drop)
}

fn was_killed_for_memory(pod: &Pod) -> bool {
    let containers = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let mut states = containers
        .flat_map(|one| [&one.state, &one.last_state])
        .flatten();
    states.any(|state| {
        state
            .terminated
            .as_ref()
            .is_some_and(|end| end.reason.as_deref() == Some("OOMKilled"))
    })
}

/// Without a kubelet, pods are not managed, but continue to run; when it is back, it adopts them.
pub(crate) async fn a_kubelet_that_is_killed_takes_no_pod_along(
    node: &mut Node,
) -> anyhow::Result<()> {
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

/// Pods of both programs, with the number of their restarts.
async fn identities(node: &Node) -> anyhow::Result<Vec<(String, i32)>> {
    let mut all = Vec::new();
    for program in PROGRAMS {
        all.extend(
            pods(node, program)
                .await?
                .iter()
                .map(|pod| (pod.name_any(), restarts(pod))),
        );
    }
    all.sort();
    Ok(all)
}

/// The only node is drained, so an evicted pod cannot be scheduled until the node is uncordoned.
pub(crate) async fn a_drain_waits_until_another_replica_is_ready(
    node: &mut Node,
) -> anyhow::Result<()> {
    let kubectl = node.kubectl()?;
    let before = names(&pods(node, "backup-webhook").await?);
    let creations = Creations::begin(node).await?;
    let drain = kubectl.clone();
    let drain = tokio::spawn(async move {
        let args = [
            "drain",
            NAME,
            "--delete-emptydir-data",
            "--pod-selector=app.kubernetes.io/part-of=backup",
        ];
        drain.run(&[&args[..], &["--timeout=120s"]].concat()).await
    });
    for program in PROGRAMS {
        eventually(
            &format!("one pod of {program} is evicted"),
            SOON,
            async || {
                let left = pods(node, program).await?;
                let waiting = left.iter().filter(|pod| {
                    pod.spec
                        .as_ref()
                        .is_some_and(|spec| spec.node_name.is_none())
                });
                let (all, waiting) = (names(&left), waiting.count());
                anyhow::Ok(when(
                    all.len() == 2 && waiting == 1,
                    format!("{all:?}, {waiting} without a node"),
                ))
            },
        )
        .await?;
    }
    // The drain retries the evictions of the others every five seconds.
    tokio::time::sleep(Duration::from_secs(7)).await;
    ensure!(
        !drain.is_finished(),
        "the drain did not wait for the last replicas"
    );
    for program in PROGRAMS {
        let running = pods(node, program).await?;
        let running = running.iter().filter(|pod| {
            pod.spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_some())
        });
        ensure!(
            running.count() == 1,
            "the last replica of {program} was evicted"
        );
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
    ensure!(
        after.iter().all(|name| !before.contains(name)),
        "{before:?}, {after:?}"
    );
    creations.end_without_failure().await?;
    Ok(())
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}
