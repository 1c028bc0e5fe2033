//! `locations`: listing is the default.

use clap::{Args, Subcommand};

use super::{EXIT_CODES, GetArgs, backup::DocumentOutput};

const EXAMPLES: &str = "\
Examples:
  # All locations, and whether they can be used
  kubectl backup locations

  # One of them: why it can't be used, what its bucket keeps
  kubectl backup locations describe default

  # Where plugins keep snapshots of volumes
  kubectl backup locations snapshots";

/// `locations`
#[derive(Args, Debug)]
#[command(
    after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub struct LocationsArgs {
    /// The command; listing is the default.
    #[command(subcommand)]
    pub command: Option<LocationsCommand>,
}

/// What to do with locations.
#[derive(Subcommand, Debug)]
pub enum LocationsCommand {
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

/// `locations describe`
#[derive(Args, Debug)]
#[command(after_help = format!("{DESCRIBE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct LocationArgs {
    /// Name
    pub name: String,
    /// Print a document of kubectl-backup/v1 with times in RFC 3339: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub output: Option<DocumentOutput>,
}
