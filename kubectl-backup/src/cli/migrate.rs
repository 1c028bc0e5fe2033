//! `migrate`: the move from a Velero server to this project.

use std::path::PathBuf;

use clap::Args;

use super::{Output, output::FormParser};

#[derive(Args, Debug)]
pub(crate) struct MigrateArgs {
    /// Only say what stays, changes and is lost, and write no files; exit with 1 if something is
    /// lost or not known
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check: print a document of kubectl-backup/v1: json or yaml
    #[arg(short, long, requires = "check", value_parser = FormParser(&["json", "yaml"]), value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<Output>,
    /// Print the files, and write none
    #[arg(long, conflicts_with = "check")]
    pub(crate) dry_run: bool,
    /// Folder for the files; it is created
    #[arg(
        long,
        value_name = "FOLDER",
        value_hint = clap::ValueHint::AnyPath,
        default_value = "from-velero",
        conflicts_with_all = ["check", "dry_run"]
    )]
    pub(crate) output_dir: PathBuf,
    /// Registry and path of our images, such as registry.example.com/backup [default: none, the
    /// bare names]
    #[arg(long, value_name = "REGISTRY", conflicts_with = "check")]
    pub(crate) registry: Option<String>,
}
