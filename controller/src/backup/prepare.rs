//! Prepares a Backup for its start: writes out every default, and finds everything that keeps it
//! from running.
//!
//! Velero: `pkg/controller/backup_controller.go` (`prepareBackupRequest`), v1.18. Pure.

mod policy_namespaces;

use std::collections::BTreeMap;

use backup_core::{
    api::{Backup, BackupPhase, BackupSpec, BackupStorageLocation, GoDuration},
    labels,
    resource_policy::{self, ResourcePolicy},
    resources::uses_combined_fields,
    restorability::{NotWritable, Place},
    time::whole_seconds,
    validate::{self, Finding},
};
use backup_store::tarball::FORMAT_VERSION;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{apis::meta::v1::Time, version::Info};
use kube::ResourceExt as _;

use crate::{
    args::Args,
    config_maps,
    location::choose_default,
    volumes::snapshot_locations::choice::{self, ChosenLocations, SnapshotCandidates},
};

/// Default timeout for the creation of a CSI snapshot (Velero `pkg/cmd/server/config`, v1.18).
const CSI_SNAPSHOT_TIMEOUT: GoDuration = GoDuration::from_secs(600);
/// Default label of claims that are snapshotted together (same source).
const VOLUME_GROUP_LABEL: &str = "velero.io/volume-group";
const STORAGE_LOCATION: &str = "spec.storageLocation";
const RESOURCE_POLICY: &str = "spec.resourcePolicy";
const TTL: &str = "spec.ttl";

/// Settings of the installation for fields that a backup leaves unset.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: GoDuration,
    pub(crate) item_operation_timeout: GoDuration,
    /// Maximum wait for a single resource.
    pub(crate) resource_timeout: GoDuration,
    /// Location to use when none is marked as the default.
    pub(crate) location: String,
    pub(crate) csi: bool,
    /// Whether there is a data mover, which puts the data of snapshots into repositories.
    pub(crate) moves_data: bool,
    /// Whether backups that do not say otherwise move the data of snapshots.
    pub(crate) moves_data_by_default: bool,
    /// Whether items are stored in all versions that are served.
    pub(crate) api_group_versions: bool,
    /// VolumeSnapshotLocations by provider, for providers that have several.
    pub(crate) snapshot_locations: BTreeMap<String, String>,
    /// The ConfigMap with policies for the volumes of all backups.
    pub(crate) global_policies: Option<String>,
}

impl Settings {
    pub(crate) fn of(args: &Args) -> Self {
        Self {
            ttl: args.default_backup_ttl,
            item_operation_timeout: args.default_item_operation_timeout,
            resource_timeout: args.resource_timeout,
            location: args.default_backup_storage_location.clone(),
            csi: args.csi(),
            moves_data: args.mover().is_some(),
            moves_data_by_default: args.default_snapshot_move_data,
            api_group_versions: args.api_group_versions(),
            snapshot_locations: args
                .default_volume_snapshot_locations
                .iter()
                .cloned()
                .collect(),
            global_policies: args.global_policies().map(str::to_owned),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) locations: Vec<BackupStorageLocation>,
    /// Namespaces that carry `velero.io/exclude-from-backup: "true"`.
    pub(crate) excluded_namespaces: Vec<String>,
    pub(crate) version: Info,
    pub(crate) policy: PolicyData,
    /// All namespaces with their labels, if the resource policy asks for them.
    pub(crate) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) snapshots: SnapshotCandidates,
}

/// The data of the ConfigMaps with policies; `None` without a ConfigMap.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyData {
    /// The ConfigMap that the Backup names.
    pub(crate) own: Option<BTreeMap<String, String>>,
    /// The ConfigMap for all backups.
    pub(crate) global: Option<BTreeMap<String, String>>,
}

/// A Backup with its defaults, and the reasons why it cannot run.
#[derive(Clone, Debug)]
pub(crate) struct PreparedBackup {
    /// The Backup to store, with those parts of the status that depend on nothing else. The phase
    /// is unchanged.
    pub(crate) backup: Backup,
    /// Everything that is wrong. Empty: it may run.
    pub(crate) findings: Vec<Finding>,
}

