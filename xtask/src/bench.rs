//! What is measured: always beside a floor or a control of the same run, because only the ratios
//! mean something on a machine that nobody else has.

mod admission;
mod backup;
mod backup_watch;
mod cli;
mod objects;
mod operations;
mod restore;
mod restore_mixed;
mod restore_plugin;
mod snapshots;
mod stats;
mod sync;
mod table;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_tests::{
    World, WorldBuilder,
    binaries::{PlanePrograms, Programs, cargo, target},
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
    Restore {
        /// How many objects to back up and restore.
        #[arg(long, default_value_t = 10_000)]
        objects: usize,
        /// Measures instead objects of several kinds, some large, with owners and definitions.
        #[arg(long, conflicts_with = "plugin")]
        mixed: bool,
        /// Measures instead what a plugin that changes every object adds.
        #[arg(long)]
        plugin: bool,
        /// How long the bucket takes for each request, with `--plugin` (milliseconds).
        #[arg(long, default_value_t = 0, requires = "plugin")]
        delay: u64,
    },
    /// How long people wait for the command, beside curl and kubectl for the same.
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
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        return released().await;
    }
    match args.what {
        What::Admission(args) => admission::run(&args).await,
        What::Backup(args) => backup::run(&args).await,
        What::Operations(args) => operations::run(&args).await,
        What::Snapshots(args) => snapshots::run(&args).await,
        What::Restore {
            objects,
            mixed: true,
            ..
        } => restore_mixed::run(objects).await,
        What::Restore {
            objects,
            plugin: true,
            delay,
            ..
        } => restore_plugin::run(objects, Duration::from_millis(delay)).await,
        What::Restore { objects, .. } => restore::run(objects).await,
        What::Cli { backups } => cli::run(backups).await,
        What::Sync { backups } => sync::run(backups).await,
    }
}

/// Starts a world, measures in it, and prints the table.
async fn in_world(
    builder: WorldBuilder,
    measure: impl AsyncFnOnce(&mut World, &mut Table) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Built before the clock starts.
    PlanePrograms::find()?;
    let mut world = builder.profile("release").start().await?;
    let mut table = Table::default();
    let result = measure(&mut world, &mut table).await;
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
    if std::env::var_os("BACKUP_TESTS_PROGRAMS").is_some() {
        let built = cargo()
            .args(["build", "--release", "--package", "xtask"])
            .status()
            .context("run cargo")?;
        ensure!(built.success(), "cargo build failed ({built})");
    } else {
        Programs::build("release")?;
    }
    let mut command = tokio::process::Command::new(target().join("release/xtask"));
    command.args(std::env::args_os().skip(1));
    let status = command.status().await.context("run the released xtask")?;
    ensure!(status.success(), "the released xtask failed ({status})");
    Ok(())
}
