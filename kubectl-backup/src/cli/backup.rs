//! `create`, `get`, `describe`, `delete`.

use backup_core::api::GoDuration;
use clap::Args;

use super::{
    BackupSpecArgs, DocumentOutput, DryRun, EXIT_CODES, FileArgs, ListFlags, ObjectArgs, ObjectOutput,
    OutputArgs, SelectionArgs, WaitArgs, duration,
};

const CREATE_EXAMPLES: &str = "\
Examples:
  # Back up everything, under a name made from the time
  kubectl backup create

  # Back up one application and keep it for a week; end with 3 if something is missing
  kubectl backup create shop --include-namespaces=shop -l app=shop --ttl=168h --wait --timeout=30m

  # In a pipeline: wait for a restore that is in the way, at most ten minutes
  kubectl backup create before-deploy --include-namespaces=shop --retry-for=10m --wait

  # From a manifest; flags go over it
  kubectl backup create db-now -f backup.yaml --include-namespaces=db

  # With a command in each pod before it is backed up
  kubectl backup create db-now --include-namespaces=db --hook='{name: flush, pre: [{exec: {command: [/bin/sync]}}]}'

  # Make a manifest for Git
  kubectl backup create shop --include-namespaces=shop --dry-run=client -o yaml > shop.yaml";

#[derive(Args, Debug, Default)]
#[command(after_help = format!("{CREATE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct CreateArgs {
    /// Name of the backup [default: that of the manifest, or backup-<time>, or <schedule>-<time>]
    pub(crate) name: Option<String>,
    /// Take everything that no flag gives from the template of this schedule
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub(crate) from_schedule: Option<String>,
    #[command(flatten)]
    pub(crate) spec: BackupSpecArgs,
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Store nothing: client only checks here, server asks the cluster
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true, conflicts_with = "wait")]
    pub(crate) dry_run: Option<DryRun>,
    /// Print the object: json, yaml or name
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<ObjectOutput>,
    /// Try a refused creation again for so long, such as 10m, at the pace that the refusal names; exit with 124 then
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Waiting")]
    pub(crate) retry_for: Option<GoDuration>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

const GET_BACKUPS_EXAMPLES: &str = "  \
  # What another operator's backups and restores are at, and their places in the lock
  kubectl backup get --kind=ps-backups
  kubectl backup get --kind=perconaservermysqlrestores.ps.percona.com --in=db -o wide";

#[derive(Args, Debug, Default)]
#[command(after_help = format!("{GET_EXAMPLES}\n\n{GET_BACKUPS_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct GetBackupsArgs {
    #[command(flatten)]
    pub(crate) get: GetArgs,
    #[command(flatten)]
    pub(crate) guarded: GuardedArgs,
}

/// Objects of another operator, whose kinds a profile tells.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Another operator's objects")]
pub(crate) struct GuardedArgs {
    /// Kind of a profile in place of backups, by any of its names; objects are named NAMESPACE/NAME
    #[arg(long, value_name = "KIND[.GROUP]")]
    pub(crate) kind: Option<String>,
    /// Namespace of these objects [default: all, or as they are named]
    #[arg(long = "in", value_name = "NAMESPACE", requires = "kind")]
    pub(crate) in_namespace: Option<String>,
}

const GET_EXAMPLES: &str = "\
Examples:
  # All backups, newest of each schedule first
  kubectl backup get

  # The names of those of one schedule
  kubectl backup get -l velero.io/schedule-name=nightly -o name

  # The newest last, and what becomes of them, for a script
  kubectl backup get --sort-by=.status.startTimestamp --no-headers
  kubectl backup get -w -o custom-columns=NAME:.metadata.name,PHASE:.status.phase";

#[derive(Args, Clone, Debug, Default)]
#[command(after_help = format!("{GET_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct GetArgs {
    /// Names [default: all]
    #[arg(conflicts_with = "all_namespaces")]
    pub(crate) names: Vec<String>,
    /// Only those with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "names")]
    pub(crate) selector: Option<String>,
    /// Only those with these fields, such as metadata.name=nightly
    #[arg(long, value_name = "SELECTOR", conflicts_with = "names")]
    pub(crate) field_selector: Option<String>,
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// Show labels as the last column
    #[arg(long, help_heading = "Output")]
    pub(crate) show_labels: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const DESCRIBE_EXAMPLES: &str = "\
Examples:
  # Is it safe, what went wrong, what now?
  kubectl backup describe nightly-20261103030000

  # Watch one that runs
  kubectl backup describe before-upgrade -w

  # The same for a program: a versioned document
  kubectl backup describe nightly-20261103030000 -o json";

const DESCRIBE_GUARDED_EXAMPLES: &str = "  \
  # One of another operator: its state, its place in the lock, whom it waits for
  kubectl backup describe --kind=ps-backups db/nightly";

#[derive(Args, Debug)]
#[command(after_help = format!("{DESCRIBE_EXAMPLES}\n\n{DESCRIBE_GUARDED_EXAMPLES}"))]
pub(crate) struct DescribeBackupArgs {
    #[command(flatten)]
    pub(crate) describe: DescribeArgs,
    #[command(flatten)]
    pub(crate) guarded: GuardedArgs,
}

#[derive(Args, Debug)]
#[command(after_help = DESCRIBE_EXAMPLES)]
pub(crate) struct DescribeArgs {
    /// Name
    pub(crate) name: String,
    /// Print a document of kubectl-backup/v1 with times in RFC 3339: json or yaml
    #[arg(short, long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<DocumentOutput>,
    /// Show everything: all messages, operations, volumes, items and events
    #[arg(long)]
    pub(crate) details: bool,
    /// Show it anew while it runs
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) watch: bool,
}

pub(super) const CANCEL_EXAMPLES: &str = "\
Examples:
  # End a backup early: nothing more is collected, and its operations are told to stop
  kubectl backup cancel before-upgrade

  # In a script: wait until it has ended
  kubectl backup cancel before-upgrade --wait --timeout=10m";

#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// Names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Wait until it has ended, in whichever way
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// How long to wait at most; exit with 124 then
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h", requires = "wait")]
    pub(crate) timeout: GoDuration,
}

const DELETE_EXAMPLES: &str = "\
Examples:
  # Delete a backup with all that is stored of it, after a question
  kubectl backup delete before-upgrade

  # In a script: no question, and wait until it is gone
  kubectl backup delete before-upgrade --yes --wait --timeout=10m

  # All that a schedule has made
  kubectl backup delete -l velero.io/schedule-name=nightly";

#[derive(Args, Debug)]
#[command(after_help = format!("{DELETE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Don't ask
    #[arg(short, long, visible_alias = "confirm")]
    pub(crate) yes: bool,
    /// Wait until it is gone
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// How long to wait at most; exit with 124 then
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h", requires = "wait")]
    pub(crate) timeout: GoDuration,
}
