//! `cargo xtask bench admission`: what the lock adds to a creation.
//!
//! Guard and controls run side by side on one real control plane. Each has a namespace of its own
//! and is registered for it alone, so that a round of one can follow a round of the other at once,
//! and drift of the machine hits both. All of them are registered by a Service, as in production:
//! the API server then speaks HTTP/1.1 over many connections, where it would send everything to a
//! loopback URL over one.

mod load;
mod memory;
mod one_client;
mod plane;
mod replicas;
mod throughput;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use backup_tests::World;
use clap::{Args as ClapArgs, ValueEnum};

use self::plane::Plane;
use super::table::Table;

/// What to measure, and for how long.
#[derive(ClapArgs)]
pub struct Args {
    /// Only this point.
    #[arg(long)]
    only: Option<Point>,
    /// Seconds that each measurement takes, cleaning up between its rounds included.
    #[arg(long, default_value_t = 6)]
    seconds: u64,
}

/// A point of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Point {
    /// The median creation of one client.
    OneClient,
    /// 16 clients on one scope, one replica.
    OneScope,
    /// 16 clients on one scope, three replicas behind one address.
    Replicas,
    /// 32 clients on 64 scopes, two replicas.
    ManyScopes,
    /// A refused creation.
    Refusal,
    /// A creation beside 200 other claims.
    ManyClaims,
    /// Memory of a replica after 100,000 admissions.
    Memory,
}

pub async fn measure(world: &mut World, args: &Args, table: &mut Table) -> anyhow::Result<()> {
    let mut plane = Plane::start(world, Duration::from_secs(args.seconds)).await?;
    let measured = points(&mut plane, args, table).await;
    if measured.is_err() {
        eprintln!("{}", plane.logs(10));
    }
    measured
}

async fn points(plane: &mut Plane<'_>, args: &Args, table: &mut Table) -> anyhow::Result<()> {
    let start = Instant::now();
    for point in Point::value_variants() {
        if args.only.is_some_and(|only| only != *point) {
            continue;
        }
        eprintln!("[{:5.1} s] {point:?}", start.elapsed().as_secs_f64());
        match point {
            Point::OneClient => one_client::creation(plane, table).await,
            Point::OneScope => throughput::one_replica(plane, table).await,
            Point::Replicas => throughput::three_replicas(plane, table).await,
            Point::ManyScopes => throughput::many_scopes(plane, table).await,
            Point::Refusal => one_client::refusal(plane, table).await,
            Point::ManyClaims => one_client::many_claims(plane, table).await,
            Point::Memory => memory::measure(plane, table).await,
        }
        .with_context(|| format!("{point:?}"))?;
    }
    eprintln!("[{:5.1} s] done", start.elapsed().as_secs_f64());
    Ok(())
}
