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
    /// How many.
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

/// Plays so many histories and judges them. What is wrong on purpose has to be caught.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args {
        count,
        seed,
        naive,
        without,
        controllers,
        calm,
    } = args;
    let profile = std::env::var("BACKUP_TESTS_PROFILE").unwrap_or_else(|_| "release".to_owned());
    let mut builder = World::builder()
        .profile(&profile)
        .api_servers(2)
        .webhooks(0)
        .controllers(0);
    if let Some(part) = without {
        builder = builder.programs(Programs::in_folder(&part.build()?));
    }
    let mut world = builder.start().await?;
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
    println!("{count} histories with seed {seed}");
    let report = history::run(&mut world, &options).await?;
    println!("{report}");
    let expected = if naive {
        &[Promise::WorkApart]
    } else {
        without.map_or(&[][..], Part::breaks)
    };
    if expected.is_empty() {
        return report.verdict();
    }
    let found = report.broken();
    let caught = expected.iter().any(|promise| found.contains_key(promise));
    ensure!(caught, "it was not caught: this proves nothing about ours");
    println!("it was caught, as it must be");
    Ok(())
}
