//! Records of volume snapshots that plugins take ("native" ones).
//!
//! The JSON is that of Velero's `-volumesnapshots.json.gz` (`internal/volume/native_snapshot.go`,
//! v1.18).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{Extra, kind::string_enum};

string_enum! {
    #[derive(Default)]
    SnapshotPhase {
        #[default]
        New = "New",
        Completed = "Completed",
        /// It is not, as far as is known.
        Failed = "Failed",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeSnapshot {
    pub spec: VolumeSnapshotSpec,
    pub status: VolumeSnapshotStatus,
    #[serde(flatten)]
    pub extra: Extra,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotSpec {
    pub backup_name: String,
    #[serde(rename = "backupUID")]
    pub backup_uid: String,
    pub location: String,
    pub persistent_volume_name: String,
    /// The storage system's id of the volume.
    #[serde(rename = "providerVolumeID")]
    pub provider_volume_id: String,
    /// The storage system's type of the volume.
    pub volume_type: String,
    /// The zone of the volume; may be empty.
    #[serde(rename = "volumeAZ", skip_serializing_if = "String::is_empty")]
    pub volume_az: String,
    /// Requested operations per second, if any.
    #[serde(rename = "volumeIOPS", skip_serializing_if = "Option::is_none")]
    pub volume_iops: Option<i64>,
    #[serde(flatten)]
    pub extra: Extra,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    /// The storage system's id of the snapshot; empty if there is none.
    #[serde(
        rename = "providerSnapshotID",
        skip_serializing_if = "String::is_empty"
    )]
    pub provider_snapshot_id: String,
    pub phase: SnapshotPhase,
    #[serde(flatten)]
    pub extra: Extra,
}

impl VolumeSnapshot {
    /// A snapshot that is about to be taken.
    pub fn new(spec: VolumeSnapshotSpec) -> Self {
        Self {
            spec,
            status: VolumeSnapshotStatus::default(),
            extra: Extra::default(),
        }
    }

    #[must_use]
    pub fn completed(mut self, id: String) -> Self {
        self.status.provider_snapshot_id = id;
        self.status.phase = SnapshotPhase::Completed;
        self
    }

    #[must_use]
    pub fn failed(mut self) -> Self {
        self.status.phase = SnapshotPhase::Failed;
        self
    }

    /// The id from which a volume can be created; `None` if there is none.
    pub fn usable(&self) -> Option<&str> {
        let id = self.status.provider_snapshot_id.as_str();
        (self.status.phase == SnapshotPhase::Completed && !id.is_empty()).then_some(id)
    }
}

/// The numbers of attempted and of completed snapshots in a list.
pub fn counts(snapshots: &[Value]) -> (i64, i64) {
    let completed = snapshots
        .iter()
        .filter(|one| one["status"]["phase"] == SnapshotPhase::Completed.as_str())
        .count();
    (
        i64::try_from(snapshots.len()).unwrap_or(i64::MAX),
        i64::try_from(completed).unwrap_or(i64::MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> VolumeSnapshotSpec {
        VolumeSnapshotSpec {
            backup_name: "b".into(),
            backup_uid: "u".into(),
            location: "default".into(),
            persistent_volume_name: "pv".into(),
            provider_volume_id: "vol-1".into(),
            volume_type: "gp3".into(),
            ..VolumeSnapshotSpec::default()
        }
    }

    #[test]
    fn the_json_is_byte_by_byte_that_of_velero() {
        let whole = VolumeSnapshotSpec {
            volume_az: "a".into(),
            volume_iops: Some(3000),
            ..spec()
        };
        assert_eq!(
            serde_json::to_string(&VolumeSnapshot::new(whole).completed("snap-1".into())).unwrap(),
            r#"{"spec":{"backupName":"b","backupUID":"u","location":"default","persistentVolumeName":"pv","providerVolumeID":"vol-1","volumeType":"gp3","volumeAZ":"a","volumeIOPS":3000},"status":{"providerSnapshotID":"snap-1","phase":"Completed"}}"#
        );
        assert_eq!(
            serde_json::to_string(&VolumeSnapshot::new(spec()).failed()).unwrap(),
            r#"{"spec":{"backupName":"b","backupUID":"u","location":"default","persistentVolumeName":"pv","providerVolumeID":"vol-1","volumeType":"gp3"},"status":{"phase":"Failed"}}"#
        );
    }

    #[test]
    fn only_a_completed_one_with_an_id_is_usable_and_odd_ones_are_read() {
        assert_eq!(
            VolumeSnapshot::new(spec()).completed("s".into()).usable(),
            Some("s")
        );
        assert_eq!(
            VolumeSnapshot::new(spec())
                .completed(String::new())
                .usable(),
            None
        );
        let odd = r#"{"spec":{"persistentVolumeName":"pv","later":1},"status":{"providerSnapshotID":"s","phase":"Frozen"}}"#;
        let odd: VolumeSnapshot = serde_json::from_str(odd).unwrap();
        assert_eq!(
            (odd.usable(), odd.spec.persistent_volume_name.as_str()),
            (None, "pv")
        );
        assert_eq!(serde_json::to_value(&odd).unwrap()["spec"]["later"], 1);
    }

    #[test]
    fn counts_are_those_of_the_list() {
        let list = [
            VolumeSnapshot::new(spec()).completed("s".into()),
            VolumeSnapshot::new(spec()).failed(),
        ]
        .map(|one| serde_json::to_value(one).unwrap());
        assert_eq!(counts(&list), (2, 1));
    }
}
