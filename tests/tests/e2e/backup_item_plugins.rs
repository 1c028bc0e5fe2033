//! Plugins of Velero's kind, built on Velero's own framework (`tests/plugins`). Each item says what
//! they do with it.

use std::{collections::BTreeSet, sync::Arc};

use backup_actions::{
    ItemAction as _,
    backup::{BackupItemAction, built_in},
};
use backup_core::api::{DeleteBackupRequest, DeleteBackupRequestPhase};
use backup_plugins::{Host, Options, PluginLog, catalog::Kind};
use backup_runtime::{Cluster, events::Events, leader::Leadership};
use futures::future::join_all;
use k8s_openapi::api::{core::v1::ServiceAccount, rbac::v1::ClusterRoleBinding};

use crate::prelude::*;

crate::tests! {
    a_plugin_changes_an_item_and_brings_another_one,
    log_lines_of_a_plugin_are_in_the_log_of_the_backup,
    an_operation_of_a_plugin_is_polled_until_it_is_done,
    a_plugin_process_that_ends_or_hangs_in_a_call_is_replaced,
    a_built_in_action_gives_the_same_out_of_process,
    operations_of_a_deleted_backup_are_cancelled,
    a_plugin_sees_the_items_of_a_backup_before_it_is_deleted,
    broken_binaries_and_duplicate_names_are_reported,
}

async fn a_plugin_changes_an_item_and_brings_another_one(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let name = "plugin-mark";
    let items = [
        ("a", "mark", "mark bring=cm/plugin-mark/along"),
        ("b", "none", "mark"),
    ];
    world.scripted(name, &items).await?;
    let along = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "along", "namespace": name } });
    create_all(&world.client, [along]).await?;
    world.back_up(name, of_scripted(name)).await?;
    let changed = world.backup_config_map(name, "a").await?;
    ensure!(
        changed["metadata"]["annotations"]["example.io/marked-by"] == "mark",
        "{changed}"
    );
    ensure!(
        changed["apiVersion"] == "v1" && changed["kind"] == "ConfigMap",
        "{changed}"
    );
    world.backup_config_map(name, "along").await?;
    let other = world.backup_config_map(name, "b").await?;
    ensure!(
        other["metadata"]["annotations"]["example.io/marked-by"].is_null(),
        "not its business: {other}"
    );
    let calls: Vec<_> = plugins
        .calls()
        .into_iter()
        .filter(|called| called.item.starts_with(name))
        .collect();
    ensure!(
        calls.len() == 1 && calls[0].item == "plugin-mark/a",
        "{calls:?}"
    );
    Ok(())
}

async fn log_lines_of_a_plugin_are_in_the_log_of_the_backup(world: &mut World) -> TestResult {
    world.plugins()?;
    let name = "plugin-says";
    let script =
        "say=debug:quiet say=info:hello say=warning:careful say=error:no-good print=nobody-hears";
    world.scripted(name, &[("a", "mark", script)]).await?;
    let backup = world
        .run_backup(name, of_scripted(name), BackupPhase::PartiallyFailed)
        .await?;
    let status = &backup.status;
    ensure!((status.warnings, status.errors) == (1, 1), "{status:?}");
    let errors = world.backup_errors(name).await?;
    says(&errors, &["plugin plugins: no-good"])?;
    let warnings = world.backup_warnings(name).await?;
    says(&warnings, &["plugin plugins: careful"])?;
    let log = world.backup_log(name).await?;
    ensure!(
        log.contains("plugin plugins: hello") && !log.contains("quiet"),
        "{log}"
    );
    world.backup_config_map(name, "a").await.map(drop)
}

