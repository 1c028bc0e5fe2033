//! The outcome for the data of volumes, from `-volumeinfo.json.gz` (Velero
//! `internal/volume/volumes_information.go`, v1.18).

use backup_core::volume_info::{
    NOTHING_SAVED, PodVolumeInfo, SNAPSHOT_FAILED, VolumeInfo, VolumeMethod, VolumeResult,
};
use serde::{Deserialize, Serialize};

use crate::print::plain;

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
    /// Name of the snapshot in the storage system.
    pub(crate) handle: String,
    pub(crate) skipped: Option<String>,
}

impl From<VolumeInfo> for VolumeView {
    fn from(entry: VolumeInfo) -> Self {
        let snapshot = Snapshot::of(&entry);
        Self {
            claim: name(&entry),
            method: method(&entry),
            succeeded: entry
                .result
                .as_ref()
                .filter(|result| nonempty(result.as_str()).is_some())
                .map(|result| *result == VolumeResult::Succeeded),
            size: snapshot.size,
            handle: plain(snapshot.handle),
            skipped: (entry.skipped == Some(true))
                .then(|| plain(entry.skipped_reason.as_deref().unwrap_or_default())),
        }
    }
}

/// What an entry says about its snapshot or its files.
#[derive(Default)]
struct Snapshot<'a> {
    size: i64,
    handle: &'a str,
}

impl<'a> Snapshot<'a> {
    fn of(entry: &'a VolumeInfo) -> Self {
        if let Some(info) = &entry.csi_snapshot_info {
            Self {
                size: info.size,
                handle: &info.snapshot_handle,
            }
        } else if let Some(info) = &entry.native_snapshot_info {
            Self {
                size: 0,
                handle: &info.snapshot_handle,
            }
        } else if let Some(info) = entry.pod_volume() {
            Self {
                size: info.size.unwrap_or_default(),
                handle: info.snapshot_handle.as_deref().unwrap_or_default(),
            }
        } else {
            Self::default()
        }
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
            (None, Some(false)) => Some(SNAPSHOT_FAILED.to_owned()),
            (None, _) => None,
        };
        (self.claim.clone(), why)
    }
}

/// "2 by CSI snapshot, 1 failed, 3 without their data".
pub(crate) fn summary(volumes: &[VolumeView]) -> String {
    let mut methods: Vec<(&str, usize)> = Vec::new();
    let mut failed = 0;
    let mut without = 0;
    for volume in volumes {
        match (&volume.skipped, volume.succeeded) {
            (Some(_), _) => without += 1,
            (None, Some(false)) => failed += 1,
            (None, _) => match methods
                .iter_mut()
                .find(|(method, _)| *method == volume.method)
            {
                Some((_, count)) => *count += 1,
                None => methods.push((&volume.method, 1)),
            },
        }
    }
    let mut parts: Vec<String> = methods
        .into_iter()
        .map(|(method, count)| match method {
            "" => format!("{count} by other means"),
            method => format!("{count} by {method}"),
        })
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
}
