//! Plugins of Velero's kind on items of a restore (`tests/plugins`). What they do with an item is written on it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{BackupPhase, GoDuration, Restore, RestorePhase, RestoreSpec},
    labels::CANCEL_ANNOTATION,
};
use backup_store::crash;
use backup_tests::{
    World,
    install::ensure_namespace,
    plugins::Plugins,
    wait::{Probe, eventually, when},
    world::BUCKET,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use object_store::ObjectStoreExt as _;
use serde_json::{Value, json};

use crate::{
    crash_points::{REACHED, debug_build},
    main_job::{create_backup, of_namespaces, restores, s3},
    velero_plugins::plugins,
};

crate::tests! {
    a_plugin_changes_items_of_a_restore_and_leaves_one_out,
    what_a_plugin_brings_is_restored_before_its_item_and_waited_for,
    what_a_plugin_brings_that_is_missing_or_never_ready_is_told_and_its_item_is_there,
    an_operation_of_a_restore_is_polled_until_it_is_done_and_keeps_its_claim,
    operations_of_a_restore_that_fail_or_never_end_make_it_partially_failed,
    a_plugin_that_misbehaves_in_a_restore_is_an_error_of_that_item_only,
    a_controller_that_is_killed_around_an_execution_of_a_restore_starts_nothing_twice,
    a_controller_that_is_killed_around_operations_of_a_restore_goes_on_with_the_same_ones,
    what_a_deleted_or_cancelled_restore_has_started_is_told_to_stop,
    a_cancelled_restore_ends_early_and_honestly_wherever_it_is,
    a_cancelled_restore_whose_controller_was_killed_forgets_no_operation,
}

const SOON: Duration = Duration::from_mins(1);

/// ConfigMaps in a namespace of their own, in a backup of its name: name, label `example.io/restored-by`, and what is to be
/// done. Those without a plugin are not selected by [`into`].
pub async fn backed_up(world: &World, name: &str, items: &[(&str, &str, &str)]) -> anyhow::Result<()> {
    ensure_namespace(&world.client, name).await?;
    let objects = items.iter().map(|(item, plugin, script)| {
        let listed = if plugin.is_empty() { "no" } else { "yes" };
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "of": item },
            "metadata": { "name": item, "namespace": name, "annotations": { "example.io/restore": script },
                "labels": { "example.io/restored-by": plugin, "listed": listed } } });
        (ApiResource::erase::<ConfigMap>(&()), object)
    });
    backup_tests::app::create_all(&world.client, objects.collect()).await?;
    create_backup(world, name, of_namespaces(&[name])).await?;
    let backup = world.backup_ended(name).await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    Ok(())
}

/// From the backup of this name into another namespace.
pub fn into(backup: &str) -> RestoreSpec {
    RestoreSpec {
        backup_name: Some(backup.to_owned()),
        namespace_mapping: [(backup.to_owned(), format!("{backup}-back"))].into(),
        label_selector: serde_json::from_value(json!({ "matchLabels": { "listed": "yes" } })).ok(),
        ..RestoreSpec::default()
    }
}

pub async fn create(world: &World, name: &str, spec: RestoreSpec) -> anyhow::Result<()> {
    restores(world).create(&PostParams::default(), &Restore::new(name, spec)).await?;
    Ok(())
}

async fn ended(world: &World, name: &str, phase: RestorePhase) -> anyhow::Result<Restore> {
    let restore = world.restore_ended(name).await?;
    let told = results(world, name).await.unwrap_or_default();
    ensure!(restore.phase() == phase, "{:?}, {told}", restore.status);
    Ok(restore)
}

/// What a restore has made.
fn made(world: &World, backup: &str) -> Api<ConfigMap> {
    Api::namespaced(world.client.clone(), &format!("{backup}-back"))
}

pub async fn file(world: &World, restore: &str, suffix: &str) -> anyhow::Result<Value> {
    let key = format!("restores/{restore}/restore-{restore}-{suffix}");
    let bytes = s3(world)?.bucket(BUCKET)?.get(&key.as_str().into()).await?.bytes().await?;
    Ok(serde_json::from_reader(flate2::read::MultiGzDecoder::new(bytes.as_ref()))?)
}

