//! The main job, collisions, policies, installing and removing on each version of Kubernetes that
//! the kit can build.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backup_tests::binaries::{KUBERNETES, cargo, kubernetes_versions};

#[derive(clap::Args)]
pub struct Args {
    /// Only this version, such as 1.37. Can be repeated
    #[arg(long, value_name = "VERSION")]
    pub only: Vec<String>,
}

/// Names of tests and of a suite: what has to work on each version.
const TESTS: [&str; 9] = [
    "what_came_back_is_what_was_there",
    "completed_means_contents_and_metadata_are_in_the_bucket",
    "a_restore_goes_into_mapped_namespaces",
    "a_killed_controller_finishes_what_it_had_begun",
    "a_backup_is_refused_while_a_restore_runs_and_names_it",
    "a_restore_is_refused_while_a_backup_runs_and_names_it",
    "of_two_colliding_creations_at_most_one_is_admitted",
    "a_refused_creation_is_never_stored",
    "every policy, and no programs",
];

/// What came of the tests on one version.
struct Row {
    version: String,
    result: String,
    elapsed: Duration,
    is_good: bool,
}

/// Runs them on one version after the other, on all versions if none is named, and prints a table.
pub fn run(only: &[String]) -> anyhow::Result<()> {
    let versions = if only.is_empty() {
        kubernetes_versions()?
    } else {
        only.to_vec()
    };
    let mut rows = Vec::new();
    for version in versions {
        println!("==> Kubernetes {version}");
        rows.push(on(version)?);
    }
    println!("\n| Kubernetes | tests | seconds |\n| --- | --- | --- |");
    for Row {
        version,
        result,
        elapsed,
        ..
    } in &rows
    {
        println!("| {version} | {result} | {:.0} |", elapsed.as_secs_f64());
    }
    ensure!(rows.iter().all(|row| row.is_good), "not all tests passed");
    Ok(())
}

/// The time has in it what is built first, where that was not done before.
fn on(version: String) -> anyhow::Result<Row> {
    let mut command: Command = cargo();
    command
        .args(["test", "--workspace", "--test", "e2e", "--"])
        .args(TESTS)
        .env(KUBERNETES, &version);
    let start = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("run cargo")?;
    let mut result = "no result".to_owned();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        if let Some(verdict) = line.strip_prefix("test result: ") {
            verdict.clone_into(&mut result);
        }
    }
    let is_good = child.wait()?.success();
    Ok(Row {
        version,
        result,
        elapsed: start.elapsed(),
        is_good,
    })
}
