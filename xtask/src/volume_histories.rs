//! Many histories of a repository of volume data in one command: backups, restores, deletions,
//! maintenances and crashes.

use anyhow::Context as _;
use backup_tests::{
    Skip,
    binaries::Programs,
    volume_histories::{VolumeHistories, VolumeMistake},
};

use crate::histories;

#[derive(clap::Args)]
pub struct Args {
    /// Number of histories.
    #[arg(long, default_value_t = 1_000)]
    count: u64,
    /// Seed of steps and files; the same seed makes the same ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first history: to play one once more, with --count 1.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// A mistake: it has to be caught.
    #[arg(long, value_name = "MISTAKE")]
    mistake: Option<Mistake>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mistake {
    /// A maintenance does not wait for uploads.
    BesideUpload,
    /// Nor is its delay between mark and removal longer than an upload.
    ShortDelay,
    /// An upload does not note its snapshot.
    NoNotes,
}

impl From<Mistake> for VolumeMistake {
    fn from(mistake: Mistake) -> Self {
        match mistake {
            Mistake::BesideUpload => Self::BesideUpload,
            Mistake::ShortDelay => Self::ShortDelay,
            Mistake::NoNotes => Self::NoNotes,
        }
    }
}

/// Number of histories in the tests.
const TEST_HISTORIES: u64 = 20;
/// Maximum number of histories in which the tests look for a mistake.
const MAX_HISTORIES_PER_MISTAKE: u64 = 100;

/// Plays histories and judges them.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let histories = VolumeHistories {
        program: Programs::build(&histories::profile())?.mover,
        count: args.count,
        seed: args.seed,
        first: args.first,
        mistake: args.mistake.map(VolumeMistake::from),
        progress: true,
    };
    play(&histories)
}

/// A few histories by the program that the tests have built. Each mistake has to be caught.
pub fn of_the_tests() -> anyhow::Result<()> {
    let histories = VolumeHistories {
        program: Programs::build("dev")?.mover,
        count: TEST_HISTORIES,
        seed: 1,
        first: 0,
        mistake: None,
        progress: false,
    };
    let played = play(&histories);
    if let Err(error) = &played
        && let Some(Skip(reason)) = error.downcast_ref::<Skip>()
    {
        println!("    (skipped: {reason})");
        return Ok(());
    }
    played?;
    for mistake in [
        VolumeMistake::BesideUpload,
        VolumeMistake::ShortDelay,
        VolumeMistake::NoNotes,
    ] {
        let with_mistake = VolumeHistories {
            count: MAX_HISTORIES_PER_MISTAKE,
            mistake: Some(mistake),
            ..histories.clone()
        };
        play(&with_mistake).with_context(|| format!("with the mistake {mistake:?}"))?;
    }
    Ok(())
}

fn play(histories: &VolumeHistories) -> anyhow::Result<()> {
    let report = histories.play()?;
    print!("{report}");
    report.verdict()?;
    if let Some(mistake) = histories.mistake {
        println!("{mistake:?} was caught, as it must be");
    }
    Ok(())
}