/// Fills in and checks a Backup. Repeating it changes only the expiration.
pub(crate) fn prepare(
    backup: &Backup,
    facts: &Facts,
    settings: &Settings,
    now: Timestamp,
) -> PreparedBackup {
    let mut backup = backup.clone();
    let name = location_name(&backup.spec, &facts.locations, &settings.location);
    let mut snapshots =
        choice::choose(&backup.spec, &facts.snapshots, &settings.snapshot_locations);
    let mut findings = validate::engine_backup(&backup.spec);
    findings.extend(location_finding(&backup.spec, &facts.locations, &name));
    findings.append(&mut snapshots.findings);
    if backup.spec.snapshot_volumes == Some(true) && !settings.csi && snapshots.names.is_empty() {
        findings.push(no_snapshots(&snapshots));
    }
    let moves_data = backup.spec.snapshot_move_data;
    if moves_data.unwrap_or(settings.moves_data_by_default) {
        findings.extend(move_finding(settings));
    }
    match read_policy(
        &backup.spec,
        &facts.policy,
        settings.global_policies.as_deref(),
    ) {
        Ok(policy) => {
            findings.extend(filter_findings(&backup.spec, &policy.policy));
            findings.extend(policy_namespaces::select(
                &mut backup.spec,
                &policy.policy.namespaces,
                facts,
            ));
        }
        Err(wrong) => validate::add_new(&mut findings, wrong),
    }

    fill_spec(&mut backup.spec, facts, settings, &name);
    backup.spec.volume_snapshot_locations = snapshots.names;
    backup.metadata.labels.get_or_insert_default().insert(
        labels::STORAGE_LOCATION.to_owned(),
        labels::valid_value(&name),
    );
    annotate(
        backup.metadata.annotations.get_or_insert_default(),
        &facts.version,
        settings,
    );

    // An invalid ttl sets no expiration.
    let is_invalid = findings.iter().any(|finding| finding.field == TTL);
    let ttl = backup.spec.ttl.unwrap_or(settings.ttl);
    let start = backup
        .status
        .start_timestamp
        .as_ref()
        .map_or(now, |time| time.0);
    backup.status.version = 1;
    backup.status.format_version = Some(FORMAT_VERSION.to_owned());
    let expiration = start.checked_add(ttl.as_std()).ok().filter(|_| !is_invalid);
    backup.status.expiration = expiration.map(|at| Time(whole_seconds(at)));
    PreparedBackup { backup, findings }
}

fn fill_spec(spec: &mut BackupSpec, facts: &Facts, settings: &Settings, location: &str) {
    fill_duration(&mut spec.ttl, settings.ttl);
    fill_duration(&mut spec.csi_snapshot_timeout, CSI_SNAPSHOT_TIMEOUT);
    fill_duration(
        &mut spec.item_operation_timeout,
        settings.item_operation_timeout,
    );
    if spec
        .volume_group_snapshot_label_key
        .as_ref()
        .is_none_or(String::is_empty)
    {
        spec.volume_group_snapshot_label_key = Some(VOLUME_GROUP_LABEL.to_owned());
    }
    if spec.default_volumes_to_fs_backup.is_none() {
        spec.default_volumes_to_fs_backup = Some(spec.default_volumes_to_restic.unwrap_or(false));
    }
    spec.snapshot_move_data
        .get_or_insert(settings.moves_data_by_default);
    spec.storage_location = Some(location.to_owned());
    if spec.included_namespaces.is_empty() {
        spec.included_namespaces = vec!["*".to_owned()];
    }
    for namespace in &facts.excluded_namespaces {
        if !spec.excluded_namespaces.contains(namespace) {
            spec.excluded_namespaces.push(namespace.clone());
        }
    }
}

/// Sets an unset value. Zero is "not set" in Velero's spec.
fn fill_duration(value: &mut Option<GoDuration>, default: GoDuration) {
    if value.is_none_or(GoDuration::is_zero) {
        *value = Some(default);
    }
}

fn annotate(annotations: &mut BTreeMap<String, String>, version: &Info, settings: &Settings) {
    for (key, value) in [
        (
            labels::SOURCE_CLUSTER_GIT_VERSION,
            version.git_version.clone(),
        ),
        (labels::SOURCE_CLUSTER_MAJOR, version.major.clone()),
        (labels::SOURCE_CLUSTER_MINOR, version.minor.clone()),
        (
            labels::RESOURCE_TIMEOUT,
            settings.resource_timeout.to_string(),
        ),
    ] {
        annotations.insert(key.to_owned(), value);
    }
    if let Some(name) = &settings.global_policies {
        annotations.insert(labels::GLOBAL_VOLUME_POLICY.to_owned(), name.clone());
    }
}

impl PreparedBackup {
    /// The Backup as it enters `InProgress`.
    #[must_use]
    pub(crate) fn begun(mut self, now: Timestamp) -> Backup {
        let status = &mut self.backup.status;
        status.phase = Some(BackupPhase::InProgress);
        status.queue_position = 0;
        status
            .start_timestamp
            .get_or_insert_with(|| Time(whole_seconds(now)));
        self.backup
    }
}

/// The name of the location that a backup goes to.
fn location_name(spec: &BackupSpec, locations: &[BackupStorageLocation], fallback: &str) -> String {
    let named = spec
        .storage_location
        .clone()
        .filter(|name| !name.is_empty());
    named
        .or_else(|| choose_default(locations, fallback))
        .unwrap_or_else(|| fallback.to_owned())
}

