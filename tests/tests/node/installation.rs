//! Installed by the command, used, and removed by the command; then by kustomize, as the
//! documentation says.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::api::Backup;
use backup_tests::{
    api::{ApiExt as _, objects_in},
    binaries::root,
    install::NAMESPACE,
    kubectl::with_kind,
    node::Node,
    wait::{eventually, when},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};

/// Timeout for a rollout.
pub(crate) const ROLLOUT: &str = "--timeout=90s";
pub(crate) const SOON: Duration = Duration::from_mins(1);
/// Flag of the controller, whose default is 10 s: the tests wait for the end of many operations.
pub(crate) const FREQUENT_POLLS: &str = "--controller-arg=--item-operation-sync-frequency=1s";
pub(crate) const PROGRAMS: [&str; 2] = ["backup-webhook", "backup-controller"];

/// The folder of `deploy/` as an argument.
fn folder(name: &str) -> String {
    root().join(name).display().to_string()
}

pub(crate) async fn both_programs_become_ready_as_they_are_installed(
    node: &mut Node,
) -> anyhow::Result<()> {
    let installed = node
        .kubectl_backup()
        .succeeds(&["install", "--replicas=2", FREQUENT_POLLS, "--timeout=90s"])
        .await?;
    ensure!(
        installed
            .stderr
            .contains("it answers: a backup that makes no sense was refused"),
        "{installed:?}"
    );
    for program in PROGRAMS {
        rolled_out(node, program).await?;
        for pod in pods(node, program).await? {
            ensure!(
                restarts(&pod) == 0,
                "{} was restarted: {:?}",
                pod.name_any(),
                pod.status
            );
        }
    }
    node.create_location().await?;
    let seen = node.kubectl_backup().succeeds(&["doctor"]).await?.stdout;
    let served = "2 replicas serve certificates that the API server takes";
    ensure!(seen.contains(served), "no {served:?} in {seen}");
    Ok(())
}

pub(crate) async fn a_namespace_with_running_pods_comes_back(
    node: &mut Node,
) -> anyhow::Result<()> {
    let (kubectl, plugin) = (node.kubectl()?, node.kubectl_backup());
    node.create_shop().await?;
    node.wait_for_shop().await?;
    plugin
        .succeeds(&["create", "first", "--include-namespaces=shop", "--wait"])
        .await?;
    kubectl
        .succeeds(&["delete", "namespace", "shop", "--timeout=60s"])
        .await?;
    plugin
        .succeeds(&["restore", "--from-backup=first", "--name=back", "--wait"])
        .await?;
    node.wait_for_shop().await?;
    let settings = objects_in(&node.client, "shop", "v1", "ConfigMap")
        .get("settings")
        .await?;
    ensure!(
        settings.data["data"]["colour"] == "blue",
        "{:?}",
        settings.data
    );
    // Through the API server's proxy to a controller's pod.
    let logs = plugin.succeeds(&["logs", "first"]).await?;
    ensure!(
        logs.stdout.contains("collected"),
        "the log of the backup is not given: {logs:?}"
    );
    Ok(())
}

/// A pod resolves the name in `--peer-service`. It has addresses of replicas, and not of the
/// Service.
pub(crate) async fn replicas_are_found_by_their_name(node: &mut Node) -> anyhow::Result<()> {
    let kubectl = node.kubectl()?;
    let name = format!("backup-webhook-peers.{NAMESPACE}.svc.cluster.local");
    let exec = [
        "exec",
        "--namespace=shop",
        "deployment/server",
        "--",
        "busybox",
        "nslookup",
        &name,
    ];
    let found = kubectl.succeeds(&exec).await?;
    for pod in pods(node, "backup-webhook").await? {
        let address = pod
            .status
            .and_then(|status| status.pod_ip)
            .context("no address")?;
        ensure!(
            found.stdout.contains(&format!("Address: {address}\n")),
            "not {address}: {found:?}"
        );
    }
    Ok(())
}

