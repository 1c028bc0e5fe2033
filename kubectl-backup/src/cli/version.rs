//! `version` and `completion`.

use backup_core::api::GoDuration;
use clap::{Args, ValueEnum};

use super::{EXIT_CODES, backup::DocumentOutput, duration};

const VERSION_EXAMPLES: &str = "\
Examples:
  # Of this program, the controller and the API server
  kubectl backup version

  # Of this program only, for a script
  kubectl backup version --client -o json";

/// `version`
#[derive(Args, Debug)]
#[command(after_help = format!("{VERSION_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct VersionArgs {
    /// Ask nobody
    #[arg(long, visible_alias = "client-only")]
    pub client: bool,
    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub timeout: GoDuration,
    /// Print a document of kubectl-backup/v1: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub output: Option<DocumentOutput>,
}

const COMPLETION_EXAMPLES: &str = "\
Examples:
  # For kubectl's own completion, in a folder of the PATH
  kubectl backup completion kubectl > kubectl_complete-backup

  # For the program under its own name
  kubectl backup completion bash > kubectl-backup.bash";

/// `completion`
#[derive(Args, Debug)]
#[command(after_help = format!("{COMPLETION_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct CompletionArgs {
    /// Shell; kubectl is for `kubectl backup` with kubectl's own completion
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Who completes.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// bash, for `kubectl-backup`.
    Bash,
    /// zsh, for `kubectl-backup`.
    Zsh,
    /// fish, for `kubectl-backup`.
    Fish,
    /// kubectl's own completion, in any shell, for `kubectl backup`.
    Kubectl,
}
