//! Drills on a node: the pods of a backup become ready in a scratch namespace, and Jobs check them.
//!
//! The first test creates the application and its backup, the last one removes the application.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::Restore,
    drill::{DrillResult, DrillState, id_of_scratch},
    labels::{DRILLED_ANNOTATION, annotation},
};
use backup_tests::{
    api::{ApiExt as _, objects_in},
    node::{Node, TOOLS},
};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, Job},
        core::v1::{Namespace, Pod, Service},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use crate::{
    installation::{SOON, is_ready, rolled_out},
    steps::{LONG, backups, in_pod_of, restores, wait_for_deployment, with_state},
};

/// Namespace of the application.
const KIOSK: &str = "kiosk";
const BACKUP: &str = "kiosk-first";
/// Name of the application's Deployment and Service, and label of its pod.
const SERVER: &str = "server";
/// Name of the application's CronJob.
const REPORT: &str = "report";
/// Name of the check that reads from the application.
const ANSWERS: &str = "answers";
/// Name of the Job of that check.
const ANSWERS_JOB: &str = "drill-check-answers";
/// Time from its start until the application's pod can be ready (seconds).
const READY_DELAY_SECONDS: i64 = 5;
/// Program of the controller in its pod.
const CONTROLLER_PROGRAM: &str = "/backup-controller";

/// Serves the settings.
const SERVE: &str = "\
set -e
mkdir -p /www
cp /settings/colour /www/colour
exec httpd -f -p 8080 -h /www
";
/// Reads the settings through the Service, whose address Kubernetes sets in variables of the
/// container. Retries until the Service leads to the pod.
const READ_SETTINGS: &str = r#"
set -e
read_page() {
  timeout 5 busybox wget -q -O - "http://$SERVER_SERVICE_HOST:$SERVER_SERVICE_PORT/$1"
}
until colour=$(read_page colour); do sleep 1; done
test "$colour" = blue
"#;
/// Follows [`READ_SETTINGS`]: runs until [`end_check`] is called.
const WAIT_FOR_PAGE: &str = "until read_page end; do sleep 1; done\n";

/// The check does not end before the time of the CronJob has come.
pub(crate) async fn a_backup_is_restored_on_trial_until_its_pods_are_ready(
    node: &mut Node,
) -> anyhow::Result<()> {
    /// Number of items that the test has created, with the pod and its ReplicaSet.
    const MIN_ITEMS: usize = 6;
    node.apply(&application()).await?;
    wait_for_deployment(node, KIOSK, SERVER).await?;
    let scope = format!("--include-namespaces={KIOSK}");
    let create = ["create", BACKUP, &scope, "--wait", "--timeout=150s"];
    let completed = node.kubectl_backup().succeeds(&create).await.map(drop);
    with_state(node, &["describe", BACKUP], completed).await?;

    let restore = begin_drill(node).await?;
    let ended = async {
        let scratch = wait_for_check(node, &restore).await?;
        is_isolated(node, &scratch).await?;
        end_check(node, &scratch).await?;
        wait_until_over(node, &restore).await
    }
    .await;
    let describe = ["restore", "describe", &restore];
    let result = with_state(node, &describe, ended).await?;
    println!("    {}", result.counts());
    has_passed(&result)?;
    ensure!(
        result.items >= MIN_ITEMS && result.restored == result.items,
        "{result:?}"
    );
    ensure!(result.seconds >= READY_DELAY_SECONDS, "{result:?}");
    let counts = result.counts();
    shows(node, &describe, &["succeeded in", &counts]).await?;
    shows(node, &["describe", BACKUP], &["Drilled", &counts]).await
}

pub(crate) async fn a_check_that_exits_with_another_code_fails_the_drill(
    node: &mut Node,
) -> anyhow::Result<()> {
    let checks = [check(ANSWERS, READ_SETTINGS), check("stock", "exit 7")];
    let wait = ["--wait", "--timeout=150s"];
    let failed = drill(node, BACKUP, &checks, &wait, 3).await;
    let restore = with_state(node, &["describe", BACKUP], failed).await?;
    let ended = wait_until_over(node, &restore).await;
    let describe = ["restore", "describe", &restore];
    let result = with_state(node, &describe, ended).await?;
    ensure!(
        (result.checks, result.passed) == (2, 1) && !result.failure.contains(ANSWERS),
        "{result:?}"
    );
    let reason = "check stock: exit code 7";
    shows(node, &describe, &[reason]).await?;
    let parts = [reason, "1 of 2 checks passed"];
    shows(node, &["describe", BACKUP], &parts).await
}

