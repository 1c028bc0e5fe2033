//! `cargo xtask bench protection`: copies, verification and drills of backups, beside streams of the
//! same bytes, reading the same files, and restores of the same objects.
//!
//! All connections to stores go through proxies of this process. Copies between stores and
//! verification are measured twice: as fast as this machine, whose cores stores and controller
//! share, and with a delay for each piece of data, as over a network.

mod copies;
mod drills;
mod verification;

use std::{slice, time::Duration};

use anyhow::Context as _;
use backup_tests::{
    World,
    object_store::S3,
    proxy::Fault,
    world::{BUCKET, backups::of_namespaces},
};
use bytes::Bytes;
use clap::{Args as ClapArgs, ValueEnum};
use serde_json::json;

use super::{objects, table::Table};

/// Flag of the controller: verification is not slowed down.
pub const READ_LIMIT: &str = "--verify-read-limit=100Gi";
/// Timeout for a copy, a verification or a drill.
const TIMEOUT: Duration = Duration::from_mins(10);
/// Name of the backup that is copied and verified.
const BACKUP: &str = "bench-protection";

/// What to measure.
#[derive(ClapArgs)]
pub struct Args {
    /// Only this point.
    #[arg(long)]
    only: Option<Point>,
    /// Number of objects in the backup that is copied and verified.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Size of each of them (KiB). In the tarball it takes little more than half.
    #[arg(long, default_value_t = 16)]
    size: usize,
    /// Number of objects that a drill restores.
    #[arg(long, default_value_t = 1_000)]
    drilled: usize,
    /// Number of measurements of each point; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
    rounds: u16,
    /// Delay of each 64 KiB of a connection to a store in the second measurement (milliseconds); 0
    /// leaves that out.
    #[arg(long, default_value_t = 1)]
    delay: u64,
}

/// A point of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Point {
    /// Copies between two stores, and within one.
    Copies,
    /// Verification of a backup.
    Verification,
    /// Drills.
    Drills,
}

impl Args {
    fn includes(&self, point: Point) -> bool {
        self.only.is_none_or(|only| only == point)
    }

    /// The delays with which copies between stores and verification are measured.
    fn delays(&self) -> Vec<Duration> {
        let mut delays = vec![Duration::ZERO, Duration::from_millis(self.delay)];
        delays.dedup();
        delays
    }
}

/// The files of the backup, in the bucket of the default location.
pub struct BackupFiles {
    /// Keys of the files that are not private.
    keys: Vec<String>,
    /// Key of the tarball.
    contents_key: String,
    contents: Bytes,
}

impl BackupFiles {
    /// Makes a backup of ConfigMaps of this size.
    async fn create(world: &World, objects: usize, kib: usize) -> anyhow::Result<Self> {
        let names = objects::namespaces();
        eprintln!("creating {objects} ConfigMaps of {kib} KiB");
        objects::create_with(&world.client, &names, &json!({}), 0..objects, |number| {
            objects::dense_text(number, kib)
        })
        .await?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        world.back_up(BACKUP, of_namespaces(&names)).await?;

        let s3 = world.s3()?;
        let folder = format!("backups/{BACKUP}/");
        let private = format!("{folder}.private/");
        let mut keys = s3.keys(BUCKET).await?;
        keys.retain(|key| key.starts_with(&folder) && !key.starts_with(&private));
        let contents_key = format!("{folder}{BACKUP}.tar.gz");
        let contents = s3.read(BUCKET, &contents_key).await?;
        Ok(Self {
            keys,
            contents_key,
            contents,
        })
    }

    /// The key of the tarball, as a list.
    fn tarball(&self) -> &[String] {
        slice::from_ref(&self.contents_key)
    }
}

pub async fn measure(world: &World, args: &Args, table: &mut Table) -> anyhow::Result<()> {
    let rounds = usize::from(args.rounds);
    if args.includes(Point::Copies) || args.includes(Point::Verification) {
        let files = BackupFiles::create(world, args.objects, args.size).await?;
        if args.includes(Point::Verification) {
            Box::pin(verification::measure(world, &files, args, table))
                .await
                .context("verification")?;
        }
        // After verification: the second store ends with this, and its locations get unavailable.
        if args.includes(Point::Copies) {
            Box::pin(copies::measure(world, &files, args, table))
                .await
                .context("copies")?;
        }
    }
    if args.includes(Point::Drills) {
        Box::pin(drills::measure(world, args.drilled, rounds, table))
            .await
            .context("drills")?;
    }
    Ok(())
}

/// Sets the delay of all connections to these stores.
fn set_delay(stores: &[&S3], delay: Duration) {
    let fault = if delay.is_zero() {
        Fault::None
    } else {
        Fault::Delay(delay)
    };
    for store in stores {
        store.front.set(fault);
    }
}

/// The speed of connections, for the table.
fn speed(delay: Duration) -> String {
    if delay.is_zero() {
        "as fast as the machine".to_owned()
    } else {
        format!("{} ms for each 64 KiB of a connection", delay.as_millis())
    }
}
