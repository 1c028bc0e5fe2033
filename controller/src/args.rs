//! The command line. Names and defaults are Velero's where it has them
//! (`pkg/cmd/server/config/config.go`, v1.18).

#[cfg(test)]
mod deploy;
#[cfg(test)]
mod tests;
pub(crate) mod velero_flags;

use std::{net::SocketAddr, num::NonZeroU64, path::PathBuf};

use backup_core::{
    api::GoDuration, cron::Dialect, mover_flags, names::is_object_name, quantity,
    resources::RestoreOrder,
};
use backup_store::{AllowedPlaces, Limits, StoreError};
use clap::{ArgAction, Parser, ValueEnum};

use crate::{notify::NotifySettings, restore::ItemMemory, volumes::data_mover::MoverSettings};

const HOUR: i64 = 3600;
const SYNC_FREQUENCY: GoDuration = GoDuration::from_secs(10);
const GC_FREQUENCY: GoDuration = GoDuration::from_secs(HOUR);
const CSI: &str = "EnableCSI";
const API_GROUP_VERSIONS: &str = "EnableAPIGroupVersions";
const FEATURES: [&str; 2] = [CSI, API_GROUP_VERSIONS];

/// Runs backups and restores of Kubernetes resources.
#[derive(Clone, Debug, Parser)]
#[command(name = "backup-controller", version)]
pub struct Args {
    /// Namespace of the installation: its Backups, Restores and locations.
    #[arg(long, env = "BACKUP_NAMESPACE", default_value = "velero")]
    pub namespace: String,

    /// Kubeconfig file. Without it: $KUBECONFIG, ~/.kube/config, then the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Address of /livez, /readyz and /metrics (plain HTTP).
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8085")]
    pub metrics_address: SocketAddr,

    /// Address that serves stored files to users who reach the API server but not the store (HTTPS,
    /// through the API server's service proxy). Without it no stored file is served.
    #[arg(long, value_name = "ADDR")]
    pub files_address: Option<SocketAddr>,

    /// Service that leads to this address by its port `files`, in the namespace of the
    /// installation.
    #[arg(long, value_name = "NAME", default_value = "backup-controller")]
    pub files_service: String,

    /// Maximum number of items in a backup that is restored. Each takes up to 500 bytes of memory
    /// in each running restore.
    #[arg(long, value_name = "N", default_value_t = Limits::DEFAULT.items, value_parser = items)]
    pub restore_max_items: usize,

    /// Maximum unpacked size of a backup that is restored, such as 4Gi. The disk at /tmp holds up
    /// to half of it.
    #[arg(long, value_name = "SIZE", default_value = "16Gi", value_parser = size)]
    pub restore_max_size: u64,

    /// The same in megabytes (1024 × 1024 bytes), as Velero has it; 0 is the default.
    #[arg(long, value_name = "MEGABYTES", conflicts_with = "restore_max_size")]
    pub max_backup_extraction_size: Option<u32>,

    /// Memory for items that all running restores decode at the same time, such as 256Mi. An item
    /// of an eighth of it is restored alone, and a larger one is an error of its restore.
    #[arg(long, value_name = "SIZE", default_value = "256Mi", value_parser = item_memory)]
    pub restore_item_memory: u64,

    /// Maximum number of backups that collect items at the same time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub concurrent_backups: u16,

    /// Maximum number of restores that restore items at the same time. The lock keeps overlapping
    /// ones apart.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub concurrent_restores: u16,

    /// Types that restores begin with, in this order, then `-` and those that come last; the others
    /// are between them, by name. Definitions and namespaces always come first [default: Velero's
    /// order]
    #[arg(long, value_name = "LIST")]
    pub restore_resource_priorities: Option<RestoreOrder>,

    /// Number of pods and claims of one backup whose CSI snapshots are taken at the same time. Pods
    /// with hooks are handled one by one.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub item_block_worker_count: u16,

    /// Time to keep backups that have no ttl.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(720 * HOUR))]
    pub default_backup_ttl: GoDuration,

    /// Timeout of item operations of backups and restores that set none.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(4 * HOUR))]
    pub default_item_operation_timeout: GoDuration,

