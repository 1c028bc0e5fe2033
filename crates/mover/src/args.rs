//! The command line.

use std::{
    num::{NonZeroU8, NonZeroU64},
    path::PathBuf,
    time::Duration,
};

use backup_core::data_movement::snapshot_notes;
use clap::{ArgGroup, Parser, Subcommand, ValueEnum};

use crate::{DataPart, ExistingFiles};

/// Shortest time between the mark of data and its removal: no backup may take longer.
const MIN_REMOVAL_DELAY: Duration = Duration::from_hours(1);

const ENVIRONMENT: &str = "\
Environment:
  BACKUP_REPOSITORY_PASSWORD  Password of the repository
  BACKUP_REPOSITORY_OTHER_PASSWORD
                              Password whose keys add-key and remove-key add and remove
  BACKUP_STORE_CREDENTIALS    Contents of the location's credentials file (the Secret's value);
                              unset: credentials of the environment, such as workload identity
  BACKUP_STORE_CA             CA certificates of the store, PEM, if --ca-file is not given
  BACKUP_STORE_PROVIDER, BACKUP_STORE_BUCKET, BACKUP_STORE_PREFIX, BACKUP_STORE_CA_FILE,
  BACKUP_REPOSITORY           Defaults of the flags with these names

Output: one JSON document on stdout when the work ended; JSON lines with progress and warnings on
stderr.

Exit codes:
  0    complete
  1    failed: nothing may be relied on
  2    wrong flags
  3    done, but something is missing or damaged: \"failures\" names it
  130  cancelled by SIGTERM or SIGINT

Examples:
  # Make a repository in a bucket of an S3-compatible store
  backup-mover init --provider aws --bucket backups --config s3Url=https://s3.example.com \\
    --config s3ForcePathStyle=true --repository restic/shop
  # Save a volume
  backup-mover backup --bucket backups --repository restic/shop --folder /volume \\
    --host shop --label 0f8c6f0e-claim-uid --tag backup=daily-1
  # Restore it
  backup-mover restore --bucket backups --repository restic/shop --snapshot 4f1c0a7d --target /volume
  # Read all data and name what is damaged
  backup-mover check --bucket backups --repository restic/shop --read-data
  # Replace the password: add a key of another one, and later remove the keys of the old one
  BACKUP_REPOSITORY_OTHER_PASSWORD=$NEW backup-mover add-key --bucket backups --repository restic/shop
  # Forget a snapshot; remove data that no snapshot has needed for three days
  backup-mover maintain --bucket backups --repository restic/shop --forget 4f1c0a7d… --prune";

