//! `cargo xtask bench snapshots`: a backup of many claims whose driver takes its time for each.

use std::time::{Duration, Instant};

use backup_core::api::BackupPhase;
use backup_tests::{
    World,
    snapshots::{self, Behaviour, SnapshotController},
    world::backups::of_namespaces,
};
use clap::Args as ClapArgs;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::table::{Row, Table, Target};

const NAMESPACE: &str = "bench-snapshots";
/// A backup may take this part of what the driver takes for all claims one after the other.
const MAX_RATIO: f64 = 0.1;
/// At most so much memory (MiB).
const MAX_MEMORY_MIB: f64 = 128.0;

/// What to measure.
#[derive(ClapArgs)]
pub struct Args {
    /// How many claims, each with a volume of its own.
    #[arg(long, default_value_t = 1000)]
    claims: u32,
    /// How long the driver takes to cut one snapshot (seconds).
    #[arg(long, default_value_t = 2)]
    cut: u32,
}

pub async fn measure(world: &mut World, args: &Args, table: &mut Table) -> anyhow::Result<()> {
    let client = &world.client;
    let _driver = SnapshotController::start(client).await?;
    let cut = Duration::from_secs(args.cut.into());
    snapshots::class(client, "slow", Behaviour::CutAfter(cut), true).await?;
    eprintln!("making {} claims", args.claims);
    snapshots::claim(client, NAMESPACE, "data", "slow").await?;
    stream::iter(1..args.claims)
        .map(async |number| {
            snapshots::claim(client, NAMESPACE, &format!("data-{number:04}"), "slow").await
        })
        .buffer_unordered(8)
        .try_collect::<Vec<()>>()
        .await?;

    let start = Instant::now();
    let backup = world
        .run_backup(
            "bench-snapshots",
            of_namespaces(&[NAMESPACE]),
            BackupPhase::Completed,
        )
        .await?;
    let took = start.elapsed().as_secs_f64();
    let serial = f64::from(args.claims) * f64::from(args.cut);
    anyhow::ensure!(
        backup.status.csi_volume_snapshots_completed == i64::from(args.claims),
        "{:?}",
        backup.status
    );
    table.row(&Row {
        what: format!(
            "a backup of {} claims whose driver takes {} s for each",
            args.claims, args.cut
        ),
        found: format!("{took:.0} s, {:.3} times", took / serial),
        beside: format!("the driver alone, one after the other: {serial:.0} s"),
        target: Target::at_most(took / serial, MAX_RATIO, " times"),
    });
    table.peak_memory(
        &world.controllers[0],
        format!("{} claims", args.claims),
        MAX_MEMORY_MIB,
    )
}
