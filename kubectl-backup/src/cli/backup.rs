//! The commands about Backups; those about Restores take most of the same flags.

use std::path::PathBuf;

use backup_core::api::{BackupPhase, GoDuration};
use clap::Args;

use super::{
    BackupSpecArgs, CreationArgs, DocumentArgs, FileArgs, ListFlags, Output, OutputArgs,
    SelectionArgs, WaitArgs, duration, mapping, output::FormParser,
};

#[derive(Args, Debug, Default)]
pub(crate) struct CreateArgs {
    /// Name of the backup [default: that of the manifest, or backup-<time>, or <schedule>-<time>]
    pub(crate) name: Option<String>,
    /// Take everything that no flag gives from the template of this schedule
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub(crate) from_schedule: Option<String>,
    #[command(flatten)]
    pub(crate) spec: BackupSpecArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) creation: CreationArgs,
}

#[derive(Args, Debug, Default)]
pub(crate) struct GetBackupsArgs {
    /// Only backups that hold this namespace, newest first; their lists of items are read
    #[arg(long, value_name = "NAMESPACE", conflicts_with_all = ["names", "all_namespaces", "watch"])]
    pub(crate) containing: Option<String>,
    #[command(flatten)]
    pub(crate) get: GetArgs,
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GetArgs {
    /// Names [default: all]
    #[arg(conflicts_with = "all_namespaces")]
    pub(crate) names: Vec<String>,
    /// Only objects with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "names")]
    pub(crate) selector: Option<String>,
    /// Only objects with these fields, such as metadata.name=nightly
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

#[derive(Args, Debug)]
pub(crate) struct DescribeArgs {
    /// Name [default: the newest]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
    /// Show everything: all messages, operations, volumes, items and events
    #[arg(long)]
    pub(crate) details: bool,
    /// Show it again on each change while it runs
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    /// Name
    pub(crate) name: String,
    /// Show only lines of errors
    #[arg(long)]
    pub(crate) errors: bool,
    /// Follow the log until the end; exit with 3 unless the phase is Completed then
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DownloadArgs {
    /// Name of the backup
    pub(crate) name: String,
    /// File to write; - is stdout [default: <name>-data.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Name of the backup
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Name of the backup
    pub(crate) name: String,
    /// What to look into: a namespace, or a type of items in it, such as shop/deployments; . has
    /// what is in no namespace
    #[arg(value_name = "NAMESPACE[/TYPE]")]
    pub(crate) place: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CatArgs {
    /// Name of the backup
    pub(crate) name: String,
    /// Item, such as shop/deployments/web; TYPE/NAME if it is in no namespace
    #[arg(value_name = "[NAMESPACE/]TYPE/NAME")]
    pub(crate) item: String,
    /// Show the values of a Secret, too
    #[arg(long)]
    pub(crate) show_secrets: bool,
    /// Form: yaml or json
    #[arg(short, long, value_parser = FormParser(&["json", "yaml"]), default_value = "yaml", value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct SearchArgs {
    /// Item, such as shop/deployments/web; TYPE/NAME if it is in no namespace
    #[arg(value_name = "[NAMESPACE/]TYPE/NAME")]
    pub(crate) item: String,
    /// Compare each with the object in the cluster; reads the whole of each backup that has it
    #[arg(long)]
    pub(crate) compare: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug, Default)]
pub(crate) struct DiffArgs {
    /// Name of the backup
    pub(crate) name: String,
    /// Namespaces to compare, with wildcards [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) include_namespaces: Vec<String>,
    /// Resources to compare, such as deployments.apps, with wildcards [default: all]
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) include_resources: Vec<String>,
    /// Namespaces that are compared with others, such as shop:shop-copy
    #[arg(long, value_delimiter = ',', value_name = "FROM:TO", value_parser = mapping)]
    pub(crate) namespace_mappings: Vec<(String, String)>,
    /// Compare objects that others make, too, such as the ReplicaSets of a Deployment
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
}

#[derive(Args, Debug)]
pub(crate) struct OperationsArgs {
    /// Name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print a line for each change, until the end
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct VolumesArgs {
    /// Name of the backup
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// Names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Wait until it has ended, in any phase
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// Maximum time to wait; exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h", requires = "wait")]
    pub(crate) timeout: GoDuration,
}

#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Location to copy them into
    #[arg(long, value_name = "LOCATION")]
    pub(crate) to: String,
    /// Time to keep the copies from the start of each backup [default: that of the backup]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<GoDuration>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DeletionArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Don't ask
    #[arg(short, long, visible_alias = "confirm")]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) deletion: DeletionArgs,
    /// Wait until it is gone
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// Maximum time to wait; exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h", requires = "wait")]
    pub(crate) timeout: GoDuration,
}

#[derive(Args, Debug)]
pub(crate) struct DeleteBackupsArgs {
    #[command(flatten)]
    pub(crate) delete: DeleteArgs,
    /// Delete the backup although a file repository holds data of it that only a Velero server can
    /// delete; that data stays
    #[arg(long)]
    pub(crate) forget_data: bool,
    /// Leave complete copies in other locations; each becomes a backup there
    #[arg(long)]
    pub(crate) keep_copies: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WaitForArgs {
    #[command(flatten)]
    pub(crate) until: UntilArgs,
    /// With --for=free: scope that is to be free
    #[arg(long, value_name = "SCOPE", default_value = backup_lock::VELERO_SCOPE)]
    pub(crate) scope: String,
    /// With --for=free: namespaces that are to be free, with wildcards [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) namespaces: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct UntilArgs {
    /// Names
    pub(crate) names: Vec<String>,
    /// What to wait for: end, phase=PHASE, or (for no name) free: that nothing holds a scope
    #[arg(long = "for", value_name = "WHAT", value_parser = until, default_value = "end")]
    pub(crate) until: Until,
    /// Maximum time to wait; exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "12h")]
    pub(crate) timeout: GoDuration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    End,
    Phase(String),
    /// Nothing holds a scope.
    Free,
}

/// A phase of backups, which include the phases of restores. Any other one would never be reached.
fn phase_of(text: &str) -> Result<Until, String> {
    if BackupPhase::KNOWN.contains(&text) {
        return Ok(Until::Phase(text.to_owned()));
    }
    Err(format!(
        "no phase is called {text:?}; there are {}",
        BackupPhase::KNOWN.join(", ")
    ))
}

fn until(text: &str) -> Result<Until, String> {
    if let Some(phase) = text.strip_prefix("phase=") {
        return phase_of(phase);
    }
    // Phases begin with a capital.
    if text.starts_with(|first: char| first.is_ascii_uppercase()) && !text.contains('=') {
        return phase_of(text);
    }
    match text {
        "end" => Ok(Until::End),
        "free" => Ok(Until::Free),
        _ => Err("expected end, phase=PHASE or free".to_owned()),
    }
}
