//! The command line: what can be typed.

pub mod backup;
pub mod chosen;
pub mod doctor;
pub mod hooks;
pub mod locations;
pub mod locks;
pub mod operations;
pub mod output;
pub mod profiles;
pub mod restore;
pub mod schedules;
pub mod selector;
pub mod spec;
pub mod stored;
pub mod sync;
pub mod version;
pub mod wait;

use std::{fmt, path::PathBuf, str::FromStr};

use backup_core::api::GoDuration;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use backup::{
    CancelArgs, CreateArgs, DeleteArgs, DescribeArgs, DescribeBackupArgs, GetArgs, GetBackupsArgs,
    GuardedArgs,
};
pub use chosen::ChosenArgs;
pub use doctor::DoctorArgs;
pub use locations::LocationsArgs;
pub use locks::{HoldArgs, ListArgs, LocksArgs, LocksCommand, ReleaseArgs};
pub use operations::OperationsArgs;
pub use profiles::ProfilesArgs;
pub use restore::{RestoreArgs, RestoreCommand, RestoreCreateArgs, RestoresArgs};
pub use schedules::SchedulesArgs;
pub use stored::{DownloadArgs, LogsArgs, VerifyArgs};
pub use sync::SyncArgs;
pub use version::{CompletionArgs, Shell, VersionArgs};
pub use wait::{Until, UntilArgs, WaitForArgs};

/// Exit codes, for the help of every command.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    an error, or a refusal
  2    the arguments make no sense
  3    what was waited for has ended, but is not Completed
  124  time ran out while waiting
  130  interrupted";

const EXAMPLES: &str = "\
Examples:
  # Back up two namespaces and wait for the end
  kubectl backup create before-upgrade --include-namespaces=shop,db --wait

  # See whether it can be restored, and what went wrong
  kubectl backup describe before-upgrade";

/// Back up and restore Kubernetes resources.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl backup",
    bin_name = "kubectl backup",
    version,
    after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Create a backup
    Create(Box<CreateArgs>),
    /// List backups, or with --kind another operator's backups or restores
    Get(Box<GetBackupsArgs>),
    /// Show one backup: is it safe, what went wrong, what now
    Describe(DescribeBackupArgs),
    /// Show the log of a backup
    Logs(LogsArgs),
    /// Show the asynchronous operations of a backup, and how far each has come
    #[command(after_help = operations::OF_BACKUPS)]
    Operations(OperationsArgs),
    /// Get the tarball of a backup: all its items, Secrets included
    Download(DownloadArgs),
    /// Check that the stored files of a backup are complete, agree with one another and can be read
    Verify(VerifyArgs),
    /// Restore from a backup; and what `restores` does
    Restore(Box<RestoreArgs>),
    /// List restores; show, cancel, wait for and delete them
    Restores(RestoresArgs),
    /// Wait for the end of backups, for a phase, or until nothing holds a scope
    Wait(WaitForArgs),
    /// End running backups early; what they have is stored, and says what is missing
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", backup::CANCEL_EXAMPLES))]
    Cancel(CancelArgs),
    /// Delete backups, in the cluster and in the store
    Delete(DeleteArgs),
    /// List schedules with their next runs; show, create, pause, trigger and delete them
    #[command(visible_alias = "schedule")]
    Schedules(SchedulesArgs),
    /// List the locations that backups are stored in, and show whether they can be used
    #[command(visible_alias = "location")]
    Locations(LocationsArgs),
    /// Show what came of comparing the buckets with the cluster; compare one now
    Sync(SyncArgs),
    /// Show who holds the lock between backups and restores; release what hangs, hold it during maintenance
    #[command(visible_alias = "lock")]
    Locks(Box<LocksArgs>),
    /// List the operators whose backups and restores can be kept apart, and the policy in force for each
    #[command(visible_alias = "profile")]
    Profiles(ProfilesArgs),
    /// Check that everything is in place: webhook, certificate, permissions, definitions, controller, locations, clock
    Doctor(DoctorArgs),
    /// Show the versions of this program, the controller and the API server
    Version(VersionArgs),
    /// Print the script that completes commands and names in a shell
    Completion(CompletionArgs),
}

