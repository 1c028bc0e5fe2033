//! Every check, in the order in which a failure is found soonest.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use backup_tests::binaries::root;

/// Runs everything, or with a name only the end-to-end tests that contain it.
pub fn run(only: Option<&str>) -> anyhow::Result<()> {
    let start = Instant::now();
    if let Some(name) = only {
        return step("end-to-end tests", cargo(&["test", "--workspace", "--test", "e2e", "--", name]));
    }
    step("format", cargo(&["fmt", "--all", "--check"]))?;
    println!("==> generated files");
    crate::generate::run(true)?;
    step("lints", cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    step("documentation", docs)?;
    one_tls_provider()?;
    if cargo(&["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        step("licences and sources", cargo(&["deny", "check", "bans", "licenses", "sources"]))?;
    } else {
        println!("    (cargo-deny is not installed: deny.toml is not checked)");
    }
    // One selection of packages in all builds: another one would have other features, and build the world again.
    step("unit tests and properties", cargo(&["test", "--workspace", "--lib", "--bins", "--quiet"]))?;
    step("the model of the lock", cargo(&["test", "--workspace", "--test", "model", "--quiet"]))?;
    step("transcripts of the plugin", cargo(&["test", "--workspace", "--test", "transcripts", "--quiet"]))?;
    if Command::new("go").arg("version").output().is_ok_and(|output| output.status.success()) {
        let mut go = Command::new("go");
        go.current_dir(root().join("tests/control-plane")).args(["test", "./inspect/..."]);
        step("the independent reader", go)?;
    }
    step("end-to-end tests", cargo(&["test", "--workspace", "--test", "e2e"]))?;
    println!("==> all checks passed in {}", seconds(start.elapsed()));
    Ok(())
}

fn cargo(args: &[&str]) -> Command {
    let mut command = backup_tests::binaries::cargo();
    command.args(args);
    command
}

fn step(name: &str, mut command: Command) -> anyhow::Result<()> {
    println!("==> {name}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{name}: failed ({status})");
    }
    println!("    {name}: {}", seconds(start.elapsed()));
    Ok(())
}

/// Two TLS providers in one program make rustls panic at the first handshake.
fn one_tls_provider() -> anyhow::Result<()> {
    println!("==> one TLS provider");
    let tree = cargo(&["tree", "--workspace", "--prefix", "none", "--format", "{p}"]).output()?;
    let text = String::from_utf8_lossy(&tree.stdout);
    if let Some(line) =
        text.lines().find(|line| line.starts_with("aws-lc-rs ") || line.starts_with("openssl "))
    {
        bail!("{line} is in the dependency tree; only ring may be");
    }
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
