//! `restore` and `restores`, which have the same commands: creating is the default of the one, listing that of the other.

use std::path::PathBuf;

use backup_core::api::{GoDuration, restore::RestoreResourceHookSpec};
use clap::{Args, Subcommand};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{
    CancelArgs, DeleteArgs, DescribeArgs, DryRun, EXIT_CODES, GetArgs, LogsArgs, ObjectArgs, ObjectOutput,
    OperationsArgs, WaitArgs, duration, hooks, selector,
    wait::{RESTORE_EXAMPLES as WAIT_EXAMPLES, UntilArgs},
};

const EXAMPLES: &str = "\
Examples:
  # Restore everything of a backup and wait for the end
  kubectl backup restore --from-backup=before-upgrade --wait

  # Restore one namespace beside the original
  kubectl backup restore --from-backup=daily --include-namespaces=shop --namespace-mappings=shop:copy";

#[derive(Args, Debug)]
#[command(
    after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) create: RestoreCreateArgs,
    #[command(subcommand)]
    pub(crate) command: Option<RestoreCommand>,
}

const RESTORES_EXAMPLES: &str = "\
Examples:
  # All restores
  kubectl backup restores

  # Is it done, what went wrong, what now?
  kubectl backup restores describe back-again";

#[derive(Args, Debug)]
#[command(
    after_help = format!("{RESTORES_EXAMPLES}\n\n{EXIT_CODES}"),
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct RestoresArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RestoreCommand>,
}

/// What to do with restores.
#[derive(Subcommand, Debug)]
pub(crate) enum RestoreCommand {
    /// Create a restore
    #[command(after_help = format!("{CREATE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Create {
        /// Name of the restore [default: <backup>-<time>]
        #[arg(value_name = "NAME", conflicts_with = "restore_name")]
        positional: Option<String>,
        #[command(flatten)]
        args: Box<RestoreCreateArgs>,
    },
    /// List restores
    #[command(after_help = format!("{GET_EXAMPLES}\n\n{EXIT_CODES}"))]
    Get(GetArgs),
    /// Show one restore: is it done, what went wrong, what now
    #[command(after_help = DESCRIBE_EXAMPLES)]
    Describe(DescribeArgs),
    /// Show the log of a restore
    #[command(after_help = LOGS_EXAMPLES)]
    Logs(LogsArgs),
    /// Show the asynchronous operations of a restore, and how far each has come
    #[command(after_help = super::stored::RESTORE_OPERATIONS_EXAMPLES)]
    Operations(OperationsArgs),
    /// End running restores early; what they have restored stays, and they say what is missing
    #[command(after_help = format!("{CANCEL_EXAMPLES}\n\n{EXIT_CODES}"))]
    Cancel(CancelArgs),
    /// Wait for the end of restores, or for a phase
    #[command(after_help = format!("{WAIT_EXAMPLES}\n\n{EXIT_CODES}"))]
    Wait(UntilArgs),
    /// Delete restores; what they restored stays
    #[command(after_help = format!("{DELETE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Delete(DeleteArgs),
}

const LOGS_EXAMPLES: &str = "\
Examples:
  # What a restore has told
  kubectl backup restore logs back-again

  # What it left as it was, and why
  kubectl backup restore logs back-again | grep level=warning";

const CREATE_EXAMPLES: &str = "\
Examples:
  # Restore everything of a backup, under a name of your own
  kubectl backup restore create back-again --from-backup=before-upgrade

  # Restore the newest completed backup of a schedule; bring what exists to the state of the backup
  kubectl backup restore create --from-schedule=nightly --existing-resource-policy=update --wait

  # From a manifest; flags go over it
  kubectl backup restore create back-again -f restore.yaml --include-namespaces=db

  # With a command in each restored pod
  kubectl backup restore create back-again --from-backup=db-now --hook='{name: warm, postHooks: [{exec: {command: [/warm.sh]}}]}'";

const GET_EXAMPLES: &str = "\
Examples:
  # All restores
  kubectl backup restore get

  # One of them, as it is stored
  kubectl backup restore get back-again -o yaml";

const DESCRIBE_EXAMPLES: &str = "\
Examples:
  # Is it done, what went wrong, what now?
  kubectl backup restore describe back-again

  # Watch one that runs
  kubectl backup restore describe back-again -w

  # The same for a program: a versioned document
  kubectl backup restore describe back-again -o json";