/// The command does the rollout, and the rollback to the previous version.
pub(crate) async fn an_upgrade_that_cannot_start_says_why_and_another_goes_on(
    node: &mut Node,
) -> anyhow::Result<()> {
    let plugin = node.kubectl_backup();
    // No image can be pulled from there; the running replicas continue.
    let late = plugin
        .fails(124, &["upgrade", "--registry=127.0.0.1:1", "--timeout=15s"])
        .await?;
    for reason in ["127.0.0.1:1/backup-webhook", "ImagePull"] {
        ensure!(late.stderr.contains(reason), "no reason: {late:?}");
    }
    plugin.succeeds(&["doctor"]).await?;
    plugin
        .succeeds(&["upgrade", "--registry=", "--timeout=90s"])
        .await?;
    // If the program itself explains its end, its message is shown.
    let crashes = plugin
        .fails(
            124,
            &[
                "upgrade",
                "--controller-arg=--no-such-flag",
                "--timeout=15s",
            ],
        )
        .await?;
    ensure!(
        crashes.stderr.contains("ends with exit code"),
        "no reason: {crashes:?}"
    );
    plugin
        .succeeds(&["upgrade", "--controller-arg=none", "--timeout=90s"])
        .await
        .map(drop)
}

pub(crate) async fn removal_leaves_what_the_programs_worked_on(
    node: &mut Node,
) -> anyhow::Result<()> {
    let removed = node
        .kubectl_backup()
        .succeeds(&["uninstall", "--yes", "--timeout=90s"])
        .await?;
    ensure!(
        removed.stderr.contains("Stayed: namespace velero"),
        "{removed:?}"
    );
    all_is_left(node).await?;
    // The webhook is no longer called, so a Backup can be created; nothing runs it either.
    let kubectl = node.kubectl()?;
    let later = with_kind(&Backup::new(
        "later",
        backup_core::api::BackupSpec::default(),
    ));
    kubectl
        .succeeds(&["create", "-f", &kubectl.manifest(&later)?])
        .await
        .map(drop)
}

/// Work continues with the kept objects, however it is installed again. The commands are those of
/// docs/operate/install.md.
pub(crate) async fn kustomize_installs_and_removes_the_same(node: &mut Node) -> anyhow::Result<()> {
    let kubectl = node.kubectl()?;
    kubectl
        .succeeds(&["apply", "-k", &folder("deploy")])
        .await?;
    for program in PROGRAMS {
        rolled_out(node, program).await?;
    }
    let page = std::fs::read_to_string(root().join("docs/operate/install.md"))?;
    let chapter = page
        .split("## Uninstall")
        .nth(1)
        .context("no chapter on how to uninstall")?;
    let block = chapter
        .split("```")
        .find(|block| block.contains("-k deploy"))
        .context("no commands")?;
    let commands: Vec<&str> = block
        .lines()
        .filter(|line| line.starts_with("kubectl "))
        .collect();
    ensure!(
        commands.len() == 3,
        "other commands than this test knows: {commands:?}"
    );
    let kubectl = node.kubectl()?;
    for command in commands {
        let words = command
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1);
        let deploy = folder("deploy");
        let args: Vec<&str> = words
            .map(|word| if word == "deploy" { &deploy } else { word })
            .collect();
        kubectl.succeeds(&args).await?;
    }
    all_is_left(node).await
}

/// Checks that the objects and credentials exist, and no pod of the programs.
async fn all_is_left(node: &Node) -> anyhow::Result<()> {
    let backups: Api<Backup> = Api::namespaced(node.client.clone(), NAMESPACE);
    ensure!(backups.exists("first").await?, "the Backup is gone");
    let kept = objects_in(&node.client, NAMESPACE, "v1", "Secret");
    ensure!(
        kept.exists("cloud-credentials").await?,
        "the credentials are gone"
    );
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), NAMESPACE);
    eventually("the pods are gone", SOON, async || {
        let left = pods.list_all().await?;
        anyhow::Ok(when(
            left.is_empty(),
            format!(
                "{:?}",
                left.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
            ),
        ))
    })
    .await
}

pub(crate) async fn rolled_out(node: &Node, program: &str) -> anyhow::Result<()> {
    let deployment = format!("deployment/{program}");
    let args = [
        "--namespace",
        NAMESPACE,
        "rollout",
        "status",
        &deployment,
        ROLLOUT,
    ];
    node.kubectl()?.succeeds(&args).await.map(drop)
}

/// The pods of a program that are not terminating.
pub(crate) async fn pods(node: &Node, program: &str) -> anyhow::Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), NAMESPACE);
    let mut all = pods.list_all().await?;
    all.retain(|pod| {
        pod.metadata.deletion_timestamp.is_none()
            && pod
                .labels()
                .get("app.kubernetes.io/name")
                .is_some_and(|name| name == program)
    });
    Ok(all)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Number of restarts of its containers.
pub(crate) fn restarts(pod: &Pod) -> i32 {
    let containers = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}