async fn an_operation_of_a_plugin_is_polled_until_it_is_done(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let name = "plugin-operation";
    let script = "start=4s after=configmaps/plugin-operation/later";
    world
        .scripted(name, &[("a", "operate", script), ("later", "none", "")])
        .await?;
    world.create_backup(name, of_scripted(name)).await?;
    world.backup_waits(name).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    maps.merge_patch("later", json!({ "data": { "now": "after" } }))
        .await?;
    let backup = world.backup_ends(name, BackupPhase::Completed).await?;
    let status = &backup.status;
    ensure!(status.operations()[..2] == [1, 1], "{status:?}");
    let operations = world.backup_file(name, "itemoperations.json.gz").await?;
    let (spec, state) = (&operations[0]["spec"], &operations[0]["status"]);
    ensure!(
        spec["backupItemAction"] == "example.io/operate",
        "{operations}"
    );
    ensure!(
        state["phase"] == "Completed" && state["nCompleted"] == 4000,
        "{operations}"
    );
    ensure!(
        state["operationUnits"] == "ms" && state["started"].is_string(),
        "{operations}"
    );
    ensure!(
        state["updated"].is_null(),
        "Go's zero is no time: {operations}"
    );
    let later = world.backup_config_map(name, "later").await?;
    ensure!(
        later["data"]["now"] == "after",
        "not its last form: {later}"
    );
    plugins.have_seen(name, &[("operate", "a", 1)])?;
    let polls = plugins.processes("progress", "plugin-operation/a").len();
    ensure!((2..=8).contains(&polls), "asked {polls} times");
    Ok(())
}

async fn a_plugin_process_that_ends_or_hangs_in_a_call_is_replaced(
    world: &mut World,
) -> TestResult {
    let plugins = world.plugins()?;
    for (name, script, words) in [
        (
            "plugin-ends",
            "exit",
            &[
                "b-bad",
                "in the middle of Execute of example.io/operate",
                "exit status: 7",
                "is not known",
            ][..],
        ),
        ("plugin-frozen", "freeze", &["has not answered Execute"]),
    ] {
        let items = [
            ("a-good", "mark", "mark"),
            ("b-bad", "operate", script),
            ("c-good", "mark", "mark"),
        ];
        world.scripted(name, &items).await?;
        let backup = world
            .run_backup(name, of_scripted(name), BackupPhase::PartiallyFailed)
            .await?;
        let errors = world.backup_errors(name).await?;
        ensure!(backup.status.errors == 1, "{errors}");
        says(&errors, words)?;
        let [before, bad, after] =
            items.map(|(item, call, _)| plugins.processes(call, &format!("{name}/{item}")));
        ensure!(before.len() == 1 && before == bad, "{:?}", plugins.calls());
        ensure!(
            after.len() == 1 && after != before,
            "not another process: {:?}",
            plugins.calls()
        );
        world.backup_config_map(name, "c-good").await?;
    }
    Ok(())
}

async fn operations_of_a_deleted_backup_are_cancelled(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let plugins = world.plugins()?;
    let name = "plugin-deleted";
    let items = ["a", "b"].map(|item| (item, "operate", "start=never"));
    world.scripted(name, &items).await?;
    world.crash_at("after-execution-recorded").await?;
    world.create_backup(name, of_scripted(name)).await?;
    world.controllers[0].killed(POINT_TIMEOUT).await?;
    world.backups().delete_object(name).await?;
    world.controllers[0].restart().await?;
    world.backup_gone(name).await?;
    plugins.have_seen(name, &[("operate", "a", 1), ("cancel", "a", 1)])
}