    /// Interval between polls of a running item operation; 0 is the default.
    #[arg(long, value_name = "DURATION", default_value_t = SYNC_FREQUENCY)]
    pub item_operation_sync_frequency: GoDuration,

    /// Number of item operations of backups that are polled at the same time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub item_operation_concurrency: u16,

    /// Features to enable, with commas between them: EnableCSI (volumes of CSI drivers are
    /// snapshotted) and EnableAPIGroupVersions (items are stored in all versions that are served,
    /// and restored in the one that the ConfigMap enableapigroupversions or the cluster prefers).
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub features: Vec<String>,

    /// Folder with plugin binaries of Velero's kind; all executables in it are started.
    #[arg(long, value_name = "FOLDER", default_value = "/plugins")]
    pub plugin_dir: PathBuf,

    /// Providers of locations that are built in (aws, azure, gcp), but are to be served by their
    /// plugin, with commas between them. Providers that are not built in always are.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub object_store_plugins: Vec<String>,

    /// Hosts that settings of locations (s3Url, storeEndpoint, storageAccountURI,
    /// activeDirectoryAuthorityURI) and --notify-url may lead to, with * for any part and commas
    /// between them, besides those of the providers of locations. [default: any, but tokens and
    /// passwords of locations without a credential of their own go to hosts of their provider only]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub allowed_endpoints: Vec<String>,

    /// Folders that locations of provider local may be in, with commas between them. [default: any
    /// but those of the system and those that hold files of this program]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub allowed_local_paths: Vec<PathBuf>,

    /// Image of backup-mover, which pods in the namespace of the installation run to move volume
    /// data. Without it, backups with spec.snapshotMoveData are refused, and data that was moved
    /// is not restored.
    #[arg(long, value_name = "IMAGE")]
    pub mover_image: Option<String>,

    /// Memory limit of each pod that moves volume data; at least 256Mi.
    #[arg(long, value_name = "SIZE", default_value = "512Mi", value_parser = mover_flags::memory)]
    pub mover_memory_limit: String,

    /// Maximum bytes per second that each pod that moves volume data sends to the store, such as
    /// 20Mi; at least 64Ki [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = mover_flags::rate)]
    pub mover_upload_limit: Option<NonZeroU64>,

    /// Maximum bytes per second that each pod that moves volume data reads from the store, such as
    /// 20Mi; at least 64Ki [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = mover_flags::rate)]
    pub mover_download_limit: Option<NonZeroU64>,

    /// Timeout for a pod that moves volume data to start, with its volume: then the transfer fails
    /// with the reason that pod or claim give.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(1800), value_parser = positive)]
    pub data_mover_prepare_timeout: GoDuration,

    /// Maximum number of volumes whose data is moved at the same time, in backups and restores.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=i64::from(mover_flags::MAX_CONCURRENCY)))]
    pub data_mover_concurrency: u16,

    /// Move the data of CSI snapshots to the object store in backups that do not set
    /// spec.snapshotMoveData. Needs --mover-image.
    #[arg(long)]
    pub default_snapshot_move_data: bool,

    /// Timeout of a plugin for one item, its start included, or for one message of an object that
    /// it stores.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(600), value_parser = positive)]
    pub plugin_timeout: GoDuration,

    /// Time to retry a status write before the object is queued again; 0 or less is one try.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(600), allow_hyphen_values = true)]
    pub resource_timeout: GoDuration,

    /// Interval between validations of locations that set none; 0 validates them once.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(60), allow_hyphen_values = true)]
    pub store_validation_frequency: GoDuration,

    /// Interval between comparisons with the cluster, of locations that set none; 0 turns them off.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(60), allow_hyphen_values = true)]
    pub backup_sync_period: GoDuration,

    /// Time without writes after which a folder without a finished backup is removed from a bucket;
    /// at least 24h, 0 turns it off.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(720 * HOUR), value_parser = never_or_a_day)]
    pub stray_folder_ttl: GoDuration,

    /// Location of backups that name none, when no location is marked as the default.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub default_backup_storage_location: String,

