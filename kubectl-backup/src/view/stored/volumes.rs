//! The outcome for the data of volumes, from `-volumeinfo.json.gz` (Velero
//! `internal/volume/volumes_information.go`, v1.18).

use backup_core::{
    data_movement::{DATA_MOVER, repository_path},
    volume_info::{
        DataMovementInfo, NOTHING_SAVED, PodVolumeInfo, SNAPSHOT_FAILED, VolumeInfo, VolumeMethod,
        VolumeResult,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::print::{plain, size};

const NOT_MOVED: &str = "its data was not moved into the bucket";
const PARTLY_MOVED: &str = "not all of its data was moved into the bucket";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "VolumeInfo")]
pub(crate) struct VolumeView {
    /// `namespace/claim`, or the name of the volume if its claim is unknown.
    pub(crate) claim: String,
    /// How its data was saved or restored: `CSI snapshot`, for example; empty if it was not.
    pub(crate) method: String,
    pub(crate) succeeded: Option<bool>,
    /// Size (bytes); 0 if the file does not contain it.
    pub(crate) size: i64,
    /// Bytes that the backup has added to a repository, if the file contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new_bytes: Option<i64>,
    /// Name of the snapshot in the storage system or repository.
    pub(crate) handle: String,
    pub(crate) skipped: Option<String>,
    /// Whether the entry is that of a restore.
    #[serde(skip_serializing)]
    pub(crate) is_restored: bool,
    /// Where its data is, for users; empty if nothing was saved.
    #[serde(skip_serializing)]
    pub(crate) place: String,
    #[serde(skip_serializing)]
    pub(crate) keeper: Keeper,
    /// Id of the operation that moved its data; empty if there was none.
    #[serde(skip_serializing)]
    pub(crate) operation: String,
}

/// What keeps the data of a volume, and so what can restore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// The storage system has a snapshot.
    #[default]
    StorageSystem,
    /// A repository of ours in the bucket.
    Repository,
    /// A repository that only a Velero server reads.
    VeleroRepository,
}

impl From<VolumeInfo> for VolumeView {
    fn from(entry: VolumeInfo) -> Self {
        let saved = SavedData::of(&entry);
        let is_skipped = entry.skipped == Some(true);
        Self {
            claim: name(&entry),
            method: method(&entry),
            succeeded: entry
                .result
                .as_ref()
                .filter(|result| nonempty(result.as_str()).is_some())
                .map(|result| *result == VolumeResult::Succeeded),
            size: saved.size,
            new_bytes: saved.new_bytes,
            handle: plain(&saved.handle),
            is_restored: entry.backup_method.is_none() && entry.restore_method.is_some(),
            skipped: is_skipped.then(|| plain(entry.skipped_reason.as_deref().unwrap_or_default())),
            place: if is_skipped {
                String::new()
            } else {
                plain(&saved.place)
            },
            keeper: saved.keeper,
            operation: plain(&saved.operation),
        }
    }
}

/// What an entry says about its snapshot or its files.
#[derive(Default)]
struct SavedData {
    size: i64,
    new_bytes: Option<i64>,
    handle: String,
    place: String,
    keeper: Keeper,
    operation: String,
}

impl SavedData {
    fn of(entry: &VolumeInfo) -> Self {
        if entry.snapshot_data_moved == Some(true) {
            let moved = entry.snapshot_data_movement_info.as_ref();
            return Self::moved(
                entry.namespace(),
                moved.map(Movement::of).unwrap_or_default(),
            );
        }
        if let Some(info) = &entry.csi_snapshot_info {
            let place = if info.driver.is_empty() {
                "storage system".to_owned()
            } else {
                format!("storage system ({})", info.driver)
            };
            Self {
                size: info.size,
                handle: info.snapshot_handle.clone(),
                place,
                ..Self::default()
            }
        } else if let Some(info) = &entry.native_snapshot_info {
            Self {
                handle: info.snapshot_handle.clone(),
                place: "storage system".to_owned(),
                ..Self::default()
            }
        } else if let Some(info) = entry.pod_volume() {
            let uploader = info.extra.get("uploaderType");
            let uploader = uploader.and_then(Value::as_str);
            Self {
                size: info.size.unwrap_or_default(),
                handle: info.snapshot_handle.clone().unwrap_or_default(),
                place: velero_repository(uploader, &info.pod_namespace),
                keeper: Keeper::VeleroRepository,
                ..Self::default()
            }
        } else {
            Self::default()
        }
    }