const CANCEL_EXAMPLES: &str = "\
Examples:
  # End a restore early: nothing more is restored, and its operations are told to stop
  kubectl backup restore cancel back-again

  # In a script: wait until it has ended
  kubectl backup restore cancel back-again --wait --timeout=10m";

const DELETE_EXAMPLES: &str = "\
Examples:
  # Delete a restore and what is stored of it, after a question
  kubectl backup restore delete back-again

  # In a script: no question, and wait until it is gone
  kubectl backup restore delete back-again --yes --wait";

/// Where to restore from: one of them.
#[derive(Args, Debug, Default)]
#[group(id = "source", required = true, multiple = false)]
pub(crate) struct SourceArgs {
    /// Backup to restore from
    #[arg(long, value_name = "NAME")]
    pub(crate) from_backup: Option<String>,
    /// Restore the newest completed backup of this schedule
    #[arg(long, value_name = "NAME")]
    pub(crate) from_schedule: Option<String>,
    /// Begin with this manifest, YAML or JSON; - is stdin. Flags go over it
    #[arg(short = 'f', long = "filename", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct RestoreCreateArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Name of the restore [default: <backup>-<time>]
    #[arg(long = "name", id = "restore_name", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Namespaces of the backup to restore, with wildcards [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) include_namespaces: Vec<String>,
    /// Namespaces of the backup to leave out
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) exclude_namespaces: Vec<String>,
    /// Namespaces to restore under another name, such as shop:shop-copy
    #[arg(long, value_delimiter = ',', value_name = "FROM:TO", value_parser = mapping)]
    pub(crate) namespace_mappings: Vec<(String, String)>,
    /// Resources to restore, such as deployments.apps [default: all]
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) include_resources: Vec<String>,
    /// Commands to run in restored pods: an entry of spec.hooks.resources, as YAML; may be repeated
    #[arg(long = "hook", value_name = "YAML", value_parser = hooks::of_restore)]
    pub(crate) hooks: Vec<RestoreResourceHookSpec>,
    /// Resources to leave out
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) exclude_resources: Vec<String>,
    /// Whether to restore cluster-scoped resources [default: as fits the namespaces]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) include_cluster_resources: Option<bool>,
    /// Only items with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = selector::parse, conflicts_with = "or_selector")]
    pub(crate) selector: Option<LabelSelector>,
    /// Only items that match one of these, such as 'app=shop or app=db'
    #[arg(long, value_name = "SELECTORS", value_parser = selector::parse_or)]
    pub(crate) or_selector: Option<selector::Alternatives>,
    /// What to do with objects that exist and differ: none leaves them, update brings them to the state of the backup
    #[arg(long, value_name = "POLICY", value_parser = ["none", "update"], hide_possible_values = true)]
    pub(crate) existing_resource_policy: Option<String>,
    /// Resources whose status is restored too
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) status_include_resources: Vec<String>,
    /// Resources whose status is not restored
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) status_exclude_resources: Vec<String>,
    /// Whether volumes are restored from snapshots [default: true]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) restore_volumes: Option<bool>,
    /// Whether services keep their node ports [default: false]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) preserve_nodeports: Option<bool>,
    /// Deadline of every asynchronous operation, such as 4h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) item_operation_timeout: Option<GoDuration>,
    /// With --from-schedule: a backup that is PartiallyFailed will do, too
    #[arg(long, requires = "from_schedule")]
    pub(crate) allow_partially_failed: bool,
    /// ConfigMap with changes to make to items
    #[arg(long, value_name = "NAME")]
    pub(crate) resource_modifier_configmap: Option<String>,
    /// Whether the server's own modifier is left out
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) skip_default_resource_modifier: Option<bool>,
    /// ConfigMap with policies for resources
    #[arg(long, value_name = "NAME")]
    pub(crate) resource_policies_configmap: Option<String>,
    /// Whether holes in files are written as holes
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) write_sparse_files: Option<bool>,
    /// Files written at once to one volume
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) parallel_files_download: Option<i64>,
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
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

fn mapping(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() && !to.contains(':') => {
            Ok((from.to_owned(), to.to_owned()))
        }
        _ => Err("expected from:to".to_owned()),
    }
}
