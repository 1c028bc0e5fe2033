//! Plugins of Velero's kind, built on Velero's own framework (`tests/plugins`). What they do with an item is written on
//! it.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use backup_controller::{
    Args,
    backup::{action::BackupItemAction as _, actions::service_account::ServiceAccountAction},
    plugins::{Host, PluginLog},
};
use backup_core::api::{
    Backup, BackupPhase, BackupSpec, DeleteBackupRequest, DeleteBackupRequestPhase, GoDuration,
    delete_backup_request::DeleteBackupRequestSpec,
};
use backup_store::crash;
use backup_tests::{
    World,
    install::{NAMESPACE, ensure_namespace},
    plugins::Plugins,
    wait::{Probe, eventually, when},
    world::BUCKET,
};
use clap::Parser as _;
use futures::future::join_all;
use k8s_openapi::api::{core::v1::ConfigMap, core::v1::ServiceAccount, rbac::v1::ClusterRoleBinding};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use object_store::ObjectStoreExt as _;
use serde_json::{Value, json};

use crate::{
    crash_points::{REACHED, debug_build},
    csi::{item, side_file, waiting},
    main_job::{backups, create_backup, of_namespaces, s3, service_account},
};

crate::tests! {
    a_plugin_changes_an_item_and_brings_another_one,
    what_a_plugin_says_is_in_the_log_of_the_backup_at_its_level,
    an_operation_of_a_plugin_is_polled_until_it_is_done,
    an_operation_of_a_plugin_that_does_not_end_is_told_to_stop_at_its_deadline,
    a_plugin_that_misbehaves_is_named_and_harms_nothing_else,
    a_plugin_that_ends_in_the_middle_of_a_call_is_started_again,
    a_plugin_process_that_stands_still_is_replaced,
    a_built_in_action_gives_the_same_out_of_process,
    a_controller_that_is_killed_around_an_execution_starts_nothing_twice_and_says_what_nobody_knows,
    what_a_deleted_backup_has_started_is_told_to_stop,
    a_cancelled_backup_ends_early_and_honestly_wherever_it_is,
    a_cancelled_backup_whose_controller_was_killed_forgets_no_operation,
    a_plugin_sees_the_items_of_a_backup_before_it_is_deleted,
    binaries_that_do_not_start_and_names_that_are_there_twice_are_named_and_stop_nobody,
}

pub fn plugins(world: &World) -> anyhow::Result<Plugins> {
    world.plugins.clone().ok_or_else(|| crate::Skip("the plugins are built with Go").into())
}

/// ConfigMaps in a namespace of their own: name, label `example.io/plugin`, and what is to be done.
pub async fn scripted(world: &World, namespace: &str, items: &[(&str, &str, &str)]) -> anyhow::Result<()> {
    ensure_namespace(&world.client, namespace).await?;
    let objects = items.iter().map(|(name, plugin, script)| {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "now": "before" },
            "metadata": { "name": name, "namespace": namespace, "labels": { "example.io/plugin": plugin, "listed": "yes" },
                "annotations": { "example.io/do": script } } });
        (ApiResource::erase::<ConfigMap>(&()), object)
    });
    backup_tests::app::create_all(&world.client, objects.collect()).await
}

/// Everything of a namespace that has the label, but not what only comes along.
pub fn listed(namespace: &str) -> BackupSpec {
    let selector = json!({ "matchLabels": { "listed": "yes" } });
    BackupSpec { label_selector: serde_json::from_value(selector).ok(), ..of_namespaces(&[namespace]) }
}

/// A ConfigMap as it is in a backup.
async fn stored(world: &World, backup: &str, name: &str) -> anyhow::Result<Value> {
    item(world, backup, &format!("configmaps/namespaces/{backup}/{name}.json")).await
}

/// Errors or warnings in the results of a backup, as one text.
pub async fn told(world: &World, backup: &str, what: &str) -> anyhow::Result<String> {
    Ok(side_file(world, backup, "results.gz").await?[what].to_string())
}

