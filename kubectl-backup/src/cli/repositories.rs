//! `repositories`: listing is the default.

use backup_core::api::GoDuration;
use clap::{Args, Subcommand};

use super::{GetArgs, duration};

#[derive(Subcommand, Debug)]
pub(crate) enum RepositoriesCommand {
    /// List repositories (the default)
    #[command(alias = "list")]
    Get(GetArgs),
    /// Free the space of deleted backups now, instead of once a day
    Maintain(MaintainArgs),
    /// Look for damage now, instead of once a day
    Check(CheckArgs),
    /// Replace the password of all repositories, or show how far that is
    RotatePassword(RotatePasswordArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MaintainArgs {
    /// Name of the repository
    pub(crate) name: String,
    /// Wait until it has ended; exit with 3 if it failed, with 124 on timeout [default: 4h]
    #[arg(short, long, value_name = "DURATION", value_parser = duration, num_args = 0..=1, default_missing_value = "4h", require_equals = true)]
    pub(crate) wait: Option<GoDuration>,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Name of the repository
    pub(crate) name: String,
    /// Read all data, instead of one of 30 parts
    #[arg(long)]
    pub(crate) read_data: bool,
    /// Wait until it has ended; exit with 3 if it failed or has found damage, with 124 on timeout
    /// [default: 4h]
    #[arg(short, long, value_name = "DURATION", value_parser = duration, num_args = 0..=1, default_missing_value = "4h", require_equals = true)]
    pub(crate) wait: Option<GoDuration>,
}

#[derive(Args, Debug)]
pub(crate) struct RotatePasswordArgs {
    /// The new password was copied out of the cluster: remove the keys of the previous one
    #[arg(long)]
    pub(crate) copied: bool,
    /// Wait until the new password can be copied, or with --copied until the previous one opens
    /// nothing; exit with 124 on timeout [default: 1h]
    #[arg(short, long, value_name = "DURATION", value_parser = duration, num_args = 0..=1, default_missing_value = "1h", require_equals = true)]
    pub(crate) wait: Option<GoDuration>,
}
