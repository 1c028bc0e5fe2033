//! Builds the programs, and reads what images need beside them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use backup_tests::binaries::{cargo, root, target};
use serde_json::Value;

use super::{
    archive::Tree,
    bundle::COMMAND,
    images::{self, PROGRAMS},
    platforms::{Linker, PLATFORMS, Platform, Tools, gcc},
};

/// The public certificate authorities of this machine.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Finds the tools of this machine.
pub(super) fn tools() -> anyhow::Result<Tools> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc -vV does not name its host")?;
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    Ok(Tools {
        host: host.to_owned(),
        targets: PLATFORMS
            .iter()
            .map(|platform| platform.target)
            .filter(|target| libraries.join(target).join("lib").is_dir())
            .map(str::to_owned)
            .collect(),
        has_zig: runs("cargo-zigbuild"),
        compilers: PLATFORMS
            .iter()
            .filter_map(gcc)
            .filter(|compiler| runs(compiler))
            .map(str::to_owned)
            .collect(),
    })
}

fn runs(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// The programs for a platform: servers are for Linux only.
fn names(platform: &Platform) -> Vec<&'static str> {
    let servers: &[&str] = if platform.has_images() {
        &PROGRAMS
    } else {
        &[]
    };
    servers.iter().copied().chain([COMMAND]).collect()
}

/// Builds the programs for a platform. Returns them by name.
pub(super) fn programs(
    platform: &Platform,
    linker: &Linker,
    time: u64,
) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let folder = target().join("release-of-all");
    let mut command = cargo();
    command
        .arg(if *linker == Linker::Zig {
            "zigbuild"
        } else {
            "build"
        })
        .args(["--release", "--locked", "--target"])
        .arg(linker.target(platform))
        .arg("--target-dir")
        .arg(&folder)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("SOURCE_DATE_EPOCH", time.to_string())
        .env("CARGO_ENCODED_RUSTFLAGS", flags()?);
    for name in names(platform) {
        command.args(["--package", name]);
    }
    if let Linker::Gcc(compiler) = linker {
        let target = platform.target.to_uppercase().replace('-', "_");
        command.env(format!("CARGO_TARGET_{target}_LINKER"), compiler);
    }
    let status = command.status().context("run cargo")?;
    ensure!(
        status.success(),
        "cargo failed for {} ({status})",
        platform.target
    );
    read_programs(platform, &folder.join(platform.target).join("release"))
}

/// Flags of the compiler with which a program has no path of this machine.
fn flags() -> anyhow::Result<String> {
    let cargo_home = std::env::var_os("CARGO_HOME").map_or_else(
        || std::env::home_dir().map(|home| home.join(".cargo")),
        |folder| Some(PathBuf::from(folder)),
    );
    let cargo_home = cargo_home.context("neither CARGO_HOME nor HOME is set")?;
    let flags = [
        format!("--remap-path-prefix={}=/src", root().display()),
        format!("--remap-path-prefix={}=/cargo", cargo_home.display()),
    ];
    // Flags are separated by this character, so paths may have blanks.
    Ok(flags.join("\x1f"))
}

/// Reads the programs for a platform from a folder.
pub(super) fn read_programs(
    platform: &Platform,
    folder: &Path,
) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut programs = BTreeMap::new();
    for name in names(platform) {
        let path = folder.join(platform.file(name));
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        if platform.has_images() {
            let architecture = images::architecture(platform.arch)?;
            ensure!(
                architecture.runs(&bytes),
                "{} is not for {}",
                path.display(),
                platform.name()
            );
            let dynamic = output(Command::new("readelf").arg("--dynamic").arg(&path))?;
            images::check_libraries(name, &dynamic)?;
        }
        programs.insert(name.to_owned(), bytes);
    }
    Ok(programs)
}

/// Reads the files of an image beside its program from this machine.
pub(super) fn system(architecture: &str) -> anyhow::Result<Tree> {
    let architecture = images::architecture(architecture)?;
    let loader = Path::new(architecture.loader);
    let folders = [
        Some(Path::new(architecture.libraries)),
        loader.parent(),
        Some(Path::new(architecture.cross_libraries)),
    ];
    let folders = folders.map(|folder| Path::new("/").join(folder.unwrap_or(Path::new(""))));
    let authorities = fs::read(AUTHORITIES).with_context(|| format!("read {AUTHORITIES}"))?;
    images::system(&architecture, authorities, |name| {
        for folder in &folders {
            let path = folder.join(name);
            if !path.is_file() {
                continue;
            }
            let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            // Elsewhere than on Debian a folder may have the libraries of another architecture.
            if architecture.runs(&bytes) {
                return Ok(bytes);
            }
        }
        bail!(
            "no {name} for {}: install {}",
            architecture.name,
            architecture.packages
        )
    })
}

/// `cargo metadata` for these targets.
pub(super) fn metadata(platforms: &[Platform]) -> anyhow::Result<Value> {
    let mut command = cargo();
    command.args(["metadata", "--locked", "--format-version=1"]);
    let targets: BTreeSet<_> = platforms.iter().map(|platform| platform.target).collect();
    for target in targets {
        command.arg(format!("--filter-platform={target}"));
    }
    let text = output(&mut command)?;
    serde_json::from_str(&text).context("cargo metadata wrote no JSON")
}

/// The manifests for `kubectl apply`, by a command that runs here.
pub(super) fn manifests(
    command: &Path,
    registry: &str,
) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut manifests = BTreeMap::new();
    for mode in ["engine", "guard"] {
        let text = output(
            Command::new(command)
                .arg("install")
                .arg(format!("--mode={mode}"))
                .arg(format!("--registry={registry}"))
                .args(["--dry-run=client", "-o", "yaml"]),
        )?;
        manifests.insert(format!("{mode}.yaml"), text.into_bytes());
    }
    Ok(manifests)
}

/// Runs a program. Returns what it writes.
///
/// Errors: it fails, with what it says.
pub(super) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("run {program}"))?;
    ensure!(
        output.status.success(),
        "{program} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).with_context(|| format!("{program} wrote no UTF-8"))
}
