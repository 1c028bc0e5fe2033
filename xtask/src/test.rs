//! Runs every check, in an order that finds failures as early as possible.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use backup_tests::binaries::{kubernetes_versions, root, target};
use serde_json::Value;

/// Runs everything, or only the end-to-end tests whose name contains `only`.
pub fn run(only: Option<&str>) -> anyhow::Result<()> {
    let start = Instant::now();
    // Asked before anything is built: Linux calls the file of a running program that a build
    // replaces "(deleted)".
    let program = std::env::current_exe()?;
    if let Some(name) = only {
        return step(
            "end-to-end tests",
            cargo(&["test", "--workspace", "--test", "e2e", "--", name]),
        );
    }
    step("format", cargo(&["fmt", "--all", "--check"]))?;
    timed("style", crate::style::check)?;
    timed("build and lints", build)?;
    timed("generated files", || crate::generate::run(true))?;
    timed("rules and their tests", crate::rules::check)?;
    timed("messages and their sources", crate::messages::check)?;
    timed("links and their targets", crate::links::check)?;
    step("documentation", documentation(&program))?;
    timed("one TLS provider", one_tls_provider)?;
    timed("features of programs and of tests", one_set_of_features)?;
    if cargo(&["deny", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        step(
            "licences and sources",
            cargo(&["deny", "check", "bans", "licenses", "sources"]),
        )?;
    } else {
        println!("    (cargo-deny is not installed: deny.toml is not checked)");
    }
    // All builds select the same packages: another selection would have other features, and rebuild
    // everything.
    step(
        "unit tests and properties",
        cargo(&["test", "--workspace", "--lib", "--bins", "--quiet"]),
    )?;
    timed("fuzzing", || {
        crate::fuzz::run(&crate::fuzz::Args {
            minutes: 1,
            seed: 1,
        })
    })?;
    step(
        "the model of the lock",
        cargo(&["test", "--workspace", "--test", "model", "--quiet"]),
    )?;
    step(
        "transcripts of the plugin",
        cargo(&["test", "--workspace", "--test", "transcripts", "--quiet"]),
    )?;
    step(
        "the data mover, and restic",
        cargo(&["test", "--workspace", "--test", "it", "--quiet"]),
    )?;
    timed(
        "histories of a repository",
        crate::volume_histories::of_the_tests,
    )?;
    if Command::new("go")
        .arg("version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        timed("names of Velero's newest version", crate::velero::check)?;
        for (name, module, packages) in [
            (
                "the independent reader",
                "tests/control-plane",
                "./inspect/...",
            ),
            (
                "health checks for Argo CD and Flux",
                "tests/gitops",
                "./...",
            ),
        ] {
            let mut go = Command::new("go");
            go.current_dir(root().join(module)).args(["test", packages]);
            step(name, go)?;
        }
    } else {
        println!(
            "    (without Go, Velero's names are not compared, and the independent reader and the health checks for Argo CD and Flux are \
             not tested)"
        );
    }
    step(
        "end-to-end tests",
        cargo(&["test", "--workspace", "--test", "e2e"]),
    )?;
    timed("a soak", || crate::block_on(crate::soak::of_the_tests()))?;
    step(
        "what is shipped, on a node",
        cargo(&["test", "--workspace", "--test", "node"]),
    )?;
    let newest = kubernetes_versions()?
        .into_iter()
        .next_back()
        .context("no version of Kubernetes")?;
    timed("the newest Kubernetes", || crate::matrix::run(&[newest]))?;
    println!("==> all checks passed in {}", seconds(start.elapsed()));
    Ok(())
}

fn cargo(args: &[&str]) -> Command {
    let mut command = backup_tests::binaries::cargo();
    command.args(args);
    command
}

/// Builds everything that the following steps run. Warnings are errors; warnings of crates that
/// were built before are repeated.
fn build() -> anyhow::Result<()> {
    let mut command = cargo(&[
        "build",
        "--workspace",
        "--all-targets",
        "--message-format=json",
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("run cargo")?;
    let mut warnings = 0;
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let message: Value = serde_json::from_str(&line?)?;
        if let Some(text) = message["message"]["rendered"].as_str() {
            warnings += 1;
            eprint!("{text}");
        }
    }
    let status = child.wait()?;
    ensure!(
        status.success() && warnings == 0,
        "{warnings} warnings and errors ({status})"
    );
    Ok(())
}

/// The documentation of the libraries, by the command that tests their examples: it passes rustdoc
/// the crates that were built above, while `cargo doc` would check them all again. This program
/// replaces rustdoc ([`rustdoc`]).
fn documentation(program: &Path) -> Command {
    let mut command = cargo(&["test", "--workspace", "--doc", "--quiet"]);
    command.env("RUSTDOC", program).env(AS_RUSTDOC, "yes");
    command
}

/// Set if this program is run instead of rustdoc.
const AS_RUSTDOC: &str = "XTASK_AS_RUSTDOC";

/// Whether this program is run instead of rustdoc.
pub fn is_rustdoc() -> bool {
    std::env::var_os(AS_RUSTDOC).is_some()
}

/// Runs rustdoc to write the documentation of a crate instead of testing it. Warnings are errors.
pub fn rustdoc() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut command = Command::new("rustdoc");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--test" => {}
            "--test-run-directory" => drop(arguments.next()),
            _ => {
                command.arg(argument);
            }
        }
    }
    let status = command
        .args(["-D", "warnings", "--out-dir"])
        .arg(target().join("doc"))
        .status()?;
    ensure!(status.success(), "rustdoc: {status}");
    Ok(())
}