async fn a_plugin_changes_an_item_and_brings_another_one(world: &mut World) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "plugin-mark";
    scripted(world, name, &[("a", "mark", "mark bring=cm/plugin-mark/along"), ("b", "none", "mark")]).await?;
    let along = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "along", "namespace": name } });
    backup_tests::app::create_all(&world.client, vec![(ApiResource::erase::<ConfigMap>(&()), along)]).await?;
    create_backup(world, name, listed(name)).await?;
    let backup = world.backup_ended(name).await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    let changed = stored(world, name, "a").await?;
    ensure!(changed["metadata"]["annotations"]["example.io/marked-by"] == "mark", "{changed}");
    ensure!(changed["apiVersion"] == "v1" && changed["kind"] == "ConfigMap", "{changed}");
    stored(world, name, "along").await?;
    let other = stored(world, name, "b").await?;
    ensure!(other["metadata"]["annotations"]["example.io/marked-by"].is_null(), "not its business: {other}");
    let calls: Vec<_> = plugins.calls().into_iter().filter(|called| called.item.starts_with(name)).collect();
    ensure!(calls.len() == 1 && calls[0].item == "plugin-mark/a", "{calls:?}");
    Ok(())
}

async fn what_a_plugin_says_is_in_the_log_of_the_backup_at_its_level(
    world: &mut World,
) -> anyhow::Result<()> {
    plugins(world)?;
    let name = "plugin-says";
    let script = "say=debug:quiet say=info:hello say=warning:careful say=error:no-good print=nobody-hears";
    scripted(world, name, &[("a", "mark", script)]).await?;
    create_backup(world, name, listed(name)).await?;
    let backup = world.backup_ended(name).await?;
    let status = &backup.status;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{status:?}");
    ensure!((status.warnings, status.errors) == (1, 1), "{status:?}");
    ensure!(told(world, name, "errors").await?.contains("plugin plugins: no-good"));
    ensure!(told(world, name, "warnings").await?.contains("plugin plugins: careful"));
    let key = format!("backups/{name}/{name}-logs.gz");
    let bytes = s3(world)?.bucket(BUCKET)?.get(&key.as_str().into()).await?.bytes().await?;
    let log = std::io::read_to_string(flate2::read::MultiGzDecoder::new(bytes.as_ref()))?;
    ensure!(log.contains("plugin plugins: hello") && !log.contains("quiet"), "{log}");
    stored(world, name, "a").await.map(|_| ())
}

async fn an_operation_of_a_plugin_is_polled_until_it_is_done(world: &mut World) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "plugin-operation";
    let script = "start=4s after=configmaps/plugin-operation/later";
    scripted(world, name, &[("a", "operate", script), ("later", "none", "")]).await?;
    create_backup(world, name, listed(name)).await?;
    waiting(world, name).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    let change = json!({ "data": { "now": "after" } });
    maps.patch("later", &PatchParams::default(), &Patch::Merge(change)).await?;
    let backup = world.backup_ended(name).await?;
    let status = &backup.status;
    ensure!(backup.phase() == BackupPhase::Completed, "{status:?}");
    let counts = (status.backup_item_operations_attempted, status.backup_item_operations_completed);
    ensure!(counts == (1, 1), "{status:?}");
    let operations = side_file(world, name, "itemoperations.json.gz").await?;
    let (spec, state) = (&operations[0]["spec"], &operations[0]["status"]);
    ensure!(spec["backupItemAction"] == "example.io/operate", "{operations}");
    ensure!(state["phase"] == "Completed" && state["nCompleted"] == 4000, "{operations}");
    ensure!(state["operationUnits"] == "ms" && state["started"].is_string(), "{operations}");
    ensure!(state["updated"].is_null(), "Go's zero is no time: {operations}");
    let later = stored(world, name, "later").await?;
    ensure!(later["data"]["now"] == "after", "not its last form: {later}");
    ensure!(plugins.processes("operate", "plugin-operation/a").len() == 1, "{:?}", plugins.calls());
    let polls = plugins.processes("progress", "plugin-operation/a").len();
    ensure!((2..=8).contains(&polls), "asked {polls} times");
    Ok(())
}

async fn an_operation_of_a_plugin_that_does_not_end_is_told_to_stop_at_its_deadline(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "plugin-endless";
    scripted(world, name, &[("a", "operate", "start=never")]).await?;
    let timeout = Some(GoDuration::from_secs(3));
    create_backup(world, name, BackupSpec { item_operation_timeout: timeout, ..listed(name) }).await?;
    let backup = world.backup_ended(name).await?;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{:?}", backup.status);
    ensure!(plugins.processes("cancel", "plugin-endless/a").len() == 1, "{:?}", plugins.calls());
    let errors = told(world, name, "errors").await?;
    ensure!(errors.contains("timed out") && errors.contains("told to stop"), "{errors}");
    Ok(())
}

