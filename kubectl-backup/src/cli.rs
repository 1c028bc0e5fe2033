//! The command line: what can be typed.

mod backup;
mod debug;
mod drill;
pub(crate) mod habits;
mod install;
mod installation;
mod locations;
mod locks;
mod migrate;
mod output;
mod repositories;
mod restore;
mod scheduled;
mod schedules;
pub(crate) mod selector;
mod spec;
pub(crate) mod velero_flags;

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use backup_core::api::GoDuration;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

pub(crate) use backup::{
    CancelArgs, CatArgs, CopyArgs, CreateArgs, DeleteArgs, DeleteBackupsArgs, DeletionArgs,
    DescribeArgs, DiffArgs, DownloadArgs, GetArgs, GetBackupsArgs, LogsArgs, LsArgs,
    OperationsArgs, SearchArgs, Until, UntilArgs, VerifyArgs, VolumesArgs, WaitForArgs,
};
pub(crate) use debug::DebugArgs;
pub(crate) use drill::{DrillArgs, DrillFlags, ScheduledDrillFlags};
pub(crate) use install::{ChoiceArgs, InstallArgs, RolloutArgs, UninstallArgs, UpgradeArgs};
pub(crate) use installation::{
    CheckProfilesArgs, CompletionArgs, DescribeOneArgs, ProfilesArgs, ProfilesCommand, Shell,
    ShowProfilesArgs, StatusArgs, VersionArgs,
};
pub(crate) use locations::{
    LocationCreateArgs, LocationFlags, LocationSetArgs, LocationsCommand, ProviderFlags,
    RetentionArgs, SnapshotLocationCreateArgs, SnapshotLocationSetArgs, SnapshotLocationsArgs,
    SnapshotLocationsCommand, SyncArgs, TrialArgs,
};
pub(crate) use locks::{HoldArgs, ListArgs, LocksArgs, LocksCommand, ReleaseArgs, Target};
pub(crate) use migrate::MigrateArgs;
pub(crate) use output::{DocumentArgs, ListFlags, Output, OutputArgs, TableParts};
pub(crate) use repositories::{RepositoriesCommand, RotatePasswordArgs};
pub(crate) use restore::{RestoreArgs, RestoreCommand, RestoreCreateArgs};
pub(crate) use scheduled::AftercareFlags;
pub(crate) use schedules::{
    KeepArgs, KeepFlags, ScheduleCreateArgs, ScheduleSetArgs, SchedulesCommand, TriggerArgs,
};
pub(crate) use selector::Alternatives;
pub(crate) use spec::{
    BackupSpecArgs, CreationArgs, DryRun, FileArgs, ItemArgs, ObjectArgs, WaitArgs,
};

/// Part of what `options` prints.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    an error, or a refusal
  2    invalid arguments
  3    what was waited for has ended, but is not Completed, or has saved or restored nothing;
       what `verify` has read is damaged; a drill has failed
  124  the time ran out while waiting
  130  interrupted";

/// Columns of help at most.
const MAX_HELP_COLUMNS: usize = 110;

/// Back up and restore Kubernetes resources.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl backup",
    bin_name = "kubectl backup",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = MAX_HELP_COLUMNS
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
    /// List backups
    Get(Box<GetBackupsArgs>),
    /// Show one backup: is it safe, what went wrong, what now
    Describe(DescribeArgs),
    /// Show the log of a backup
    Logs(LogsArgs),
    /// Show the asynchronous operations of a backup, and how far each has come
    Operations(OperationsArgs),
    /// Show how the data of each volume of a backup is saved, how much, where, and what is missing
    Volumes(VolumesArgs),
    /// Get the tarball of a backup: all its items, Secrets included
    Download(DownloadArgs),
    /// Check that the stored files of a backup are complete, agree with one another and can be read
    Verify(VerifyArgs),
    /// Restore a backup on trial, into scratch namespaces that are removed again: does it work, and
    /// how long does it take
    Drill(Box<DrillArgs>),
    /// Show what differs between a backup and the cluster: what a restore of it would bring back
    Diff(Box<DiffArgs>),
    /// List what is in a backup: its namespaces, the types of items in one, or the items of a type
    Ls(LsArgs),
    /// Print an item of a backup
    Cat(CatArgs),
    /// Find the backups that have an item
    Search(SearchArgs),
    /// Restore from a backup; manage restores
    Restore(Box<RestoreArgs>),
    /// Manage restores: list, show, cancel, wait for and delete them
    Restores(GroupArgs<RestoreCommand>),
    /// Wait for the end of backups, for a phase, or until nothing holds a scope
    Wait(WaitForArgs),
    /// End running backups early; what they have collected is stored
    Cancel(CancelArgs),
    /// Copy backups into another location
    Copy(CopyArgs),
    /// Delete backups, in the cluster and in the store, and the restores from them with their logs
    Delete(DeleteBackupsArgs),
    /// List schedules with their next runs; show, create, pause, trigger and delete them
    #[command(visible_alias = "schedule")]
    Schedules(GroupArgs<SchedulesCommand>),
    /// Manage the locations that backups are stored in: list, show, create, change, delete them,
    /// compare them with the cluster
    #[command(visible_alias = "location")]
    Locations(GroupArgs<LocationsCommand>),
    /// List the repositories of volume data: can they be used, when were they maintained and checked;
    /// maintain and check them now, rotate their password
    #[command(visible_alias = "repository", alias = "repo")]
    Repositories(GroupArgs<RepositoriesCommand>),
    /// Show who holds the lock between backups and restores; release what hangs, hold it during
    /// maintenance
    #[command(visible_alias = "lock")]
    Locks(Box<LocksArgs>),
    /// List the operators whose backups and restores can be kept apart, and the policy in force for
    /// each
    #[command(visible_alias = "profile")]
    Profiles(ProfilesArgs),
    /// Show which namespaces are protected, and why others are not; what runs, and where it is
    /// stored
    Status(StatusArgs),
    /// Install the webhook and the controller in the cluster
    Install(Box<InstallArgs>),
    /// Bring the installation to the version of this program, or change what was chosen
    Upgrade(Box<UpgradeArgs>),
    /// Remove the webhook and the controller; what they work on stays
    Uninstall(UninstallArgs),
    /// Say what becomes of a Velero installation here, and write the commands of the move and of the
    /// way back
    Migrate(MigrateArgs),
    /// Check that everything is in place: CRDs, webhook configuration, certificate, permissions,
    /// controller, locations, clock
    Doctor(DocumentArgs),
    /// Write an archive with what is needed to report a problem; secrets are taken out
    Debug(DebugArgs),
    /// Show the versions of this program, the controller and the API server
    Version(VersionArgs),
    /// Print the script that completes commands and names in a shell
    Completion(CompletionArgs),
    /// List the flags of all commands, and the exit codes
    Options,
}

