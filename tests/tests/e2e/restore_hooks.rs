//! Hooks in restored pods, through a real API server to a simulated kubelet, and init containers.

use backup_core::labels::CANCEL_ANNOTATION;
use backup_tests::kubelet::Kubelet;
use k8s_openapi::api::core::v1::Pod;

use crate::prelude::*;

crate::tests! {
    hooks_run_in_restored_pods_and_each_failure_is_an_error,
    a_hook_that_runs_when_the_controller_dies_is_not_run_again,
    a_hook_that_waits_when_the_controller_dies_runs_once,
    a_cancelled_restore_says_which_hooks_did_not_run,
}

const COMMAND: &str = "post.hook.restore.velero.io/command";

/// Into another namespace, with these entries of `spec.hooks.resources`.
fn with_hooks(backup: &str, hooks: &Value) -> anyhow::Result<RestoreSpec> {
    let hooks = Some(serde_json::from_value(json!({ "resources": hooks }))?);
    Ok(RestoreSpec {
        hooks,
        ..into_namespace(backup, &format!("{backup}-back"))
    })
}

async fn hooks_run_in_restored_pods_and_each_failure_is_an_error(world: &mut World) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let (name, back) = ("restored", "restored-back");
    let annotations = json!({ COMMAND: r#"["say", "loaded"]"#, "post.hook.restore.velero.io/exec-timeout": "soon" });
    kubelet
        .pod(world, name, "annotated", &annotations, &[])
        .await?;
    let init = json!({ "init.hook.restore.velero.io/container-image": "busybox",
        "init.hook.restore.velero.io/container-name": "warm", "init.hook.restore.velero.io/command": "warm-up" });
    for (pod, annotations) in [
        ("selected", json!({})),
        ("failing", init),
        ("never", json!({})),
    ] {
        kubelet.pod(world, name, pod, &annotations, &[]).await?;
    }
    world.back_up(name, of_namespaces(&[name])).await?;
    let hook = |pod: &str, hooks: Value| {
        json!({ "name": format!("h-{pod}"), "includedNamespaces": [back], "postHooks": hooks,
            "labelSelector": { "matchLabels": { "app": pod } } })
    };
    let added = json!({ "name": "added", "image": "busybox", "command": ["true"] });
    let hooks = json!([
        hook(
            "selected",
            json!([{ "exec": { "command": ["say", "one"], "container": "main", "waitForReady": true } },
            { "exec": { "command": ["say", "two"] } }, { "init": { "initContainers": [added] } }])
        ),
        hook(
            "failing",
            json!([{ "exec": { "command": ["exit", "3", "no disk"], "onError": "Fail" } },
            { "exec": { "command": ["say", "after"] } }])
        ),
        hook(
            "never",
            json!([{ "exec": { "command": ["say", "x"], "waitTimeout": "3s" } }])
        ),
    ]);
    world
        .create_restore(name, with_hooks(name, &hooks)?)
        .await?;
    for pod in ["annotated", "selected", "failing"] {
        kubelet.start_pod(world, back, pod).await?;
    }
    let restore = world
        .restore_ends(name, RestorePhase::PartiallyFailed)
        .await?;
    let status = restore.status.hook_status.clone().unwrap_or_default();
    ensure!(
        (status.hooks_attempted, status.hooks_failed) == (6, 3),
        "{status:?}"
    );
    ensure!(
        (restore.status.errors, restore.status.warnings) == (3, 1),
        "{:?}",
        restore.status
    );
    let results = world.restore_file(name, "results.gz").await?;
    let errors = results["errors"]["namespaces"][back].to_string();
    for words in [
        ["pod restored-back/failing", "exit code 3"],
        [
            "pod restored-back/failing",
            "onError is Fail (hook h-failing)",
        ],
        [
            "pod restored-back/never",
            "3s were not enough for the container to run",
        ],
    ] {
        says(&errors, &words)?;
    }
    says(
        &results["warnings"].to_string(),
        &["restored-back/annotated", "exec-timeout", "30s is meant"],
    )?;
    // Its output may contain a password: only readers of the restore's log may see it.
    ensure!(!results.to_string().contains("no disk"), "{results}");
    ensure!(
        !world.controllers[0].log().contains("no disk"),
        "it is in the log of the controller"
    );
    says(
        &world.restore_log(name).await?,
        &["no disk", "and printed: loaded", "hook h-selected", "two"],
    )?;
    for (pod, story) in [
        ("annotated", vec!["say began", "say ended with 0"]),
        (
            "selected",
            vec![
                "say began",
                "say ended with 0",
                "say began",
                "say ended with 0",
            ],
        ),
        ("failing", vec!["exit began", "exit ended with 3"]),
        ("never", vec![]),
    ] {
        let found = kubelet.story(&format!("{back}/{pod}"))?;
        ensure!(found == story, "{pod}: {found:?}");
    }
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), back);
    for (pod, container) in [("selected", "added"), ("failing", "warm")] {
        let spec = pods.get(pod).await?.spec.unwrap_or_default();
        let init = spec.init_containers.unwrap_or_default();
        ensure!(init.len() == 1 && init[0].name == container, "{init:?}");
    }
    // Hooks do not run in existing pods.
    let again = world
        .restore("restored-again", with_hooks(name, &hooks)?)
        .await?;
    ensure!(again.status.hook_status.is_none(), "{:?}", again.status);
    let shown = world
        .kubectl_backup()
        .run(&["restore", "describe", name])
        .await?;
    says(&shown.stdout, &["6 ran, 3 failed"])?;
    Ok(())
}

