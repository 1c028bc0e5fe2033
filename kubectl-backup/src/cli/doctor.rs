//! `doctor` and `profiles`.

use clap::Args;

use super::{EXIT_CODES, backup::DocumentOutput};

const EXAMPLES: &str = "\
Examples:
  # Is everything in place, and what is to be done where it is not?
  kubectl backup doctor

  # In a pipeline: ends with 1 if something is broken
  kubectl backup doctor -o json";

/// `doctor`
#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct DoctorArgs {
    /// Print a document of kubectl-backup/v1: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub output: Option<DocumentOutput>,
}
