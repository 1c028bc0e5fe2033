//! A controller is killed during hundreds of plugin operations of backups or restores: none is
//! forgotten, and none is started twice.

use std::collections::{BTreeMap, BTreeSet};

use backup_store::crash;
use backup_tests::{velero_plugins::VeleroPlugins, world::scripted::Script};

use crate::prelude::*;

crate::tests! {
    a_crash_forgets_none_of_hundreds_of_operations,
    a_crash_forgets_none_of_hundreds_of_restore_operations,
}

/// Operations of each backup, or restore.
const EACH: usize = 100;
/// Minimum number of all operations in flight when it is killed between two executions.
const BEFORE: usize = 150;
/// Points at the end that the first backup reaches while operations of the other one run, or have
/// just ended.
const LATER: [&str; 2] = ["after-record", "before-metadata"];

/// None is started twice either.
async fn a_crash_forgets_none_of_hundreds_of_operations(world: &mut World) -> anyhow::Result<()> {
    let points = [crash::EXECUTION_POINTS, crash::OPERATION_POINTS, &LATER].concat();
    killed_at_each(world, Of::Backups, &points).await
}

/// None is started twice either.
async fn a_crash_forgets_none_of_hundreds_of_restore_operations(
    world: &mut World,
) -> anyhow::Result<()> {
    let mut points = [crash::EXECUTION_POINTS, crash::OPERATION_POINTS].concat();
    points.retain(|point| *point != "after-renewal");
    killed_at_each(world, Of::Restores, &points).await
}

/// The kind whose operations are tested.
#[derive(Clone, Copy)]
enum Of {
    Backups,
    Restores,
}

impl Of {
    /// Each has its own backup, which either has operations itself, or has restores with
    /// operations.
    fn namespaces(self) -> [&'static str; 2] {
        match self {
            Self::Backups => ["in-flight-a", "in-flight-b"],
            Self::Restores => ["in-flight-c", "in-flight-d"],
        }
    }

    /// The action of the plugin that starts them.
    fn call(self) -> &'static str {
        match self {
            Self::Backups => "operate",
            Self::Restores => "move",
        }
    }

    async fn create(self, world: &World, namespace: &str, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Backups => world
                .create_backup(name, of_scripted(namespace))
                .await
                .map(drop),
            Self::Restores => {
                let namespace_mapping = [(namespace.to_owned(), name.to_owned())].into();
                let spec = RestoreSpec {
                    namespace_mapping,
                    ..into_back(namespace)
                };
                world.create_restore(name, spec).await.map(drop)
            }
        }
    }

    /// Waits for the end, whose status must be true. Returns how many operations are reported as
    /// unknown.
    async fn ended(self, world: &World, namespace: &str, name: &str) -> anyhow::Result<usize> {
        const FILE: &str = "itemoperations.json.gz";
        let (phase, errors, counted, operations, told) = match self {
            Self::Backups => {
                let backup = world.backup_ended(name).await?;
                let (phase, status) = (backup.phase().to_string(), backup.status);
                let file = world.backup_file(name, FILE).await?;
                (
                    phase,
                    status.errors,
                    status.operations(),
                    file,
                    world.backup_errors(name).await?,
                )
            }
            Self::Restores => {
                let restore = world.restore_ended(name).await?;
                let (phase, status) = (restore.phase().to_string(), restore.status);
                let file = world.restore_file(name, FILE).await?;
                (
                    phase,
                    status.errors,
                    status.operations(),
                    file,
                    world.restore_errors(name).await?,
                )
            }
        };
        let known = completed_once(&operations)?;
        let missing = EACH - known;
        let expected = if missing == 0 {
            "Completed"
        } else {
            "PartiallyFailed"
        };
        ensure!(
            phase == expected && errors == i64::try_from(missing)?,
            "{phase}, {errors} errors: {told}"
        );
        ensure!(counted[..2] == [i64::try_from(known)?; 2], "{counted:?}");
        if missing > 0 {
            says(&told, &["is not known"])?;
            ensure!(
                matches!(self, Self::Restores) || told.contains(namespace),
                "{told}"
            );
        }
        Ok(missing)
    }
}

async fn killed_at_each(world: &mut World, of: Of, points: &[&str]) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    let plugins = world.plugins()?;
    let names: Vec<String> = (0..EACH)
        .map(|number| format!("item-{number:03}"))
        .collect();
    let items: Vec<Script<'_>> = names
        .iter()
        .map(|name| (name.as_str(), of.call(), "start=8s"))
        .collect();
    for namespace in of.namespaces() {
        match of {
            Of::Backups => world.scripted(namespace, &items).await?,
            Of::Restores => world.scripted_backup(namespace, &items).await?,
        }
    }
    for point in points {
        killed_at(world, &plugins, of, point)
            .await
            .with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

async fn killed_at(
    world: &mut World,
    plugins: &VeleroPlugins,
    of: Of,
    point: &str,
) -> anyhow::Result<()> {
    let earlier = plugins.calls().len();
    let between = crash::EXECUTION_POINTS.contains(&point);
    world
        .crash_at(&if between {
            format!("{point}#{BEFORE}")
        } else {
            point.to_owned()
        })
        .await?;
    for namespace in of.namespaces() {
        of.create(world, namespace, &format!("{namespace}-{point}"))
            .await?;
    }
    world.controllers[0]
        .killed(REACHED)
        .await
        .context("it was not reached")?;
    world.controllers[0].restart().await?;
    let mut unknown = 0;
    for namespace in of.namespaces() {
        unknown += of
            .ended(world, namespace, &format!("{namespace}-{point}"))
            .await?;
    }
    none_twice(plugins, of, earlier, point, unknown)
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
    of: Of,
    earlier: usize,
    point: &str,
    unknown: usize,
) -> anyhow::Result<()> {
    // At most the current item of each of them. Its outcome cannot be known.
    let around = ["before-execution", "after-execution"].contains(&point);
    ensure!(
        (usize::from(around)..=of.namespaces().len()).contains(&unknown),
        "{unknown} are unknown"
    );
    let mut executed: BTreeMap<String, usize> = BTreeMap::new();
    for called in plugins
        .calls()
        .split_off(earlier)
        .into_iter()
        .filter(|called| called.call == of.call())
    {
        *executed.entry(called.item).or_default() += 1;
    }
    let not_executed = EACH * of.namespaces().len() - executed.len();
    ensure!(
        not_executed <= unknown && executed.values().all(|times| *times == 1),
        "{not_executed} not executed, {unknown} unknown, {executed:?}"
    );
    Ok(())
}
