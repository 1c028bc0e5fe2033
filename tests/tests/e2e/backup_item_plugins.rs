//! Plugins of Velero's kind, built on Velero's own framework (`tests/plugins`). Each item says what
//! they do with it.

mod cancelled;

use std::{collections::BTreeSet, sync::Arc};

use backup_actions::{
    ItemAction as _,
    backup::{BackupItemAction, built_in},
};
use backup_core::api::{DeleteBackupRequest, DeleteBackupRequestPhase, GoDuration};
use backup_plugins::{Host, Options, PluginLog, catalog::Kind};
use backup_runtime::{Cluster, events::Events, leader::Leadership};
use backup_store::crash;
use backup_tests::velero_plugins::VeleroPlugins;
use futures::future::join_all;
use k8s_openapi::api::{core::v1::ServiceAccount, rbac::v1::ClusterRoleBinding};

use crate::prelude::*;
use cancelled::{
    a_cancelled_backup_ends_early_and_honestly_wherever_it_is,
    a_crash_of_a_cancelled_backup_forgets_no_operation,
};

crate::tests! {
    a_plugin_changes_an_item_and_brings_another_one,
    log_lines_of_a_plugin_are_in_the_log_of_the_backup,
    an_operation_of_a_plugin_is_polled_until_it_is_done,
    an_endless_operation_of_a_plugin_ends_by_its_deadline,
    a_plugin_that_misbehaves_is_named_and_harms_nothing_else,
    a_plugin_that_ends_in_the_middle_of_a_call_is_started_again,
    a_plugin_process_that_hangs_is_replaced,
    a_built_in_action_gives_the_same_out_of_process,
    a_crash_around_an_action_starts_nothing_twice,
    operations_of_a_deleted_backup_are_cancelled,
    a_cancelled_backup_ends_early_and_honestly_wherever_it_is,
    a_crash_of_a_cancelled_backup_forgets_no_operation,
    a_plugin_sees_the_items_of_a_backup_before_it_is_deleted,
    broken_binaries_and_duplicate_names_are_reported,
}

