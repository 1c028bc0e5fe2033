//! The command line: what can be typed.

pub(crate) mod backup;
mod hooks;
mod installation;
pub(crate) mod locations;
pub(crate) mod locks;
pub(crate) mod output;
mod restore;
pub(crate) mod schedules;
pub(crate) mod selector;
pub(crate) mod spec;
mod stored;
mod wait;

use std::{fmt, path::PathBuf, str::FromStr};

use backup_core::api::GoDuration;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

pub(crate) use backup::{
    CancelArgs, CreateArgs, DeleteArgs, DescribeArgs, DescribeBackupArgs, GetArgs, GetBackupsArgs,
};
pub(crate) use installation::{CompletionArgs, DoctorArgs, ProfilesArgs, Shell, VersionArgs};
pub(crate) use locations::{LocationArgs, LocationsArgs, LocationsCommand, SyncArgs};
pub(crate) use locks::{HoldArgs, ListArgs, LocksArgs, LocksCommand, ReleaseArgs};
pub(crate) use output::{Column, Form, ListFlags, OutputArgs};
pub(crate) use restore::{RestoreArgs, RestoreCommand, RestoreCreateArgs, RestoresArgs};
pub(crate) use schedules::{
    ScheduleArgs, ScheduleCreateArgs, ScheduleDeleteArgs, SchedulesArgs, SchedulesCommand, TriggerArgs,
};
pub(crate) use selector::Alternatives;
pub(crate) use spec::{BackupSpecArgs, FileArgs, ObjectArgs};
pub(crate) use stored::{DownloadArgs, LogsArgs, OperationsArgs, VerifyArgs};
pub(crate) use wait::{Until, UntilArgs, WaitForArgs};

/// Exit codes, for the help of every command.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    an error, or a refusal
  2    the arguments make no sense
  3    what was waited for has ended, but is not Completed
  124  time ran out while waiting
  130  interrupted";

/// Columns of help at most.
const WIDTH: usize = 110;

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
    max_term_width = WIDTH
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Create a backup
    Create(Box<CreateArgs>),
    /// List backups, or with --kind another operator's backups or restores
    Get(Box<GetBackupsArgs>),
    /// Show one backup: is it safe, what went wrong, what now
    Describe(DescribeBackupArgs),
    /// Show the log of a backup
    Logs(LogsArgs),
    /// Show the asynchronous operations of a backup, and how far each has come
    #[command(after_help = stored::OPERATIONS_EXAMPLES)]
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
    /// List the flags that every command takes: which cluster, as whom, which installation
    #[command(after_help = OPTIONS_EXAMPLES)]
    Options,
}

const OPTIONS_EXAMPLES: &str = "\
Examples:
  # The flags that every command takes
  kubectl backup options

  # They stand before or behind the command
  kubectl backup --context=production get";

/// clap's own template, and where to find the flags that it leaves out.
const HELP: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{all-args}{after-help}\n\n\
    Use \"kubectl backup options\" for a list of global command-line options (applies to all commands).";

/// The command line. As with kubectl, flags of every command are listed by `options` alone.
pub(crate) fn command() -> clap::Command {
    fn with_template(command: clap::Command) -> clap::Command {
        command.help_template(HELP).mut_subcommands(with_template)
    }
    with_template(Cli::command().mut_args(|arg| {
        let is_global = arg.is_global_set();
        arg.hide(is_global)
    }))
}

/// What `options` prints.
pub(crate) fn global_options(width: Option<usize>) -> String {
    let command = GlobalArgs::augment_args(clap::Command::new("kubectl backup"))
        .disable_help_flag(true)
        .help_template("The following options can be passed to any command:\n\n{all-args}")
        .max_term_width(WIDTH);
    width.map_or(command.clone(), |width| command.term_width(width)).render_help().to_string()
}

/// Flags of every command: which cluster, as whom, which installation.
#[derive(Args, Debug, Default, Clone)]
#[command(next_help_heading = "Connection")]
pub(crate) struct GlobalArgs {
    /// Kubeconfig file to use
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Namespace of the installation [default: as velero's client is configured, else $VELERO_NAMESPACE, else velero]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// User to act as
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) as_user: Option<String>,
    /// Group to act as; may be repeated
    #[arg(long, global = true, value_name = "GROUP", requires = "as_user")]
    pub(crate) as_group: Vec<String>,
    /// UID to act as
    #[arg(long, global = true, value_name = "UID", requires = "as_user")]
    pub(crate) as_uid: Option<String>,
    /// Bearer token, in place of what the kubeconfig has for the user
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<Token>,
    /// Client certificate, as a PEM file
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) client_certificate: Option<PathBuf>,
    /// Key of the client certificate, as a PEM file
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) client_key: Option<PathBuf>,
    /// How long a single request may take, such as 10s; 0 is for ever [default: 30s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) request_timeout: Option<GoDuration>,
    /// URL of the API server
    #[arg(short, long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Authorities that the API server's certificate is checked by, as a PEM file
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Name that the API server's certificate has to be for [default: the host of its URL]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
    /// Don't check the API server's certificate
    #[arg(long, global = true, conflicts_with = "certificate_authority")]
    pub(crate) insecure_skip_tls_verify: bool,
    /// Colour the output: auto, always or never; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN", hide_possible_values = true)]
    pub(crate) color: Colour,
}

/// A bearer token. It is never shown.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

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

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Colour {
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
pub(crate) enum Output {
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
pub(crate) enum ObjectOutput {
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

/// In which form a document is printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentOutput {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl From<DocumentOutput> for Output {
    fn from(output: DocumentOutput) -> Self {
        match output {
            DocumentOutput::Json => Self::Json,
            DocumentOutput::Yaml => Self::Yaml,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DryRun {
    /// Only check here, and print what would be sent.
    Client,
    /// Ask the cluster, which stores nothing.
    Server,
}

/// Whether to wait, and how long.
#[derive(Args, Debug, Clone, Copy, Default)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitArgs {
    /// Wait for the end; exit with 3 unless it is Completed
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// How long to wait at most, such as 30m; exit with 124 then
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "12h", requires = "wait")]
    pub(crate) timeout: GoDuration,
}

/// Names, or labels, or all of them: one of the three.
#[derive(Args, Debug, Default)]
#[group(id = "selection", required = true, multiple = false)]
pub(crate) struct SelectionArgs {
    /// Names
    pub(crate) names: Vec<String>,
    /// All with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) selector: Option<String>,
    /// All in the namespace
    #[arg(long)]
    pub(crate) all: bool,
}

/// A duration as Go writes it.
pub(crate) fn duration(text: &str) -> Result<GoDuration, String> {
    let duration = GoDuration::from_str(text).map_err(|error| error.to_string())?;
    if duration.as_std().is_zero() && !duration.is_zero() {
        return Err(format!("{text:?} is negative"));
    }
    Ok(duration)
}

pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected key=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
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
