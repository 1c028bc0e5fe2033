//! Backups that are cancelled while a plugin works on an item.

use super::*;

/// A backup that has started an operation on one item and hangs at the next one.
async fn hanging(world: &World, plugins: &VeleroPlugins, name: &str) -> anyhow::Result<()> {
    let items = [
        ("a", "operate", "mark start=never"),
        ("b", "operate", "hang"),
        ("c", "mark", "mark"),
    ];
    world.scripted(name, &items).await?;
    world.create_backup(name, of_scripted(name)).await?;
    plugins
        .wait_for_call("operate", &format!("{name}/b"), REACHED)
        .await
}

/// The end of a cancelled backup: its operation was cancelled once, and the outcome of the hanging
/// item is unknown.
async fn cancelled(world: &World, plugins: &VeleroPlugins, name: &str) -> anyhow::Result<String> {
    let backup = world
        .backup_ends(name, BackupPhase::PartiallyFailed)
        .await?;
    let status = &backup.status;
    let [attempted, _, failed] = status.operations();
    ensure!((attempted, failed) == (1, 1), "{status:?}");
    let times = |call: &str, item: &str| plugins.processes(call, &format!("{name}/{item}")).len();
    let calls = (
        times("operate", "a"),
        times("cancel", "a"),
        times("operate", "b"),
        times("mark", "c"),
    );
    ensure!(calls == (1, 1, 1, 0), "{:?}", plugins.calls());
    let operations = world.backup_file(name, "itemoperations.json.gz").await?;
    let error = operations[0]["status"]["error"]
        .as_str()
        .unwrap_or_default();
    ensure!(
        error.starts_with("cancelled") && error.contains("told to stop"),
        "{operations}"
    );
    let errors = world.backup_errors(name).await?;
    says(
        &errors,
        &[
            "cancelled, as the annotation",
            "configmaps cancel",
            "/b",
            "is not known",
        ],
    )?;
    ensure!(
        world.backup_config_map(name, "c").await.is_err(),
        "it was collected all the same"
    );
    Ok(errors)
}

pub(super) async fn a_cancelled_backup_ends_early_and_honestly_wherever_it_is(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = world.plugins()?;
    let name = "cancel-collecting";
    hanging(world, &plugins, name).await?;
    world
        .create_backup("cancel-queued", of_scripted(name))
        .await?;
    let cancel = ["cancel", "cancel-queued", "--wait", "--timeout=20s"];
    world.kubectl_backup().succeeds(&cancel).await?;
    let queued = world
        .backup_ends("cancel-queued", BackupPhase::Failed)
        .await?;
    let reason = queued.status.failure_reason.unwrap_or_default();
    ensure!(
        reason.contains("never started") && reason.contains("cancelled"),
        "{reason}"
    );

    // Well before the plugin's timeout.
    world
        .kubectl_backup()
        .succeeds(&["cancel", name, "--wait", "--timeout=12s"])
        .await?;
    let errors = cancelled(world, &plugins, name).await?;
    ensure!(
        errors.contains("cancelled while it was at this item"),
        "{errors}"
    );
    let first = world.backup_config_map(name, "a").await?;
    ensure!(
        first["metadata"]["annotations"]["example.io/marked-by"] == "operate",
        "{first}"
    );
    let described = world
        .kubectl_backup()
        .succeeds(&["describe", name])
        .await?
        .stdout;
    ensure!(described.contains("It was cancelled"), "{described}");
    let again = world.kubectl_backup().fails(1, &["cancel", name]).await?;
    ensure!(
        again.stderr.contains("it has ended (PartiallyFailed)"),
        "{again:?}"
    );
    Ok(())
}

pub(super) async fn a_crash_of_a_cancelled_backup_forgets_no_operation(
    world: &mut World,
) -> anyhow::Result<()> {
    let plugins = world.plugins()?;
    let name = "cancel-killed";
    hanging(world, &plugins, name).await?;
    world.controllers[0].kill().await?;
    world.kubectl_backup().succeeds(&["cancel", name]).await?;
    world.controllers[0].restart().await?;
    let errors = cancelled(world, &plugins, name).await?;
    ensure!(
        errors.contains(" 0 items") && errors.contains("by an earlier try"),
        "{errors}"
    );
    Ok(())
}
