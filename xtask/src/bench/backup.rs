//! `cargo xtask bench backup`: what a backup costs, beside what listing and compressing alone cost
//! in the same run.

mod beside;
mod floor;
mod large;
mod queue;
mod rounds;

use anyhow::Context as _;
use backup_tests::World;
use clap::Args as ClapArgs;

use super::{objects, table::Table};

/// What to measure.
#[derive(ClapArgs)]
pub struct Args {
    /// How many objects to back up.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// How often time is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// How many small backups are queued at once, compared with 50; 0 leaves that out.
    #[arg(long, default_value_t = 600)]
    queued: u16,
    /// Measures instead backups of twenty namespaces with the objects, and of one, beside this many
    /// in 48 other namespaces.
    #[arg(long)]
    beside: Option<usize>,
}

pub async fn measure(world: &mut World, args: &Args, table: &mut Table) -> anyhow::Result<()> {
    world.plane.stop_controller_manager().await?;
    if let Some(others) = args.beside {
        return beside::measure(world, args.objects, others, usize::from(args.rounds), table).await;
    }
    if args.queued > 0 {
        queue::measure(world, args.queued, table)
            .await
            .context("queued backups")?;
    }
    // A tenth first: two sizes show how memory grows.
    let few = args.objects / 10;
    eprintln!("creating {few} ConfigMaps");
    objects::create(&world.client, 0..few).await?;
    let small = large::peak(world, "few")
        .await
        .context("the smaller backup")?;
    eprintln!("creating {} more", args.objects - few);
    objects::create(&world.client, few..args.objects).await?;
    large::measure(world, args.objects, usize::from(args.rounds), &small, table).await
}
