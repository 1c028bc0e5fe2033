//! Hooks in pods around their backup, through a real API server to a simulated kubelet.

use backup_tests::{
    install::define_kind,
    kubelet::{Kubelet, POST_HOOK, PRE_HOOK, PRE_HOOK_TIMEOUT},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::prelude::*;

crate::tests! {
    hooks_run_around_the_backup_of_their_pod_and_are_logged,
    a_pre_hook_that_fails_leaves_out_its_pod_and_no_other,
    a_hook_that_never_ends_is_given_up_after_its_timeout,
    a_crash_between_hooks_runs_the_post_hook_first,
    a_deleted_backup_still_runs_the_post_hook,
    a_type_deleted_during_collection_is_a_warning,
}

async fn hooks_run_around_the_backup_of_their_pod_and_are_logged(world: &mut World) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let annotations =
        json!({ PRE_HOOK: r#"["say", "it is frozen"]"#, POST_HOOK: r#"["say", "it is thawed"]"# });
    kubelet
        .pod(world, "hooked", "annotated", &annotations, &[])
        .await?;
    kubelet
        .pod(world, "hooked", "selected", &json!({}), &[])
        .await?;
    let mut spec = of_namespaces(&["hooked"]);
    spec.hooks = Some(serde_json::from_value(json!({ "resources": [{
        "name": "flush", "labelSelector": { "matchLabels": { "app": "selected" } },
        "pre": [{ "exec": { "command": ["say", "one"] } }, { "exec": { "command": ["say", "two"], "container": "main" } }],
    }] }))?);
    let backup = world.back_up("hooked", spec).await?;
    let status = backup.status.hook_status.unwrap_or_default();
    ensure!(
        (status.hooks_attempted, status.hooks_failed) == (4, 0),
        "{status:?}"
    );
    let story = kubelet.story("hooked/annotated")?;
    ensure!(
        story
            == [
                "say began",
                "say ended with 0",
                "say began",
                "say ended with 0"
            ]
    );
    let log = world.backup_log("hooked").await?;
    says(&log, &["it is frozen", "it is thawed", "hook flush", "two"])?;
    let names = world.backup_entries("hooked").await?;
    for pod in ["annotated", "selected"] {
        ensure!(
            names.contains(&format!("resources/pods/namespaces/hooked/{pod}.json")),
            "{names:?}"
        );
    }
    let stored = world
        .s3()?
        .read(BUCKET, "backups/hooked/velero-backup.json")
        .await?;
    let stored: Value = serde_json::from_slice(&stored)?;
    ensure!(
        stored["status"]["hookStatus"]["hooksAttempted"] == 4,
        "{}",
        stored["status"]
    );
    Ok(())
}

async fn a_pre_hook_that_fails_leaves_out_its_pod_and_no_other(world: &mut World) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let annotations =
        json!({ PRE_HOOK: r#"["exit", "3", "disk is gone"]"#, POST_HOOK: r#"["say", "thawed"]"# });
    kubelet
        .pod(world, "failing", "bad", &annotations, &[])
        .await?;
    kubelet
        .pod(
            world,
            "failing",
            "good",
            &json!({ PRE_HOOK: r#"["say", "ok"]"# }),
            &[],
        )
        .await?;
    let spec = of_namespaces(&["failing"]);
    let backup = world
        .run_backup("failing", spec, BackupPhase::PartiallyFailed)
        .await?;
    let status = backup.status.hook_status.unwrap_or_default();
    ensure!(
        (status.hooks_attempted, status.hooks_failed) == (3, 1),
        "{status:?}"
    );
    let results = world.backup_results("failing").await?;
    says(&results, &["exit code 3"])?;
    // Its output may contain a password: only readers of the backup's log may see it.
    says(&world.backup_log("failing").await?, &["disk is gone"])?;
    ensure!(!results.contains("disk is gone"), "{results}");
    ensure!(
        !world.controllers[0].log().contains("disk is gone"),
        "it is in the log of the controller"
    );
    let names = world.backup_entries("failing").await?;
    ensure!(
        !names.iter().any(|name| name.ends_with("failing/bad.json")),
        "{names:?}"
    );
    ensure!(
        names.iter().any(|name| name.ends_with("failing/good.json")),
        "{names:?}"
    );
    let story = kubelet.story("failing/bad")?;
    ensure!(
        story
            == [
                "exit began",
                "exit ended with 3",
                "say began",
                "say ended with 0"
            ]
    );
    Ok(())
}

async fn a_hook_that_never_ends_is_given_up_after_its_timeout(world: &mut World) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let annotations = json!({ PRE_HOOK: "hang", PRE_HOOK_TIMEOUT: "1s",
        "pre.hook.backup.velero.io/on-error": "Continue", POST_HOOK: r#"["say", "thawed"]"# });
    kubelet
        .pod(world, "hanging", "db", &annotations, &[])
        .await?;
    world
        .run_backup(
            "hanging",
            of_namespaces(&["hanging"]),
            BackupPhase::PartiallyFailed,
        )
        .await?;
    let results = world.backup_results("hanging").await?;
    says(&results, &["did not end within 1s"])?;
    let names = world.backup_entries("hanging").await?;
    ensure!(
        names.iter().any(|name| name.ends_with("hanging/db.json")),
        "{names:?}"
    );
    ensure!(
        kubelet
            .story("hanging/db")?
            .contains(&"say ended with 0".to_owned())
    );
    Ok(())
}

async fn a_crash_between_hooks_runs_the_post_hook_first(world: &mut World) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let gate = world.folder().join("gate");
    let annotations = json!({ PRE_HOOK: json!(["wait", gate]).to_string(), POST_HOOK: r#"["say", "thawed"]"#,
        PRE_HOOK_TIMEOUT: "2m" });
    kubelet
        .pod(world, "crashing", "db", &annotations, &[])
        .await?;
    world.start_backup("crashing").await?;
    kubelet.wait_for_begin("crashing/db", "wait").await?;
    world.controllers[0].kill().await?;
    std::fs::write(&gate, "")?;
    world.controllers[0].restart().await?;
    world
        .backup_ends("crashing", BackupPhase::PartiallyFailed)
        .await?;
    let story = kubelet.story("crashing/db")?;
    let commands: Vec<&str> = story
        .iter()
        .filter_map(|line| line.strip_suffix(" began"))
        .collect();
    // Its post hook runs before anything else; then the pod is backed up again.
    ensure!(commands == ["wait", "say", "wait", "say"], "{story:?}");
    let results = world.backup_results("crashing").await?;
    says(&results, &["crashing/db", "is not known"])?;
    ensure!(
        results.contains("run again"),
        "the repetition is silent: {results}"
    );
    Ok(())
}

async fn a_deleted_backup_still_runs_the_post_hook(world: &mut World) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let annotations = json!({ PRE_HOOK: "hang", PRE_HOOK_TIMEOUT: "5m",
        POST_HOOK: r#"["say", "thawed"]"# });
    kubelet
        .pod(world, "deleted", "db", &annotations, &[])
        .await?;
    world.start_backup("deleted").await?;
    kubelet.wait_for_begin("deleted/db", "hang").await?;
    world.backups().delete_object("deleted").await?;
    eventually("the pod is thawed", Duration::from_secs(30), async || {
        let story = kubelet.story("deleted/db")?;
        anyhow::Ok(when(
            story.contains(&"say ended with 0".to_owned()),
            format!("{story:?}"),
        ))
    })
    .await?;
    world.backup_gone("deleted").await?;
    let thawed = kubelet
        .story("deleted/db")?
        .iter()
        .filter(|line| *line == "say began")
        .count();
    ensure!(thawed == 1, "thawed {thawed} times");
    Ok(())
}

/// The command delays the collection between discovery and the lists of types after pods.
async fn a_type_deleted_during_collection_is_a_warning(world: &mut World) -> TestResult {
    let kubelet = Kubelet::start(world).await?;
    let gate = world.folder().join("gate-of-types");
    let annotations = json!({ PRE_HOOK: json!(["wait", gate]).to_string(),
        PRE_HOOK_TIMEOUT: "2m" });
    kubelet
        .pod(world, "fading", "db", &annotations, &[])
        .await?;
    world.config_maps("fading", 3).await?;
    let definition = define_kind(&world.client, "fading.example.com", "Ghost").await?;
    world.start_backup("fading").await?;
    kubelet.wait_for_begin("fading/db", "wait").await?;
    Api::<CustomResourceDefinition>::all(world.client.clone())
        .delete_object(&definition)
        .await?;
    let ghosts = all_objects(&world.client, "fading.example.com/v1", "Ghost");
    let is_gone = async || anyhow::Ok(ghosts.list_all().await.is_err());
    until("the type is not served", Duration::from_secs(30), is_gone).await?;
    std::fs::write(&gate, "")?;
    let backup = world.backup_ends("fading", BackupPhase::Completed).await?;
    ensure!(backup.status.warnings == 1, "{:?}", backup.status);
    let results = world.backup_results("fading").await?;
    says(
        &results,
        &["ghosts.fading.example.com in namespace fading is no longer served"],
    )?;
    let names = world.backup_entries("fading").await?;
    for item in [
        "pods/namespaces/fading/db",
        "configmaps/namespaces/fading/item-2",
        "namespaces/cluster/fading",
    ] {
        ensure!(
            names.contains(&format!("resources/{item}.json")),
            "{item} is missing: {names:?}"
        );
    }
    Ok(())
}
