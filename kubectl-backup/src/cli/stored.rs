//! `logs` and `download`.

use std::path::PathBuf;

use clap::Args;

use super::{EXIT_CODES, backup::DocumentOutput};

const LOGS_EXAMPLES: &str = "\
Examples:
  # What a backup has told
  kubectl backup logs nightly-20261103030000

  # Only what went wrong
  kubectl backup logs nightly-20261103030000 --errors

  # All of it, as soon as it is there; ends with the backup
  kubectl backup logs nightly-20261103030000 -f";

/// `logs`, for backups and for restores.
#[derive(Args, Debug)]
#[command(after_help = LOGS_EXAMPLES)]
pub struct LogsArgs {
    /// Name
    pub name: String,
    /// Show the lines of errors only
    #[arg(long)]
    pub errors: bool,
    /// Go on until the end, and show what is there so far; exit with 3 unless it is Completed
    #[arg(short, long)]
    pub follow: bool,
}

const DOWNLOAD_EXAMPLES: &str = "\
Examples:
  # Into nightly-20261103030000-data.tar.gz
  kubectl backup download nightly-20261103030000

  # See what is in it
  kubectl backup download nightly-20261103030000 -o - | tar tz";

/// `download`
#[derive(Args, Debug)]
#[command(after_help = format!("{DOWNLOAD_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct DownloadArgs {
    /// Name of the backup
    pub name: String,
    /// File to write; - is stdout [default: <name>-data.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub force: bool,
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  # Could this backup be restored?
  kubectl backup verify nightly-20261103030000

  # What was found, for a program
  kubectl backup verify nightly-20261103030000 -o json";

/// `verify`
#[derive(Args, Debug)]
#[command(after_help = format!("{VERIFY_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct VerifyArgs {
    /// Name of the backup
    pub name: String,
    /// Print a document of kubectl-backup/v1: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub output: Option<DocumentOutput>,
}
