//! `cargo xtask bench operations`: many operations of a plugin that go on at the same time.

use std::time::{Duration, Instant};

use backup_core::api::BackupSpec;
use backup_tests::{
    World, api::create_all, install::ensure_namespace, velero_plugins::VeleroPlugins, wait::until,
    world::backups::of_namespaces,
};
use clap::Args as ClapArgs;
use serde_json::json;

use super::{
    backup_watch::{BackupWatch, TIMEOUT},
    table::{Row, Table, Target},
};

/// Answers of the plugin that are waited for at a time, as the controller does it unless told
/// otherwise.
const CONCURRENCY: u32 = 16;
/// Between two questions about one operation, as the controller asks unless told otherwise.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
const ROUNDS: u32 = 2;
/// A round may take so much longer than what the plugin alone takes.
const MAX_RATIO: f64 = 1.1;
/// At most so much memory (MiB).
const MAX_MEMORY_MIB: f64 = 128.0;

/// What to measure.
#[derive(ClapArgs)]
pub struct Args {
    /// How many backups wait at the same time.
    #[arg(long, default_value_t = 100)]
    backups: u16,
    /// How many operations each of them has started.
    #[arg(long, default_value_t = 100)]
    operations: u16,
    /// How long the plugin takes to say how far an operation is (milliseconds).
    #[arg(long, default_value_t = 50)]
    answer: u32,
}

pub async fn measure(world: &mut World, args: &Args, table: &mut Table) -> anyhow::Result<()> {
    world.plane.stop_controller_manager().await?;
    let plugins = world.plugins()?;
    let all = u32::from(args.backups) * u32::from(args.operations);
    eprintln!("starting {all} operations");
    let mut watch = BackupWatch::start(&world.client).await?;
    begin(world, args).await?;
    watch.until_all_wait(args.backups, args.operations).await?;

    let floor = f64::from(all) * f64::from(args.answer) / 1e3 / f64::from(CONCURRENCY);
    let floor = floor.max(POLL_INTERVAL.as_secs_f64());
    eprintln!("all are waited for; the plugin alone takes {floor:.1} s for a round");
    // The first operations have been polled before: the first round differs from the others.
    asked(&plugins, all).await?;
    let quiet = watch.writes()?;
    let start = Instant::now();
    asked(&plugins, ROUNDS * all).await?;
    let round = start.elapsed().as_secs_f64() / f64::from(ROUNDS);
    table.row(&Row {
        what: format!("a round of questions about {all} operations of {} backups", args.backups),
        found: format!("{round:.1} s, {:.2} times", round / floor),
        beside: format!(
            "the plugin alone, {} ms for each and {CONCURRENCY} at a time, at most once in {} s: {floor:.1} s",
            args.answer,
            POLL_INTERVAL.as_secs()
        ),
        target: Target::at_most(round / floor, MAX_RATIO, " times"),
    });
    let written = watch.writes()? - quiet;
    table.row(&Row {
        what: format!("writes of Backups in {ROUNDS} rounds in which nothing has changed"),
        found: written.to_string(),
        beside: format!("{} Backups", args.backups),
        target: Target::zero(usize::try_from(written)?),
    });

    let start = Instant::now();
    plugins.release()?;
    let most = watch.until_all_ended(args.backups).await?;
    let took = start.elapsed().as_secs_f64();
    let rounds = (took / round).ceil();
    table.row(&Row {
        what: "writes of one Backup while its operations end, at most".to_owned(),
        found: most.to_string(),
        beside: format!(
            "all have ended after {took:.1} s, {:.1} rounds",
            took / round
        ),
        target: Target::new(
            format!("one in each round: {rounds}"),
            f64::from(most) <= rounds,
        ),
    });
    table.peak_memory(
        &world.controllers[0],
        format!("{all} operations"),
        MAX_MEMORY_MIB,
    )
}

/// Creates what operations are started on, each backup's in a namespace of its own, and the
/// backups.
async fn begin(world: &World, args: &Args) -> anyhow::Result<()> {
    let client = &world.client;
    for backup in 0..args.backups {
        ensure_namespace(client, &name(backup)).await?;
    }
    let script = format!("start=released/{}ms", args.answer);
    let objects =
        (0..args.backups).flat_map(|backup| (0..args.operations).map(move |item| (backup, item)));
    let objects = objects.map(|(backup, item)| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": format!("item-{item}"), "namespace": name(backup),
            "labels": { "example.io/plugin": "operate" }, "annotations": { "example.io/do": script } } })
    });
    create_all(client, objects).await?;
    for number in 0..args.backups {
        let name = name(number);
        let included_resources = vec!["configmaps".to_owned()];
        world
            .create_backup(
                &name,
                BackupSpec {
                    included_resources,
                    ..of_namespaces(&[&name])
                },
            )
            .await?;
    }
    Ok(())
}

fn name(backup: u16) -> String {
    format!("bench-operations-{backup:03}")
}

/// Waits until the plugin was polled `times` more times.
async fn asked(plugins: &VeleroPlugins, times: u32) -> anyhow::Result<()> {
    let all = progress_calls(plugins) + usize::try_from(times)?;
    until("the plugin is asked", TIMEOUT, async || {
        anyhow::Ok(progress_calls(plugins) >= all)
    })
    .await
}

fn progress_calls(plugins: &VeleroPlugins) -> usize {
    plugins
        .calls()
        .iter()
        .filter(|called| called.call == "progress")
        .count()
}
