//! An entry of `-volumeinfo.json.gz`: how the data of a volume was saved or restored. Pure.
//!
//! The JSON is that of Velero (`internal/volume/volumes_information.go`, `BackupVolumeInfo` and
//! `RestoreVolumeInfo`, v1.18). One type serves both: the entry of a backup has a `backupMethod`,
//! that of a restore a `restoreMethod`. The fields are in the order of their names, which is the
//! order in the files.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{
    api::{Extra, go_json::is_default, kind::string_enum, null_default, transfer::MovePhase},
    data_movement::{DATA_MOVER, REPOSITORY_TYPE},
    snapshot::{SnapshotPhase, VolumeSnapshot},
};

/// Reason for missing data if the file gives none.
pub const SNAPSHOT_FAILED: &str = "its snapshot failed";
pub const MOVE_FAILED: &str = "its data could not be moved into a repository";
pub const NOTHING_SAVED: &str = "nothing of it was saved";

string_enum! {
    /// How the data of a volume is saved or restored.
    VolumeMethod {
        /// A snapshot by a plugin of kind VolumeSnapshotter.
        NativeSnapshot = "NativeSnapshot",
        /// A CSI snapshot, in the storage system or moved into a repository.
        CsiSnapshot = "CSISnapshot",
        /// Files that were read through a pod into a repository.
        PodVolumeBackup = "PodVolumeBackup",
        /// Files that are written through a pod from a repository.
        PodVolumeRestore = "PodVolumeRestore",
    }
}

string_enum! {
    /// The result of saving the data of a volume.
    VolumeResult {
        Succeeded = "succeeded",
        Failed = "failed",
    }
}

/// A text that may be left out or `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NullableText {
    #[default]
    Absent,
    Null,
    Given(String),
}

/// A backup's or restore's entry about one volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_method: Option<VolumeMethod>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi_snapshot_info: Option<CsiSnapshotInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_snapshot_info: Option<NativeSnapshotInfo>,
    /// Whether the snapshot stays in the storage system. Backups only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_local_snapshot: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv_info: Option<VolumeProperties>,
    /// Name of the PersistentVolume: that of the backup, or the created one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvb_info: Option<PodVolumeInfo>,
    /// Name of the claim. Without a claim, we write an empty one for a backup, and `null` for a
    /// restore.
    #[serde(skip_serializing_if = "NullableText::is_absent")]
    pub pvc_name: NullableText,
    /// Namespace of the claim.
    #[serde(skip_serializing_if = "NullableText::is_absent")]
    pub pvc_namespace: NullableText,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvr_info: Option<PodVolumeInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_method: Option<VolumeMethod>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<VolumeResult>,
    /// Whether nothing was saved or restored. Velero has this field only for backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<bool>,
    /// Why it was skipped; of an entry of our data mover that failed: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_reason: Option<String>,
    /// Whether the data of the snapshot is in a repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_data_moved: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_data_movement_info: Option<DataMovementInfo>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<String>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A CSI snapshot. Velero's command line reads all fields without checking whether they exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiSnapshotInfo {
    /// `None` while it is unknown.
    #[serde(rename = "ReadyToUse")]
    pub ready_to_use: Option<bool>,
    #[serde(deserialize_with = "null_default")]
    pub driver: String,
    /// The operation that waits for the snapshot. Backups only.
    #[serde(rename = "operationID", skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// Bytes; 0 if unknown.
    #[serde(deserialize_with = "null_default")]
    pub size: i64,
    /// The storage system's handle of the snapshot; empty if unknown.
    #[serde(deserialize_with = "null_default")]
    pub snapshot_handle: String,
    /// Name of the VolumeSnapshotContent; empty if unknown.
    #[serde(deserialize_with = "null_default")]
    pub vsc_name: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A snapshot of a plugin. Velero's command line reads all fields without checking whether they
/// exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NativeSnapshotInfo {
    #[serde(rename = "Phase", deserialize_with = "null_default")]
    pub phase: SnapshotPhase,
    /// A number as text; `0` if none was requested.
    #[serde(deserialize_with = "null_default")]
    pub iops: String,
    /// The storage system's id of the snapshot; empty if there is none.
    #[serde(deserialize_with = "null_default")]
    pub snapshot_handle: String,
    /// The zone of the volume; may be empty.
    #[serde(rename = "volumeAZ", deserialize_with = "null_default")]
    pub volume_az: String,
    /// The storage system's type of the volume.
    #[serde(deserialize_with = "null_default")]
    pub volume_type: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Data that is moved from a snapshot into a repository. Velero's command line reads all fields
/// without checking whether they exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataMovementInfo {
    /// The phase of the DataUpload when the backup ended.
    #[serde(rename = "Phase", skip_serializing_if = "Option::is_none")]
    pub phase: Option<MovePhase>,
    /// The data mover; empty or `velero` for node agents of Velero.
    #[serde(deserialize_with = "null_default")]
    pub data_mover: String,
    /// Bytes that were added to the repository.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub incremental_size: i64,
    /// The operation that moved the data. Of our data mover: name of the DataUpload.
    #[serde(rename = "operationID", deserialize_with = "null_default")]
    pub operation_id: String,
    /// The snapshot that stays in the storage system; empty if there is none.
    #[serde(deserialize_with = "null_default")]
    pub retained_snapshot: String,
    /// Bytes of the data.
    #[serde(deserialize_with = "null_default")]
    pub size: i64,
    /// The repository's id of the data; empty if there is none.
    #[serde(deserialize_with = "null_default")]
    pub snapshot_handle: String,
    /// Format of the repository: `kopia` or `restic`.
    #[serde(deserialize_with = "null_default")]
    pub uploader_type: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A pod's volume whose files are read or written through the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodVolumeInfo {
    #[serde(deserialize_with = "null_default")]
    pub pod_name: String,
    #[serde(deserialize_with = "null_default")]
    pub pod_namespace: String,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The repository's id of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// Name of the volume in the pod.
    #[serde(deserialize_with = "null_default")]
    pub volume_name: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Properties that a newly provisioned volume does not get from its class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeProperties {
    #[serde(deserialize_with = "null_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_default")]
    pub reclaim_policy: String,
    #[serde(flatten)]
    pub extra: Extra,
}

impl VolumeInfo {
    /// Reads an entry of the file; `None` if it is invalid.
    pub fn of(entry: &Value) -> Option<Self> {
        Self::deserialize(entry).ok()
    }

    /// Reads the entries of the file, without invalid ones.
    pub fn all(entries: &[Value]) -> Vec<Self> {
        entries.iter().filter_map(Self::of).collect()
    }

    /// An entry in a backup's file for a claim whose data our data mover moves into a repository,
    /// while the outcome is unknown. `operation` is the name of the DataUpload.
    pub fn moved(namespace: &str, claim: &str, volume: &str, operation: &str) -> Self {
        Self {
            backup_method: Some(VolumeMethod::CsiSnapshot),
            preserve_local_snapshot: Some(false),
            pv_name: Some(volume.to_owned()),
            pvc_name: claim.into(),
            pvc_namespace: namespace.into(),
            skipped: Some(false),
            snapshot_data_moved: Some(true),
            snapshot_data_movement_info: Some(DataMovementInfo {
                phase: Some(MovePhase::New),
                data_mover: DATA_MOVER.to_owned(),
                operation_id: operation.to_owned(),
                uploader_type: REPOSITORY_TYPE.to_owned(),
                ..DataMovementInfo::default()
            }),
            ..Self::default()
        }
    }

    /// An entry in a restore's file for a claim whose data was not restored. Velero writes none;
    /// its command ignores it.
    pub fn not_restored(namespace: &str, claim: &str, volume: &str, why: &str) -> Self {
        Self {
            pvc_namespace: namespace.into(),
            pvc_name: claim.into(),
            pv_name: Some(volume.to_owned()),
            skipped: Some(true),
            skipped_reason: Some(why.to_owned()),
            ..Self::default()
        }
    }

    /// The namespace of the claim; empty if there is none.
    pub fn namespace(&self) -> &str {
        self.pvc_namespace.as_str()
    }

    /// The name of the claim; empty if there is none.
    pub fn claim(&self) -> &str {
        self.pvc_name.as_str()
    }

