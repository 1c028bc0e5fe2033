//! `kubectl backup migrate` on the objects of an installation of Velero, in a cluster of its own. No
//! server of Velero runs.

use std::{fs, process::Command};

use backup_tests::velero;
use k8s_openapi::api::apps::v1::Deployment;

use crate::{install_command::cluster, prelude::*};

crate::tests! {
    an_installation_of_velero_is_read_and_moved_by_what_is_written,
}

async fn an_installation_of_velero_is_read_and_moved_by_what_is_written(
    world: &mut World,
) -> TestResult {
    let cluster = cluster(world, "migrate").await?;
    let plugin = &cluster.plugin;
    if !velero::install(&cluster.client).await? {
        return Err(Skip("it needs Go, for the definitions of Velero").into());
    }
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let before = deployments.get("velero").await?;

    let check = plugin.fails(1, &["migrate", "--check"]).await?.stdout;
    let expected = [
        "Velero v1.18.3 in namespace velero",
        "✓ flags                  --default-backup-ttl=480h0m0s is a flag of our controller, too",
        "! flags                  --client-qps=200 is left out",
        "! plugins                velero/velero-plugin-for-aws:v1.14.2 goes into our controller for its snapshots (locations: default)",
        "✓ locations              default (acme-dr, prefix prod): provider aws is built in",
        "✓ credentials            Secret cloud-credentials is read",
        "! identity               ServiceAccount velero has an identity of the cloud",
        "✓ schedules              nightly (0 3 * * *, kept for 240h0m0s) makes its backups here",
        "! schedules              backups of nightly move the data of volumes",
        "✗ schedules              backups of files are refused here: spec.template.defaultVolumesToFsBackup",
        "✗ node agents            nothing does here what ConfigMap node-agent-config sets: loadAffinity",
        "✗ repositories           Kopia: only Velero restores the data of 1 volume in 1 backup (nightly-20261103030000)",
        "Lost: 3 (",
    ];
    says(&check, &expected)?;
    // `velero install` makes nothing that would be left behind.
    ensure!(!check.contains("its pod has"), "{check}");
    let report: Value = serde_json::from_str(
        &plugin
            .fails(1, &["migrate", "--check", "-o", "json"])
            .await?
            .stdout,
    )?;
    ensure!(report["lossless"] == false, "{report}");

    let folder = cluster.folder.join("move");
    let output = format!("--output-dir={}", folder.display());
    plugin.succeeds(&["migrate", &output]).await?;
    plugin.fails(1, &["migrate", &output]).await?;
    for script in ["migrate.sh", "back.sh"] {
        let checked = Command::new("sh")
            .arg("-n")
            .arg(folder.join(script))
            .output()?;
        let said = String::from_utf8_lossy(&checked.stderr);
        ensure!(checked.status.success(), "{script}: {said}");
    }
    let after = deployments.get("velero").await?;
    ensure!(
        after.metadata.generation == before.metadata.generation
            && deployments.names().await?.len() == 1,
        "the command changed something"
    );

    // What the script runs: the server is stopped, and ours is installed with the flags.
    let script = fs::read_to_string(folder.join("migrate.sh"))?;
    deployments
        .merge_patch("velero", json!({ "spec": { "replicas": 0 } }))
        .await?;
    eventually("the server is stopped", TIMEOUT, async || {
        let status = deployments.get("velero").await?.status.unwrap_or_default();
        let replicas = status.replicas.unwrap_or_default();
        anyhow::Ok(when(replicas == 0, "it has pods"))
    })
    .await?;
    let mut install = install_words(&script)?;
    install.push("--wait=false");
    plugin.succeeds(&install).await?;
    let args = cluster.args("backup-controller").await?.join(" ");
    says(
        &args,
        &[
            "--features=EnableCSI",
            "--default-backup-ttl=480h0m0s",
            "--cron-dialect=netresearch",
        ],
    )?;
    let patch = fs::read_to_string(folder.join("controller-patch.yaml"))?;
    let patch: Value = serde_saphyr::from_str(&patch)?;
    let patch = kube::api::Patch::Strategic(patch);
    let patched = deployments
        .patch(
            "backup-controller",
            &kube::api::PatchParams::default(),
            &patch,
        )
        .await?;
    let pod = patched
        .spec
        .and_then(|spec| spec.template.spec)
        .context("no pod")?;
    let plugins = pod.init_containers.unwrap_or_default();
    ensure!(
        plugins.len() == 1 && pod.containers.len() == 1,
        "{plugins:?}"
    );
    // An upgrade keeps what the patch has added.
    plugin.succeeds(&["upgrade", "--wait=false"]).await?;
    let kept = deployments.get("backup-controller").await?;
    let pod = kept
        .spec
        .and_then(|spec| spec.template.spec)
        .context("no pod")?;
    ensure!(
        pod.init_containers
            .is_some_and(|plugins| plugins.len() == 1),
        "the upgrade removed the plugin"
    );
    Ok(())
}

/// The words after `kubectl backup` of the command that installs.
fn install_words(script: &str) -> anyhow::Result<Vec<&str>> {
    let begin = "\nkubectl backup install ";
    let at = script.find(begin).context("the script installs nothing")?;
    let (command, _) = script[at + 1..]
        .split_once("\n\n")
        .context("the command has no end")?;
    let words = command.split_whitespace().filter(|word| *word != "\\");
    Ok(words.skip(2).collect())
}