async fn a_plugin_that_misbehaves_is_named_and_harms_nothing_else(world: &mut World) -> anyhow::Result<()> {
    plugins(world)?;
    let name = "plugin-bad";
    scripted(
        world,
        name,
        &[
            ("a-hangs", "mark", "hang"),
            ("b-fails", "mark", "fail=out-of-luck"),
            ("c-panics", "operate", "panic=oh-no"),
            ("d-nonsense", "mark", "nonsense"),
            ("e-floods", "mark", "flood mark"),
            ("f-good", "mark", "mark"),
        ],
    )
    .await?;
    scripted(world, "plugin-beside", &[("good", "mark", "mark")]).await?;
    create_backup(world, name, listed(name)).await?;
    create_backup(world, "plugin-beside", listed("plugin-beside")).await?;
    let beside = world.backup_ended("plugin-beside").await?;
    ensure!(beside.phase() == BackupPhase::Completed, "{:?}", beside.status);
    let backup = world.backup_ended(name).await?;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{:?}", backup.status);
    let errors = told(world, name, "errors").await?;
    for (item, words) in [
        ("a-hangs", ["has not answered Execute of example.io/mark within 15s", "is not known"]),
        ("b-fails", ["answers Execute of example.io/mark with an error", "out-of-luck"]),
        ("c-panics", ["answers Execute of example.io/operate with an error", "oh-no"]),
        ("d-nonsense", ["answers Execute of example.io/mark with nonsense", "without a name"]),
    ] {
        for word in words.iter().chain(&[item, "plugins/plugins"]) {
            ensure!(errors.contains(word), "nothing of {word} for {item}: {errors}");
        }
    }
    ensure!(backup.status.errors == 4, "{errors}");
    for good in ["e-floods", "f-good"] {
        let changed = stored(world, name, good).await?;
        ensure!(changed["metadata"]["annotations"]["example.io/marked-by"] == "mark", "{changed}");
    }
    let warnings = told(world, name, "warnings").await?;
    ensure!(warnings.contains("lines more than are kept"), "{warnings}");
    Ok(())
}

async fn a_plugin_that_ends_in_the_middle_of_a_call_is_started_again(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "plugin-ends";
    scripted(
        world,
        name,
        &[("a-good", "mark", "mark"), ("b-ends", "operate", "exit"), ("c-good", "mark", "mark")],
    )
    .await?;
    create_backup(world, name, listed(name)).await?;
    let backup = world.backup_ended(name).await?;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{:?}", backup.status);
    let errors = told(world, name, "errors").await?;
    ensure!(backup.status.errors == 1, "{errors}");
    for word in ["b-ends", "in the middle of Execute of example.io/operate", "exit status: 7", "is not known"]
    {
        ensure!(errors.contains(word), "nothing of {word}: {errors}");
    }
    let of = |call, item| plugins.processes(call, &format!("{name}/{item}"));
    let (before, ended, after) = (of("mark", "a-good"), of("operate", "b-ends"), of("mark", "c-good"));
    ensure!(before.len() == 1 && before == ended, "{:?}", plugins.calls());
    ensure!(after.len() == 1 && after != before, "not another process: {:?}", plugins.calls());
    stored(world, name, "c-good").await.map(|_| ())
}

async fn a_plugin_process_that_stands_still_is_replaced(world: &mut World) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "plugin-frozen";
    scripted(world, name, &[("a-stands", "mark", "freeze"), ("b-good", "mark", "mark")]).await?;
    create_backup(world, name, listed(name)).await?;
    let backup = world.backup_ended(name).await?;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{:?}", backup.status);
    let errors = told(world, name, "errors").await?;
    ensure!(backup.status.errors == 1 && errors.contains("has not answered Execute"), "{errors}");
    let of = |item| plugins.processes("mark", &format!("{name}/{item}"));
    let (frozen, good) = (of("a-stands"), of("b-good"));
    ensure!(frozen.len() == 1 && good.len() == 1 && frozen != good, "{:?}", plugins.calls());
    stored(world, name, "b-good").await.map(|_| ())
}