    /// VolumeSnapshotLocations for backups that name none, of providers that have several:
    /// provider:name, comma-separated.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = provider_and_name)]
    pub default_volume_snapshot_locations: Vec<(String, String)>,

    /// ConfigMap, in the namespace of the installation, with volumePolicies for all backups; those
    /// of a backup come first.
    #[arg(long, value_name = "NAME")]
    pub global_backup_volume_policies_configmap: Option<String>,

    /// ConfigMap, in the namespace of the installation, with resource modifiers for restores that
    /// name none (spec.resourceModifier) and do not set spec.skipDefaultResourceModifier.
    #[arg(long, value_name = "NAME")]
    pub default_resource_modifier_configmap: Option<String>,

    /// Maximum bytes per second that scheduled verifications of backups (spec.verify of Schedules)
    /// read from stores, such as 20Mi. One backup is verified at a time.
    #[arg(long, value_name = "SIZE", default_value = "20Mi", value_parser = rate)]
    pub verify_read_limit: NonZeroU64,

    /// URL that gets a POST with a CloudEvent for each backup or restore that ends otherwise than
    /// Completed, for each drill that fails, and for each verification that finds faults. Without
    /// it nothing is sent.
    #[arg(long, value_name = "URL")]
    pub notify_url: Option<String>,

    /// Secret, in the namespace of the installation, whose key `authorization` is sent to
    /// --notify-url as the header of this name.
    #[arg(long, value_name = "NAME", requires = "notify_url", value_parser = secret_name)]
    pub notify_secret: Option<String>,

    /// Page size of LIST requests (objects).
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub client_page_size: u32,

    /// In a backup without filters, leave out cluster-scoped resources that no item of it needs, as
    /// Velero does since 1.17. Without this flag, a backup of everything holds everything.
    #[arg(long)]
    pub only_related_cluster_resources: bool,

    /// Which library's reading of cron expressions counts: robfig (Velero up to 1.18.2) or
    /// netresearch (Velero after that). They differ where day of month and day of week are both
    /// given, and in what they refuse.
    #[arg(long, value_name = "NAME", default_value_t = Dialect::Robfig)]
    pub cron_dialect: Dialect,

    /// When a schedule is first seen and a run is already due, wait for the next one; a schedule
    /// can say otherwise.
    #[arg(long)]
    pub schedule_skip_immediately: bool,

    /// Interval between tries to delete an expired backup that could not be deleted; 0 or less is
    /// the default.
    #[arg(long, value_name = "DURATION", default_value_t = GC_FREQUENCY, allow_hyphen_values = true)]
    pub garbage_collection_frequency: GoDuration,

    /// Maximum share of the backups of a location that retention removes within an hour without a
    /// user's consent, in percent, if they are more than 5; 100 turns the limit off.
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub retention_max_share: u8,

    /// Whether to work only while holding the Lease `backup-controller`.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub leader_elect: bool,

    /// Time after which a claim is removed whose object was never seen.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(120))]
    pub orphan_grace: GoDuration,

    /// Log level; RUST_LOG overrides it.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    /// Format of log lines.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    pub log_format: LogFormat,

    /// Controllers to turn off, comma-separated, by Velero's names: backup, backup-deletion,
    /// backup-sync, download-request, gc, restore, schedule, server-status-request.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = disableable)]
    pub disable_controllers: Vec<&'static str>,

    /// Turns off backup, backup-deletion, gc and schedule, and copies of backups.
    #[arg(long)]
    pub restore_only: bool,

    /// API groups that may be unavailable without making a backup incomplete. Groups that were seen
    /// to offer nothing creatable are added automatically.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "metrics.k8s.io,custom.metrics.k8s.io,external.metrics.k8s.io"
    )]
    pub groups_without_items: Vec<String>,

    /// Profile of objects that another operator runs, such as percona-ps. With velero, a Velero
    /// server does the work, and this controller only maintains the lock. Can be repeated.
    #[arg(long, value_name = "PROFILE")]
    pub guard: Vec<String>,

    /// Folder with profiles (*.yaml) that add to those built in, or replace them.
    #[arg(long, value_name = "FOLDER")]
    pub profiles: Option<PathBuf>,
}

