//! What is measured: always beside a floor or a control of the same run, because only the ratios
//! mean something on other machines.

mod admission;
mod backup;
mod backup_watch;
mod cli;
mod objects;
mod operations;
mod protection;
mod raw;
mod restore;
mod snapshots;
mod stats;
mod sync;
mod table;
mod volumes;

use anyhow::{Context as _, ensure};
use backup_tests::{
    World, WorldBuilder,
    binaries::{PlanePrograms, Programs, cargo, target},
    network,
};
use clap::{Args as ClapArgs, Subcommand};

use self::table::Table;

/// What to measure.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// What the lock adds to a creation, beside a webhook that only answers "allowed" and beside
    /// naive ones.
    Admission(admission::Args),
    /// Time, size and memory of a backup, beside listing and compressing alone; and many backups at
    /// once.
    Backup(backup::Args),
    /// Many operations of a plugin at the same time: how long a round of questions takes, writes,
    /// and memory.
    Operations(operations::Args),
    /// A backup of many claims whose driver takes its time, beside one after the other.
    Snapshots(snapshots::Args),
    /// Time and memory of a restore, beside creating alone.
    Restore(restore::Args),
    /// Copies of a backup beside streams of the same bytes, verification beside reading, and drills
    /// beside restores.
    Protection(protection::Args),
    /// How long users wait for the command, beside curl and kubectl for the same.
    Cli {
        /// How many backups are listed.
        #[arg(long, default_value_t = 5_000)]
        backups: usize,
    },
    /// Comparing a bucket with the cluster: the first time, when nothing has changed, and when one
    /// backup is new.
    Sync {
        /// How many backups lie in the bucket.
        #[arg(long, default_value_t = 10_000)]
        backups: usize,
    },
    /// Saving and restoring the data of a volume, beside restic and kopia: time, memory, and size
    /// in the bucket.
    Volumes(volumes::Args),
}

impl What {
    /// The world in which it is measured.
    fn world(&self) -> WorldBuilder {
        let world = World::builder();
        match self {
            Self::Admission(_) | Self::Volumes(_) => world.webhooks(0).controllers(0),
            Self::Operations(_) => world.plugins().controller_args(&["--concurrent-backups=8"]),
            Self::Snapshots(_) => world
                .webhooks(1)
                .controller_args(&["--features=EnableCSI", "--item-operation-sync-frequency=1s"]),
            Self::Protection(_) => world.controller_args(&[protection::READ_LIMIT]),
            Self::Restore(args) if args.plugin => world.plugins(),
            Self::Cli { .. } => world.files(),
            Self::Backup(_) | Self::Restore(_) | Self::Sync { .. } => world,
        }
    }

    async fn measure(&self, world: &mut World, table: &mut Table) -> anyhow::Result<()> {
        match self {
            Self::Admission(args) => admission::measure(world, args, table).await,
            Self::Backup(args) => backup::measure(world, args, table).await,
            Self::Operations(args) => operations::measure(world, args, table).await,
            Self::Snapshots(args) => snapshots::measure(world, args, table).await,
            Self::Protection(args) => protection::measure(world, args, table).await,
            Self::Restore(args) => restore::measure(world, args, table).await,
            Self::Cli { backups } => cli::measure(world, *backups, table).await,
            Self::Sync { backups } => sync::measure(world, *backups, table).await,
            Self::Volumes(args) => volumes::measure(world, args, table).await,
        }
    }
}

/// Starts a world, measures in it, and prints the table.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        return released().await;
    }
    if let What::Cli { backups } = args.what
        && !network::is_inside()
    {
        return cli::run_inside(backups);
    }
    // Built before the clock starts.
    PlanePrograms::find()?;
    let mut world = args.what.world().profile("release").start().await?;
    let mut table = Table::default();
    let result = args.what.measure(&mut world, &mut table).await;
    if result.is_err() {
        eprintln!("{}", world.logs(12));
    }
    // What was measured before an error is worth showing, too.
    table.print();
    result
}

/// Runs this program again with the same arguments, built for release: floors, load and controls
/// come from it, and unoptimised they would flatter what is measured.
async fn released() -> anyhow::Result<()> {
    Programs::build("release")?;
    // Selects the packages of all programs, as the build above does, so that nothing is built twice.
    let built = cargo()
        .args(["build", "--release", "--workspace", "--bin=xtask"])
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .context("run cargo")?;
    ensure!(built.success(), "cargo build failed ({built})");
    let mut command = tokio::process::Command::new(target().join("release/xtask"));
    command.args(std::env::args_os().skip(1));
    let status = command.status().await.context("run the released xtask")?;
    ensure!(status.success(), "the released xtask failed ({status})");
    Ok(())
}