async fn a_controller_that_is_killed_around_an_execution_starts_nothing_twice_and_says_what_nobody_knows(
    world: &mut World,
) -> anyhow::Result<()> {
    debug_build(world)?;
    let plugins = plugins(world)?;
    for (point, executed, known) in
        [("before-execution", 0, false), ("after-execution", 1, false), ("after-execution-recorded", 1, true)]
    {
        ensure!(crash::EXECUTION_POINTS.contains(&point), "{point}");
        let name = format!("plugin-{point}");
        scripted(world, &name, &[("a", "operate", "mark start=2s"), ("b", "operate", "mark start=2s")])
            .await?;
        world.controllers[0].restart_with("BACKUP_CRASH_AT", point).await?;
        create_backup(world, &name, listed(&name)).await?;
        world.controllers[0].killed(REACHED).await.with_context(|| format!("{point} was not reached"))?;
        world.controllers[0].restart().await?;
        let backup = world.backup_ended(&name).await?;
        let times = |item: &str| plugins.processes("operate", &format!("{name}/{item}")).len();
        ensure!((times("a"), times("b")) == (executed, 1), "killed at {point}: {:?}", plugins.calls());
        let status = &backup.status;
        let (phase, operations, errors) =
            if known { (BackupPhase::Completed, 2, 0) } else { (BackupPhase::PartiallyFailed, 1, 1) };
        ensure!(
            (backup.phase(), status.backup_item_operations_completed, status.errors)
                == (phase, operations, errors),
            "killed at {point}: {status:?}"
        );
        let marked = stored(world, &name, "b").await?;
        ensure!(marked["metadata"]["annotations"]["example.io/marked-by"] == "operate", "{marked}");
        if known {
            let marked = stored(world, &name, "a").await?;
            ensure!(marked["metadata"]["annotations"]["example.io/marked-by"] == "operate", "{marked}");
        } else {
            let told = told(world, &name, "errors").await?;
            ensure!(told.contains(&format!("{name}/a")) && told.contains("is not known"), "{told}");
        }
    }
    Ok(())
}

async fn what_a_deleted_backup_has_started_is_told_to_stop(world: &mut World) -> anyhow::Result<()> {
    debug_build(world)?;
    let plugins = plugins(world)?;
    let name = "plugin-deleted";
    scripted(world, name, &[("a", "operate", "start=never"), ("b", "operate", "start=never")]).await?;
    world.controllers[0].restart_with("BACKUP_CRASH_AT", "after-execution-recorded").await?;
    create_backup(world, name, listed(name)).await?;
    world.controllers[0].killed(REACHED).await?;
    backups(world).delete(name, &DeleteParams::default()).await?;
    world.controllers[0].restart().await?;
    eventually("the backup is gone", REACHED, async || {
        let left = backups(world).get_opt(name).await?;
        Ok::<_, kube::Error>(when(left.is_none(), "it is still there"))
    })
    .await?;
    let times = |call| plugins.processes(call, "plugin-deleted/a").len();
    ensure!((times("operate"), times("cancel")) == (1, 1), "{:?}", plugins.calls());
    Ok(())
}