/// clap's own template, and where to find what holds for all commands.
const HELP: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{all-args}{after-help}\n\n\
    Use \"kubectl backup options\" for the options of all commands and the exit codes.";

/// The command line. As with kubectl, flags of every command are listed by `options` alone.
pub(crate) fn command() -> clap::Command {
    fn finish(command: clap::Command, path: &str) -> clap::Command {
        let command = command.help_template(HELP).after_help(examples(path));
        command.mut_subcommands(|sub| {
            let path = format!("{path} {}", sub.get_name());
            finish(sub, &path)
        })
    }
    let command = Cli::command().mut_args(|arg| {
        let is_global = arg.is_global_set();
        arg.hide(is_global)
    });
    finish(command, "kubectl backup")
}

/// The examples of a command for its help. The commands of `restores` share the examples of
/// `restore`.
fn examples(path: &str) -> String {
    let title = format!("[{}]", path.replace(" restores ", " restore "));
    let all = include_str!("cli/examples.txt").lines();
    let own = all
        .skip_while(|line| *line != title)
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    let text = own.fold("Examples:\n".to_owned(), |text, line| match line {
        "" => text + "\n",
        line => text + "  " + line + "\n",
    });
    text.trim_end().to_owned()
}

/// What `options` prints.
pub(crate) fn global_options(width: Option<usize>) -> String {
    let command = GlobalArgs::augment_args(clap::Command::new("kubectl backup"))
        .disable_help_flag(true)
        .help_template(
            "The following options can be passed to any command:\n\n{all-args}{after-help}",
        )
        .after_help(EXIT_CODES)
        .max_term_width(MAX_HELP_COLUMNS);
    width
        .map_or(command.clone(), |width| command.term_width(width))
        .render_help()
        .to_string()
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
    /// Namespace of the installation [default: as velero's client is configured, else
    /// $VELERO_NAMESPACE, else velero]
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
    /// How long a single request may take, such as 10s, or 10; 0 is for ever [default: 30s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = seconds_or_duration)]
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
    /// Colour the output: auto, always or never; auto is never with NO_COLOR set
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
    /// Only on a terminal.
    #[default]
    Auto,
    Always,
    Never,
}

/// Commands below a command. Listing is the default.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct GroupArgs<C: Subcommand> {
    #[command(flatten)]
    pub(crate) list: ListFlags,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) command: Option<C>,
}

