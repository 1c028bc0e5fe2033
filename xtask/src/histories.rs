//! Many histories in one command: clients side by side on real API servers and webhook replicas, while things go wrong.

use anyhow::ensure;
use backup_tests::{
    World,
    history::{self, Options, Promise},
};

/// Plays so many histories and judges them. With `naive`, the webhook that looks and then allows has to be caught.
pub async fn run(count: u64, seed: u64, naive: bool, faults: bool) -> anyhow::Result<()> {
    let profile = std::env::var("BACKUP_TESTS_PROFILE").unwrap_or_else(|_| "release".to_owned());
    let mut world =
        World::builder().profile(&profile).api_servers(2).webhooks(0).controllers(0).start().await?;
    let options =
        Options { count, seed, faults: faults && !naive, naive, profile: profile.clone(), progress: true };
    println!("{count} histories with seed {seed}");
    let report = history::run(&mut world, &options).await?;
    println!("{report}");
    if naive {
        let broken = report.broken();
        ensure!(
            broken.contains_key(&Promise::WorkApart),
            "the naive webhook was not caught: this proves nothing about ours"
        );
        println!("the naive webhook was caught, as it must be");
        return Ok(());
    }
    report.verdict()
}