async fn a_plugin_changes_an_item_and_brings_another_one(world: &mut World) -> anyhow::Result<()> {
    let plugins = world.plugins()?;
    let name = "plugin-mark";
    world
        .scripted(
            name,
            &[
                ("a", "mark", "mark bring=cm/plugin-mark/along"),
                ("b", "none", "mark"),
            ],
        )
        .await?;
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

async fn log_lines_of_a_plugin_are_in_the_log_of_the_backup(
    world: &mut World,
) -> anyhow::Result<()> {
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
    ensure!(
        world
            .backup_errors(name)
            .await?
            .contains("plugin plugins: no-good")
    );
    ensure!(
        world
            .backup_warnings(name)
            .await?
            .contains("plugin plugins: careful")
    );
    let log = world.backup_log(name).await?;
    ensure!(
        log.contains("plugin plugins: hello") && !log.contains("quiet"),
        "{log}"
    );
    world.backup_config_map(name, "a").await.map(drop)
}

async fn an_operation_of_a_plugin_is_polled_until_it_is_done(
    world: &mut World,
) -> anyhow::Result<()> {
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
    ensure!(
        plugins.processes("operate", "plugin-operation/a").len() == 1,
        "{:?}",
        plugins.calls()
    );
    let polls = plugins.processes("progress", "plugin-operation/a").len();
    ensure!((2..=8).contains(&polls), "asked {polls} times");
    Ok(())
}

async fn an_endless_operation_of_a_plugin_ends_by_its_deadline(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = world.plugins()?;
    let name = "plugin-endless";
    world
        .scripted(name, &[("a", "operate", "start=never")])
        .await?;
    let timeout = Some(GoDuration::from_secs(3));
    let spec = BackupSpec {
        item_operation_timeout: timeout,
        ..of_scripted(name)
    };
    world
        .run_backup(name, spec, BackupPhase::PartiallyFailed)
        .await?;
    ensure!(
        plugins.processes("cancel", "plugin-endless/a").len() == 1,
        "{:?}",
        plugins.calls()
    );
    let errors = world.backup_errors(name).await?;
    ensure!(
        errors.contains("timed out") && errors.contains("told to stop"),
        "{errors}"
    );
    Ok(())
}

async fn a_plugin_that_misbehaves_is_named_and_harms_nothing_else(
    world: &mut World,
) -> anyhow::Result<()> {
    world.plugins()?;
    let name = "plugin-bad";
    let items = [
        ("a-hangs", "mark", "hang"),
        ("b-fails", "mark", "fail=out-of-luck"),
        ("c-panics", "operate", "panic=oh-no"),
        ("d-nonsense", "mark", "nonsense"),
        ("e-floods", "mark", "flood mark"),
        ("f-good", "mark", "mark"),
    ];
    world.scripted(name, &items).await?;
    world
        .scripted("plugin-beside", &[("good", "mark", "mark")])
        .await?;
    world.create_backup(name, of_scripted(name)).await?;
    world
        .back_up("plugin-beside", of_scripted("plugin-beside"))
        .await?;
    let backup = world
        .backup_ends(name, BackupPhase::PartiallyFailed)
        .await?;
    let errors = world.backup_errors(name).await?;
    for (item, words) in [
        (
            "a-hangs",
            [
                "has not answered Execute of example.io/mark within 15s",
                "is not known",
            ],
        ),
        (
            "b-fails",
            [
                "answers Execute of example.io/mark with an error",
                "out-of-luck",
            ],
        ),
        (
            "c-panics",
            [
                "answers Execute of example.io/operate with an error",
                "oh-no",
            ],
        ),
        (
            "d-nonsense",
            [
                "answers Execute of example.io/mark with nonsense",
                "without a name",
            ],
        ),
    ] {
        for word in words.iter().chain(&[item, "plugins/plugins"]) {
            ensure!(
                errors.contains(word),
                "nothing of {word} for {item}: {errors}"
            );
        }
    }
    ensure!(backup.status.errors == 4, "{errors}");
    for good in ["e-floods", "f-good"] {
        let changed = world.backup_config_map(name, good).await?;
        ensure!(
            changed["metadata"]["annotations"]["example.io/marked-by"] == "mark",
            "{changed}"
        );
    }
    let warnings = world.backup_warnings(name).await?;
    ensure!(warnings.contains("lines more than are kept"), "{warnings}");
    Ok(())
}

async fn a_plugin_that_ends_in_the_middle_of_a_call_is_started_again(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = world.plugins()?;
    let name = "plugin-ends";
    let items = [
        ("a-good", "mark", "mark"),
        ("b-ends", "operate", "exit"),
        ("c-good", "mark", "mark"),
    ];
    world.scripted(name, &items).await?;
    let backup = world
        .run_backup(name, of_scripted(name), BackupPhase::PartiallyFailed)
        .await?;
    let errors = world.backup_errors(name).await?;
    ensure!(backup.status.errors == 1, "{errors}");
    says(
        &errors,
        &[
            "b-ends",
            "in the middle of Execute of example.io/operate",
            "exit status: 7",
            "is not known",
        ],
    )?;
    let of = |call, item| plugins.processes(call, &format!("{name}/{item}"));
    let (before, ended, after) = (
        of("mark", "a-good"),
        of("operate", "b-ends"),
        of("mark", "c-good"),
    );
    ensure!(
        before.len() == 1 && before == ended,
        "{:?}",
        plugins.calls()
    );
    ensure!(
        after.len() == 1 && after != before,
        "not another process: {:?}",
        plugins.calls()
    );
    world.backup_config_map(name, "c-good").await.map(drop)
}

async fn a_plugin_process_that_hangs_is_replaced(world: &mut World) -> anyhow::Result<()> {
    let plugins = world.plugins()?;
    let name = "plugin-frozen";
    world
        .scripted(
            name,
            &[("a-stands", "mark", "freeze"), ("b-good", "mark", "mark")],
        )
        .await?;
    let backup = world
        .run_backup(name, of_scripted(name), BackupPhase::PartiallyFailed)
        .await?;
    let errors = world.backup_errors(name).await?;
    ensure!(
        backup.status.errors == 1 && errors.contains("has not answered Execute"),
        "{errors}"
    );
    let of = |item| plugins.processes("mark", &format!("{name}/{item}"));
    let (frozen, good) = (of("a-stands"), of("b-good"));
    ensure!(
        frozen.len() == 1 && good.len() == 1 && frozen != good,
        "{:?}",
        plugins.calls()
    );
    world.backup_config_map(name, "b-good").await.map(drop)
}

/// If it is unknown whether the action ran, an error says so.
async fn a_crash_around_an_action_starts_nothing_twice(world: &mut World) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    let plugins = world.plugins()?;
    for (point, executed, known) in [
        ("before-execution", 0, false),
        ("after-execution", 1, false),
        ("after-execution-recorded", 1, true),
    ] {
        ensure!(crash::EXECUTION_POINTS.contains(&point), "{point}");
        let name = format!("plugin-{point}");
        world
            .scripted(
                &name,
                &["a", "b"].map(|item| (item, "operate", "mark start=2s")),
            )
            .await?;
        world.crash_at(point).await?;
        world.create_backup(&name, of_scripted(&name)).await?;
        world.crashed(point).await?;
        let backup = world.backup_ended(&name).await?;
        let times = |item: &str| {
            plugins
                .processes("operate", &format!("{name}/{item}"))
                .len()
        };
        ensure!(
            (times("a"), times("b")) == (executed, 1),
            "killed at {point}: {:?}",
            plugins.calls()
        );
        let status = &backup.status;
        let (phase, operations, errors) = if known {
            (BackupPhase::Completed, 2, 0)
        } else {
            (BackupPhase::PartiallyFailed, 1, 1)
        };
        ensure!(
            (
                backup.phase(),
                status.backup_item_operations_completed,
                status.errors
            ) == (phase, operations, errors),
            "killed at {point}: {status:?}"
        );
        let marked = world.backup_config_map(&name, "b").await?;
        ensure!(
            marked["metadata"]["annotations"]["example.io/marked-by"] == "operate",
            "{marked}"
        );
        if known {
            let marked = world.backup_config_map(&name, "a").await?;
            ensure!(
                marked["metadata"]["annotations"]["example.io/marked-by"] == "operate",
                "{marked}"
            );
        } else {
            let told = world.backup_errors(&name).await?;
            ensure!(
                told.contains(&format!("{name}/a")) && told.contains("is not known"),
                "{told}"
            );
        }
    }
    Ok(())
}

