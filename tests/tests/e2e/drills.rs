//! Drills: backups that are restored on trial, into scratch namespaces that are removed again.

use backup_core::{
    api::DrillSpec,
    drill::{DrillResult, DrillState, id, restore_spec, scratch_name},
    labels::{DRILL_LABEL, DRILLED_ANNOTATION, annotation},
};
use backup_store::crash;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;

use crate::prelude::*;

crate::tests! {
    a_backup_is_restored_on_trial_and_nothing_of_it_is_left,
    an_expression_that_is_not_true_fails_the_drill,
    a_backup_of_the_namespace_waits_for_no_drill,
}

crate::tests! {
    KILLED:
    nothing_is_left_of_a_drill_wherever_the_controller_dies,
}

/// Timeout for a drill without workloads to be over, with the removal of its namespaces.
const OVER_TIMEOUT: Duration = Duration::from_mins(3);
/// Is true of a backup of the three ConfigMaps of a test.
const IS_COMPLETE: &str = "objects.filter(o, o.metadata.name.startsWith('item-')).size() == 3";
const HOLDS_THE_LAST: &str = "objects.exists(o, has(o.data.number) && o.data.number == '2')";
/// Is not true of it.
const HOLDS_ANOTHER: &str = "objects.exists(o, has(o.data.number) && o.data.number == '3')";

/// Settings with an expression for each check, over the ConfigMaps of a namespace.
fn settings(namespace: &str, expressions: &[&str]) -> Value {
    let checks = expressions.iter().enumerate().map(|(n, expression)| {
        json!({ "name": format!("check-{n}"), "namespace": namespace, "resource": "configmaps", "expression": expression })
    });
    json!({ "checks": checks.collect::<Vec<_>>() })
}

/// A drill of the backup of this name, which holds the namespace of the same name.
fn drill(name: &str, expressions: &[&str]) -> anyhow::Result<RestoreSpec> {
    let drill: DrillSpec = serde_json::from_value(settings(name, expressions))?;
    let namespaces = [name.to_owned()].into();
    Ok(restore_spec(name, &id(&[name]), &namespaces, drill))
}

/// The names of all scratch namespaces.
async fn scratch_namespaces(world: &World) -> anyhow::Result<Vec<String>> {
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let labelled = ListParams::default().labels(DRILL_LABEL);
    let listed = namespaces.list_metadata(&labelled).await?;
    Ok(listed.items.iter().map(ResourceExt::name_any).collect())
}

/// Waits until a drill is over. Returns its result, which its backup has, too. Errors: something of
/// it is left.
async fn over(world: &World, restore: &str) -> anyhow::Result<DrillResult> {
    let is_over = |restore: &Restore| DrillState::of(restore).is_over;
    let restore = world
        .restores()
        .wait_until(restore, "is over", OVER_TIMEOUT, is_over)
        .await?;
    let result = DrillState::of(&restore).result.context("no result")?;
    let backup = restore.spec.backup_name.as_deref().unwrap_or_default();
    let backup = world.backups().get(backup).await?;
    let of_backup = DrillResult::read(annotation(&backup, DRILLED_ANNOTATION));
    ensure!(
        of_backup.as_ref() == Some(&result),
        "{of_backup:?}, {result:?}"
    );
    let left = scratch_namespaces(world).await?;
    ensure!(left.is_empty(), "{left:?} are left");
    Ok(result)
}

fn is_complete(result: &DrillResult) -> anyhow::Result<()> {
    let is_whole = result.items >= 3 && result.restored == result.items && result.differ == 0;
    ensure!(is_whole, "{result:?}");
    Ok(())
}

/// The Restore of the drill of a backup.
async fn restore_of(world: &World, backup: &str) -> anyhow::Result<Restore> {
    let restores = world.restores().list_all().await?;
    let of_drill = |restore: &Restore| {
        restore.spec.drill.is_some() && restore.spec.backup_name.as_deref() == Some(backup)
    };
    restores.into_iter().find(of_drill).context("no drill")
}

async fn a_backup_is_restored_on_trial_and_nothing_of_it_is_left(world: &mut World) -> TestResult {
    let name = "drilled";
    world.backed_up(name, 3).await?;
    let file = world.folder().join("drill.yaml");
    std::fs::write(
        &file,
        settings(name, &[IS_COMPLETE, HOLDS_THE_LAST]).to_string(),
    )?;
    let person = world.kubectl_backup();
    let file = file.display().to_string();
    let seen = person
        .succeeds(&["drill", name, "-f", &file, "--require-ready", "--wait"])
        .await?;
    says(&seen.stderr, &["succeeded in", "2 checks passed"])?;
    let restore = restore_of(world, name).await?;
    let result = over(world, &restore.name_any()).await?;
    is_complete(&result)?;
    ensure!(
        !result.has_failed() && (result.checks, result.passed) == (2, 2),
        "{result:?}"
    );
    ensure!(
        world.count_config_maps(name).await? >= 3,
        "the drill has removed something of the namespace"
    );
    let screen = person.stdout(&["describe", name]).await?;
    says(&screen, &["Drilled", "restored", "2 checks passed"])?;
    let screen = person
        .stdout(&["restore", "describe", &restore.name_any()])
        .await?;
    says(&screen, &["succeeded in"])
}

async fn an_expression_that_is_not_true_fails_the_drill(world: &mut World) -> TestResult {
    let name = "drill-fails";
    world.backed_up(name, 3).await?;
    let expressions = [IS_COMPLETE, HOLDS_ANOTHER];
    world
        .create_restore(name, drill(name, &expressions)?)
        .await?;
    let result = over(world, name).await?;
    is_complete(&result)?;
    ensure!((result.checks, result.passed) == (2, 1), "{result:?}");
    says(
        &result.failure,
        &["check check-1: its expression is not true of"],
    )?;
    let note = world
        .wait_for_event("DrillFailed", |object, _| {
            object.name.as_deref() == Some(name)
        })
        .await?;
    says(&note, &["check check-1", "1 of 2 checks passed"])?;
    let screen = world.kubectl_backup().stdout(&["describe", name]).await?;
    says(&screen, &["Drilled", "failed", "check check-1"])
}

async fn a_backup_of_the_namespace_waits_for_no_drill(world: &mut World) -> TestResult {
    let name = "drill-meanwhile";
    let meanwhile = "made-during-a-drill";
    world.backed_up(name, 1).await?;
    {
        let world = &*world.pause_controllers()?;
        world.create_restore(name, drill(name, &[])?).await?;
        world
            .create_backup(meanwhile, of_namespaces(&[name]))
            .await?;
        let scratch = scratch_name(&id(&[name]), name);
        let refused = world.refused_backup("of-scratch", &scratch).await?;
        says(&refused.message, &[name])?;
    }
    world.backup_ends(meanwhile, BackupPhase::Completed).await?;
    let result = over(world, name).await?;
    ensure!(!result.has_failed(), "{result:?}");
    Ok(())
}

async fn nothing_is_left_of_a_drill_wherever_the_controller_dies(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    for point in crash::DRILL_POINTS {
        let name = format!("killed-{point}");
        world.backed_up(&name, 3).await?;
        world.crash_at(point).await?;
        world
            .create_restore(&name, drill(&name, &[IS_COMPLETE])?)
            .await?;
        world.crashed(point).await?;
        let result = over(world, &name).await.context(point)?;
        is_complete(&result).context(point)?;
        ensure!(
            !result.has_failed() && result.passed == 1,
            "{point}: {result:?}"
        );
    }
    Ok(())
}