/// As Velero names them (logrus).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    #[value(alias = "warn")]
    Warning,
    #[value(alias = "fatal", alias = "panic")]
    Error,
}

impl LogLevel {
    /// What a filter of logs calls it.
    pub(crate) fn directive(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warn",
            Self::Error => "error",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

/// Velero's names of what can be left out, each with ours.
const DISABLEABLE: [(&str, &str); 8] = [
    ("backup", "backup"),
    ("backup-deletion", "deletion"),
    ("backup-sync", "sync"),
    ("download-request", "download"),
    ("gc", "retention"),
    ("restore", "restore"),
    ("schedule", "schedule"),
    ("server-status-request", "server status"),
];

fn disableable(name: &str) -> Result<&'static str, String> {
    let known = DISABLEABLE
        .iter()
        .find(|(theirs, _)| *theirs == name.trim());
    if let Some((_, ours)) = known {
        return Ok(ours);
    }
    match name {
        "backup-queue" | "backup-operations" | "backup-finalizer" => {
            Err("it is a part of \"backup\" here".to_owned())
        }
        "restore-operations" | "restore-finalizer" => {
            Err("it is a part of \"restore\" here".to_owned())
        }
        "backup-repo" => Err(
            "it is a part of the data mover here, which does not run without --mover-image; leave it out"
                .to_owned(),
        ),
        _ => Err(format!(
            "expected one of {}",
            DISABLEABLE.map(|(theirs, _)| theirs).join(", ")
        )),
    }
}

/// A provider, a colon, and the name of a location.
fn provider_and_name(text: &str) -> Result<(String, String), String> {
    match text.trim().rsplit_once(':') {
        Some((provider, name)) if !provider.is_empty() && !name.is_empty() => {
            Ok((provider.to_owned(), name.to_owned()))
        }
        _ => Err("it has to be provider:name".to_owned()),
    }
}

/// Nothing, or at least a day: a backup that collects for long writes nothing that could be seen.
fn never_or_a_day(text: &str) -> Result<GoDuration, String> {
    let is_valid =
        |duration: GoDuration| duration.is_zero() || duration >= GoDuration::from_secs(24 * HOUR);
    duration(text, is_valid, "it has to be 0 (never), or at least 24h")
}

fn positive(text: &str) -> Result<GoDuration, String> {
    duration(
        text,
        |duration| duration > GoDuration::from_secs(0),
        "it has to be more than 0",
    )
}

/// Empty counts as unset.
fn secret_name(text: &str) -> Result<String, String> {
    if text.is_empty() || is_object_name(text) {
        Ok(text.to_owned())
    } else {
        Err("it has to be the name of a Secret".to_owned())
    }
}

/// As many as have an index of 32 bits.
fn items(text: &str) -> Result<usize, String> {
    let items = text.parse::<u32>().ok().filter(|items| *items > 0);
    items
        .map(|items| items as usize)
        .ok_or_else(|| "it has to be a number from 1 to 4294967295".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = quantity::bytes(text)
        .and_then(|bytes| u64::try_from(bytes).ok())
        .filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "it has to be a size such as 4Gi".to_owned())
}

/// Bytes per second.
fn rate(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(size(text)?).ok_or_else(|| "it has to be more than 0".to_owned())
}

/// At least as much as is needed for an object of the largest size that the API server takes (3
/// MiB).
fn item_memory(text: &str) -> Result<u64, String> {
    Some(size(text)?)
        .filter(|bytes| *bytes >= 64 << 20)
        .ok_or_else(|| "it has to be at least 64Mi".to_owned())
}

fn duration(
    text: &str,
    is_valid: impl Fn(GoDuration) -> bool,
    rule: &str,
) -> Result<GoDuration, String> {
    let duration: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    if is_valid(duration) {
        Ok(duration)
    } else {
        Err(rule.to_owned())
    }
}

impl Args {
    /// The arguments of this process. One that cannot be used ends it, with a sentence on what to
    /// do.
    pub fn of_process() -> Self {
        if let Some(refusal) = velero_flags::refusal(std::env::args()) {
            clap::Error::raw(clap::error::ErrorKind::UnknownArgument, refusal + "\n").exit();
        }
        Self::parse()
    }