async fn operations_of_a_deleted_backup_are_cancelled(world: &mut World) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    let plugins = world.plugins()?;
    let name = "plugin-deleted";
    world
        .scripted(
            name,
            &[
                ("a", "operate", "start=never"),
                ("b", "operate", "start=never"),
            ],
        )
        .await?;
    world.crash_at("after-execution-recorded").await?;
    world.create_backup(name, of_scripted(name)).await?;
    world.controllers[0].killed(REACHED).await?;
    world.backups().delete_object(name).await?;
    world.controllers[0].restart().await?;
    world.backup_gone(name).await?;
    let times = |call| plugins.processes(call, "plugin-deleted/a").len();
    ensure!(
        (times("operate"), times("cancel")) == (1, 1),
        "{:?}",
        plugins.calls()
    );
    Ok(())
}

/// The same item through both actions, by the same interface.
async fn a_built_in_action_gives_the_same_out_of_process(world: &mut World) -> anyhow::Result<()> {
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
    ensure!(
        inside.applies_to() == outside.applies_to(),
        "{:?}",
        outside.applies_to()
    );

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

async fn a_plugin_sees_the_items_of_a_backup_before_it_is_deleted(
    world: &mut World,
) -> anyhow::Result<()> {
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
        ensure!(
            plugins.processes("forget", &format!("{name}/a")).is_empty(),
            "too soon"
        );
        world.request_deletion(name).await?;
    }
    world.backup_gone("plugin-forgets").await?;
    ensure!(
        plugins.processes("forget", "plugin-forgets/a").len() == 1,
        "{:?}",
        plugins.calls()
    );
    let processed =
        |one: &DeleteBackupRequest| one.status.phase == Some(DeleteBackupRequestPhase::Processed);
    let refused = requests
        .wait_until("plugin-keeps", "is answered", REACHED, processed)
        .await?
        .status
        .errors;
    ensure!(refused.len() == 1, "{refused:?}");
    for word in [
        "example.io/forget",
        "configmaps plugin-keeps/a",
        "still-needed",
        "plugins/plugins",
    ] {
        ensure!(refused[0].contains(word), "nothing of {word}: {refused:?}");
    }
    world
        .backup_config_map("plugin-keeps", "a")
        .await
        .context("its contents are there")
        .map(drop)
}

async fn broken_binaries_and_duplicate_names_are_reported(world: &mut World) -> anyhow::Result<()> {
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
    for words in [
        ["plugins/exits-at-start does not run", "no luck today"],
        [
            "plugins/says-nonsense does not run",
            "hello, I am no plugin",
        ],
        [
            "example.io/mark is offered by more than one",
            "plugins/twin",
        ],
    ] {
        ensure!(
            words.iter().all(|word| errors.contains(word)),
            "nothing of {words:?}: {errors}"
        );
    }
    let plain = world.backup_config_map(name, "a").await?;
    ensure!(
        plain["metadata"]["annotations"]["example.io/marked-by"].is_null(),
        "one was run: {plain}"
    );

    // Without them, a backup completes again.
    world.back_up("plugin-mended", of_scripted(name)).await?;
    Ok(())
}