fn step(name: &str, mut command: Command) -> anyhow::Result<()> {
    timed(name, || {
        let status = command
            .status()
            .with_context(|| format!("run {}", command.get_program().display()))?;
        ensure!(status.success(), "{name}: failed ({status})");
        Ok(())
    })
}

fn timed(name: &str, step: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("==> {name}");
    let start = Instant::now();
    step()?;
    println!("    {name}: {}", seconds(start.elapsed()));
    Ok(())
}

/// With two TLS providers in one program rustls panics at the first handshake.
fn one_tls_provider() -> anyhow::Result<()> {
    let tree = cargo(&["tree", "--workspace", "--prefix", "none", "--format", "{p}"]).output()?;
    let text = String::from_utf8_lossy(&tree.stdout);
    if let Some(line) = text
        .lines()
        .find(|line| line.starts_with("aws-lc-rs ") || line.starts_with("openssl "))
    {
        bail!("{line} is in the dependency tree; only ring may be");
    }
    Ok(())
}

/// A crate that a dev-dependency gives more features is built twice, and so is all that uses it: once
/// for `cargo xtask`, and once for the tests. The test kit asks for such features in programs, too.
fn one_set_of_features() -> anyhow::Result<()> {
    let of_programs = features("normal,build")?;
    let of_tests = features("normal,build,dev")?;
    for (package, features) in &of_programs {
        ensure!(
            of_tests.get(package) == Some(features),
            "{package} has the features {features:?} in programs and {:?} with the tests: add it to \
             the dependencies of crates/testkit",
            of_tests.get(package)
        );
    }
    Ok(())
}

/// The features of each package (name and version) of the workspace along these kinds of edges.
fn features(edges: &str) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut tree = cargo(&["tree", "--workspace", "--prefix", "none", "--edges", edges]);
    let output = tree.args(["--format", "{p}|{f}"]).output()?;
    let mut features = BTreeMap::<String, BTreeSet<String>>::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((package, names)) = line.trim_end_matches(" (*)").split_once('|') {
            let names = names.split(',').map(str::to_owned);
            features
                .entry(package.to_owned())
                .or_default()
                .extend(names);
        }
    }
    ensure!(!features.is_empty(), "cargo tree shows no package");
    Ok(features)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn no_crate_of_the_workspace_is_optimised_in_a_dev_build() {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let (_, rest) = manifest.split_once("members = [").unwrap();
        let (members, _) = rest.split_once(']').unwrap();
        for folder in members.split(", ") {
            let path = root().join(folder.trim_matches('"')).join("Cargo.toml");
            let text = fs::read_to_string(path).unwrap();
            let name = text.lines().find_map(|line| line.strip_prefix("name = "));
            let name = name.unwrap().trim_matches('"');
            assert!(
                manifest.contains(&format!("\n{name}.opt-level = 0\n")),
                "{name} is missing below [profile.dev.package] in Cargo.toml"
            );
        }
    }
}