/// The same item through both, by the same interface.
async fn a_built_in_action_gives_the_same_out_of_process(world: &mut World) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let namespace = "plugin-account";
    ensure_namespace(&world.client, namespace).await?;
    service_account(world, namespace).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    for (name, kind) in [
        ("plugin-account-a", "ServiceAccount"),
        ("plugin-account-b", "ServiceAccount"),
        ("plugin-account-c", "User"),
    ] {
        let subject = if kind == "User" {
            json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "default" })
        } else {
            json!({ "kind": kind, "name": "default", "namespace": namespace })
        };
        let binding = json!({ "metadata": { "name": name }, "subjects": [subject],
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" } });
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    }

    let folder = format!("--plugin-dir={}", plugins.folder().display());
    let host = Host::new(&Args::try_parse_from(["backup-controller", &folder])?);
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn({
        let (host, stop) = (host.clone(), stop.clone());
        async move { host.run(stop).await }
    });
    let found = host.backup_item_actions(&BTreeSet::new(), &PluginLog::default()).await;
    ensure!(found.problems.is_empty(), "{:?}", found.problems);
    let outside = found.usable.iter().find(|action| action.name() == "example.io/service-account");
    let outside = outside.context("the plugin is not offered")?;
    let inside = ServiceAccountAction::new(world.client.clone());
    ensure!(inside.applies_to() == outside.applies_to(), "{:?}", outside.applies_to());

    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), namespace);
    let mut account = serde_json::to_value(accounts.get("default").await?)?;
    let backup = Backup::new("b", BackupSpec::default());
    for name in ["default", "another"] {
        account["metadata"]["name"] = Value::from(name);
        let results = join_all([inside.execute(&account, &backup), outside.execute(&account, &backup)]).await;
        let [inside, outside]: [_; 2] = results.try_into().map_err(|_| anyhow::anyhow!("not two"))?;
        let (inside, outside) = (inside?, outside?);
        ensure!(inside == outside, "inside {inside:?}, outside {outside:?}");
        // To the byte: the members of an object in the same order.
        ensure!(serde_json::to_vec(&inside)? == serde_json::to_vec(&outside)?);
        ensure!(inside.additional.len() == if name == "default" { 4 } else { 0 }, "{inside:?}");
    }
    stop.cancel();
    running.await?;
    Ok(())
}

/// A backup that has started an operation on one item and hangs at the next one.
async fn hanging(world: &World, plugins: &Plugins, name: &str) -> anyhow::Result<()> {
    let items = [("a", "operate", "mark start=never"), ("b", "operate", "hang"), ("c", "mark", "mark")];
    scripted(world, name, &items).await?;
    create_backup(world, name, listed(name)).await?;
    eventually("the plugin hangs", REACHED, async || {
        let calls = plugins.processes("operate", &format!("{name}/b")).len();
        Ok::<_, anyhow::Error>(when(calls == 1, format!("{calls} calls")))
    })
    .await
}

/// The end of a cancelled backup: its operation was told to stop once, and of the item that hung nobody knows.
async fn cancelled(world: &World, plugins: &Plugins, name: &str) -> anyhow::Result<String> {
    let backup = world.backup_ended(name).await?;
    let status = &backup.status;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{status:?}");
    let counts = (status.backup_item_operations_attempted, status.backup_item_operations_failed);
    ensure!(counts == (1, 1), "{status:?}");
    let times = |call: &str, item: &str| plugins.processes(call, &format!("{name}/{item}")).len();
    let calls = (times("operate", "a"), times("cancel", "a"), times("operate", "b"), times("mark", "c"));
    ensure!(calls == (1, 1, 1, 0), "{:?}", plugins.calls());
    let operations = side_file(world, name, "itemoperations.json.gz").await?;
    let error = operations[0]["status"]["error"].as_str().unwrap_or_default();
    ensure!(error.starts_with("cancelled") && error.contains("told to stop"), "{operations}");
    let errors = told(world, name, "errors").await?;
    for words in ["cancelled, as the annotation", "configmaps cancel", "/b", "is not known"] {
        ensure!(errors.contains(words), "nothing of {words}: {errors}");
    }
    ensure!(stored(world, name, "c").await.is_err(), "it was collected all the same");
    Ok(errors)
}

async fn a_cancelled_backup_ends_early_and_honestly_wherever_it_is(world: &mut World) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "cancel-collecting";
    hanging(world, &plugins, name).await?;
    create_backup(world, "cancel-queued", listed(name)).await?;
    let cancel = ["cancel", "cancel-queued", "--wait", "--timeout=20s"];
    world.plugin().run(&cancel).await?.expect_code(0)?;
    let queued = world.backup_ended("cancel-queued").await?;
    ensure!(queued.phase() == BackupPhase::Failed, "{:?}", queued.status);
    let reason = queued.status.failure_reason.unwrap_or_default();
    ensure!(reason.contains("never started") && reason.contains("cancelled"), "{reason}");

    // Well before the plugin's time is over.
    world.plugin().run(&["cancel", name, "--wait", "--timeout=12s"]).await?.expect_code(0)?;
    let errors = cancelled(world, &plugins, name).await?;
    ensure!(errors.contains("cancelled while it was at this item"), "{errors}");
    let first = stored(world, name, "a").await?;
    ensure!(first["metadata"]["annotations"]["example.io/marked-by"] == "operate", "{first}");
    let described = world.plugin().run(&["describe", name]).await?.expect_code(0)?.stdout;
    ensure!(described.contains("It was cancelled"), "{described}");
    let again = world.plugin().run(&["cancel", name]).await?.expect_code(1)?;
    ensure!(again.stderr.contains("it has ended (PartiallyFailed)"), "{again:?}");
    Ok(())
}