pub async fn results(world: &World, restore: &str) -> anyhow::Result<Value> {
    file(world, restore, "results.gz").await
}

async fn log(world: &World, restore: &str) -> anyhow::Result<String> {
    let key = format!("restores/{restore}/restore-{restore}-logs.gz");
    let bytes = s3(world)?.bucket(BUCKET)?.get(&key.as_str().into()).await?.bytes().await?;
    Ok(std::io::read_to_string(flate2::read::MultiGzDecoder::new(bytes.as_ref()))?)
}

fn marked(object: &ConfigMap) -> Option<&str> {
    object.metadata.annotations.as_ref()?.get("example.io/marked-by").map(String::as_str)
}

async fn a_plugin_changes_items_of_a_restore_and_leaves_one_out(world: &mut World) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "ria-alter";
    let items = [
        ("a", "alter", "mark say=info:hello"),
        ("b", "alter", "skip mark"),
        ("c", "nobody", "mark"),
        ("d", "alter", "rename=other"),
        ("e", "alter", ""),
    ];
    backed_up(world, name, &items).await?;
    create(world, name, into(name)).await?;
    let restore = ended(world, name, RestorePhase::Completed).await?;
    ensure!((restore.status.errors, restore.status.warnings) == (0, 0), "{:?}", restore.status);
    let made = made(world, name);
    ensure!(marked(&made.get("a").await?) == Some("alter"), "it was not changed");
    ensure!(made.get_opt("b").await?.is_none(), "it was to be left out");
    ensure!(marked(&made.get("c").await?).is_none(), "not its business");
    ensure!(made.get_opt("d").await?.is_none() && made.get_opt("other").await?.is_some(), "not renamed");
    ensure!(made.get("e").await?.data.is_some_and(|data| data["of"] == "e"), "not as it was");
    let calls: Vec<_> = plugins.calls().into_iter().filter(|called| called.item.starts_with(name)).collect();
    ensure!(calls.len() == 4, "each once: {calls:?}");
    let log = log(world, name).await?;
    ensure!(log.contains("plugin plugins: hello") && log.contains("example.io/alter"), "{log}");
    let list = file(world, name, "resource-list.json.gz").await?;
    ensure!(list["v1/ConfigMap"].to_string().contains("ria-alter-back/b(skipped)"), "{list}");
    Ok(())
}

async fn what_a_plugin_brings_is_restored_before_its_item_and_waited_for(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "ria-along";
    let items = [
        ("a", "move", "bring=configmaps/ria-along/later-3 wait"),
        ("later-3", "", ""),
        // Each asks for the other.
        ("x", "alter", "bring=cm/ria-along/y"),
        ("y", "alter", "bring=cm/ria-along/x mark"),
        // What the filters of types or namespaces leave out does not come along.
        ("z", "alter", "bring=secrets/ria-along/none bring=cm/ria-along/plain"),
        ("plain", "", ""),
    ];
    backed_up(world, name, &items).await?;
    let spec = RestoreSpec { included_resources: vec!["configmaps".to_owned()], ..into(name) };
    create(world, name, spec).await?;
    let restore = ended(world, name, RestorePhase::Completed).await?;
    ensure!(restore.status.warnings == 1, "the Secret is not in the backup: {:?}", restore.status);
    let made = made(world, name);
    let at = async |item: &str| anyhow::Ok(made.get(item).await?.metadata.creation_timestamp.map(|at| at.0));
    ensure!(at("later-3").await? < at("a").await?, "not before its item");
    ensure!(plugins.processes("ready", "ria-along/later-3").len() == 3, "{:?}", plugins.calls());
    ensure!(marked(&made.get("y").await?) == Some("alter") && made.get_opt("x").await?.is_some());
    made.get("plain").await.context("labels do not count for what comes along")?;
    let times = |item: &str| plugins.processes("alter", &format!("{name}/{item}")).len();
    ensure!((times("x"), times("y")) == (1, 1), "each once: {:?}", plugins.calls());
    let progress = restore.status.progress.unwrap_or_default();
    ensure!(progress.total_items == progress.items_restored, "{progress:?}");
    Ok(())
}

