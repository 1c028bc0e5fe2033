//! Mutation testing: cargo-mutants changes the code that decides (`.cargo/mutants.toml`) in one
//! place at a time, and a test has to fail.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use backup_tests::binaries::{root, target};

/// Parts of the names of unit tests that take most of the time of all: only mutants that the others
/// miss are shown to them.
const SLOW: [&str; 13] = [
    "backup::tests::model::",
    "ledger::tests::ends::a_release_takes_no_share",
    "ledger::tests::intents::a_full_ledger",
    "ledger::tests::intents::words_take_no_room",
    "ledger::tests::random::every_history",
    "ledger::tests::size::",
    "lease::edited::whatever_the_policy",
    "restore::lifecycle::tests::released::",
    "restore::lifecycle::tests::stored_files::",
    "tests::bound::a_place_is_free",
    "tests::collection::a_thousand_orphans",
    "tests::full::",
    "tests::lease::a_full_ledger",
];
/// Mutants of this crate that no unit test catches are shown to its model.
const MODELLED: &str = "crates/lock/";
/// Minimum number of mutants to catch (percent of the viable ones).
const TARGET: usize = 95;

#[derive(clap::Args)]
pub struct Args {
    /// Only one in N mutants, beginning with the one of number K, such as 0/8. All of them take
    /// about an hour.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Only mutants of one package, such as backup-lock.
    #[arg(long)]
    package: Option<String>,
    /// Mutants that are built and tested side by side, each in a target folder of its own.
    #[arg(long, default_value_t = 2)]
    jobs: u8,
}

/// Runs the quick unit tests on all mutants, the slow ones on the mutants that survive, and the
/// model on the lock's mutants that survive both. Fails if too few are caught.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut all = command(args.jobs);
    if let Some(shard) = &args.shard {
        all.args(["--sharding", "round-robin", "--shard", shard]);
    }
    if let Some(package) = &args.package {
        all.args(["--package", package]);
    }
    let skipped: Vec<&str> = SLOW.iter().flat_map(|test| ["--skip", test]).collect();
    let Outcome { viable, missed } = outcome(all, "quick", "--lib", &skipped)?;
    let missed = still_missed(args, missed, "slow", "--lib", &SLOW)?;
    let (modelled, mut missed): (Vec<_>, Vec<_>) = missed
        .into_iter()
        .partition(|mutant| mutant.starts_with(MODELLED));
    missed.extend(still_missed(args, modelled, "model", "--test=model", &[])?);
    let caught = viable - missed.len();
    println!("{caught} of {viable} viable mutants were caught; not these:");
    for mutant in &missed {
        println!("  {mutant}");
    }
    ensure!(
        caught * 100 >= TARGET * viable,
        "fewer than {TARGET} in 100 were caught"
    );
    Ok(())
}

/// The mutants that these tests miss, too.
fn still_missed(
    args: &Args,
    mutants: Vec<String>,
    name: &str,
    target: &str,
    tests: &[&str],
) -> anyhow::Result<Vec<String>> {
    if mutants.is_empty() {
        return Ok(mutants);
    }
    let mut command = command(args.jobs);
    let names: Vec<String> = mutants.iter().map(|name| regex::escape(name)).collect();
    command.args(["--re", &format!("^({})$", names.join("|"))]);
    let missed = outcome(command, name, target, tests)?.missed;
    // A mutant that leaves out a field comes with its neighbours.
    Ok(mutants
        .into_iter()
        .filter(|mutant| missed.contains(mutant))
        .collect())
}

fn command(jobs: u8) -> Command {
    let mut command = Command::new("cargo");
    // Clippy would refuse what a test has to catch.
    command
        .current_dir(root())
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        // A mutant takes 2 s to build with it.
        .env_remove("CARGO_INCREMENTAL");
    command.args(["mutants", "--colors", "never", "--jobs", &jobs.to_string()]);
    command
}

struct Outcome {
    viable: usize,
    missed: Vec<String>,
}

/// Runs the mutants against tests of this target, with these arguments. Logs and lists are in
/// `target/mutants/<name>/mutants.out`.
fn outcome(
    mut command: Command,
    name: &str,
    target_flag: &str,
    tests: &[&str],
) -> anyhow::Result<Outcome> {
    let folder: PathBuf = target().join("mutants").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    // The other targets are not even built: the model takes ten times as long as the rest.
    command
        .arg(format!("--cargo-arg={target_flag}"))
        .arg("--output")
        .arg(&folder);
    let status = command.args(["--", "--"]).args(tests).status();
    let status = status
        .context("run cargo mutants; is it installed? (`cargo install cargo-mutants --locked`)")?;
    // 0: all were caught; 2: some were missed; 3: some took too long.
    ensure!(
        matches!(status.code(), Some(0 | 2 | 3)),
        "cargo mutants: {status}; see {}",
        folder.display()
    );
    let lists = folder.join("mutants.out");
    let missed = lines(&lists.join("missed.txt"))?;
    // What does not end is noticed, too.
    let caught = lines(&lists.join("caught.txt"))?;
    let timed_out = lines(&lists.join("timeout.txt"))?;
    let viable = caught.len() + timed_out.len() + missed.len();
    Ok(Outcome { viable, missed })
}

fn lines(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}
