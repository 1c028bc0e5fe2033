//! A controller is killed during hundreds of plugin operations of backups or restores: none is
//! forgotten, and none is started twice.

use std::collections::{BTreeMap, BTreeSet};

use backup_store::crash;
use backup_tests::{
    velero_plugins::VeleroPlugins,
    world::scripted::{Script, ScriptedJob},
};

use crate::prelude::*;

crate::tests! {
    a_crash_forgets_none_of_hundreds_of_operations,
    a_crash_forgets_none_of_hundreds_of_restore_operations,
}

/// Operations of each backup, or restore.
const OPERATIONS_PER_JOB: usize = 100;
/// Minimum number of all operations in flight when it is killed between two executions.
const MIN_IN_FLIGHT: usize = 150;
/// Points at the end that the first backup reaches while operations of the other one run, or have
/// just ended.
const LATER: [&str; 2] = ["after-record", "before-metadata"];

/// None is started twice either.
async fn a_crash_forgets_none_of_hundreds_of_operations(world: &mut World) -> TestResult {
    let points = [crash::EXECUTION_POINTS, crash::OPERATION_POINTS, &LATER].concat();
    killed_at_each(world, ScriptedJob::Backup, &points).await
}

/// None is started twice either.
async fn a_crash_forgets_none_of_hundreds_of_restore_operations(world: &mut World) -> TestResult {
    let mut points = [crash::EXECUTION_POINTS, crash::OPERATION_POINTS].concat();
    points.retain(|point| *point != "after-renewal");
    killed_at_each(world, ScriptedJob::Restore, &points).await
}

/// Each has its own backup, which either has operations itself, or has restores with operations.
fn namespaces(job: ScriptedJob) -> [&'static str; 2] {
    job.of(
        ["in-flight-a", "in-flight-b"],
        ["in-flight-c", "in-flight-d"],
    )
}

/// Waits for the end, whose status must be true. Returns how many operations are reported as
/// unknown.
async fn ended(
    world: &World,
    job: ScriptedJob,
    namespace: &str,
    name: &str,
) -> anyhow::Result<usize> {
    let end = job.ended(world, name).await?;
    let told = job.errors(world, name).await?;
    let operations = job.file(world, name, "itemoperations.json.gz").await?;
    let known = completed_once(&operations)?;
    let missing = OPERATIONS_PER_JOB - known;
    let expected = if missing == 0 {
        "Completed"
    } else {
        "PartiallyFailed"
    };
    ensure!(
        end.phase == expected && end.errors == i64::try_from(missing)?,
        "{end:?}: {told}"
    );
    ensure!(end.operations[..2] == [i64::try_from(known)?; 2], "{end:?}");
    if missing > 0 {
        says(&told, &["is not known", job.of(namespace, "")])?;
    }
    Ok(missing)
}

async fn killed_at_each(
    world: &mut World,
    job: ScriptedJob,
    points: &[&str],
) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    let plugins = world.plugins()?;
    let names: Vec<String> = (0..OPERATIONS_PER_JOB)
        .map(|number| format!("item-{number:03}"))
        .collect();
    let items: Vec<Script<'_>> = names
        .iter()
        .map(|name| (name.as_str(), job.operator(), "start=8s"))
        .collect();
    for namespace in namespaces(job) {
        job.prepare(world, namespace, &items).await?;
    }
    for point in points {
        killed_at(world, &plugins, job, point)
            .await
            .with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

async fn killed_at(
    world: &mut World,
    plugins: &VeleroPlugins,
    job: ScriptedJob,
    point: &str,
) -> anyhow::Result<()> {
    let earlier = plugins.calls().len();
    let between = crash::EXECUTION_POINTS.contains(&point);
    world
        .crash_at(&if between {
            format!("{point}#{MIN_IN_FLIGHT}")
        } else {
            point.to_owned()
        })
        .await?;
    for namespace in namespaces(job) {
        job.create(world, namespace, &format!("{namespace}-{point}"), None)
            .await?;
    }
    world.controllers[0]
        .killed(POINT_TIMEOUT)
        .await
        .context("it was not reached")?;
    world.controllers[0].restart().await?;
    let mut unknown = 0;
    for namespace in namespaces(job) {
        unknown += ended(world, job, namespace, &format!("{namespace}-{point}")).await?;
    }
    none_twice(plugins, job, earlier, point, unknown)
}

/// Number of recorded operations; each must be listed once, and be Completed.
fn completed_once(operations: &Value) -> anyhow::Result<usize> {
    let operations = operations.as_array().context("no list")?;
    let known: BTreeSet<&str> = operations
        .iter()
        .filter_map(|one| one["spec"]["operationID"].as_str()?.split('|').next())
        .collect();
    ensure!(
        known.len() == operations.len(),
        "one is there twice: {operations:?}"
    );
    ensure!(
        operations
            .iter()
            .all(|one| one["status"]["phase"] == "Completed"),
        "{operations:?}"
    );
    Ok(known.len())
}

/// Checks that each item was executed once, except those reported as unknown.
fn none_twice(
    plugins: &VeleroPlugins,
    job: ScriptedJob,
    earlier: usize,
    point: &str,
    unknown: usize,
) -> anyhow::Result<()> {
    // At most the current item of each of them. Its outcome cannot be known.
    let around = ["before-execution", "after-execution"].contains(&point);
    ensure!(
        (usize::from(around)..=namespaces(job).len()).contains(&unknown),
        "{unknown} are unknown"
    );
    let mut executed: BTreeMap<String, usize> = BTreeMap::new();
    for called in plugins
        .calls()
        .split_off(earlier)
        .into_iter()
        .filter(|called| called.call == job.operator())
    {
        *executed.entry(called.item).or_default() += 1;
    }
    let not_executed = OPERATIONS_PER_JOB * namespaces(job).len() - executed.len();
    ensure!(
        not_executed <= unknown && executed.values().all(|times| *times == 1),
        "{not_executed} not executed, {unknown} unknown, {executed:?}"
    );
    Ok(())
}