    /// The name of the PersistentVolume; empty if unknown.
    pub fn volume(&self) -> &str {
        self.pv_name.as_deref().unwrap_or_default()
    }

    /// The pod that mounts the volume, if its files are read or written through a pod.
    pub fn pod_volume(&self) -> Option<&PodVolumeInfo> {
        self.pvb_info.as_ref().or(self.pvr_info.as_ref())
    }

    /// Whether its data was to be put into a repository that only a Velero server reads.
    pub fn uses_repository(&self) -> bool {
        self.backup_method == Some(VolumeMethod::PodVolumeBackup)
            || self.snapshot_data_moved == Some(true) && !self.uses_our_mover()
    }

    /// Its data in a repository that our data mover has written; `None` if nothing was saved there.
    /// The data is not complete if the entry has failed.
    pub fn moved_by_us(&self) -> Option<&DataMovementInfo> {
        let movement = self.snapshot_data_movement_info.as_ref()?;
        (movement.is_ours() && !movement.snapshot_handle.is_empty()).then_some(movement)
    }

    /// Whether our data mover was to move its data.
    fn uses_our_mover(&self) -> bool {
        let movement = self.snapshot_data_movement_info.as_ref();
        movement.is_some_and(DataMovementInfo::is_ours)
    }

    pub fn has_failed(&self) -> bool {
        self.result == Some(VolumeResult::Failed)
    }

    /// Empty if there is none.
    pub(crate) fn skipped_reason(&self) -> &str {
        self.skipped_reason.as_deref().unwrap_or_default()
    }

    /// Why its data is not in the backup, or was not restored; `None` if it is complete.
    pub(crate) fn missing(&self) -> Option<&str> {
        if self.has_failed() {
            Some(self.failure())
        } else if self.skipped != Some(true) {
            None
        } else if self.skipped_reason().is_empty() {
            Some(NOTHING_SAVED)
        } else {
            Some(self.skipped_reason())
        }
    }

    /// Why saving its data has failed.
    fn failure(&self) -> &str {
        if !self.uses_our_mover() {
            SNAPSHOT_FAILED
        } else if self.skipped_reason().is_empty() {
            MOVE_FAILED
        } else {
            self.skipped_reason()
        }
    }

    /// Its name for users: its claim, or the volume if no claim is known.
    pub(crate) fn name(&self) -> String {
        if !self.claim().is_empty() {
            return format!("{}/{}", self.namespace(), self.claim());
        }
        if self.volume().is_empty()
            && let Some(PodVolumeInfo {
                pod_namespace,
                pod_name,
                volume_name,
                ..
            }) = self.pod_volume()
        {
            return format!("volume {volume_name} of pod {pod_namespace}/{pod_name}");
        }
        self.volume().to_owned()
    }
}

impl NativeSnapshotInfo {
    /// From the record of a snapshot.
    pub fn of(snapshot: &VolumeSnapshot) -> Self {
        let VolumeSnapshot { spec, status, .. } = snapshot;
        Self {
            phase: status.phase.clone(),
            iops: spec.volume_iops.unwrap_or_default().to_string(),
            snapshot_handle: status.provider_snapshot_id.clone(),
            volume_az: spec.volume_az.clone(),
            volume_type: spec.volume_type.clone(),
            extra: Extra::default(),
        }
    }
}

impl DataMovementInfo {
    /// Whether our data mover moves it.
    pub fn is_ours(&self) -> bool {
        self.data_mover == DATA_MOVER
    }
}

impl NullableText {
    /// Empty if there is none.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Given(text) => text,
            Self::Absent | Self::Null => "",
        }
    }

    fn is_absent(&self) -> bool {
        *self == Self::Absent
    }
}

impl From<&str> for NullableText {
    fn from(text: &str) -> Self {
        Self::Given(text.to_owned())
    }
}

/// `None` becomes `null`.
impl From<Option<&str>> for NullableText {
    fn from(text: Option<&str>) -> Self {
        text.map_or(Self::Null, |text| Self::Given(text.to_owned()))
    }
}

impl Serialize for NullableText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Given(text) => serializer.serialize_str(text),
            Self::Absent | Self::Null => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for NullableText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map_or(Self::Null, Self::Given))
    }
}

#[cfg(test)]
mod tests;