async fn what_a_plugin_brings_that_is_missing_or_never_ready_is_told_and_its_item_is_there(
    world: &mut World,
) -> anyhow::Result<()> {
    plugins(world)?;
    let name = "ria-unready";
    let items = [
        ("a", "move", "bring=configmaps/ria-unready/late-99 wait=2s"),
        ("late-99", "", ""),
        ("b", "move", "bring=configmaps/ria-unready/it-fails wait"),
        ("it-fails", "", ""),
        ("c", "alter", "bring=configmaps/ria-unready/missing"),
    ];
    backed_up(world, name, &items).await?;
    create(world, name, into(name)).await?;
    let restore = ended(world, name, RestorePhase::PartiallyFailed).await?;
    ensure!((restore.status.errors, restore.status.warnings) == (2, 1), "{:?}", restore.status);
    let results = results(world, name).await?;
    let (errors, warnings) = (results["errors"].to_string(), results["warnings"].to_string());
    for words in [["waited for 2s", "\\\"a\\\""], ["it is broken", "\\\"b\\\""]] {
        ensure!(words.iter().all(|word| errors.contains(word)), "nothing of {words:?}: {errors}");
    }
    ensure!(warnings.contains("ria-unready/missing") && warnings.contains("example.io/alter"), "{warnings}");
    for item in ["a", "b", "c"] {
        made(world, name).get(item).await.context("as with Velero it is restored all the same")?;
    }
    Ok(())
}

/// Waits until a restore waits for operations.
async fn waiting(world: &World, name: &str) -> anyhow::Result<Restore> {
    eventually(&format!("restore {name} waits for operations"), SOON, async || {
        let restore = restores(world).get(name).await?;
        Ok::<_, kube::Error>(match restore.phase() {
            RestorePhase::WaitingForPluginOperations => Probe::Ready(restore),
            other => Probe::NotYet(other.to_string()),
        })
    })
    .await
}

async fn an_operation_of_a_restore_is_polled_until_it_is_done_and_keeps_its_claim(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "ria-operation";
    backed_up(world, name, &[("a", "move", "mark start=6s"), ("b", "alter", "")]).await?;
    create(world, name, into(name)).await?;
    let restore = waiting(world, name).await?;
    ensure!(restore.status.restore_item_operations_attempted == 1, "{:?}", restore.status);
    // Nobody backs up what a restore is not done with.
    let collides = create_backup(world, "ria-collides", of_namespaces(&["ria-operation-back"])).await;
    ensure!(collides.is_err(), "the restore has lost its claim");
    // Others have a place meanwhile.
    for other in ["ria-beside-1", "ria-beside-2"] {
        backed_up(world, other, &[("a", "alter", "")]).await?;
        create(world, other, into(other)).await?;
        ended(world, other, RestorePhase::Completed).await?;
    }
    let restore = ended(world, name, RestorePhase::Completed).await?;
    let status = &restore.status;
    ensure!(
        (status.restore_item_operations_attempted, status.restore_item_operations_completed) == (1, 1),
        "{status:?}"
    );
    let operations = file(world, name, "itemoperations.json.gz").await?;
    let (spec, state) = (&operations[0]["spec"], &operations[0]["status"]);
    ensure!(spec["restoreItemAction"] == "example.io/move" && spec["restoreName"] == name, "{operations}");
    ensure!(spec["restoreUID"].as_str() == restore.metadata.uid.as_deref(), "{operations}");
    let item =
        json!({ "Group": "", "Resource": "configmaps", "Namespace": "ria-operation-back", "Name": "a" });
    ensure!(spec["resourceIdentifier"] == item, "{operations}");
    ensure!(state["phase"] == "Completed" && state["nCompleted"] == 6000, "{operations}");
    ensure!(plugins.processes("move", "ria-operation/a").len() == 1, "{:?}", plugins.calls());
    ensure!(marked(&made(world, name).get("a").await?) == Some("move"), "it was not changed");
    let keys = s3(world)?.keys(BUCKET).await?;
    let private = keys.iter().find(|key| key.contains("restores/ria-operation/.private"));
    ensure!(private.is_none(), "{private:?} is left");
    // Its claim is free.
    create_backup(world, "ria-collides", of_namespaces(&["ria-operation-back"])).await?;
    world.backup_ended("ria-collides").await.map(|_| ())
}

