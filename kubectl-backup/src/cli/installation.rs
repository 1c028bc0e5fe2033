//! `doctor`, `profiles`, `version` and `completion`: about the installation, and this program.

use backup_core::api::GoDuration;
use clap::{Args, ValueEnum};

use super::{DocumentOutput, EXIT_CODES, OutputArgs, duration};

const DOCTOR_EXAMPLES: &str = "\
Examples:
  # Is everything in place, and what is to be done where it is not?
  kubectl backup doctor

  # In a pipeline: ends with 1 if something is broken
  kubectl backup doctor -o json";

#[derive(Args, Debug)]
#[command(after_help = format!("{DOCTOR_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct DoctorArgs {
    /// Print a document of kubectl-backup/v1: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<DocumentOutput>,
}

const PROFILES_EXAMPLES: &str = "\
Examples:
  # Whose backups and restores can be kept apart, which are there, and what becomes of conflicts
  kubectl backup profiles

  # One in full: kinds, states, what ends them, policy
  kubectl backup profiles velero

  # For a program
  kubectl backup profiles -o json";

#[derive(Args, Debug)]
#[command(after_help = format!("{PROFILES_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct ProfilesArgs {
    /// Profile to show in full [default: all, in short]
    pub(crate) profile: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const VERSION_EXAMPLES: &str = "\
Examples:
  # Of this program, the controller and the API server
  kubectl backup version

  # Of this program only, for a script
  kubectl backup version --client -o json";

#[derive(Args, Debug)]
#[command(after_help = format!("{VERSION_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct VersionArgs {
    /// Ask nobody
    #[arg(long, visible_alias = "client-only")]
    pub(crate) client: bool,
    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub(crate) timeout: GoDuration,
    /// Print a document of kubectl-backup/v1: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<DocumentOutput>,
}

const COMPLETION_EXAMPLES: &str = "\
Examples:
  # For kubectl's own completion, in a folder of the PATH
  kubectl backup completion kubectl > kubectl_complete-backup

  # For the program under its own name
  kubectl backup completion bash > kubectl-backup.bash";

#[derive(Args, Debug)]
#[command(after_help = format!("{COMPLETION_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct CompletionArgs {
    /// Shell; kubectl is for `kubectl backup` with kubectl's own completion
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    /// bash, for `kubectl-backup`.
    Bash,
    /// zsh, for `kubectl-backup`.
    Zsh,
    /// fish, for `kubectl-backup`.
    Fish,
    /// kubectl's own completion, in any shell, for `kubectl backup`.
    Kubectl,
}
