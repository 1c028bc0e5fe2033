//! `locations`, where listing is the default, and `sync`.

use backup_core::api::GoDuration;
use clap::{Args, Subcommand};

use super::{DocumentOutput, EXIT_CODES, GetArgs, ListFlags, OutputArgs, duration};

const EXAMPLES: &str = "\
Examples:
  # All locations, and whether they can be used
  kubectl backup locations

  # One of them: why it can't be used, what its bucket keeps
  kubectl backup locations describe default

  # Where plugins keep snapshots of volumes
  kubectl backup locations snapshots";

#[derive(Args, Debug)]
#[command(
    after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct LocationsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LocationsCommand>,
}

/// What to do with locations.
#[derive(Subcommand, Debug)]
pub(crate) enum LocationsCommand {
    /// List locations (the default)
    #[command(after_help = format!("{GET_EXAMPLES}\n\n{EXIT_CODES}"))]
    Get(GetArgs),
    /// List the VolumeSnapshotLocations: by which plugin, and where, volumes are snapshotted
    #[command(after_help = format!("{SNAPSHOTS_EXAMPLES}\n\n{EXIT_CODES}"))]
    Snapshots(GetArgs),
    /// Show one location: can it be used, what its bucket keeps, when it was compared
    Describe(LocationArgs),
}

const GET_EXAMPLES: &str = "\
Examples:
  # With messages, object lock and the last comparison
  kubectl backup locations get -o wide

  # Those that can't be used
  kubectl backup locations get -o custom-columns=NAME:.metadata.name,PHASE:.status.phase,WHY:.status.message";

const SNAPSHOTS_EXAMPLES: &str = "\
Examples:
  # With the plugin's settings, and the Secret of its credentials
  kubectl backup locations snapshots -o wide

  # For create --volume-snapshot-locations
  kubectl backup locations snapshots -o name";

const DESCRIBE_EXAMPLES: &str = "\
Examples:
  # Can it be used, and what does its bucket keep?
  kubectl backup locations describe default

  # The same for a program: a versioned document
  kubectl backup locations describe default -o json";

#[derive(Args, Debug)]
#[command(after_help = format!("{DESCRIBE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct LocationArgs {
    /// Name
    pub(crate) name: String,
    /// Print a document of kubectl-backup/v1 with times in RFC 3339: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<DocumentOutput>,
}

const SYNC_EXAMPLES: &str = "\
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

#[derive(Args, Debug)]
#[command(after_help = format!("{SYNC_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct SyncArgs {
    /// BackupStorageLocation to show, with what was skipped and why [default: all, in short]
    #[arg(conflicts_with = "all_namespaces")]
    pub(crate) location: Option<String>,
    /// Compare it now, and wait for the outcome
    #[arg(long, requires = "location", conflicts_with = "watch")]
    pub(crate) now: bool,
    /// As --now, and have the Backups removed whose removal was refused; no more than were shown
    #[arg(long, requires = "location", conflicts_with = "watch")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// How long to wait at most, such as 30m; exit with 124 then
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    pub(crate) timeout: GoDuration,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