async fn operations_of_a_restore_that_fail_or_never_end_make_it_partially_failed(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "ria-bad-end";
    let items = [("a", "move", "start=1s:no-space"), ("b", "move", "start=never"), ("c", "move", "start=1s")];
    backed_up(world, name, &items).await?;
    let timeout = Some(GoDuration::from_secs(4));
    create(world, name, RestoreSpec { item_operation_timeout: timeout, ..into(name) }).await?;
    let restore = ended(world, name, RestorePhase::PartiallyFailed).await?;
    let status = &restore.status;
    ensure!(
        (
            status.restore_item_operations_attempted,
            status.restore_item_operations_completed,
            status.restore_item_operations_failed,
            status.errors
        ) == (3, 1, 2, 2),
        "{status:?}"
    );
    ensure!(plugins.processes("cancel", "ria-bad-end/b").len() == 1, "{:?}", plugins.calls());
    let errors = results(world, name).await?["errors"].to_string();
    let log = log(world, name).await?;
    for word in ["no-space", "timed out", "ria-bad-end-back/a", "ria-bad-end-back/b"] {
        ensure!(errors.contains(word) && log.contains(word), "nothing of {word}: {errors}, {log}");
    }
    Ok(())
}

async fn a_plugin_that_misbehaves_in_a_restore_is_an_error_of_that_item_only(
    world: &mut World,
) -> anyhow::Result<()> {
    plugins(world)?;
    let name = "ria-bad";
    let items = [
        ("a-hangs", "alter", "hang"),
        ("b-fails", "alter", "fail=out-of-luck"),
        ("c-panics", "move", "panic=oh-no"),
        ("d-nonsense", "alter", "nonsense"),
        ("e-ends", "move", "exit"),
        ("f-kind", "alter", "kind=Gadget"),
        ("g-good", "move", "mark"),
        ("h-good", "alter", "mark"),
        ("i-good", "nobody", ""),
    ];
    backed_up(world, name, &items).await?;
    create(world, name, into(name)).await?;
    let restore = ended(world, name, RestorePhase::PartiallyFailed).await?;
    let results = results(world, name).await?;
    let errors = results["errors"].to_string();
    for (item, words) in [
        ("a-hangs", ["has not answered Execute of example.io/alter within 15s", "is not known"]),
        ("b-fails", ["answers Execute of example.io/alter with an error", "out-of-luck"]),
        ("c-panics", ["answers Execute of example.io/move with an error", "oh-no"]),
        ("d-nonsense", ["answers Execute of example.io/alter with nonsense", "without a name"]),
        ("e-ends", ["in the middle of Execute of example.io/move", "exit status: 7"]),
        ("f-kind", ["v1 Gadget", "does not serve"]),
    ] {
        for word in words.iter().chain(&[item]) {
            ensure!(errors.contains(word), "nothing of {word} for {item}: {errors}");
        }
        ensure!(made(world, name).get_opt(item).await?.is_none(), "{item} was restored");
    }
    ensure!(restore.status.errors == 6, "{errors}");
    for good in ["g-good", "h-good", "i-good"] {
        made(world, name).get(good).await.with_context(|| format!("{good} is missing"))?;
    }
    Ok(())
}