    /// Whether a controller of this name runs.
    pub(crate) fn runs(&self, controller: &str) -> bool {
        let in_restore_only =
            !["backup", "copies", "deletion", "retention", "schedule"].contains(&controller);
        !self.disable_controllers.contains(&controller) && (!self.restore_only || in_restore_only)
    }

    /// Where locations may lead.
    pub(crate) fn allowed_places(&self) -> AllowedPlaces {
        let own = [
            Some(std::env::temp_dir()),
            std::env::current_exe().ok(),
            Some(self.plugin_dir.clone()),
        ];
        AllowedPlaces {
            endpoints: self.allowed_endpoints.clone(),
            folders: self.allowed_local_paths.clone(),
            own: own
                .into_iter()
                .flatten()
                .chain(self.profiles.clone())
                .chain(self.kubeconfig.clone())
                .collect(),
        }
    }

    /// Where notifications are sent; `None` if nowhere. Errors: the URL is no URL, or leads to a host
    /// that is not allowed.
    pub(crate) fn notify(&self) -> Result<Option<NotifySettings>, StoreError> {
        let Some(url) = self.notify_url.as_ref().filter(|url| !url.is_empty()) else {
            return Ok(None);
        };
        let url = self.allowed_places().check_url("--notify-url", url)?;
        let secret = self.notify_secret.clone().filter(|name| !name.is_empty());
        Ok(Some(NotifySettings { url, secret }))
    }

    /// What a backup may hold to be restored from.
    pub fn restore_limits(&self) -> Limits {
        Limits {
            items: self.restore_max_items,
            bytes: self
                .max_backup_extraction_size
                .filter(|megabytes| *megabytes > 0)
                .map_or(self.restore_max_size, |megabytes| {
                    u64::from(megabytes) << 20
                }),
            item_memory: ItemMemory::most(self.restore_item_memory),
        }
    }

    /// Settings of pods that move volume data; `None` without an image for them.
    pub(crate) fn mover(&self) -> Option<MoverSettings> {
        let image = self.mover_image.as_ref().filter(|image| !image.is_empty());
        image.map(|image| MoverSettings {
            image: image.clone(),
            memory_limit: self.mover_memory_limit.clone(),
            upload_limit: self.mover_upload_limit,
            download_limit: self.mover_download_limit,
            prepare_timeout: self.data_mover_prepare_timeout.as_std(),
            concurrency: usize::from(self.data_mover_concurrency),
        })
    }

    /// The ConfigMap with policies for the volumes of all backups.
    pub(crate) fn global_policies(&self) -> Option<&str> {
        self.global_backup_volume_policies_configmap
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    /// The ConfigMap with modifiers for restores that name none.
    pub(crate) fn default_modifier(&self) -> Option<&str> {
        self.default_resource_modifier_configmap
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    /// Whether volumes of CSI drivers are snapshotted.
    pub fn csi(&self) -> bool {
        self.enables(CSI)
    }

    /// Whether items are stored in all versions that are served, and restored in one of them.
    pub fn api_group_versions(&self) -> bool {
        self.enables(API_GROUP_VERSIONS)
    }

    fn enables(&self, name: &str) -> bool {
        self.features.iter().any(|feature| feature.trim() == name)
    }

    /// Features that this version does not know; Velero takes them without a word, too.
    pub fn unknown_features(&self) -> impl Iterator<Item = &str> {
        let features = self.features.iter().map(|feature| feature.trim());
        features.filter(|feature| !feature.is_empty() && !FEATURES.contains(feature))
    }

    /// Interval between checks of an expired backup.
    pub fn retention_pace(&self) -> GoDuration {
        Some(self.garbage_collection_frequency)
            .filter(|every| *every > GoDuration::default())
            .unwrap_or(GC_FREQUENCY)
    }

    /// How often a running operation is asked.
    pub fn operation_pace(&self) -> GoDuration {
        Some(self.item_operation_sync_frequency)
            .filter(|every| !every.is_zero())
            .unwrap_or(SYNC_FREQUENCY)
    }
}
