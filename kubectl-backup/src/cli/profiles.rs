//! `profiles`: the kinds that are kept apart, and by which policy.

use clap::Args;

use super::{EXIT_CODES, output::OutputArgs};

const EXAMPLES: &str = "\
Examples:
  # Whose backups and restores can be kept apart, which are there, and what becomes of conflicts
  kubectl backup profiles

  # One in full: kinds, states, what ends them, policy
  kubectl backup profiles velero

  # For a program
  kubectl backup profiles -o json";

/// `profiles`
#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ProfilesArgs {
    /// Profile to show in full [default: all, in short]
    pub profile: Option<String>,
    /// Form of the output.
    #[command(flatten)]
    pub output: OutputArgs,
}
