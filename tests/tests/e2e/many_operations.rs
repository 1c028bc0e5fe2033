//! A controller that is killed while hundreds of operations of a plugin go on, of backups or of restores: none is forgotten, none is started twice.

use std::collections::{BTreeMap, BTreeSet};

use backup_store::crash;
use backup_tests::velero_plugins::VeleroPlugins;

use crate::prelude::*;

crate::tests! {
    a_crash_forgets_none_of_hundreds_of_operations,
    a_crash_forgets_none_of_hundreds_of_restore_operations,
}

/// Each has its own backup, and its own operations.
const NAMESPACES: [&str; 2] = ["in-flight-a", "in-flight-b"];
/// Each has a backup, of which restores are made.
const RESTORED: [&str; 2] = ["in-flight-c", "in-flight-d"];
/// Operations of each backup, or restore.
const EACH: usize = 100;
/// How many of all are in flight at least when it is killed between two executions.
const BEFORE: usize = 150;
/// Points of the end that the first backup comes to while operations of the other one go on, or have just ended.
const LATER: [&str; 2] = ["after-record", "before-metadata"];

/// None is started twice.
async fn a_crash_forgets_none_of_hundreds_of_operations(world: &mut World) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    let plugins = world.plugins()?;
    let names: Vec<String> = (0..EACH).map(|number| format!("item-{number:03}")).collect();
    let items: Vec<(&str, &str, &str)> =
        names.iter().map(|name| (name.as_str(), "operate", "start=8s")).collect();
    for namespace in NAMESPACES {
        world.scripted(namespace, &items).await?;
    }
    for point in crash::EXECUTION_POINTS {
        killed_at(world, &plugins, point, &format!("{point}#{BEFORE}"))
            .await
            .with_context(|| format!("killed at {point}"))?;
    }
    for point in crash::OPERATION_POINTS.iter().chain(&LATER) {
        killed_at(world, &plugins, point, point).await.with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

async fn killed_at(
    world: &mut World,
    plugins: &VeleroPlugins,
    point: &str,
    crash_at: &str,
) -> anyhow::Result<()> {
    let earlier = plugins.calls().len();
    world.crash_at(crash_at).await?;
    for namespace in NAMESPACES {
        world.create_backup(&format!("{namespace}-{point}"), of_scripted(namespace)).await?;
    }
    world.controllers[0].killed(REACHED).await.context("it was not reached")?;
    world.controllers[0].restart().await?;

    let mut unknown = 0;
    for namespace in NAMESPACES {
        let name = format!("{namespace}-{point}");
        let backup = world.backup_ended(&name).await?;
        let operations = world.backup_file(&name, "itemoperations.json.gz").await?;
        let known = completed_once(&operations)?;
        let missing = EACH - known;
        let status = &backup.status;
        let expected = if missing == 0 { BackupPhase::Completed } else { BackupPhase::PartiallyFailed };
        ensure!(backup.phase() == expected && status.errors == i64::try_from(missing)?, "{status:?}");
        let counts = (status.backup_item_operations_attempted, status.backup_item_operations_completed);
        ensure!(counts == (i64::try_from(known)?, i64::try_from(known)?), "{status:?}");
        if missing > 0 {
            let errors = world.backup_errors(&name).await?;
            ensure!(errors.contains(namespace) && errors.contains("is not known"), "{errors}");
        }
        unknown += missing;
    }
    none_twice(plugins, ("operate", earlier), point, unknown)
}

/// How many operations are recorded; each must be there once, and be Completed.
fn completed_once(operations: &Value) -> anyhow::Result<usize> {
    let operations = operations.as_array().context("no list")?;
    let known: BTreeSet<&str> =
        operations.iter().filter_map(|one| one["spec"]["operationID"].as_str()?.split('|').next()).collect();
    ensure!(known.len() == operations.len(), "one is there twice: {operations:?}");
    ensure!(operations.iter().all(|one| one["status"]["phase"] == "Completed"), "{operations:?}");
    Ok(known.len())
}

/// Whether each item was executed once, but for those of which nobody knows.
fn none_twice(
    plugins: &VeleroPlugins,
    (call, earlier): (&str, usize),
    point: &str,
    unknown: usize,
) -> anyhow::Result<()> {
    // At most the one that each of them was at. Nobody can know what became of that.
    let around = ["before-execution", "after-execution"].contains(&point);
    ensure!((usize::from(around)..=NAMESPACES.len()).contains(&unknown), "{unknown} are unknown");
    let mut executed: BTreeMap<String, usize> = BTreeMap::new();
    for called in plugins.calls().split_off(earlier).into_iter().filter(|called| called.call == call) {
        *executed.entry(called.item).or_default() += 1;
    }
    let not_executed = EACH * NAMESPACES.len() - executed.len();
    ensure!(
        not_executed <= unknown && executed.values().all(|times| *times == 1),
        "{not_executed} not executed, {unknown} unknown, {executed:?}"
    );
    Ok(())
}

/// None is started twice.
async fn a_crash_forgets_none_of_hundreds_of_restore_operations(world: &mut World) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    let plugins = world.plugins()?;
    let names: Vec<String> = (0..EACH).map(|number| format!("item-{number:03}")).collect();
    let items: Vec<(&str, &str, &str)> =
        names.iter().map(|name| (name.as_str(), "move", "start=8s")).collect();
    for namespace in RESTORED {
        world.scripted_backup(namespace, &items).await?;
    }
    for point in crash::EXECUTION_POINTS {
        restores_killed_at(world, &plugins, point, &format!("{point}#{BEFORE}"))
            .await
            .with_context(|| format!("killed at {point}"))?;
    }
    for point in crash::OPERATION_POINTS.iter().filter(|point| **point != "after-renewal") {
        restores_killed_at(world, &plugins, point, point)
            .await
            .with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

async fn restores_killed_at(
    world: &mut World,
    plugins: &VeleroPlugins,
    point: &str,
    crash_at: &str,
) -> anyhow::Result<()> {
    let earlier = plugins.calls().len();
    world.crash_at(crash_at).await?;
    for namespace in RESTORED {
        let name = format!("{namespace}-{point}");
        let spec = RestoreSpec {
            namespace_mapping: [(namespace.to_owned(), name.clone())].into(),
            ..into_back(namespace)
        };
        world.create_restore(&name, spec).await?;
    }
    world.controllers[0].killed(REACHED).await.context("it was not reached")?;
    world.controllers[0].restart().await?;

    let mut unknown = 0;
    for namespace in RESTORED {
        let name = format!("{namespace}-{point}");
        let restore = world.restore_ended(&name).await?;
        let operations = world.restore_file(&name, "itemoperations.json.gz").await?;
        let known = completed_once(&operations)?;
        let missing = EACH - known;
        let status = &restore.status;
        let expected = if missing == 0 { RestorePhase::Completed } else { RestorePhase::PartiallyFailed };
        ensure!(restore.phase() == expected && status.errors == i64::try_from(missing)?, "{status:?}");
        let counts = (status.restore_item_operations_attempted, status.restore_item_operations_completed);
        ensure!(counts == (i64::try_from(known)?, i64::try_from(known)?), "{status:?}");
        if missing > 0 {
            let errors = world.restore_errors(&name).await?;
            ensure!(errors.contains("is not known"), "{errors}");
        }
        unknown += missing;
    }
    none_twice(plugins, ("move", earlier), point, unknown)
}
