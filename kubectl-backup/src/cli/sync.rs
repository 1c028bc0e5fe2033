//! `sync`: what came of comparing the buckets with the cluster.

use backup_core::api::GoDuration;
use clap::Args;

use super::{
    EXIT_CODES, duration,
    output::{ListFlags, OutputArgs},
};

const EXAMPLES: &str = "\
Examples:
  # What came of the last comparison of every location
  kubectl backup sync

  # Compare one location now, and see what was skipped and why
  kubectl backup sync default --now

  # Agree to the removal of the backups that were shown as gone from the bucket
  kubectl backup sync default --force

  # Those of which most was refused last, and what comes of each comparison from now on
  kubectl backup sync --sort-by=.lastPass.refused
  kubectl backup sync -w

  # For a program
  kubectl backup sync -o json";

/// `sync`
#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct SyncArgs {
    /// BackupStorageLocation to show, with what was skipped and why [default: all, in short]
    #[arg(conflicts_with = "all_namespaces")]
    pub location: Option<String>,
    /// Compare it now, and wait for the outcome
    #[arg(long, requires = "location", conflicts_with = "watch")]
    pub now: bool,
    /// As --now, and have the Backups removed whose removal was refused; no more than were shown
    #[arg(long, requires = "location", conflicts_with = "watch")]
    pub force: bool,
    /// Which namespaces, whether to go on, and in which order.
    #[command(flatten)]
    pub list: ListFlags,
    /// How long to wait at most, such as 30m; exit with 124 then
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    pub timeout: GoDuration,
    /// Form of the output.
    #[command(flatten)]
    pub output: OutputArgs,
}