async fn a_cancelled_backup_whose_controller_was_killed_forgets_no_operation(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "cancel-killed";
    hanging(world, &plugins, name).await?;
    world.controllers[0].kill().await?;
    world.plugin().run(&["cancel", name]).await?.expect_code(0)?;
    world.controllers[0].restart().await?;
    let errors = cancelled(world, &plugins, name).await?;
    ensure!(errors.contains(" 0 items") && errors.contains("by an earlier try"), "{errors}");
    Ok(())
}

async fn a_plugin_sees_the_items_of_a_backup_before_it_is_deleted(world: &mut World) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let requests: Api<DeleteBackupRequest> = Api::namespaced(world.client.clone(), NAMESPACE);
    for (name, script) in [("plugin-forgets", ""), ("plugin-keeps", "fail=still-needed")] {
        scripted(world, name, &[("a", "forget", script), ("b", "mark", "mark")]).await?;
        create_backup(world, name, listed(name)).await?;
        let backup = world.backup_ended(name).await?;
        ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
        ensure!(plugins.processes("forget", &format!("{name}/a")).is_empty(), "too soon");
        let spec = DeleteBackupRequestSpec { backup_name: name.to_owned(), ..Default::default() };
        requests.create(&PostParams::default(), &DeleteBackupRequest::new(name, spec)).await?;
    }
    eventually("the backup is gone", REACHED, async || {
        let left = backups(world).get_opt("plugin-forgets").await?;
        Ok::<_, kube::Error>(when(left.is_none(), "it is still there"))
    })
    .await?;
    ensure!(plugins.processes("forget", "plugin-forgets/a").len() == 1, "{:?}", plugins.calls());
    let refused = eventually("the other request is answered", REACHED, async || {
        let status = requests.get("plugin-keeps").await?.status;
        Ok::<_, kube::Error>(match status.phase {
            Some(DeleteBackupRequestPhase::Processed) => Probe::Ready(status.errors),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await?;
    ensure!(refused.len() == 1, "{refused:?}");
    for word in ["example.io/forget", "configmaps plugin-keeps/a", "still-needed", "plugins/plugins"] {
        ensure!(refused[0].contains(word), "nothing of {word}: {refused:?}");
    }
    stored(world, "plugin-keeps", "a").await.context("its contents are there").map(|_| ())
}

async fn binaries_that_do_not_start_and_names_that_are_there_twice_are_named_and_stop_nobody(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = plugins(world)?;
    let name = "plugin-broken";
    scripted(world, name, &[("a", "mark", "mark")]).await?;
    for binary in ["exits-at-start", "says-nonsense", "twin"] {
        plugins.add(binary)?;
    }
    world.controllers[0].restart().await?;
    create_backup(world, name, listed(name)).await?;
    let ended = world.backup_ended(name).await;
    for binary in ["exits-at-start", "says-nonsense", "twin"] {
        plugins.remove(binary)?;
    }
    world.controllers[0].restart().await?;
    let backup = ended?;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{:?}", backup.status);
    let errors = told(world, name, "errors").await?;
    for words in [
        ["plugins/exits-at-start does not run", "no luck today"],
        ["plugins/says-nonsense does not run", "hello, I am no plugin"],
        ["example.io/mark is offered by more than one", "plugins/twin"],
    ] {
        ensure!(words.iter().all(|word| errors.contains(word)), "nothing of {words:?}: {errors}");
    }
    let plain = stored(world, name, "a").await?;
    ensure!(plain["metadata"]["annotations"]["example.io/marked-by"].is_null(), "one was run: {plain}");

    // Without them, all is well again.
    create_backup(world, "plugin-mended", listed(name)).await?;
    let mended = world.backup_ended("plugin-mended").await?;
    ensure!(mended.phase() == BackupPhase::Completed, "{:?}", mended.status);
    Ok(())
}
