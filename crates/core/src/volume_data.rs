//! How the data of volumes was saved, as `-volumeinfo.json.gz` of a backup says, and how it comes back with a restore. Pure.
//!
//! Velero: `internal/volume/volumes_information.go` and `pkg/restore/restore.go`, v1.18.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// What a backup says of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeRecord {
    pub pv_name: String,
    pvc_namespace: String,
    pvc_name: String,
    backup_method: String,
    snapshot_data_moved: bool,
    skipped_reason: String,
    result: String,
    pv_info: Option<VolumeProperties>,
}

/// What a volume that is provisioned again does not get from its class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeProperties {
    pub reclaim_policy: String,
    labels: Option<BTreeMap<String, String>>,
}

impl VolumeProperties {
    pub fn labels(&self) -> impl Iterator<Item = (&String, &String)> {
        self.labels.iter().flatten()
    }
}

impl VolumeRecord {
    /// An entry of the file; none if it is not one.
    pub fn of(entry: &Value) -> Option<Self> {
        Self::deserialize(entry).ok()
    }

    /// Of the claim; empty if there is none.
    pub fn namespace(&self) -> &str {
        &self.pvc_namespace
    }

    /// The name of the claim; empty if there is none.
    pub fn claim(&self) -> &str {
        &self.pvc_name
    }

    pub fn properties(&self) -> Option<&VolumeProperties> {
        self.pv_info.as_ref()
    }
}

/// What else is known of a volume of a backup.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence {
    /// A plugin has a usable snapshot of it.
    pub native: bool,
    /// Its claim names a CSI snapshot.
    pub csi: bool,
    /// It outlives its claim (`Retain`).
    pub kept: bool,
    /// A plugin was to take a snapshot, and could not.
    pub failed: bool,
}

/// Where the data of a volume comes from when it is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// The volume comes back as it is: its data never left the storage system.
    Kept,
    /// A plugin creates the volume from its snapshot.
    NativeSnapshot,
    /// A volume is provisioned from a CSI snapshot.
    CsiSnapshot,
    /// The data is in a repository of files: an empty volume is provisioned.
    Repository,
    /// It was to be saved, and cannot be brought back, with the reason: an empty volume is provisioned.
    Lost(&'static str),
    /// It was not saved, with the reason as far as it is known: an empty volume is provisioned.
    Unsaved(String),
}

impl DataSource {
    /// Decides for one volume.
    pub fn of(record: Option<&VolumeRecord>, found: Evidence) -> Self {
        let empty = VolumeRecord::default();
        let record = record.unwrap_or(&empty);
        match record.backup_method.as_str() {
            _ if found.native => Self::NativeSnapshot,
            "PodVolumeBackup" => Self::Repository,
            _ if record.snapshot_data_moved => Self::Repository,
            _ if found.csi => Self::CsiSnapshot,
            _ if found.kept => Self::Kept,
            _ if found.failed || record.result == "failed" => Self::Lost("its snapshot could not be taken"),
            "CSISnapshot" => Self::Lost("its VolumeSnapshot is not in the backup"),
            "NativeSnapshot" => Self::Lost("its snapshot is not in the list of the backup"),
            _ if record.skipped_reason.is_empty() => Self::Unsaved("nothing of it was saved".to_owned()),
            _ => Self::Unsaved(format!("nothing of it was saved ({})", record.skipped_reason)),
        }
    }

    /// Whether the volume itself is restored, and not another one provisioned.
    pub fn restores_volume(&self) -> bool {
        matches!(self, Self::Kept | Self::NativeSnapshot)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const NONE: Evidence = Evidence { native: false, csi: false, kept: false, failed: false };
    const NATIVE: Evidence = Evidence { native: true, ..NONE };
    const CSI: Evidence = Evidence { csi: true, ..NONE };
    const KEPT: Evidence = Evidence { kept: true, ..NONE };
    const FAILED: Evidence = Evidence { failed: true, ..NONE };

    #[rstest]
    #[case::plugin(json!({"backupMethod": "NativeSnapshot"}), NATIVE, DataSource::NativeSnapshot)]
    #[case::plugin_of_one_that_is_kept(json!({"backupMethod": "NativeSnapshot"}), Evidence { kept: true, ..NATIVE }, DataSource::NativeSnapshot)]
    #[case::plugin_without_its_snapshot(json!({"backupMethod": "NativeSnapshot"}), NONE, DataSource::Lost("its snapshot is not in the list of the backup"))]
    #[case::plugin_that_failed(json!({"backupMethod": "NativeSnapshot", "result": "failed"}), FAILED, DataSource::Lost("its snapshot could not be taken"))]
    #[case::plugin_that_failed_of_one_that_is_kept(json!({"backupMethod": "NativeSnapshot", "result": "failed"}), Evidence { kept: true, ..FAILED }, DataSource::Kept)]
    #[case::csi(json!({"backupMethod": "CSISnapshot"}), CSI, DataSource::CsiSnapshot)]
    #[case::csi_of_one_that_is_kept(json!({"backupMethod": "CSISnapshot"}), Evidence { kept: true, ..CSI }, DataSource::CsiSnapshot)]
    #[case::csi_without_its_snapshot(json!({"backupMethod": "CSISnapshot"}), NONE, DataSource::Lost("its VolumeSnapshot is not in the backup"))]
    #[case::moved(json!({"backupMethod": "CSISnapshot", "snapshotDataMoved": true}), NONE, DataSource::Repository)]
    #[case::files(json!({"backupMethod": "PodVolumeBackup"}), NONE, DataSource::Repository)]
    #[case::files_of_one_that_is_kept(json!({"backupMethod": "PodVolumeBackup"}), KEPT, DataSource::Repository)]
    #[case::kept(json!({"skipped": true, "skippedReason": "x"}), KEPT, DataSource::Kept)]
    #[case::skipped(json!({"skipped": true, "skippedReason": "no class"}), NONE, DataSource::Unsaved("nothing of it was saved (no class)".to_owned()))]
    // Backups of Velero before 1.13 have no such file.
    #[case::old_plugin(json!(null), NATIVE, DataSource::NativeSnapshot)]
    #[case::old_csi(json!(null), CSI, DataSource::CsiSnapshot)]
    #[case::old_kept(json!(null), KEPT, DataSource::Kept)]
    #[case::old(json!(null), NONE, DataSource::Unsaved("nothing of it was saved".to_owned()))]
    #[case::old_that_failed(json!(null), FAILED, DataSource::Lost("its snapshot could not be taken"))]
    fn where_the_data_of_a_volume_comes_from(
        #[case] record: Value,
        #[case] found: Evidence,
        #[case] expected: DataSource,
    ) {
        let record = VolumeRecord::of(&record);
        assert_eq!(DataSource::of(record.as_ref(), found), expected);
    }

    #[test]
    fn an_entry_says_what_its_class_does_not() {
        let entry = json!({ "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv",
            "pvInfo": { "reclaimPolicy": "Retain", "labels": { "zone": "a" } }, "csiSnapshotInfo": { "size": 1 } });
        let record = VolumeRecord::of(&entry).unwrap();
        let properties = record.properties().unwrap();
        assert_eq!((properties.reclaim_policy.as_str(), properties.labels().count()), ("Retain", 1));
        let bare = json!({ "pvcName": "data", "pvInfo": { "reclaimPolicy": "Delete", "labels": null } });
        assert_eq!(VolumeRecord::of(&bare).unwrap().properties().unwrap().labels().count(), 0);
        assert_eq!(VolumeRecord::of(&json!("junk")), None);
    }
}