/// Saves the contents of a volume into a repository of the restic format in an object store, and
/// restores it.
#[derive(Clone, Debug, Parser)]
#[command(name = "backup-mover", version, after_help = ENVIRONMENT)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// File to write the outcome to as well, shortened to 4096 bytes: the container's
    /// terminationMessagePath.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) termination_log: Option<PathBuf>,
    /// Time between two lines of progress, such as 5s.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = interval, global = true)]
    pub(crate) progress_interval: Duration,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Provider of the location: aws (S3 and compatibles), azure, gcp, or local (a folder).
    #[arg(
        long,
        default_value = "aws",
        env = "BACKUP_STORE_PROVIDER",
        global = true
    )]
    pub(crate) provider: String,
    /// Bucket or container; an absolute folder for provider local.
    #[arg(
        long,
        default_value = "",
        env = "BACKUP_STORE_BUCKET",
        hide_default_value = true,
        global = true
    )]
    pub(crate) bucket: String,
    /// Prefix of the location in the bucket.
    #[arg(long, env = "BACKUP_STORE_PREFIX", global = true)]
    pub(crate) prefix: Option<String>,
    /// Setting of the location (spec.config). Can be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting, global = true)]
    pub(crate) config: Vec<(String, String)>,
    /// File with CA certificates of the store, PEM.
    #[arg(long, value_name = "FILE", env = "BACKUP_STORE_CA_FILE", global = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// Folder of the repository below the location's prefix, such as restic/NAMESPACE.
    #[arg(
        long,
        default_value = "restic",
        env = "BACKUP_REPOSITORY",
        global = true
    )]
    pub(crate) repository: String,
    /// Maximum number of uploads side by side.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64), global = true)]
    pub(crate) parallel_uploads: u16,
    /// Memory for data that a restore has read and not written yet, such as 32Mi.
    #[arg(long, value_name = "SIZE", default_value = "32Mi", value_parser = memory, global = true)]
    pub(crate) read_memory: u32,
    /// Maximum bytes per second to the store, such as 20Mi.
    #[arg(long, value_name = "SIZE", value_parser = rate, global = true)]
    pub(crate) upload_limit: Option<NonZeroU64>,
    /// Maximum bytes per second from the store, such as 20Mi.
    #[arg(long, value_name = "SIZE", value_parser = rate, global = true)]
    pub(crate) download_limit: Option<NonZeroU64>,
    /// Time during which a request is tried again while the store does not answer, such as 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration, global = true)]
    pub(crate) retry_for: Duration,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a repository. Fails if there is one
    Init,
    /// Save a folder or block device as a new snapshot
    Backup(BackupArgs),
    /// Restore a snapshot into a folder or block device
    Restore(RestoreArgs),
    /// Open the repository, and do nothing else: whether the password is right
    Open,
    /// Add a key of another password: both passwords open the repository then
    AddKey,
    /// Remove the keys of another password, once the password opens the repository
    RemoveKey,
    /// Look for damage, and name the snapshots that it concerns. Backups may run meanwhile
    Check(CheckArgs),
    /// Forget snapshots, and remove data that none needs. No backup may run meanwhile
    Maintain(MaintainArgs),
}

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Backup(_) => "backup",
            Self::Restore(_) => "restore",
            Self::Open => "open",
            Self::AddKey => "add-key",
            Self::RemoveKey => "remove-key",
            Self::Check(_) => "check",
            Self::Maintain(_) => "maintain",
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("volume").required(true).args(["folder", "device"]))]
pub(crate) struct BackupArgs {
    /// Folder to save, with all that is in it.
    #[arg(long, value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,
    /// Block device to save, whole.
    #[arg(long, value_name = "PATH")]
    pub(crate) device: Option<PathBuf>,
    /// Host name of the snapshot. With label and path it says which snapshot came before.
    #[arg(long)]
    pub(crate) host: String,
    /// Label of the snapshot, such as the claim's uid.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) label: String,
    /// Path that the snapshot shows.
    #[arg(long, default_value = "/")]
    pub(crate) path: PathBuf,
    /// Tag of the snapshot. Can be repeated.
    #[arg(long)]
    pub(crate) tag: Vec<String>,
    /// Uids of the Backup and the DataUpload that the snapshot is for. The repository has a note of
    /// the snapshot under them before the snapshot exists.
    #[arg(long = "note", value_name = "BACKUP/UPLOAD", value_parser = notes)]
    pub(crate) notes: Option<String>,
    /// Read all files, also those that look unchanged.
    #[arg(long)]
    pub(crate) read_all: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Id of the snapshot, or its first 8 digits or more.
    #[arg(long, value_name = "ID")]
    pub(crate) snapshot: String,
    /// Folder or block device to restore into.
    #[arg(long, value_name = "PATH")]
    pub(crate) target: PathBuf,
    /// What becomes of files in the folder.
    #[arg(long, value_enum, default_value_t = ExistingArg::Refuse)]
    pub(crate) existing: ExistingArg,
}

/// What becomes of files in the folder that is restored into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExistingArg {
    /// Fail if there are any.
    Refuse,
    /// Remove all of them first.
    Replace,
    /// Keep those with the same size and time; restore or remove the others.
    Update,
    /// Restore all files of the snapshot, and keep files that it does not have.
    Overwrite,
    /// Keep those with the same size and time and files that the snapshot does not have; restore the
    /// others.
    Amend,
}