/// The same item through both actions, by the same interface.
async fn a_built_in_action_gives_the_same_out_of_process(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let namespace = "plugin-account";
    ensure_namespace(&world.client, namespace).await?;
    world.service_account(namespace).await?;
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
        bindings.create_json(binding).await?;
    }

    let host = Host::new(Options {
        folder: plugins.folder().to_owned(),
        features: vec![],
        namespace: NAMESPACE.to_owned(),
        kubeconfig: None,
        limit: Duration::from_mins(10),
    });
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn({
        let (host, stop) = (host.clone(), stop.clone());
        async move { host.run(stop).await }
    });
    let found = host
        .actions(
            &Kind::BACKUP_ITEM,
            &BTreeSet::new(),
            Some(&PluginLog::default()),
        )
        .await;
    ensure!(found.problems.is_empty(), "{:?}", found.problems);
    let outside = found
        .usable
        .iter()
        .find(|action| action.name() == "example.io/service-account");
    let outside: Arc<dyn BackupItemAction> =
        outside.cloned().context("the plugin is not offered")?;
    let cluster = Cluster {
        client: world.client.clone(),
        namespace: NAMESPACE.to_owned(),
        leadership: Leadership::always(),
        events: Events::new(world.client.clone(), "test"),
        patch_budget: Duration::ZERO,
        page_size: 500,
    };
    let all = built_in(&cluster, false, &Arc::default());
    let inside = all
        .iter()
        .find(|action| action.name() == "velero.io/service-account");
    let inside = inside.context("there is no such action")?;
    ensure!(inside.applies_to() == outside.applies_to());

    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), namespace);
    let mut account = serde_json::to_value(accounts.get("default").await?)?;
    let backup = Backup::new("b", BackupSpec::default());
    for name in ["default", "another"] {
        account["metadata"]["name"] = Value::from(name);
        let results = join_all([
            inside.execute(&account, &backup),
            outside.execute(&account, &backup),
        ])
        .await;
        let [inside, outside]: [_; 2] =
            results.try_into().map_err(|_| anyhow::anyhow!("not two"))?;
        let (inside, outside) = (inside?, outside?);
        ensure!(inside == outside, "inside {inside:?}, outside {outside:?}");
        // Byte by byte: the members of an object are in the same order.
        ensure!(serde_json::to_vec(&inside)? == serde_json::to_vec(&outside)?);
        ensure!(
            inside.additional.len() == if name == "default" { 4 } else { 0 },
            "{inside:?}"
        );
    }
    stop.cancel();
    running.await?;
    Ok(())
}

async fn a_plugin_sees_the_items_of_a_backup_before_it_is_deleted(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let requests: Api<DeleteBackupRequest> = world.api();
    for (name, script) in [
        ("plugin-forgets", ""),
        ("plugin-keeps", "fail=still-needed"),
    ] {
        world
            .scripted(name, &[("a", "forget", script), ("b", "mark", "mark")])
            .await?;
        world.back_up(name, of_scripted(name)).await?;
        plugins.have_seen(name, &[("forget", "a", 0)])?;
        world.request_deletion(name).await?;
    }
    world.backup_gone("plugin-forgets").await?;
    plugins.have_seen("plugin-forgets", &[("forget", "a", 1)])?;
    let processed =
        |one: &DeleteBackupRequest| one.status.phase == Some(DeleteBackupRequestPhase::Processed);
    let refused = requests
        .wait_until("plugin-keeps", "is answered", POINT_TIMEOUT, processed)
        .await?
        .status
        .errors;
    ensure!(refused.len() == 1, "{refused:?}");
    says(
        &refused[0],
        &[
            "example.io/forget",
            "configmaps plugin-keeps/a",
            "still-needed",
            "plugins/plugins",
        ],
    )?;
    world
        .backup_config_map("plugin-keeps", "a")
        .await
        .context("its contents are there")
        .map(drop)
}

async fn broken_binaries_and_duplicate_names_are_reported(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let name = "plugin-broken";
    world.scripted(name, &[("a", "mark", "mark")]).await?;
    for binary in ["exits-at-start", "says-nonsense", "twin"] {
        plugins.add(binary)?;
    }
    world.controllers[0].restart().await?;
    world.create_backup(name, of_scripted(name)).await?;
    let ended = world.backup_ended(name).await;
    for binary in ["exits-at-start", "says-nonsense", "twin"] {
        plugins.remove(binary)?;
    }
    world.controllers[0].restart().await?;
    let backup = ended?;
    ensure!(
        backup.phase() == BackupPhase::PartiallyFailed,
        "{:?}",
        backup.status
    );
    let errors = world.backup_errors(name).await?;
    says(
        &errors,
        &[
            "plugins/exits-at-start does not run",
            "no luck today",
            "plugins/says-nonsense does not run",
            "hello, I am no plugin",
            "example.io/mark is offered by more than one",
            "plugins/twin",
        ],
    )?;
    let plain = world.backup_config_map(name, "a").await?;
    ensure!(
        plain["metadata"]["annotations"]["example.io/marked-by"].is_null(),
        "one was run: {plain}"
    );

    // Without them, a backup completes again.
    world.back_up("plugin-mended", of_scripted(name)).await?;
    Ok(())
}
