//! `operations` and `restore operations`.

use clap::Args;

use super::output::OutputArgs;

pub(super) const OF_BACKUPS: &str = "\
Examples:
  # What is still going on, and what has failed?
  kubectl backup operations before-upgrade

  # A line for each change, until the backup has ended
  kubectl backup operations before-upgrade -w";

pub(super) const OF_RESTORES: &str = "\
Examples:
  # What is still going on, and what has failed?
  kubectl backup restore operations back-again

  # All that is known of each
  kubectl backup restore operations back-again -o json";

/// `operations`, of backups and of restores.
#[derive(Args, Debug)]
pub struct OperationsArgs {
    /// Name
    pub name: String,
    /// Form of the list.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Print a line for each change, until the end
    #[arg(short, long)]
    pub watch: bool,
}
