//! `debug`: what is needed to report a problem.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct DebugArgs {
    /// Backup that the problem is about
    #[arg(long, value_name = "NAME", conflicts_with = "restore")]
    pub(crate) backup: Option<String>,
    /// Restore that the problem is about
    #[arg(long, value_name = "NAME")]
    pub(crate) restore: Option<String>,
    /// File to write; - is stdout [default: backup-debug-<time>.tar.gz]
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Maximum number of lines of each container log, counted from its end; at most 10 MiB of each
    /// are kept
    #[arg(long, value_name = "LINES", default_value_t = 50_000)]
    pub(crate) tail: u32,
    /// Don't ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}