async fn a_controller_that_is_killed_around_an_execution_of_a_restore_starts_nothing_twice(
    world: &mut World,
) -> anyhow::Result<()> {
    debug_build(world)?;
    let plugins = plugins(world)?;
    for (point, executed, known) in
        [("before-execution", 0, false), ("after-execution", 1, false), ("after-execution-recorded", 1, true)]
    {
        ensure!(crash::EXECUTION_POINTS.contains(&point), "{point}");
        let name = format!("ria-{point}");
        backed_up(world, &name, &[("a", "move", "mark start=2s"), ("b", "move", "mark start=2s")]).await?;
        world.controllers[0].restart_with("BACKUP_CRASH_AT", point).await?;
        create(world, &name, into(&name)).await?;
        world.controllers[0].killed(REACHED).await.with_context(|| format!("{point} was not reached"))?;
        world.controllers[0].restart().await?;
        let phase = if known { RestorePhase::Completed } else { RestorePhase::PartiallyFailed };
        let restore = ended(world, &name, phase).await.with_context(|| format!("killed at {point}"))?;
        let times = |item: &str| plugins.processes("move", &format!("{name}/{item}")).len();
        let (a, b) = (times("a"), times("b"));
        // Which of the two came first is not said.
        let (first, second) = (a.min(b), a.max(b));
        ensure!((first, second) == (executed, 1), "killed at {point}: {:?}", plugins.calls());
        let status = &restore.status;
        let (operations, errors) = if known { (2, 0) } else { (1, 1) };
        ensure!(
            (status.restore_item_operations_completed, status.errors) == (operations, errors),
            "killed at {point}: {status:?}"
        );
        if known {
            for item in ["a", "b"] {
                ensure!(marked(&made(world, &name).get(item).await?) == Some("move"), "{item}");
            }
        } else {
            let told = results(world, &name).await?["errors"].to_string();
            ensure!(told.contains("is not known") && told.contains("earlier try"), "{told}");
        }
    }
    Ok(())
}

async fn a_controller_that_is_killed_around_operations_of_a_restore_goes_on_with_the_same_ones(
    world: &mut World,
) -> anyhow::Result<()> {
    debug_build(world)?;
    let plugins = plugins(world)?;
    let points = crash::OPERATION_POINTS.iter().filter(|point| **point != "after-renewal");
    for point in points {
        let name = format!("ria-{point}");
        let items = [("a", "move", "mark start=2s"), ("b", "move", "start=2s:no-luck"), ("c", "move", "")];
        backed_up(world, &name, &items).await?;
        world.controllers[0].restart_with("BACKUP_CRASH_AT", point).await?;
        create(world, &name, into(&name)).await?;
        world.controllers[0].killed(REACHED).await.with_context(|| format!("{point} was not reached"))?;
        world.controllers[0].restart().await?;
        let restore = ended(world, &name, RestorePhase::PartiallyFailed)
            .await
            .with_context(|| format!("killed at {point}"))?;
        let status = &restore.status;
        ensure!(
            (
                status.restore_item_operations_attempted,
                status.restore_item_operations_completed,
                status.restore_item_operations_failed,
                status.errors
            ) == (2, 1, 1, 1),
            "killed at {point}: {status:?}"
        );
        let times = |item: &str| plugins.processes("move", &format!("{name}/{item}")).len();
        ensure!((times("a"), times("b")) == (1, 1), "killed at {point}: {:?}", plugins.calls());
        let errors = results(world, &name).await?["errors"].to_string();
        ensure!(errors.matches("failed: no-luck").count() == 1, "killed at {point}: {errors}");
        let operations = file(world, &name, "itemoperations.json.gz").await?;
        ensure!(operations.as_array().is_some_and(|all| all.len() == 2), "{operations}");
    }
    Ok(())
}

async fn what_a_deleted_or_cancelled_restore_has_started_is_told_to_stop(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    for name in ["ria-deleted", "ria-cancelled"] {
        backed_up(world, name, &[("a", "move", "start=never")]).await?;
        create(world, name, into(name)).await?;
        waiting(world, name).await?;
    }
    restores(world).delete("ria-deleted", &DeleteParams::default()).await?;
    eventually("the restore is gone", SOON, async || {
        let left = restores(world).get_opt("ria-deleted").await?;
        Ok::<_, kube::Error>(when(left.is_none(), "it is still there"))
    })
    .await?;
    let patch = json!({ "metadata": { "annotations": { "backup-controller/cancel": "true" } } });
    restores(world).patch("ria-cancelled", &PatchParams::default(), &Patch::Merge(patch)).await?;
    ended(world, "ria-cancelled", RestorePhase::PartiallyFailed).await?;
    let errors = results(world, "ria-cancelled").await?["errors"].to_string();
    ensure!(errors.contains("cancelled: it was told to stop"), "{errors}");
    for name in ["ria-deleted", "ria-cancelled"] {
        let times = |call| plugins.processes(call, &format!("{name}/a")).len();
        ensure!((times("move"), times("cancel")) == (1, 1), "{:?}", plugins.calls());
    }
    let keys = s3(world)?.keys(BUCKET).await?;
    let left = keys.iter().find(|key| key.contains("restores/ria-deleted/"));
    ensure!(left.is_none(), "{left:?} is left");
    Ok(())
}