/// Both replicas are killed while the check runs, and again while the scratch namespace is removed.
pub(crate) async fn nothing_is_left_of_a_drill_whose_controllers_are_killed(
    node: &mut Node,
) -> anyhow::Result<()> {
    let restore = begin_drill(node).await?;
    let ended = async {
        let scratch = wait_for_check(node, &restore).await?;
        node.kill_all(CONTROLLER_PROGRAM)?;
        rolled_out(node, "backup-controller").await?;
        let all = restores(node);
        let state = DrillState::of(&all.get(&restore).await?);
        ensure!(
            state.ready.is_some() && state.result.is_none(),
            "the check did not run when the controllers were killed: {state:?}"
        );
        end_check(node, &scratch).await?;
        let has_result = |restore: &Restore| DrillState::of(restore).result.is_some();
        all.wait_until(&restore, "has a result", LONG, has_result)
            .await?;
        node.kill_all(CONTROLLER_PROGRAM)?;
        let state = DrillState::of(&all.get(&restore).await?);
        ensure!(
            !state.is_over,
            "the drill was over before the controllers were killed again"
        );
        wait_until_over(node, &restore).await
    }
    .await;
    let result = with_state(node, &["restore", "describe", &restore], ended).await?;
    has_passed(&result)?;
    // The tests after this one count restarts.
    rolled_out(node, "backup-controller").await?;
    let delete = ["delete", "namespace", KIOSK, "--timeout=60s"];
    node.kubectl()?.succeeds(&delete).await.map(drop)
}

/// Begins a drill whose check runs until [`end_check`] is called. Returns the name of its Restore.
async fn begin_drill(node: &Node) -> anyhow::Result<String> {
    let script = format!("{READ_SETTINGS}{WAIT_FOR_PAGE}");
    drill(node, BACKUP, &[check(ANSWERS, &script)], &[], 0).await
}

/// Runs `drill` of a backup with these checks and flags; the command has to end with this code.
/// Returns the name of the Restore.
pub(crate) async fn drill(
    node: &Node,
    backup: &str,
    checks: &[Value],
    flags: &[&str],
    code: i32,
) -> anyhow::Result<String> {
    let settings = json!({ "readyTimeout": "2m", "checks": checks });
    let file = node.kubectl()?.manifest(&settings)?;
    let args = [
        "drill",
        backup,
        "-f",
        &file,
        "--require-ready",
        "--output=name",
    ];
    let ran = node
        .kubectl_backup()
        .fails(code, &[&args[..], flags].concat())
        .await?;
    let name = ran.stdout.trim().rsplit('/').next().unwrap_or_default();
    ensure!(!name.is_empty(), "no name: {ran:?}");
    Ok(name.to_owned())
}

/// Waits until the Job of the check runs. Returns the name of its scratch namespace.
async fn wait_for_check(node: &Node, restore: &str) -> anyhow::Result<String> {
    let restore = restores(node).get(restore).await?;
    let scratch = restore.spec.namespace_mapping.get(KIOSK);
    let scratch = scratch.context("no scratch namespace")?;
    let jobs: Api<Job> = Api::namespaced(node.client.clone(), scratch);
    let runs = |job: &Job| {
        let status = job.status.as_ref();
        status.is_some_and(|status| status.ready == Some(1))
    };
    jobs.wait_until(ANSWERS_JOB, "runs", LONG, runs).await?;
    Ok(scratch.clone())
}

/// Adds the page that the check waits for.
async fn end_check(node: &Node, scratch: &str) -> anyhow::Result<()> {
    let add = "echo yes > /www/end";
    in_pod_of(node, scratch, SERVER, add).await.map(drop)
}

/// Checks, while the check runs, that the application is ready in the scratch namespace, that it
/// cannot be reached from outside of the cluster, and that nothing else runs there.
async fn is_isolated(node: &Node, scratch: &str) -> anyhow::Result<()> {
    wait_for_deployment(node, scratch, SERVER).await?;
    let services: Api<Service> = Api::namespaced(node.client.clone(), scratch);
    let service = services.get(SERVER).await?;
    let spec = service.spec.as_ref().context("no spec")?;
    let mut ports = spec.ports.iter().flatten();
    ensure!(
        spec.type_.as_deref() == Some("ClusterIP") && ports.all(|port| port.node_port.is_none()),
        "{service:?}"
    );
    // The pod of the application, and that of the check.
    let quotas = objects_in(&node.client, scratch, "v1", "ResourceQuota");
    let counts_pods = |quota: &DynamicObject| {
        let status = &quota.data["status"];
        status["hard"]["pods"] == "50" && status["used"]["pods"] == "2"
    };
    quotas
        .wait_until("drill", "counts the pods", SOON, counts_pods)
        .await?;
    runs_no_cron_job(node, scratch).await
}