/// Why a backup cannot be stored in its location.
fn location_finding(
    spec: &BackupSpec,
    locations: &[BackupStorageLocation],
    name: &str,
) -> Option<Finding> {
    let is_named = spec
        .storage_location
        .as_ref()
        .is_some_and(|name| !name.is_empty());
    let location = locations
        .iter()
        .find(|location| location.name_any() == name);
    let problem = if let Some(location) = location {
        location_problem(location, name)?
    } else if is_named {
        format!(
            "BackupStorageLocation {name:?} does not exist; existing ones: {}",
            choice::names(locations)
        )
    } else {
        format!(
            "no location was named, none is marked as the default, and {name:?} does not exist; name one of: {}",
            choice::names(locations)
        )
    };
    Some(Finding::new(STORAGE_LOCATION, problem))
}

fn location_problem(location: &BackupStorageLocation, name: &str) -> Option<String> {
    let message = location
        .status
        .message
        .as_deref()
        .filter(|text| !text.is_empty());
    let problem = match Place::of(location).not_writable()? {
        NotWritable::ReadOnly => "is read-only (spec.accessMode)".to_owned(),
        NotWritable::Phase(phase) => {
            format!(
                "is {phase}: {}",
                message.unwrap_or("no reason was given; see its status")
            )
        }
    };
    Some(format!("BackupStorageLocation {name:?} {problem}"))
}

/// The error if snapshots are requested and nothing takes them.
fn no_snapshots(snapshots: &ChosenLocations) -> Finding {
    let sentence = "volume snapshots are only taken of CSI volumes, where --features has EnableCSI, and by plugins in \
                    VolumeSnapshotLocations; unset it, or set it to false, to back up resources only";
    let reasons = snapshots.unusable.iter().map(String::as_str);
    let message = std::iter::once(sentence)
        .chain(reasons)
        .collect::<Vec<_>>()
        .join("; ");
    Finding::new("spec.snapshotVolumes", message)
}

/// Why the data of snapshots cannot be moved.
fn move_finding(settings: &Settings) -> Option<Finding> {
    let problem = if !settings.moves_data {
        "the data of snapshots cannot be moved, as the controller has no data mover: give it --mover-image; or set this to \
         false, so that snapshots stay in the storage system"
    } else if !settings.csi {
        "only the data of CSI snapshots is moved, which are taken where --features has EnableCSI: enable it, or set this to \
         false"
    } else {
        return None;
    };
    Some(Finding::new("spec.snapshotMoveData", problem))
}

/// Parts of the resource policy that cannot be combined with the filters of the Backup.
fn filter_findings(spec: &BackupSpec, policy: &ResourcePolicy) -> Vec<Finding> {
    if !uses_combined_fields(spec) {
        return Vec::new();
    }
    policy
        .selecting_parts()
        .into_iter()
        .map(|part| {
            Finding::new(
                format!("{RESOURCE_POLICY}: {part}"),
                "cannot be used with includedResources, excludedResources or includeClusterResources; use the filters for \
                 cluster-scoped and namespace-scoped resources",
            )
        })
        .collect()
}

/// The policies that a backup follows.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectivePolicy {
    /// The policy of the Backup, with the rules for the volumes of all backups.
    pub(crate) policy: ResourcePolicy,
    /// Parts of the policies for all backups that are not followed.
    pub(crate) ignored: Vec<&'static str>,
}

/// The policy of the Backup, and the one for all backups, whose ConfigMap is called `global`. The
/// error lists everything that is wrong with them.
pub(crate) fn read_policy(
    spec: &BackupSpec,
    data: &PolicyData,
    global: Option<&str>,
) -> Result<EffectivePolicy, Vec<Finding>> {
    let reference = spec.resource_policy.as_ref();
    let own = config_maps::read(
        RESOURCE_POLICY,
        reference,
        data.own.as_ref(),
        resource_policy::read,
    );
    let reference = global.map(config_maps::reference);
    let global = config_maps::read(
        resource_policy::GLOBAL_POLICIES,
        reference.as_ref(),
        data.global.as_ref(),
        resource_policy::read_global,
    );
    match (own, global) {
        (Ok(own), Ok(global)) => {
            let global = global.unwrap_or_default();
            let ignored = global.ignored.clone();
            Ok(EffectivePolicy {
                policy: own.unwrap_or_default().with_global(global),
                ignored,
            })
        }
        (own, global) => Err([own.err(), global.err()]
            .into_iter()
            .flatten()
            .flatten()
            .collect()),
    }
}

#[cfg(test)]
mod tests;
