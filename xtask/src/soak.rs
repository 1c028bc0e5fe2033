//! All programs at work for a while, in several replicas, with clients of every kind, while
//! everything that can goes wrong.

use std::{path::PathBuf, time::Duration};

use anyhow::bail;
use backup_tests::{binaries::Programs, history::Options};
use tokio::signal::unix::{SignalKind, signal};

use crate::histories::{self, without::Part};

#[derive(clap::Args)]
pub struct Args {
    /// For how long clients begin something new. What is under way is then waited for.
    #[arg(long, default_value_t = 120)]
    minutes: u64,
    /// Seed of what clients do and what goes wrong.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Build ours without this part: it has to be caught.
    #[arg(long, value_name = "PART")]
    without: Option<Part>,
    /// A folder with the programs of another version: rollouts go there and back.
    #[arg(long, value_name = "FOLDER")]
    other: Option<PathBuf>,
}

/// Runs it, prints what it has seen, and fails for a broken promise. Everything that was started
/// ends with it, also when it is interrupted.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let profile = histories::profile();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = soak(args, &profile) => done,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}

/// The programs as the tests have built them, for two minutes.
pub async fn of_the_tests() -> anyhow::Result<()> {
    let args = Args {
        minutes: 2,
        seed: 1,
        without: None,
        other: None,
    };
    soak(args, "dev").await
}

async fn soak(args: Args, profile: &str) -> anyhow::Result<()> {
    let Args {
        minutes,
        seed,
        without,
        other,
    } = args;
    let time = Duration::from_mins(minutes);
    let other = other.as_deref().map(Programs::in_folder);
    let options = Options {
        seed,
        faults: true,
        controllers: true,
        soak: Some(time),
        other,
        progress: true,
        ..Options::default()
    };
    println!("{time:?} with seed {seed}");
    let expected = without.map_or(&[][..], Part::breaks);
    histories::play(profile, without, &options, expected).await
}