/// Waits until the CronJob of the application has run since it was restored into the scratch
/// namespace. Checks that it has not run there.
async fn runs_no_cron_job(node: &Node, scratch: &str) -> anyhow::Result<()> {
    /// Time for another CronJob of the same time to run, too.
    const MAX_DELAY: Duration = Duration::from_secs(5);
    /// Label of the pods of a Job.
    const JOB_NAME: &str = "batch.kubernetes.io/job-name";
    let copies = cron_jobs(node, scratch);
    let restored = copies.get(REPORT).await?.creation_timestamp();
    let has_run = |original: &CronJob| last_run(original) > restored.as_ref();
    cron_jobs(node, KIOSK)
        .wait_until(REPORT, "has run", LONG, has_run)
        .await?;
    tokio::time::sleep(MAX_DELAY).await;

    let copy = copies.get(REPORT).await?;
    let suspend = copy.spec.as_ref().and_then(|spec| spec.suspend);
    ensure!(
        suspend == Some(true) && last_run(&copy).is_none(),
        "{copy:?}"
    );
    let jobs: Api<Job> = Api::namespaced(node.client.clone(), scratch);
    for job in jobs.list_all().await? {
        // The backup has a Job of the CronJob if one ran at its time.
        let suspend = job.spec.as_ref().and_then(|spec| spec.suspend);
        let is_suspended = suspend == Some(true);
        ensure!(is_suspended || job.name_any() == ANSWERS_JOB, "{job:?}");
    }
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), scratch);
    for pod in pods.list_all().await? {
        let is_labelled = |key: &str, value: &str| {
            let label = pod.labels().get(key);
            label.is_some_and(|label| label == value)
        };
        let is_expected = is_labelled("app", SERVER) || is_labelled(JOB_NAME, ANSWERS_JOB);
        ensure!(is_expected && is_ready(&pod), "{pod:?}");
    }
    Ok(())
}

fn cron_jobs(node: &Node, namespace: &str) -> Api<CronJob> {
    Api::namespaced(node.client.clone(), namespace)
}

fn last_run(cron_job: &CronJob) -> Option<&Time> {
    let status = cron_job.status.as_ref()?;
    status.last_schedule_time.as_ref()
}

/// Waits until a drill is over. Returns its result, which its backup has, too. Errors: a scratch
/// namespace is left.
pub(crate) async fn wait_until_over(node: &Node, restore: &str) -> anyhow::Result<DrillResult> {
    let is_over = |restore: &Restore| DrillState::of(restore).is_over;
    let restore = restores(node)
        .wait_until(restore, "is over", LONG, is_over)
        .await?;
    let result = DrillState::of(&restore).result.context("no result")?;
    let backup = restore.spec.backup_name.as_deref().context("no backup")?;
    let backup = backups(node).get(backup).await?;
    let of_backup = DrillResult::read(annotation(&backup, DRILLED_ANNOTATION));
    ensure!(
        of_backup.as_ref() == Some(&result),
        "{of_backup:?}, {result:?}"
    );
    let namespaces: Api<Namespace> = Api::all(node.client.clone());
    let mut left = namespaces.names().await?;
    left.retain(|name| id_of_scratch(name).is_some());
    ensure!(left.is_empty(), "{left:?} are left");
    Ok(result)
}

/// Errors: the drill has failed, or was not one of a ready pod with a check.
pub(crate) fn has_passed(result: &DrillResult) -> anyhow::Result<()> {
    let is_ready = (result.workloads, result.ready) == (1, 1);
    let is_checked = (result.checks, result.passed) == (1, 1);
    ensure!(!result.has_failed() && is_ready && is_checked, "{result:?}");
    Ok(())
}

/// Checks that a command of the plugin shows these parts.
async fn shows(node: &Node, command: &[&str], parts: &[&str]) -> anyhow::Result<()> {
    let shown = node.kubectl_backup().stdout(command).await?;
    for part in parts {
        ensure!(shown.contains(part), "no {part:?} in {shown}");
    }
    Ok(())
}

/// A check by a script.
fn check(name: &str, script: &str) -> Value {
    let pod = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": name, "image": TOOLS, "args": ["sh", "-c", script] }],
    });
    json!({ "name": name, "namespace": KIOSK, "job": { "template": { "spec": pod } } })
}

/// A pod that serves settings outside of the cluster, and a CronJob that runs every minute.
fn application() -> [Value; 5] {
    let metadata = |name: &str| json!({ "name": name, "namespace": KIOSK });
    let labels = json!({ "app": SERVER });
    let pod = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": SERVER, "image": TOOLS, "args": ["sh", "-c", SERVE],
            "readinessProbe": { "httpGet": { "path": "/colour", "port": 8080 },
                "initialDelaySeconds": READY_DELAY_SECONDS, "periodSeconds": 1 },
            "volumeMounts": [{ "name": "settings", "mountPath": "/settings" }] }],
        "volumes": [{ "name": "settings", "configMap": { "name": "settings" } }],
    });
    let report = json!({
        "restartPolicy": "Never",
        "containers": [{ "name": REPORT, "image": TOOLS, "args": ["true"] }],
    });
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": KIOSK } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("settings"),
            "data": { "colour": "blue" } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(SERVER),
            "spec": { "replicas": 1, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod } } }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata(SERVER),
            "spec": { "type": "LoadBalancer", "selector": labels,
                "ports": [{ "port": 80, "targetPort": 8080 }] } }),
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata(REPORT),
            "spec": { "schedule": "* * * * *", "successfulJobsHistoryLimit": 1,
                "jobTemplate": { "spec": { "template": { "spec": report } } } } }),
    ]
}
