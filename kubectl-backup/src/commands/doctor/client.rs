//! Plugins on the PATH that kubectl would run in our place: it takes the longest name that matches.

use std::path::PathBuf;

use clap::CommandFactory as _;

use crate::{Terminal, cli::Cli, view::doctor::Finding};

/// Programs whose names are those of our commands.
pub fn shadows(terminal: &Terminal) -> Vec<Finding> {
    let path = terminal.var("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let root = Cli::command();
    let shadow = |command: &clap::Command| {
        let program = format!("kubectl-backup-{}", command.get_name());
        let found = folders.iter().map(|folder| folder.join(&program)).find(|file| file.is_file())?;
        let text =
            format!("{} answers `kubectl backup {}`, not this program", found.display(), command.get_name());
        Some(Finding::bad("plugins", text, "Remove it from the PATH, or rename it."))
    };
    let mut findings: Vec<Finding> = root.get_subcommands().filter_map(shadow).collect();
    let mut ours: Vec<PathBuf> =
        folders.iter().map(|folder| folder.join("kubectl-backup")).filter(|file| file.is_file()).collect();
    ours.dedup();
    if let [first, second, ..] = ours.as_slice() {
        let text = format!("{} is on the PATH before {}", first.display(), second.display());
        findings.push(Finding::warn(
            "plugins",
            text,
            "Remove the one that is older: kubectl backup version --client",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::good("plugins", "no other program stands in the way on the PATH"));
    }
    findings
}
