//! Many histories in one command: clients side by side on real API servers and webhook replicas,
//! while things go wrong.

use anyhow::ensure;
use backup_tests::{
    World,
    binaries::Programs,
    history::{self, Options, Promise},
};

pub(crate) mod without;

use without::Part;

#[derive(clap::Args)]
pub struct Args {
    /// Number of histories.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Seed of what the clients do; the same seed makes the same plans.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Put the webhook that looks and then allows in the place of ours: it has to be caught.
    #[arg(long)]
    naive: bool,
    /// Build ours without this part of the lock: it has to be caught.
    #[arg(long, value_name = "PART", conflicts_with = "naive")]
    without: Option<Part>,
    /// Let real controllers of two installations work, and not the operator that the kit plays.
    #[arg(long, conflicts_with = "naive")]
    controllers: bool,
    /// Let nothing go wrong.
    #[arg(long)]
    calm: bool,
}

/// Plays histories and judges them. Deliberate mistakes have to be caught.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args {
        count,
        seed,
        naive,
        without,
        controllers,
        calm,
    } = args;
    let controllers = controllers || without.is_some_and(Part::is_of_controllers);
    let faults = !calm && !naive;
    let options = Options {
        count,
        seed,
        faults,
        naive,
        controllers,
        progress: true,
        ..Options::default()
    };
    let expected = if naive {
        &[Promise::WorkApart]
    } else {
        without.map_or(&[][..], Part::breaks)
    };
    println!("{count} histories with seed {seed}");
    let profile = profile();
    play(&profile, without, &options, expected).await
}

/// The profile of the programs that play.
pub(crate) fn profile() -> String {
    std::env::var("BACKUP_TESTS_PROFILE").unwrap_or_else(|_| "release".to_owned())
}

/// Plays in a world of its own, and fails for a broken promise, unless one of these has to be
/// broken.
pub(crate) async fn play(
    profile: &str,
    without: Option<Part>,
    options: &Options,
    expected: &[Promise],
) -> anyhow::Result<()> {
    let mut builder = World::builder()
        .profile(profile)
        .api_servers(2)
        .webhooks(0)
        .controllers(0);
    if let Some(part) = without {
        builder = builder.programs(Programs::in_folder(&part.build()?));
    }
    let mut world = builder.start().await?;
    let report = history::run(&mut world, options).await?;
    println!("{report}");
    if expected.is_empty() {
        return report.verdict();
    }
    let found = report.broken();
    ensure!(
        expected.iter().any(|promise| found.contains_key(promise)),
        "it was not caught, so this proves nothing about ours: {found:?}"
    );
    println!("it was caught, as it must be");
    Ok(())
}
