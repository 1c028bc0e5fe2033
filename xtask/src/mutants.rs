//! Mutation testing: cargo-mutants changes the code that decides (`.cargo/mutants.toml`) in one place at a time, and a
//! test has to fail.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use backup_tests::binaries::{root, target};

/// Mutants of this crate that no unit test catches are shown to its model.
const MODELLED: &str = "crates/lock/";
/// Of 100 viable mutants, so many have to be caught.
const TARGET: usize = 95;

#[derive(clap::Args)]
pub struct Args {
    /// Only one in N mutants, beginning with the one of number K, such as 0/8. All of them take hours.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Only mutants of one package, such as backup-lock.
    #[arg(long)]
    package: Option<String>,
    /// Mutants that are built and tested side by side, each in a target folder of its own.
    #[arg(long, default_value_t = 2)]
    jobs: u8,
}

/// Tests the mutants by the unit tests, and those of the lock that these miss by the model. Fails if too few are caught.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut units = command(args.jobs);
    if let Some(shard) = &args.shard {
        units.args(["--sharding", "round-robin", "--shard", shard]);
    }
    if let Some(package) = &args.package {
        units.args(["--package", package]);
    }
    let units = outcome(units, "units", &["--lib"])?;
    let (modelled, mut missed): (Vec<_>, Vec<_>) =
        units.missed.into_iter().partition(|mutant| mutant.starts_with(MODELLED));
    if !modelled.is_empty() {
        let mut model = command(args.jobs);
        let names: Vec<String> = modelled.iter().map(|name| literally(name)).collect();
        model.args(["--package", "backup-lock", "--re", &format!("^({})$", names.join("|"))]);
        missed.extend(outcome(model, "model", &["--test", "model"])?.missed);
    }
    let caught = units.viable - missed.len();
    println!("{caught} of {} viable mutants were caught; not these:", units.viable);
    for mutant in &missed {
        println!("  {mutant}");
    }
    ensure!(caught * 100 >= TARGET * units.viable, "fewer than {TARGET} in 100 were caught");
    Ok(())
}

fn command(jobs: u8) -> Command {
    let mut command = Command::new("cargo");
    // Clippy would refuse what a test has to catch.
    command.current_dir(root()).env_remove("RUSTC_WORKSPACE_WRAPPER");
    command.args(["mutants", "--colors", "never", "--jobs", &jobs.to_string()]);
    command
}

struct Outcome {
    viable: usize,
    missed: Vec<String>,
}

/// Runs the mutants against these tests. Logs and lists are in `target/mutants/<name>/mutants.out`.
fn outcome(mut command: Command, name: &str, tests: &[&str]) -> anyhow::Result<Outcome> {
    let folder: PathBuf = target().join("mutants").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let status = command.arg("--output").arg(&folder).arg("--").args(tests).status();
    let status =
        status.context("run cargo mutants; is it installed? (`cargo install cargo-mutants --locked`)")?;
    // 0: all were caught; 2: some were missed; 3: some took too long.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo mutants: {status}; see {}", folder.display());
    let list = |name: &str| lines(&folder.join("mutants.out").join(name));
    let missed = list("missed.txt")?;
    // What does not end is noticed, too.
    let viable = list("caught.txt")?.len() + list("timeout.txt")?.len() + missed.len();
    Ok(Outcome { viable, missed })
}

fn lines(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// A regular expression for this text and nothing else.
fn literally(text: &str) -> String {
    let escaped =
        |letter: char| if letter.is_ascii_punctuation() { vec!['\\', letter] } else { vec![letter] };
    text.chars().flat_map(escaped).collect()
}
