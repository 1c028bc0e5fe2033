//! Items that belong together: pods that share a claim, and items named by a plugin of Velero's
//! kind.

use backup_tests::{
    kubelet::{Kubelet, POST_HOOK, PRE_HOOK, PRE_HOOK_TIMEOUT},
    snapshots,
};

use crate::prelude::*;

crate::tests! {
    two_pods_that_share_a_claim_are_frozen_together,
    items_that_a_plugin_relates_are_frozen_together,
    a_crash_in_a_block_runs_the_post_hooks_of_all_its_pods,
}

/// Commands that the kubelet has begun in the pods of a namespace, in order, as `pod: second word`.
fn began(kubelet: &Kubelet, namespace: &str) -> anyhow::Result<Vec<String>> {
    let prefix = format!("{namespace}/");
    let calls = kubelet.calls()?;
    let began = calls.iter().filter(|call| call.event == "began");
    Ok(began
        .filter_map(|call| {
            Some(format!(
                "{}: {}",
                call.pod.strip_prefix(&prefix)?,
                call.command.get(1)?
            ))
        })
        .collect())
}

async fn two_pods_that_share_a_claim_are_frozen_together(world: &mut World) -> TestResult {
    let (kubelet, name) = (Kubelet::start(world).await?, "block-shared");
    snapshots::claim(&world.client, name, "data", "none").await?;
    let annotations = json!({ PRE_HOOK: r#"["say", "freeze"]"#, POST_HOOK: r#"["say", "thaw"]"# });
    for (pod, claims) in [("one", &["data"][..]), ("three", &[]), ("two", &["data"])] {
        kubelet.pod(world, name, pod, &annotations, claims).await?;
    }
    world.back_up(name, of_namespaces(&[name])).await?;
    let began = began(&kubelet, name)?;
    ensure!(
        began
            == [
                "one: freeze",
                "two: freeze",
                "one: thaw",
                "two: thaw",
                "three: freeze",
                "three: thaw"
            ]
    );
    for stored in [
        "pods/namespaces/block-shared/two",
        "persistentvolumeclaims/namespaces/block-shared/data",
    ] {
        world.backup_item(name, &format!("{stored}.json")).await?;
    }
    Ok(())
}

async fn items_that_a_plugin_relates_are_frozen_together(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let (kubelet, name) = (Kubelet::start(world).await?, "block-named");
    let annotations = json!({ PRE_HOOK: r#"["say", "freeze"]"#, POST_HOOK: r#"["say", "thaw"]"# });
    kubelet.pod(world, name, "db", &annotations, &[]).await?;
    let related = "bring=pods/block-named/db bring=configmaps/block-named/ghost say=info:together";
    world
        .scripted(
            name,
            &[
                ("a", "together", related),
                ("b", "together", "fail=out-of-ideas"),
            ],
        )
        .await?;
    // The pod itself is not selected.
    let backup = world
        .run_backup(name, of_scripted(name), BackupPhase::PartiallyFailed)
        .await?;
    ensure!(
        (backup.status.warnings, backup.status.errors) == (1, 1),
        "{:?}",
        backup.status
    );
    let began = began(&kubelet, name)?;
    ensure!(began == ["db: freeze", "db: thaw"], "{began:?}");
    for stored in [
        "pods/namespaces/block-named/db",
        "configmaps/namespaces/block-named/b",
    ] {
        world.backup_item(name, &format!("{stored}.json")).await?;
    }
    let results = world.backup_results(name).await?;
    says(
        &results,
        &[
            "configmaps block-named/ghost",
            "example.io/together",
            "out-of-ideas",
            "plugins/plugins",
        ],
    )?;
    ensure!(
        plugins.processes("together", "block-named/a").len() == 1,
        "{:?}",
        plugins.calls()
    );
    Ok(())
}

async fn a_crash_in_a_block_runs_the_post_hooks_of_all_its_pods(world: &mut World) -> TestResult {
    let (kubelet, name) = (Kubelet::start(world).await?, "block-crashing");
    snapshots::claim(&world.client, name, "data", "none").await?;
    let gate = world.folder().join("gate-of-a-block");
    let thaw = r#"["say", "thaw"]"#;
    let wait = json!({ PRE_HOOK: json!(["wait", gate]).to_string(), POST_HOOK: thaw,
        PRE_HOOK_TIMEOUT: "2m" });
    let freeze = json!({ PRE_HOOK: r#"["say", "freeze"]"#, POST_HOOK: thaw });
    kubelet.pod(world, name, "one", &freeze, &["data"]).await?;
    kubelet.pod(world, name, "two", &wait, &["data"]).await?;
    world.start_backup(name).await?;
    let waits = format!("two: {}", gate.display());
    eventually(
        "the second one is being frozen",
        Duration::from_mins(1),
        async || {
            let began = began(&kubelet, name)?;
            anyhow::Ok(when(began.contains(&waits), format!("{began:?}")))
        },
    )
    .await?;
    world.controllers[0].kill().await?;
    std::fs::write(&gate, "")?;
    world.controllers[0].restart().await?;
    world
        .backup_ends(name, BackupPhase::PartiallyFailed)
        .await?;
    let began = began(&kubelet, name)?;
    let once = ["one: freeze", waits.as_str(), "one: thaw", "two: thaw"];
    // Their post hooks run before anything else; then they are backed up again.
    ensure!(began == [once, once].concat(), "{began:?}");
    let results = world.backup_results(name).await?;
    says(&results, &["block-crashing/one", "block-crashing/two"])?;
    Ok(())
}