/// A restore that has started an operation on one item and hangs at the next one.
async fn hanging(world: &World, plugins: &Plugins, name: &str) -> anyhow::Result<()> {
    let items = [("a", "move", "start=never"), ("b", "move", "hang"), ("c", "alter", "mark")];
    backed_up(world, name, &items).await?;
    create(world, name, into(name)).await?;
    eventually("the plugin hangs", SOON, async || {
        let calls = plugins.processes("move", &format!("{name}/b")).len();
        Ok::<_, anyhow::Error>(when(calls == 1, format!("{calls} calls")))
    })
    .await
}

/// The end of a cancelled restore: its operation was told to stop once, of the item that hung nobody knows, and nothing else
/// was begun.
async fn cancelled(world: &World, plugins: &Plugins, name: &str) -> anyhow::Result<String> {
    let restore = ended(world, name, RestorePhase::PartiallyFailed).await?;
    let status = &restore.status;
    let counts = (status.restore_item_operations_attempted, status.restore_item_operations_failed);
    ensure!(counts == (1, 1), "{status:?}");
    let times = |call: &str, item: &str| plugins.processes(call, &format!("{name}/{item}")).len();
    let calls = (times("move", "a"), times("cancel", "a"), times("move", "b"), times("alter", "c"));
    ensure!(calls == (1, 1, 1, 0), "{:?}", plugins.calls());
    let errors = results(world, name).await?["errors"].to_string();
    for words in ["cancelled by a person", "cancelled: it was told to stop", "is not known"] {
        ensure!(errors.contains(words), "nothing of {words}: {errors}");
    }
    let made = made(world, name);
    ensure!(made.get_opt("b").await?.is_none() && made.get_opt("c").await?.is_none(), "something was begun");
    Ok(errors)
}

async fn a_cancelled_restore_ends_early_and_honestly_wherever_it_is(world: &mut World) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "ria-cancel";
    hanging(world, &plugins, name).await?;
    let cancel = ["restore", "cancel", name, "--wait", "--timeout=12s"];
    world.plugin().run(&cancel).await?.expect_code(0)?;
    let errors = cancelled(world, &plugins, name).await?;
    ensure!(errors.contains("cancelled while it was at this item"), "{errors}");
    ensure!(made(world, name).get_opt("a").await?.is_some(), "what was on its way came to its end");
    let described = world.plugin().run(&["restore", "describe", name]).await?.expect_code(0)?.stdout;
    ensure!(described.contains("It was cancelled"), "{described}");
    let again = world.plugin().run(&["restore", "cancel", name]).await?.expect_code(1)?;
    ensure!(again.stderr.contains("it has ended (PartiallyFailed)"), "{again:?}");

    let mut early = Restore::new("ria-cancelled-before", into(name));
    early.metadata.annotations = Some([(CANCEL_ANNOTATION.to_owned(), "at once".to_owned())].into());
    restores(world).create(&PostParams::default(), &early).await?;
    let early = world.restore_ended("ria-cancelled-before").await?;
    let reason = early.status.failure_reason.clone().unwrap_or_default();
    ensure!(early.phase() == RestorePhase::Failed && reason.contains("before anything"), "{early:?}");
    ensure!(plugins.processes("move", &format!("{name}/a")).len() == 1, "it was restored all the same");
    Ok(())
}

async fn a_cancelled_restore_whose_controller_was_killed_forgets_no_operation(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "ria-cancel-killed";
    hanging(world, &plugins, name).await?;
    world.controllers[0].kill().await?;
    world.plugin().run(&["restore", "cancel", name]).await?.expect_code(0)?;
    world.controllers[0].restart().await?;
    let errors = cancelled(world, &plugins, name).await?;
    ensure!(errors.contains("by an earlier try"), "{errors}");
    Ok(())
}
