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
    api::{Extra, kind::string_enum, null_default},
    repository_data::RepositoryVolume,
    snapshot::SnapshotPhase,
};

/// Reason for missing data if the file gives none.
pub const SNAPSHOT_FAILED: &str = "its snapshot failed";
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

/// Data that was moved from a snapshot into a repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataMovementInfo {
    /// The repository's id of the data; empty if there is none.
    #[serde(deserialize_with = "null_default")]
    pub snapshot_handle: String,
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

    /// The same for a pod's volume without a claim; `namespace` is the pod's target. `None` if the
    /// volume is unknown.
    pub fn not_restored_of_pod(
        namespace: &str,
        volume: &RepositoryVolume,
        why: &str,
    ) -> Option<Self> {
        let (pod, name) = volume.mount.as_ref().filter(|_| volume.claim.is_none())?;
        Some(Self {
            pvr_info: Some(PodVolumeInfo {
                pod_namespace: namespace.to_owned(),
                pod_name: pod.clone(),
                volume_name: name.clone(),
                ..PodVolumeInfo::default()
            }),
            skipped: Some(true),
            skipped_reason: Some(why.to_owned()),
            ..Self::default()
        })
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

    /// Whether its data was to be put into a repository.
    pub fn uses_repository(&self) -> bool {
        self.backup_method == Some(VolumeMethod::PodVolumeBackup)
            || self.snapshot_data_moved == Some(true)
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
            Some(SNAPSHOT_FAILED)
        } else if self.skipped != Some(true) {
            None
        } else if self.skipped_reason().is_empty() {
            Some(NOTHING_SAVED)
        } else {
            Some(self.skipped_reason())
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
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// The JSON of earlier versions of this program, byte by byte.
    #[rstest]
    #[case::csi_of_a_backup(
        r#"{"backupMethod":"CSISnapshot","completionTimestamp":"2026-01-01T00:00:05Z","csiSnapshotInfo":{"ReadyToUse":true,"driver":"disk","operationID":"shop/vs/2026-01-01T00:00:00Z","size":1024,"snapshotHandle":"snap-1","vscName":"content"},"preserveLocalSnapshot":true,"pvInfo":{"labels":{"zone":"a"},"reclaimPolicy":"Delete"},"pvName":"pv-a","pvcName":"a","pvcNamespace":"shop","result":"succeeded","skipped":false,"snapshotDataMoved":false,"startTimestamp":"2026-01-01T00:00:00Z"}"#
    )]
    #[case::csi_that_is_not_known_yet(
        r#"{"backupMethod":"CSISnapshot","csiSnapshotInfo":{"ReadyToUse":null,"driver":"disk","operationID":"","size":0,"snapshotHandle":"","vscName":""},"preserveLocalSnapshot":true,"pvInfo":{"labels":{},"reclaimPolicy":""},"pvName":"pv-a","pvcName":"a","pvcNamespace":"shop","skipped":false,"snapshotDataMoved":false}"#
    )]
    #[case::plugin_of_a_backup(
        r#"{"backupMethod":"NativeSnapshot","nativeSnapshotInfo":{"Phase":"Completed","iops":"0","snapshotHandle":"snap-1","volumeAZ":"","volumeType":"gp3"},"preserveLocalSnapshot":false,"pvInfo":{"labels":{},"reclaimPolicy":"Delete"},"pvName":"pv-x","pvcName":"","pvcNamespace":"","result":"succeeded","skipped":false,"snapshotDataMoved":false}"#
    )]
    #[case::skipped_by_a_backup(
        r#"{"preserveLocalSnapshot":false,"pvInfo":{"labels":{},"reclaimPolicy":"Delete"},"pvName":"","pvcName":"a","pvcNamespace":"shop","skipped":true,"skippedReason":"","snapshotDataMoved":false}"#
    )]
    #[case::csi_of_a_restore(
        r#"{"csiSnapshotInfo":{"ReadyToUse":true,"driver":"disk","size":1,"snapshotHandle":"snap-1","vscName":"content"},"pvcName":"a","pvcNamespace":"shop","restoreMethod":"CSISnapshot","snapshotDataMoved":false}"#
    )]
    #[case::plugin_of_a_restore_without_a_claim(
        r#"{"nativeSnapshotInfo":{"Phase":"Completed","iops":"3000","snapshotHandle":"snap-1","volumeAZ":"z","volumeType":"gp3"},"pvName":"pv-x","pvcName":null,"pvcNamespace":null,"restoreMethod":"NativeSnapshot","snapshotDataMoved":false}"#
    )]
    #[case::not_restored(
        r#"{"pvName":"","pvcName":"a","pvcNamespace":"shop","skipped":true,"skippedReason":"why"}"#
    )]
    #[case::not_restored_of_a_pod(
        r#"{"pvrInfo":{"podName":"web","podNamespace":"shop","volumeName":"cache"},"skipped":true,"skippedReason":"why"}"#
    )]
    #[case::with_unknown_fields(
        r#"{"csiSnapshotInfo":{"ReadyToUse":null,"driver":"","size":0,"snapshotHandle":"","vscName":"","later":{"a":[1]}},"pvcName":"a","result":"later","later":null}"#
    )]
    fn an_entry_is_written_as_it_was_read(#[case] json: &str) {
        let read: VolumeInfo = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(VolumeInfo::of(&value), Some(read));
    }

    #[test]
    fn what_velero_leaves_out_or_writes_as_null_is_read() {
        let all = [
            json!({ "pvcName": null, "pvName": null, "skipped": null, "result": "", "pvInfo": null, "startTimestamp": null }),
            json!({ "pvInfo": { "labels": null, "reclaimPolicy": "Delete" },
                "csiSnapshotInfo": { "size": null, "driver": null }, "nativeSnapshotInfo": { "Phase": null },
                "pvbInfo": { "podName": "db-0", "size": null, "uploaderType": "kopia" },
                "snapshotDataMovementInfo": { "snapshotHandle": null, "dataMover": "velero" } }),
        ];
        let read = VolumeInfo::all(&all);
        assert_eq!((read[0].claim(), read[0].volume()), ("", ""));
        assert_eq!(read[0].missing(), None);
        let of_pod = read[1].pod_volume().unwrap();
        assert_eq!((of_pod.pod_name.as_str(), of_pod.size), ("db-0", None));
        assert_eq!(of_pod.extra["uploaderType"], "kopia");
    }

    #[test]
    fn an_entry_that_cannot_be_decoded_does_not_hide_the_others() {
        let all = [
            json!("junk"),
            json!({ "pvName": 5 }),
            json!({ "pvName": "pv" }),
        ];
        let read = VolumeInfo::all(&all);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].volume(), "pv");
    }

    #[test]
    fn an_entry_says_what_its_class_does_not() {
        let entry = json!({ "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv",
            "pvInfo": { "reclaimPolicy": "Retain", "labels": { "zone": "a" } }, "csiSnapshotInfo": { "size": 1 } });
        let properties = VolumeInfo::of(&entry).unwrap().pv_info.unwrap();
        assert_eq!(
            (properties.reclaim_policy.as_str(), properties.labels.len()),
            ("Retain", 1)
        );
        let bare =
            json!({ "pvcName": "data", "pvInfo": { "reclaimPolicy": "Delete", "labels": null } });
        let properties = VolumeInfo::of(&bare).unwrap().pv_info.unwrap();
        assert_eq!(properties.labels.len(), 0);
        assert_eq!(VolumeInfo::of(&json!("junk")), None);
    }
}