async fn a_hook_that_runs_when_the_controller_dies_is_not_run_again(
    world: &mut World,
) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let (name, gate) = ("dying", world.folder().join("gate-of-restore"));
    let annotations = json!({ COMMAND: json!(["wait", gate]).to_string(),
        "post.hook.restore.velero.io/exec-timeout": "2m" });
    kubelet.pod(world, name, "db", &annotations, &[]).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    world
        .create_restore(name, with_hooks(name, &json!([]))?)
        .await?;
    kubelet.start_pod(world, "dying-back", "db").await?;
    kubelet.wait_for_begin("dying-back/db", "wait").await?;
    world.controllers[0].kill().await?;
    std::fs::write(&gate, "")?;
    world.controllers[0].restart().await?;
    let restore = world
        .restore_ends(name, RestorePhase::PartiallyFailed)
        .await?;
    let errors = world.restore_errors(name).await?;
    says(
        &errors,
        &[
            "pod dying-back/db, container main (annotation)",
            "not known: it is not run again",
        ],
    )?;
    let status = restore.status.hook_status.unwrap_or_default();
    ensure!(
        (status.hooks_attempted, status.hooks_failed) == (1, 1),
        "{status:?}"
    );
    let began = kubelet
        .story("dying-back/db")?
        .iter()
        .filter(|line| *line == "wait began")
        .count();
    ensure!(began == 1, "it was run {began} times");
    Ok(())
}

async fn a_hook_that_waits_when_the_controller_dies_runs_once(world: &mut World) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let name = "waiting";
    for pod in ["db", "web"] {
        kubelet
            .pod(
                world,
                name,
                pod,
                &json!({ COMMAND: r#"["say", "loaded"]"# }),
                &[],
            )
            .await?;
    }
    world.back_up(name, of_namespaces(&[name])).await?;
    world
        .create_restore(name, with_hooks(name, &json!([]))?)
        .await?;
    // One hook has run, the other waits.
    kubelet.start_pod(world, "waiting-back", "web").await?;
    kubelet.wait_for_begin("waiting-back/web", "say").await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.controllers[0].kill().await?;
    world.controllers[0].restart().await?;
    kubelet.start_pod(world, "waiting-back", "db").await?;
    let restore = world.restore_ends(name, RestorePhase::Completed).await?;
    let status = restore.status.hook_status.unwrap_or_default();
    ensure!(
        (status.hooks_attempted, status.hooks_failed) == (2, 0),
        "{status:?}"
    );
    for pod in ["waiting-back/db", "waiting-back/web"] {
        let story = kubelet.story(pod)?;
        ensure!(
            story == ["say began", "say ended with 0"],
            "{pod}: {story:?}"
        );
    }
    Ok(())
}

async fn a_cancelled_restore_says_which_hooks_did_not_run(world: &mut World) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let name = "stopped";
    kubelet
        .pod(
            world,
            name,
            "db",
            &json!({ COMMAND: r#"["say", "loaded"]"# }),
            &[],
        )
        .await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    world
        .create_restore(name, with_hooks(name, &json!([]))?)
        .await?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "stopped-back");
    let is_there = async || anyhow::Ok(pods.get_opt("db").await?.is_some());
    until("the pod is restored", Duration::from_mins(1), is_there).await?;
    let cancel = json!({ "metadata": { "annotations": { CANCEL_ANNOTATION: "true" } } });
    world.restores().merge_patch(name, cancel).await?;
    let restore = world
        .restore_ends(name, RestorePhase::PartiallyFailed)
        .await?;
    says(
        &world.restore_errors(name).await?,
        &["stopped-back/db", "was not run: the restore was cancelled"],
    )?;
    ensure!(
        restore
            .status
            .hook_status
            .is_some_and(|hooks| hooks.hooks_failed == 1)
    );
    ensure!(
        kubelet
            .story("stopped-back/db")
            .unwrap_or_default()
            .is_empty()
    );
    Ok(())
}