/// Flags of every command: which cluster, as whom, which installation.
#[derive(Args, Debug, Default, Clone)]
#[command(next_help_heading = "Connection")]
pub struct GlobalArgs {
    /// Kubeconfig file to use
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Cluster of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// User of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// Namespace of the installation [default: as velero's client is configured, else $VELERO_NAMESPACE, else velero]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// User to act as
    #[arg(long = "as", global = true, value_name = "USER")]
    pub as_user: Option<String>,
    /// Group to act as; may be repeated
    #[arg(long, global = true, value_name = "GROUP", requires = "as_user")]
    pub as_group: Vec<String>,
    /// UID to act as
    #[arg(long, global = true, value_name = "UID", requires = "as_user")]
    pub as_uid: Option<String>,
    /// Bearer token, in place of what the kubeconfig has for the user
    #[arg(long, global = true, value_name = "TOKEN")]
    pub token: Option<Token>,
    /// Client certificate, as a PEM file
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub client_certificate: Option<PathBuf>,
    /// Key of the client certificate, as a PEM file
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub client_key: Option<PathBuf>,
    /// How long a single request may take, such as 10s; 0 is for ever [default: 30s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub request_timeout: Option<GoDuration>,
    /// URL of the API server
    #[arg(short, long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// Authorities that the API server's certificate is checked by, as a PEM file
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub certificate_authority: Option<PathBuf>,
    /// Name that the API server's certificate has to be for [default: the host of its URL]
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Don't check the API server's certificate
    #[arg(long, global = true, conflicts_with = "certificate_authority")]
    pub insecure_skip_tls_verify: bool,
    /// Colour the output: auto, always or never; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN", hide_possible_values = true)]
    pub color: Colour,
}

/// A bearer token. It is never shown.
#[derive(Clone)]
pub struct Token(pub String);

impl From<String> for Token {
    fn from(token: String) -> Self {
        Self(token)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// When to paint.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// Where a person reads.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// In which form objects are printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Columns.
    #[value(hide = true)]
    Table,
    /// More columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kind and name.
    Name,
}

/// In which form one object is printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectOutput {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kind and name.
    Name,
}

impl From<ObjectOutput> for Output {
    fn from(output: ObjectOutput) -> Self {
        match output {
            ObjectOutput::Json => Self::Json,
            ObjectOutput::Yaml => Self::Yaml,
            ObjectOutput::Name => Self::Name,
        }
    }
}

/// How far to go.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// Only check here, and print what would be sent.
    Client,
    /// Ask the cluster, which stores nothing.
    Server,
}

/// Whether to wait, and how long.
#[derive(Args, Debug, Clone, Copy, Default)]
#[command(next_help_heading = "Waiting")]
pub struct WaitArgs {
    /// Wait for the end; exit with 3 unless it is Completed
    #[arg(short, long)]
    pub wait: bool,
    /// How long to wait at most, such as 30m; exit with 124 then
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "12h", requires = "wait")]
    pub timeout: GoDuration,
}

/// A duration as Go writes it.
pub fn duration(text: &str) -> Result<GoDuration, String> {
    let duration = GoDuration::from_str(text).map_err(|error| error.to_string())?;
    if duration.as_std().is_zero() && !duration.is_zero() {
        return Err(format!("{text:?} is negative"));
    }
    Ok(duration)
}

/// `key=value`, for labels.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected key=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_two_examples_in_its_help() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.lines().filter(|line| line.starts_with("  kubectl backup ")).count();
            assert!(examples >= 2, "{} has {examples} examples", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn the_examples_in_the_help_can_be_typed() {
        fn collect(command: &clap::Command, lines: &mut Vec<String>) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            lines
                .extend(help.lines().filter(|line| line.starts_with("  kubectl backup ")).map(str::to_owned));
            command.get_subcommands().for_each(|sub| collect(sub, lines));
        }
        let mut lines = Vec::new();
        collect(&Cli::command(), &mut lines);
        for line in lines {
            let typed =
                line.split(" | ").next().unwrap_or(&line).split(" > ").next().unwrap_or(&line).to_owned();
            // What is in quotes is one word.
            let mut is_quoted = false;
            let words = typed.trim().strip_prefix("kubectl ").unwrap().split(|c: char| {
                is_quoted ^= c == '\'';
                c == ' ' && !is_quoted
            });
            Cli::try_parse_from(words.map(|word| word.replace('\'', "")))
                .unwrap_or_else(|error| panic!("{line}\n{error}"));
        }
    }
}
