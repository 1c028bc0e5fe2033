//! `locations`: listing is the default.

use std::path::PathBuf;

use backup_core::api::GoDuration;
use clap::{Args, Subcommand};

use super::{
    DeletionArgs, DescribeOneArgs, DocumentArgs, DryRun, GetArgs, ListFlags, ObjectArgs, Output,
    OutputArgs, duration, key_value, output::FormParser,
};

#[derive(Subcommand, Debug)]
pub(crate) enum LocationsCommand {
    /// List locations (the default)
    Get(GetArgs),
    /// List VolumeSnapshotLocations, where plugins keep snapshots of volumes; create, change and
    /// delete them
    Snapshots(SnapshotLocationsArgs),
    /// Show one location: can it be used, what its bucket keeps, when it was compared
    Describe(DescribeOneArgs),
    /// Show the last comparisons of the buckets with the cluster; compare one now
    Sync(SyncArgs),
    /// Show what retention did in a location last; agree to removals that it has refused
    Retention(RetentionArgs),
    /// Create a location
    Create(Box<LocationCreateArgs>),
    /// Change a location: the default, access, credential, settings
    Set(LocationSetArgs),
    /// Delete locations; what is stored there stays
    Delete(DeletionArgs),
}

#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct SnapshotLocationsArgs {
    #[command(flatten)]
    pub(crate) get: GetArgs,
    #[command(subcommand)]
    pub(crate) command: Option<SnapshotLocationsCommand>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum SnapshotLocationsCommand {
    /// Create a location of snapshots
    Create(SnapshotLocationCreateArgs),
    /// Change a location of snapshots: credential, settings
    Set(SnapshotLocationSetArgs),
    /// Delete locations of snapshots; the snapshots stay
    Delete(DeletionArgs),
}

/// How a provider is reached.
#[derive(Args, Debug, Default)]
pub(crate) struct ProviderFlags {
    /// Settings of the provider, such as region=eu-central-1; KEY= takes one away
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) config: Vec<(String, String)>,
    /// Secret and key with the credentials, such as cloud-credentials=cloud
    #[arg(long, value_name = "SECRET=KEY", value_parser = key_value)]
    pub(crate) credential: Option<(String, String)>,
}

/// What may be changed of a location.
#[derive(Args, Debug, Default)]
pub(crate) struct LocationFlags {
    #[command(flatten)]
    pub(crate) provider: ProviderFlags,
    /// Use it for backups that name no location; no other location is the default then
    #[arg(long)]
    pub(crate) default: bool,
    /// ReadWrite, or ReadOnly: nothing is written or deleted there
    #[arg(long, value_name = "MODE", value_parser = ["ReadWrite", "ReadOnly"], hide_possible_values = true)]
    pub(crate) access_mode: Option<String>,
    /// Authorities of the server's certificate, as a PEM file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) cacert: Option<PathBuf>,
    /// Interval between comparisons of the bucket with the cluster, such as 1m; 0s turns them off
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) backup_sync_period: Option<GoDuration>,
    /// Interval between checks of the location, such as 1m; 0s checks it once
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) validation_frequency: Option<GoDuration>,
}

#[derive(Args, Debug)]
pub(crate) struct LocationCreateArgs {
    /// Name of the location
    pub(crate) name: String,
    /// aws (S3 and compatible stores), azure, gcp, or a plugin
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: String,
    /// Bucket or container
    #[arg(long, value_name = "NAME")]
    pub(crate) bucket: String,
    /// Folder in the bucket
    #[arg(long, value_name = "PATH")]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) flags: LocationFlags,
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
    #[command(flatten)]
    pub(crate) trial: TrialArgs,
    /// Also wait until the location itself was validated; exit with 3 if it cannot be used
    #[arg(short, long, conflicts_with = "dry_run")]
    pub(crate) wait: bool,
    /// Create nothing: client validates locally, server sends a dry run
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true)]
    pub(crate) dry_run: Option<DryRun>,
    /// Print the object: json, yaml or name
    #[arg(short, long, value_parser = FormParser(&["json", "yaml", "name"]), value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<Output>,
}

#[derive(Args, Debug)]
pub(crate) struct LocationSetArgs {
    /// Name of the location
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) flags: LocationFlags,
    #[command(flatten)]
    pub(crate) trial: TrialArgs,
}

/// The try of a bucket before anything is stored.
#[derive(Args, Debug)]
pub(crate) struct TrialArgs {
    /// Don't test the bucket first
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Maximum time to wait for the answer of the controller; exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2m")]
    pub(crate) timeout: GoDuration,
}

#[derive(Args, Debug)]
pub(crate) struct SnapshotLocationCreateArgs {
    /// Name of the location
    pub(crate) name: String,
    /// Plugin that takes the snapshots
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: String,
    #[command(flatten)]
    pub(crate) flags: ProviderFlags,
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
    /// Create nothing: client validates locally, server sends a dry run
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true)]
    pub(crate) dry_run: Option<DryRun>,
    /// Print the object: json, yaml or name
    #[arg(short, long, value_parser = FormParser(&["json", "yaml", "name"]), value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<Output>,
}

#[derive(Args, Debug)]
pub(crate) struct SnapshotLocationSetArgs {
    /// Name of the location
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) flags: ProviderFlags,
}

#[derive(Args, Debug)]
pub(crate) struct SyncArgs {
    /// BackupStorageLocation to show, with what was skipped and why [default: all, in short]
    #[arg(conflicts_with = "all_namespaces")]
    pub(crate) location: Option<String>,
    /// Compare it now, and wait for the outcome
    #[arg(long, requires = "location", conflicts_with = "watch")]
    pub(crate) now: bool,
    /// Like --now, and remove the Backups whose removal was refused because too many were gone at
    /// once; none if there are more than N
    #[arg(
        long,
        value_name = "N",
        requires = "location",
        conflicts_with = "watch"
    )]
    pub(crate) accept_removals: Option<u64>,
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// Maximum time to wait, such as 30m; exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    pub(crate) timeout: GoDuration,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RetentionArgs {
    /// Name of the location
    pub(crate) name: String,
    /// Have its backups looked at now, and wait for the outcome
    #[arg(long)]
    pub(crate) now: bool,
    /// Like --now, and remove the expired backups whose removal was refused because too many had
    /// expired at once; none if there are more than N
    #[arg(long, value_name = "N")]
    pub(crate) accept_removals: Option<u64>,
    /// Maximum time to wait, such as 30m; exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    pub(crate) timeout: GoDuration,
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
}