    fn moved(namespace: &str, movement: Movement) -> Self {
        let Movement {
            data_mover,
            uploader_type,
            operation_id,
            snapshot_handle,
            size,
            incremental_size,
        } = movement;
        let (keeper, place) = if data_mover.as_deref() == Some(DATA_MOVER) {
            (Keeper::Repository, repository_path(namespace))
        } else {
            let place = velero_repository(uploader_type.as_deref(), namespace);
            (Keeper::VeleroRepository, place)
        };
        let handle = snapshot_handle.unwrap_or_default();
        // The file leaves out a zero.
        let no_new_bytes = (keeper == Keeper::Repository && !handle.is_empty()).then_some(0);
        Self {
            size: size.unwrap_or_default(),
            new_bytes: incremental_size.or(no_new_bytes),
            handle,
            place,
            keeper,
            operation: operation_id.unwrap_or_default(),
        }
    }
}

/// The fields of `snapshotDataMovementInfo` that are shown.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Movement {
    data_mover: Option<String>,
    uploader_type: Option<String>,
    #[serde(rename = "operationID")]
    operation_id: Option<String>,
    snapshot_handle: Option<String>,
    size: Option<i64>,
    incremental_size: Option<i64>,
}

impl Movement {
    /// Empty if a field has another type.
    fn of(info: &DataMovementInfo) -> Self {
        serde_json::to_value(info)
            .and_then(serde_json::from_value)
            .unwrap_or_default()
    }
}

/// `kopia/shop`: where Velero has the repository of a namespace (`pkg/repository/provider`, v1.18).
fn velero_repository(uploader: Option<&str>, namespace: &str) -> String {
    match uploader.filter(|uploader| !uploader.is_empty()) {
        Some(uploader) => format!("{uploader}/{namespace}"),
        None => "repository".to_owned(),
    }
}

fn name(entry: &VolumeInfo) -> String {
    match (nonempty(entry.namespace()), nonempty(entry.claim())) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (_, name) => name
            .or_else(|| nonempty(entry.volume()))
            .or_else(|| entry.pod_volume().map(name_in_pod))
            .unwrap_or_default(),
    }
}

fn name_in_pod(volume: &PodVolumeInfo) -> String {
    let PodVolumeInfo {
        pod_namespace,
        pod_name,
        volume_name,
        ..
    } = volume;
    plain(&format!(
        "volume {volume_name} of pod {pod_namespace}/{pod_name}"
    ))
}

fn method(entry: &VolumeInfo) -> String {
    let method = entry
        .backup_method
        .as_ref()
        .or(entry.restore_method.as_ref());
    let name = match method {
        None => "",
        Some(VolumeMethod::CsiSnapshot) if entry.snapshot_data_moved == Some(true) => {
            "moved CSI snapshot"
        }
        Some(VolumeMethod::CsiSnapshot) => "CSI snapshot",
        Some(VolumeMethod::NativeSnapshot) => "native snapshot",
        Some(VolumeMethod::PodVolumeBackup | VolumeMethod::PodVolumeRestore) => {
            "files of the volume"
        }
        Some(VolumeMethod::Unknown(other)) => other.as_str(),
    };
    plain(name)
}

/// The text, safe for a terminal; `None` if it is empty.
fn nonempty(text: &str) -> Option<String> {
    Some(plain(text)).filter(|text| !text.is_empty())
}

impl VolumeView {
    /// Name of the volume, and why its data is not in the backup, if so.
    pub(crate) fn missing_data(&self) -> (String, Option<String>) {
        let why = match (&self.skipped, self.succeeded) {
            (Some(why), _) if why.is_empty() => Some(NOTHING_SAVED.to_owned()),
            (Some(why), _) => Some(why.clone()),
            (None, Some(false)) => Some(self.failure().to_owned()),
            (None, _) => None,
        };
        (self.claim.clone(), why)
    }

    /// Why its data is missing, if it has failed and the file gives no reason.
    fn failure(&self) -> &'static str {
        if self.is_incomplete() {
            PARTLY_MOVED
        } else if self.keeper == Keeper::StorageSystem {
            SNAPSHOT_FAILED
        } else {
            NOT_MOVED
        }
    }

    /// Whether a part of its data is in a repository of ours, and the rest is missing.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.succeeded == Some(false)
            && self.keeper == Keeper::Repository
            && !self.handle.is_empty()
    }
}

/// Volumes that were saved or restored in the same way.
#[derive(Default)]
struct Group {
    count: usize,
    /// Sum of the sizes (bytes).
    size: i64,
    /// Sum of the bytes that were added to a repository, as far as they are known.
    new_bytes: Option<i64>,
}

impl Group {
    fn add(&mut self, volume: &VolumeView) {
        self.count += 1;
        self.size = self.size.saturating_add(volume.size);
        if let Some(new) = volume.new_bytes {
            self.new_bytes = Some(self.new_bytes.unwrap_or_default().saturating_add(new));
        }
    }

