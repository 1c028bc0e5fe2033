//! The commands about the installation and this program: `locations`, `sync`, `profiles`, `version`
//! and `completion`.

use std::path::PathBuf;

use backup_core::api::GoDuration;
use clap::{Args, Subcommand, ValueEnum};

use super::{DocumentArgs, OutputArgs, duration};

/// One location or schedule.
#[derive(Args, Debug)]
pub(crate) struct DescribeOneArgs {
    /// Name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
}

/// A namespace is protected if its last good backup has all of it (no labels, no choice of
/// resources), began no earlier than at the last run but one of a schedule of it, lies in a
/// location that is available, and has the data of its volumes.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Maximum age of the last good backup, such as 24h [default: what the most frequent schedule
    /// promises]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) rpo: Option<GoDuration>,
    /// Namespaces that need no backup, with wildcards
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "kube-node-lease,kube-public,kube-system"
    )]
    pub(crate) except_namespaces: Vec<String>,
    /// Show it again every ten seconds, until interrupted
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct ProfilesArgs {
    #[command(flatten)]
    pub(crate) show: ShowProfilesArgs,
    #[command(subcommand)]
    pub(crate) command: Option<ProfilesCommand>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ProfilesCommand {
    /// Check files with profiles before they are rolled out; send no request
    Check(CheckProfilesArgs),
}

#[derive(Args, Debug)]
pub(crate) struct CheckProfilesArgs {
    /// Files, as they will be in one folder; - is stdin
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ShowProfilesArgs {
    /// Profile to show in full [default: all, in short]
    pub(crate) profile: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug)]
pub(crate) struct VersionArgs {
    /// Client version only: send no request
    #[arg(long, visible_alias = "client-only")]
    pub(crate) client: bool,
    /// Maximum time to wait for an answer
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub(crate) timeout: GoDuration,
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
}

#[derive(Args, Debug)]
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
