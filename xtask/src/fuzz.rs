//! The fuzz targets of all crates, one after another. They are unit tests, in modules named `fuzz`
//! (`crates/testkit/src/fuzz.rs`).

use anyhow::{Context as _, ensure};
use backup_tests::binaries::cargo;

#[derive(clap::Args)]
pub struct Args {
    /// For all targets together.
    #[arg(long, default_value_t = 60)]
    pub minutes: u64,
    /// Seed of the inputs; the same seed makes the same ones.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The path of a target among the tests of its crate has this in it.
const TARGETS: &str = "fuzz::any_";

/// Runs each target for its share of the time. An input that fails becomes a file of the crate's
/// folder `corpus`, and is checked from then on.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let tests = [
        "test",
        "--workspace",
        "--lib",
        "--quiet",
        "--no-fail-fast",
        "--",
        TARGETS,
    ];
    let listed = cargo()
        .args(tests)
        .arg("--list")
        .output()
        .context("run cargo")?;
    ensure!(
        listed.status.success(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let targets = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter(|line| line.ends_with(": test"))
        .count();
    ensure!(
        targets > 0,
        "there is no test whose path contains {TARGETS}"
    );
    let seconds = (60 * args.minutes).div_ceil(targets as u64);
    println!(
        "{targets} targets, {seconds} s for each, seed {}",
        args.seed
    );
    let mut command = cargo();
    command
        .env("BACKUP_FUZZ_SECONDS", seconds.to_string())
        .env("BACKUP_FUZZ_SEED", args.seed.to_string());
    // One at a time, so that the memory of the process is that of one target.
    let status = command
        .args(tests)
        .args(["--nocapture", "--test-threads=1"])
        .status()
        .context("run cargo")?;
    ensure!(status.success(), "a target has failed ({status})");
    Ok(())
}
