//! What a Backup becomes when it starts: every default written out, and everything that keeps it from running.
//!
//! Velero: `pkg/controller/backup_controller.go` (`prepareBackupRequest`), v1.18. Pure.

use std::collections::BTreeMap;

use backup_core::{
    api::{Backup, BackupPhase, BackupSpec, BackupStorageLocation, GoDuration},
    labels,
    time::whole_seconds,
    validate::{self, Finding},
};
use backup_store::tarball::FORMAT_VERSION;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{args::Args, snapshots::choose};

mod location;
pub mod policy;
mod unsupported;

/// How long a CSI snapshot may take to be made, where the backup does not say (Velero `pkg/cmd/server/config`, v1.18).
const CSI_SNAPSHOT_TIMEOUT: GoDuration = GoDuration::from_secs(600);
/// Label of claims that are snapshotted together, likewise.
const VOLUME_GROUP_LABEL: &str = "velero.io/volume-group";

/// Settings of the installation that fill in what a backup leaves open.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a backup is kept.
    pub ttl: GoDuration,
    /// Deadline of item operations.
    pub item_operation_timeout: GoDuration,
    /// How long single resources are waited for.
    pub resource_timeout: GoDuration,
    /// Location to use when none is marked as the default.
    pub location: String,
    /// Whether volumes of CSI drivers are snapshotted.
    pub csi: bool,
    /// VolumeSnapshotLocations by provider, for providers that have several.
    pub snapshot_locations: BTreeMap<String, String>,
}

impl Settings {
    /// From the command line.
    pub fn of(args: &Args) -> Self {
        Self {
            ttl: args.default_backup_ttl,
            item_operation_timeout: args.default_item_operation_timeout,
            resource_timeout: args.resource_timeout,
            location: args.default_backup_storage_location.clone(),
            csi: args.csi(),
            snapshot_locations: args.default_volume_snapshot_locations.iter().cloned().collect(),
        }
    }
}

/// What was read from the cluster.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The locations of the installation.
    pub locations: Vec<BackupStorageLocation>,
    /// Namespaces that carry `velero.io/exclude-from-backup: "true"`.
    pub excluded_namespaces: Vec<String>,
    /// Version of the cluster.
    pub version: ClusterVersion,
    /// The data of the ConfigMap with the resource policy that the Backup names; none if it names none, or it does not exist.
    pub policy: Option<BTreeMap<String, String>>,
    /// Where and by whom snapshots of volumes can be taken, besides those of CSI.
    pub snapshots: choose::Facts,
}

/// Version of the cluster, as it tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterVersion {
    /// Such as `v1.34.4`.
    pub git: String,
    /// Such as `1`.
    pub major: String,
    /// Such as `34`.
    pub minor: String,
}

/// A Backup with its defaults, and what keeps it from running.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The Backup as it is to be stored: spec, labels, annotations, and the parts of the status that depend on nothing
    /// else. The phase is as it was.
    pub backup: Backup,
    /// Everything that is wrong. Empty: it may run.
    pub findings: Vec<Finding>,
}

/// Fills in and checks a Backup. Doing it again changes nothing but the expiration.
pub fn prepare(backup: &Backup, facts: &Facts, settings: &Settings, now: Timestamp) -> Prepared {
    let mut backup = backup.clone();
    let (name, mut location_findings) = location::choose(&backup.spec, &facts.locations, &settings.location);
    let mut findings = validate::backup(&backup.spec);
    findings.append(&mut location_findings);
    let mut snapshots = choose::choose(&backup.spec, &facts.snapshots, &settings.snapshot_locations);
    findings.append(&mut snapshots.findings);
    findings.append(&mut unsupported::findings(&backup.spec, settings.csi, &snapshots));
    findings.append(&mut policy::findings(&backup.spec, facts.policy.as_ref()));

    fill_spec(&mut backup.spec, facts, settings, &name);
    backup.spec.volume_snapshot_locations = snapshots.names;
    backup
        .metadata
        .labels
        .get_or_insert_default()
        .insert(labels::STORAGE_LOCATION.to_owned(), labels::valid_value(&name));
    annotate(backup.metadata.annotations.get_or_insert_default(), &facts.version, settings);

    let ttl = backup.spec.ttl.unwrap_or(settings.ttl);
    let start = backup.status.start_timestamp.as_ref().map_or(now, |time| time.0);
    backup.status.version = 1;
    backup.status.format_version = Some(FORMAT_VERSION.to_owned());
    backup.status.expiration = start.checked_add(ttl.as_std()).ok().map(|at| Time(whole_seconds(at)));
    Prepared { backup, findings }
}

fn fill_spec(spec: &mut BackupSpec, facts: &Facts, settings: &Settings, location: &str) {
    // Zero is "not set" in Velero's spec.
    let fill = |value: &mut Option<GoDuration>, default: GoDuration| {
        if value.is_none_or(GoDuration::is_zero) {
            *value = Some(default);
        }
    };
    fill(&mut spec.ttl, settings.ttl);
    fill(&mut spec.csi_snapshot_timeout, CSI_SNAPSHOT_TIMEOUT);
    fill(&mut spec.item_operation_timeout, settings.item_operation_timeout);
    if spec.volume_group_snapshot_label_key.as_ref().is_none_or(String::is_empty) {
        spec.volume_group_snapshot_label_key = Some(VOLUME_GROUP_LABEL.to_owned());
    }
    if spec.default_volumes_to_fs_backup.is_none() {
        spec.default_volumes_to_fs_backup = Some(spec.default_volumes_to_restic.unwrap_or(false));
    }
    spec.snapshot_move_data.get_or_insert(false);
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

fn annotate(annotations: &mut BTreeMap<String, String>, version: &ClusterVersion, settings: &Settings) {
    for (key, value) in [
        (labels::SOURCE_CLUSTER_GIT_VERSION, version.git.clone()),
        (labels::SOURCE_CLUSTER_MAJOR, version.major.clone()),
        (labels::SOURCE_CLUSTER_MINOR, version.minor.clone()),
        (labels::RESOURCE_TIMEOUT, settings.resource_timeout.to_string()),
    ] {
        annotations.insert(key.to_owned(), value);
    }
}

impl Prepared {
    /// The Backup on its way into `InProgress`.
    #[must_use]
    pub fn begun(mut self, now: Timestamp) -> Backup {
        let status = &mut self.backup.status;
        status.phase = Some(BackupPhase::InProgress);
        status.queue_position = 0;
        status.start_timestamp.get_or_insert_with(|| Time(whole_seconds(now)));
        self.backup
    }
}

#[cfg(test)]
mod tests;