impl From<ExistingArg> for ExistingFiles {
    fn from(arg: ExistingArg) -> Self {
        match arg {
            ExistingArg::Refuse => Self::Refuse,
            ExistingArg::Replace => Self::Replace,
            ExistingArg::Update => Self::Update,
            ExistingArg::Overwrite => Self::Overwrite,
            ExistingArg::Amend => Self::Amend,
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Read all data and compare it with its checksums.
    #[arg(long)]
    pub(crate) read_data: bool,
    /// Read one part of the data, such as 1/30: after all parts, all data was read.
    #[arg(
        long = "read-data-part",
        value_name = "PART/PARTS",
        value_parser = part,
        conflicts_with = "read_data"
    )]
    pub(crate) part: Option<DataPart>,
    /// Whole id of a pack to read as well; succeeds if there is none. Can be repeated.
    #[arg(long = "read-pack", value_name = "ID")]
    pub(crate) packs: Vec<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MaintainArgs {
    /// Whole id of a snapshot to forget; succeeds if there is none. Can be repeated.
    #[arg(long, value_name = "ID", required_unless_present = "prune")]
    pub(crate) forget: Vec<String>,
    /// Mark data that no snapshot needs, and remove what was marked before.
    #[arg(long)]
    pub(crate) prune: bool,
    /// Time between mark and removal; longer than any backup takes. At least 1h.
    #[arg(long, value_name = "DURATION", default_value = "72h", value_parser = removal_delay)]
    pub(crate) removal_delay: Duration,
}

fn part(text: &str) -> Result<DataPart, String> {
    let error = || format!("{text:?} is no part of the data such as 1/30");
    let (part, parts) = text.split_once('/').ok_or_else(error)?;
    let part: u8 = part.parse().map_err(|_| error())?;
    let parts: NonZeroU8 = parts.parse().map_err(|_| error())?;
    if part == 0 || part > parts.get() {
        return Err(error());
    }
    Ok(DataPart { part, parts })
}

fn duration(text: &str) -> Result<Duration, String> {
    let error =
        |e: &dyn std::fmt::Display| format!("{text:?} is no duration such as 90s or 2m: {e}");
    let duration: jiff::SignedDuration = text.parse().map_err(|e: jiff::Error| error(&e))?;
    Duration::try_from(duration).map_err(|e| error(&e))
}

fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("{text:?} is too short")),
        interval => Ok(interval),
    }
}

fn removal_delay(text: &str) -> Result<Duration, String> {
    let delay = duration(text)?;
    if delay < MIN_REMOVAL_DELAY {
        return Err(format!(
            "{text:?} is too short: a backup that runs would lose its data; expected at least 1h"
        ));
    }
    Ok(delay)
}

/// Bytes, with one of the suffixes of Kubernetes.
fn size(text: &str) -> Result<u64, String> {
    let units = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let found = units
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (number, factor) = found.unwrap_or((text, 1_u64));
    let bytes = number.parse::<u64>().ok();
    bytes
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("{text:?} is no size such as 500k or 20Mi"))
}

fn memory(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| format!("{text:?} is too large; expected less than 4Gi"))
}

fn rate(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(size(text)?).ok_or_else(|| format!("{text:?} is no rate"))
}

/// The folder of the notes.
fn notes(text: &str) -> Result<String, String> {
    let is_uid = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
    };
    text.split_once('/')
        .filter(|(backup, upload)| is_uid(backup) && is_uid(upload))
        .map(|(backup, upload)| snapshot_notes(backup, upload))
        .ok_or_else(|| format!("{text:?} is not of the form BACKUP/UPLOAD, with a uid each"))
}

fn setting(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("{text:?} is not of the form KEY=VALUE"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once(&"backup-mover").chain(args))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn data_is_never_removed_at_once() {
        assert!(parse(&["maintain", "--prune", "--removal-delay", "0s"]).is_err());
        assert!(parse(&["maintain", "--prune", "--removal-delay", "59m"]).is_err());
        assert!(parse(&["maintain", "--prune", "--removal-delay", "1h"]).is_ok());
        assert!(parse(&["maintain"]).is_err(), "nothing to do");
    }

    #[test]
    fn a_backup_is_of_a_folder_or_of_a_device() {
        assert!(parse(&["backup", "--host", "h"]).is_err());
        assert!(parse(&["backup", "--host", "h", "--folder", "/a"]).is_ok());
        let both = ["backup", "--host", "h", "--folder", "/a", "--device", "/b"];
        assert!(parse(&both).is_err());
    }

    #[test]
    fn notes_are_in_a_folder_of_their_own() {
        assert_eq!(notes("uid-b/uid-1"), Ok("uploads/uid-b/uid-1".to_owned()));
        for text in [
            "", "uid-b", "uid-b/", "/uid-1", "uid-b/..", "../uid-1", "a/b/c",
        ] {
            assert!(notes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_of_the_data_is_one_of_all_parts() {
        for text in ["1/30", "30/30", "1/1"] {
            assert!(
                parse(&["check", "--read-data-part", text]).is_ok(),
                "{text}"
            );
        }
        for text in ["", "1", "0/30", "31/30", "1/0", "1/256", "a/b"] {
            assert!(
                parse(&["check", "--read-data-part", text]).is_err(),
                "{text}"
            );
        }
        let both = ["check", "--read-data", "--read-data-part", "1/2"];
        assert!(parse(&both).is_err());
    }

    #[test]
    fn sizes_have_the_suffixes_of_kubernetes() {
        assert_eq!(size("20Mi"), Ok(20 << 20));
        assert_eq!(size("5k"), Ok(5000));
        assert_eq!(size("7"), Ok(7));
        for text in ["", "Mi", "-1", "1.5Gi", "99999999999Gi"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
