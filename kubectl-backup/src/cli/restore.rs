//! `restore` and `restores`, which have the same commands: creating is the default of the one,
//! listing that of the other.

use std::path::PathBuf;

use backup_core::{
    api::{GoDuration, restore::RestoreResourceHookSpec},
    selection::ObjectName,
};
use clap::{Args, Subcommand};

use super::{
    CancelArgs, CreationArgs, DeleteArgs, DescribeArgs, GetArgs, ItemArgs, LogsArgs,
    OperationsArgs, UntilArgs, duration, mapping, spec,
};

#[derive(Args, Debug)]
#[command(
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct RestoreArgs {
    /// Backup to restore from, as with --from-backup
    #[arg(value_name = "BACKUP", group = "source")]
    pub(crate) backup: Option<String>,
    #[command(flatten)]
    pub(crate) create: RestoreCreateArgs,
    #[command(subcommand)]
    pub(crate) command: Option<RestoreCommand>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum RestoreCommand {
    /// Create a restore
    Create {
        /// Name of the restore [default: <backup>-<time>]
        #[arg(value_name = "NAME", conflicts_with = "restore_name")]
        positional: Option<String>,
        #[command(flatten)]
        args: Box<RestoreCreateArgs>,
    },
    /// List restores
    Get(GetArgs),
    /// Show one restore: is it done, what went wrong, what now
    Describe(DescribeArgs),
    /// Show the log of a restore
    Logs(LogsArgs),
    /// Show the asynchronous operations of a restore, and how far each has come
    Operations(OperationsArgs),
    /// End running restores early; what they have restored stays
    Cancel(CancelArgs),
    /// Wait for the end of restores, or for a phase
    Wait(UntilArgs),
    /// Delete restores; what they restored stays
    Delete(DeleteArgs),
}

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
    #[command(flatten)]
    pub(crate) items: ItemArgs,
    /// The only objects to restore, such as shop/deployment/web, or clusterrole/reader; may be
    /// repeated
    #[arg(long = "object", value_name = "NAMESPACE/TYPE/NAME", value_parser = object, conflicts_with_all = [
        "include_namespaces", "exclude_namespaces", "include_resources", "exclude_resources", "selector"])]
    pub(crate) objects: Vec<String>,
    /// Namespaces to restore under another name, such as shop:shop-copy
    #[arg(long, value_delimiter = ',', value_name = "FROM:TO", value_parser = mapping)]
    pub(crate) namespace_mappings: Vec<(String, String)>,
    /// Commands to run in restored pods: an entry of spec.hooks.resources, as YAML; may be repeated
    #[arg(long = "hook", value_name = "YAML", value_parser = spec::restore_hook)]
    pub(crate) hooks: Vec<RestoreResourceHookSpec>,
    /// Objects that exist and differ: none leaves them, update changes them to the state of the
    /// backup
    #[arg(long, value_name = "POLICY", value_parser = ["none", "update"], hide_possible_values = true)]
    pub(crate) existing_resource_policy: Option<String>,
    /// Whether to remove, after all else, objects in the restored namespaces that the backup does
    /// not have [default: false]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) prune: Option<bool>,
    /// Don't ask about --prune: the names of all namespaces that it removes objects from
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACES")]
    pub(crate) yes_prune: Vec<String>,
    /// Data of volumes whose claims exist: none leaves it, full overwrites it, incremental
    /// overwrites what differs. The last two are for a restore of claims only
    /// (--include-resources=persistentvolumeclaims), and for volumes that no pod uses
    #[arg(long, value_name = "POLICY", value_parser = ["none", "full", "incremental"], hide_possible_values = true)]
    pub(crate) existing_volume_data_policy: Option<String>,
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
    /// With --from-schedule: accept a backup that is PartiallyFailed as well
    #[arg(long, requires = "from_schedule")]
    pub(crate) allow_partially_failed: bool,
    /// ConfigMap with changes to make to items
    #[arg(long, value_name = "NAME")]
    pub(crate) resource_modifier_configmap: Option<String>,
    /// Whether to skip the resource modifier that the server has for all restores
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) skip_default_resource_modifier: Option<bool>,
    /// ConfigMap with policies for resources
    #[arg(long, value_name = "NAME")]
    pub(crate) resource_policies_configmap: Option<String>,
    /// Whether files are written as sparse files
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) write_sparse_files: Option<bool>,
    /// Number of files written to one volume in parallel
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) parallel_files_download: Option<i64>,
    /// With --existing-volume-data-policy: whether to delete files that the backup does not have
    /// [default: false]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) delete_extra_files: Option<bool>,
    /// Show what would become of each item, and restore nothing; same as --dry-run=server, and a
    /// document with -o
    #[arg(long, conflicts_with_all = ["dry_run", "wait", "retry_for"])]
    pub(crate) plan: bool,
    #[command(flatten)]
    pub(crate) creation: CreationArgs,
}

fn object(text: &str) -> Result<String, String> {
    let named = ObjectName::parse(text).map(|_| text.to_owned());
    named.ok_or_else(|| {
        "expected NAMESPACE/TYPE/NAME, or TYPE/NAME where there is no namespace".to_owned()
    })
}
