//! `logs`, `download`, `verify` and `operations`: what is stored of a backup.

use std::path::PathBuf;

use clap::Args;

use super::{DocumentOutput, EXIT_CODES, OutputArgs};

const LOGS_EXAMPLES: &str = "\
Examples:
  # What a backup has told
  kubectl backup logs nightly-20261103030000

  # Only what went wrong
  kubectl backup logs nightly-20261103030000 --errors

  # All of it, as soon as it is there; ends with the backup
  kubectl backup logs nightly-20261103030000 -f";

#[derive(Args, Debug)]
#[command(after_help = LOGS_EXAMPLES)]
pub(crate) struct LogsArgs {
    /// Name
    pub(crate) name: String,
    /// Show the lines of errors only
    #[arg(long)]
    pub(crate) errors: bool,
    /// Go on until the end, and show what is there so far; exit with 3 unless it is Completed
    #[arg(short, long)]
    pub(crate) follow: bool,
}

const DOWNLOAD_EXAMPLES: &str = "\
Examples:
  # Into nightly-20261103030000-data.tar.gz
  kubectl backup download nightly-20261103030000

  # See what is in it
  kubectl backup download nightly-20261103030000 -o - | tar tz";

#[derive(Args, Debug)]
#[command(after_help = format!("{DOWNLOAD_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct DownloadArgs {
    /// Name of the backup
    pub(crate) name: String,
    /// File to write; - is stdout [default: <name>-data.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  # Could this backup be restored?
  kubectl backup verify nightly-20261103030000

  # What was found, for a program
  kubectl backup verify nightly-20261103030000 -o json";

#[derive(Args, Debug)]
#[command(after_help = format!("{VERIFY_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct VerifyArgs {
    /// Name of the backup
    pub(crate) name: String,
    /// Print a document of kubectl-backup/v1: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<DocumentOutput>,
}

pub(super) const OPERATIONS_EXAMPLES: &str = "\
Examples:
  # What is still going on, and what has failed?
  kubectl backup operations before-upgrade

  # A line for each change, until the backup has ended
  kubectl backup operations before-upgrade -w";

pub(super) const RESTORE_OPERATIONS_EXAMPLES: &str = "\
Examples:
  # What is still going on, and what has failed?
  kubectl backup restore operations back-again

  # All that is known of each
  kubectl backup restore operations back-again -o json";

#[derive(Args, Debug)]
pub(crate) struct OperationsArgs {
    /// Name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print a line for each change, until the end
    #[arg(short, long)]
    pub(crate) watch: bool,
}