    /// "2 by moved CSI snapshot (5.0 GiB, 120.0 MiB new)"; the sizes only where new bytes are
    /// known.
    fn text(&self, method: &str) -> String {
        let Self {
            count,
            size: all,
            new_bytes,
        } = self;
        let method = if method.is_empty() {
            "other means"
        } else {
            method
        };
        let bytes = |count: i64| size(u64::try_from(count).unwrap_or_default());
        let sizes = new_bytes.map_or_else(String::new, |new| {
            format!(" ({}, {} new)", bytes(*all), bytes(new))
        });
        format!("{count} by {method}{sizes}")
    }
}

/// "2 by CSI snapshot, 1 failed, 3 without their data".
pub(crate) fn summary(volumes: &[VolumeView]) -> String {
    let mut methods: Vec<(&str, Group)> = Vec::new();
    let mut failed = 0;
    let mut without = 0;
    for volume in volumes {
        match (&volume.skipped, volume.succeeded) {
            (Some(_), _) => without += 1,
            (None, Some(false)) => failed += 1,
            (None, _) => {
                let known = methods
                    .iter()
                    .position(|(method, _)| *method == volume.method);
                let at = known.unwrap_or(methods.len());
                if known.is_none() {
                    methods.push((&volume.method, Group::default()));
                }
                if let Some((_, group)) = methods.get_mut(at) {
                    group.add(volume);
                }
            }
        }
    }
    let mut parts: Vec<String> = methods
        .iter()
        .map(|(method, group)| group.text(method))
        .collect();
    parts.extend((failed > 0).then(|| format!("{failed} failed")));
    parts.extend((without > 0).then(|| format!("{without} without their data")));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_told_by_what_became_of_their_data() {
        let volume = |text: &str| serde_json::from_str::<VolumeView>(text).unwrap();
        let all = [
            volume(
                r#"{"pvcNamespace":"shop","pvcName":"a","backupMethod":"CSISnapshot","result":"succeeded","csiSnapshotInfo":{"size":5,"snapshotHandle":"h"}}"#,
            ),
            volume(
                r#"{"pvName":"pv-1","backupMethod":"NativeSnapshot","result":"failed","nativeSnapshotInfo":{"snapshotHandle":""}}"#,
            ),
            volume(
                r#"{"pvcName":null,"pvName":"pv-2","skipped":true,"skippedReason":"no driver"}"#,
            ),
            volume(
                r#"{"pvcNamespace":"shop","pvcName":"b","restoreMethod":"CSISnapshot","snapshotDataMoved":true}"#,
            ),
            volume(
                r#"{"pvrInfo":{"podNamespace":"shop","podName":"web","volumeName":"cache","size":7},"skipped":true}"#,
            ),
        ];
        assert_eq!(
            summary(&all),
            "1 by CSI snapshot, 1 by moved CSI snapshot, 1 failed, 2 without their data"
        );
        assert_eq!(
            (all[0].claim.as_str(), all[0].size, all[0].handle.as_str()),
            ("shop/a", 5, "h")
        );
        assert_eq!(
            (all[2].claim.as_str(), all[2].skipped.as_deref()),
            ("pv-2", Some("no driver"))
        );
        assert_eq!(
            (all[4].claim.as_str(), all[4].size),
            ("volume cache of pod shop/web", 7)
        );
    }

    #[test]
    fn moved_data_is_told_with_its_repository_and_who_reads_it() {
        let volume = |text: &str| serde_json::from_str::<VolumeView>(text).unwrap();
        let entry = |mover: &str, uploader: &str, result: &str, handle: &str| {
            volume(
                &serde_json::json!({
                    "pvcNamespace": "shop", "pvcName": "data", "backupMethod": "CSISnapshot", "snapshotDataMoved": true, "result": result,
                    "snapshotDataMovementInfo": { "dataMover": mover, "uploaderType": uploader, "operationID": "upload-1",
                        "snapshotHandle": handle, "size": 2048, "incrementalSize": 1024 },
                })
                .to_string(),
            )
        };
        let ours = entry(DATA_MOVER, "restic", "succeeded", "4f1c");
        assert_eq!(
            (ours.place.as_str(), ours.keeper, ours.operation.as_str()),
            ("restic/shop", Keeper::Repository, "upload-1")
        );
        assert_eq!((ours.size, ours.new_bytes), (2048, Some(1024)));
        assert_eq!(
            summary(&[ours.clone(), ours]),
            "2 by moved CSI snapshot (4.0 KiB, 2.0 KiB new)"
        );
        let velero = entry("velero", "kopia", "succeeded", "k");
        assert_eq!(
            (velero.place.as_str(), velero.keeper),
            ("kopia/shop", Keeper::VeleroRepository)
        );
        for (handle, why) in [("4f1c", PARTLY_MOVED), ("", NOT_MOVED)] {
            let failed = entry(DATA_MOVER, "restic", "failed", handle);
            assert_eq!(failed.missing_data().1.as_deref(), Some(why));
        }
        let bare = volume(r#"{"pvcName":"b","snapshotDataMoved":true}"#);
        assert_eq!(bare.keeper, Keeper::VeleroRepository);
    }
}