impl<C: Subcommand> GroupArgs<C> {
    /// The command that was typed, or listing.
    pub(crate) fn or_list(self, get: fn(GetArgs) -> C) -> C {
        let Self {
            list,
            output,
            command,
        } = self;
        command.unwrap_or_else(|| {
            get(GetArgs {
                list,
                output,
                ..GetArgs::default()
            })
        })
    }
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

/// A namespace and its other name, such as `shop:shop-copy`.
fn mapping(text: &str) -> Result<(String, String), String> {
    text.split_once(':')
        .filter(|(from, to)| !from.is_empty() && !to.is_empty() && !to.contains(':'))
        .map(|(from, to)| (from.to_owned(), to.to_owned()))
        .ok_or_else(|| "expected from:to".to_owned())
}

/// A duration as Go writes it, or with days before it, as our screens have them: `30d`, `1d12h`.
pub(crate) fn duration(text: &str) -> Result<GoDuration, String> {
    let duration = match with_days(text) {
        Some(duration) => duration,
        None => GoDuration::from_str(text).map_err(|error| error.to_string())?,
    };
    if duration.as_std().is_zero() && !duration.is_zero() {
        return Err(format!("{text:?} is negative"));
    }
    Ok(duration)
}

/// A number of days, and what follows it.
fn with_days(text: &str) -> Option<GoDuration> {
    let (days, rest) = text.split_once('d')?;
    let days: u32 = days.parse().ok()?;
    let rest = if rest.is_empty() {
        GoDuration::default()
    } else {
        rest.parse().ok()?
    };
    let starts_with_digit = text.ends_with('d')
        || text
            .split('d')
            .nth(1)?
            .starts_with(|c: char| c.is_ascii_digit());
    let whole = Duration::from_hours(24 * u64::from(days));
    starts_with_digit.then(|| whole.saturating_add(rest.as_std()).into())
}

/// The same, and as with kubectl a number alone is seconds.
fn seconds_or_duration(text: &str) -> Result<GoDuration, String> {
    text.parse().map_or_else(
        |_| duration(text),
        |seconds: u32| Ok(Duration::from_secs(seconds.into()).into()),
    )
}

pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| "expected key=value".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_may_have_days() {
        for (text, seconds) in [
            ("30d", Some(2_592_000)),
            ("1d12h", Some(129_600)),
            ("0d", Some(0)),
            ("720h", Some(2_592_000)),
            ("d", None),
            ("1d-2h", None),
            ("1dd", None),
            ("-1d", None),
            ("1.5d", None),
            ("1h1d", None),
            ("1d1d", None),
        ] {
            assert_eq!(
                duration(text).ok().map(GoDuration::as_secs),
                seconds,
                "{text}"
            );
        }
    }

    /// Each command, and the examples in its help.
    fn examples(command: &clap::Command) -> Vec<(String, Vec<String>)> {
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let lines = help
            .lines()
            .filter(|line| line.starts_with("  kubectl backup "))
            .map(str::to_owned);
        let own = (command.get_name().to_owned(), lines.collect());
        std::iter::once(own)
            .chain(command.get_subcommands().flat_map(examples))
            .collect()
    }

    #[test]
    fn every_command_has_two_examples_in_its_help() {
        for (name, examples) in examples(&command()) {
            assert!(
                examples.len() >= 2,
                "{name} has {} examples",
                examples.len()
            );
        }
    }

    #[test]
    fn the_examples_in_the_help_can_be_typed() {
        for line in examples(&command())
            .into_iter()
            .flat_map(|(_, lines)| lines)
        {
            let typed = line
                .split(" | ")
                .next()
                .unwrap_or(&line)
                .split(" > ")
                .next()
                .unwrap_or(&line)
                .to_owned();
            accepted(&typed, '\'');
        }
    }

    /// Fails unless the line can be typed. What is in quotes is one word.
    fn accepted(line: &str, quote: char) {
        let mut is_quoted = false;
        let words = line
            .trim()
            .strip_prefix("kubectl ")
            .unwrap()
            .split(|c: char| {
                is_quoted ^= c == quote;
                c == ' ' && !is_quoted
            });
        Cli::try_parse_from(words.map(|word| word.replace(quote, "")))
            .unwrap_or_else(|error| panic!("{line}\n{error}"));
    }

    #[test]
    fn the_shortcuts_of_k9s_can_be_typed() {
        let file = include_str!("../../deploy/k9s/plugins.yaml");
        let file: serde_json::Value = serde_saphyr::from_str(file).unwrap();
        let plugins = file["plugins"].as_object().unwrap();
        let mut keys = std::collections::BTreeSet::new();
        for (name, plugin) in plugins {
            let text = |field: &str| plugin[field].as_str().unwrap();
            let scope = plugin["scopes"][0].as_str().unwrap();
            assert!(
                keys.insert((scope, text("shortCut"))),
                "{name}: its key is taken in {scope}"
            );
            let (plural, kind) = (
                scope.strip_suffix(".velero.io").unwrap(),
                name.split('-').next().unwrap(),
            );
            assert_eq!(plural, format!("{kind}s"), "{name}");
            assert!(
                !text("description").is_empty() && text("command") == "sh",
                "{name}"
            );
            assert_eq!(plugin["args"][0], "-c", "{name}");
            let line = plugin["args"][1].as_str().unwrap();
            let command = line
                .split(" 2>&1")
                .next()
                .unwrap()
                .split(';')
                .next()
                .unwrap();
            // Only the options of the view: each names its object, installation and cluster.
            let group = if kind == "backup" {
                "kubectl backup "
            } else {
                &format!("kubectl backup {plural} ")
            };
            let verb = name.split('-').nth(1).unwrap();
            let begin = format!("{group}{verb} \"$NAME\" -n \"$NAMESPACE\" --context \"$CONTEXT\"");
            assert!(command.starts_with(&begin), "{name}: {command}");
            assert_eq!(plugin["dangerous"] == true, verb == "delete", "{name}");
            accepted(command, '"');
        }
        assert_eq!(plugins.len(), 10);
    }
}
