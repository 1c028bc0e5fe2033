//! A Velero installation as it is in the cluster, read from its objects. Pure.

use std::collections::{BTreeMap, BTreeSet};

use backup_actions::restore::ConfigMapData;
use backup_core::{
    api::{
        Backup, BackupStorageLocation, DataUpload, PodVolumeBackup, Restore, Schedule, VeleroKind,
        VolumeSnapshotLocation, transfer::UploaderType,
    },
    data_movement::DATA_MOVER,
    labels::{BACKUP_NAME, VOLUMES_TO_COPY},
    phase::{Phase, Stage},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::{
    fields::{spec_schema, unknown_fields},
    server::{NodeAgent, Server},
};
use crate::{commands::prelude::ResourceExt as _, print::plain};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VeleroInstallation {
    pub(crate) namespace: String,
    pub(crate) server: Server,
    pub(crate) node_agents: Vec<NodeAgent>,
    /// Annotations of the server's ServiceAccount.
    pub(crate) account_annotations: BTreeMap<String, String>,
    pub(crate) locations: Vec<Stored<BackupStorageLocation>>,
    pub(crate) snapshot_locations: Vec<Stored<VolumeSnapshotLocation>>,
    pub(crate) schedules: Vec<Stored<Schedule>>,
    pub(crate) backups: Vec<BackupState>,
    /// Backups and Restores that have not ended.
    pub(crate) unfinished: Vec<UnfinishedWork>,
    /// Volumes whose data is in a repository of Velero.
    pub(crate) volumes: Vec<RepositoryVolume>,
    /// Pods of all namespaces that ask node agents for copies of files, as `namespace/name`.
    pub(crate) pods_to_copy: Vec<String>,
    /// Formats of the repositories, one for each.
    pub(crate) repositories: Vec<String>,
    /// Data of the ConfigMaps that flags and policies name; `None` if one does not exist.
    pub(crate) config_maps: BTreeMap<String, Option<BTreeMap<String, String>>>,
    /// ConfigMaps with settings of actions.
    pub(crate) action_settings: Vec<ConfigMapData>,
    /// Names of the existing Secrets, out of those that matter here.
    pub(crate) secrets: BTreeSet<String>,
    /// Objects that could not be read, one sentence each.
    pub(crate) unread: Vec<Unread>,
}

/// Why a part of the installation is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) what: String,
    pub(crate) remedy: Option<String>,
}

/// A stored object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored<K> {
    pub(crate) name: String,
    /// The object, or why it cannot be decoded.
    pub(crate) object: Result<K, String>,
    /// Fields that our definitions do not have.
    pub(crate) unknown_fields: Vec<String>,
}

impl<K: VeleroKind> Stored<K> {
    pub(crate) fn all(objects: Vec<Value>) -> Vec<Self> {
        let schema = spec_schema::<K>();
        objects
            .into_iter()
            .map(|object| Self {
                name: plain(object["metadata"]["name"].as_str().unwrap_or_default()),
                unknown_fields: unknown_fields(&object["spec"], &schema),
                object: serde_json::from_value(object).map_err(|error| plain(&error.to_string())),
            })
            .collect()
    }
}

/// A Backup, as far as its data and its end matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BackupState {
    pub(crate) name: String,
    pub(crate) expires: Option<Timestamp>,
    /// Whether it asks for data in a repository.
    pub(crate) asks_for_repository: bool,
    /// Number of snapshots by plugins.
    pub(crate) plugin_snapshots: i64,
}

impl BackupState {
    pub(crate) fn of(backup: &Backup) -> Self {
        let spec = &backup.spec;
        let copies_files = spec
            .default_volumes_to_fs_backup
            .or(spec.default_volumes_to_restic);
        Self {
            name: backup.name_any(),
            expires: backup.status.expiration.as_ref().map(|time| time.0),
            asks_for_repository: copies_files == Some(true)
                || spec.snapshot_move_data == Some(true),
            plugin_snapshots: backup.status.volume_snapshots_completed,
        }
    }
}

/// A Backup or a Restore that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnfinishedWork {
    /// `Backup nightly (InProgress)`
    pub(crate) name: String,
    /// Whether only the server that runs it knows what it waits for.
    pub(crate) is_tied: bool,
}

impl UnfinishedWork {
    pub(crate) fn of_backup(backup: &Backup) -> Option<Self> {
        Self::of("Backup", &backup.name_any(), backup.status.phase.as_ref())
    }

    pub(crate) fn of_restore(restore: &Restore) -> Option<Self> {
        Self::of(
            "Restore",
            &restore.name_any(),
            restore.status.phase.as_ref(),
        )
    }

    fn of<P: Phase>(kind: &str, name: &str, phase: Option<&P>) -> Option<Self> {
        let stage = phase.map_or(Stage::New, P::stage);
        let phase = phase.map_or_else(|| "New".to_owned(), ToString::to_string);
        (!stage.is_terminal()).then(|| Self {
            name: format!("{kind} {} ({})", plain(name), plain(&phase)),
            is_tied: stage.is_past_items(),
        })
    }
}

/// A volume whose data is in a repository that only Velero reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RepositoryVolume {
    /// Name of its backup, as a label has it.
    pub(crate) backup: String,
    /// `Kopia`, `restic`, or the name of another data mover.
    pub(crate) format: String,
}

impl RepositoryVolume {
    /// `None` if it has saved nothing, or is of our data mover.
    pub(crate) fn of_upload(upload: &DataUpload) -> Option<Self> {
        let mover = upload.spec.mover.datamover.as_deref().unwrap_or_default();
        let is_saved = !upload.status.stored.snapshot_id.as_deref()?.is_empty();
        (is_saved && mover != DATA_MOVER).then(|| Self {
            backup: upload
                .labels()
                .get(BACKUP_NAME)
                .cloned()
                .unwrap_or_default(),
            format: if VELERO_MOVERS.contains(&mover) {
                KOPIA.to_owned()
            } else {
                plain(mover)
            },
        })
    }

    /// `None` if it has saved nothing.
    pub(crate) fn of_pod_volume(backup: &PodVolumeBackup) -> Option<Self> {
        let is_saved = !backup.status.stored.snapshot_id.as_deref()?.is_empty();
        is_saved.then(|| Self {
            backup: backup
                .labels()
                .get(BACKUP_NAME)
                .cloned()
                .unwrap_or_default(),
            format: format_of(&backup.spec.volume.uploader_type),
        })
    }
}

/// The name of a pod that asks node agents for copies of the files of its volumes; `None` for others.
pub(crate) fn pod_to_copy(pod: &Pod) -> Option<String> {
    let volumes = pod.annotations().get(VOLUMES_TO_COPY)?;
    let namespace = pod.namespace().unwrap_or_default();
    (!volumes.trim().is_empty()).then(|| plain(&format!("{namespace}/{}", pod.name_any())))
}

/// Values of `spec.datamover` that mean Velero's node agents.
const VELERO_MOVERS: [&str; 3] = ["", "velero", "velero-fs"];
const KOPIA: &str = "Kopia";

/// The name of a format. Velero up to 1.9 knew restic only, and did not name it.
pub(crate) fn format_of(uploader: &UploaderType) -> String {
    match uploader {
        UploaderType::Kopia => KOPIA.to_owned(),
        UploaderType::Restic | UploaderType::Unset => "restic".to_owned(),
        UploaderType::Unknown(other) => plain(other),
    }
}
