//! The outcome for the data of volumes, from `-volumeinfo.json.gz` (Velero
//! `internal/volume/volumes_information.go`, v1.18).

use backup_core::volume_data::{NOTHING_SAVED, SNAPSHOT_FAILED};
use serde::{Deserialize, Serialize};

use crate::print::plain;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "Entry")]
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

/// The needed fields of an entry. Entries of backups and of restores differ in a few names.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    pvc_name: Option<String>,
    pvc_namespace: Option<String>,
    pv_name: Option<String>,
    backup_method: Option<String>,
    restore_method: Option<String>,
    snapshot_data_moved: Option<bool>,
    skipped: Option<bool>,
    skipped_reason: Option<String>,
    result: Option<String>,
    csi_snapshot_info: Option<Snapshot>,
    native_snapshot_info: Option<Snapshot>,
    pvb_info: Option<PodVolume>,
    pvr_info: Option<PodVolume>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Snapshot {
    size: Option<i64>,
    snapshot_handle: Option<String>,
}

/// A pod volume whose files were read, or are to be written, through the pod.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodVolume {
    pod_namespace: String,
    pod_name: String,
    volume_name: String,
    #[serde(flatten)]
    snapshot: Snapshot,
}

impl From<Entry> for VolumeView {
    fn from(entry: Entry) -> Self {
        let of_pod = entry.pvb_info.or(entry.pvr_info);
        let pod_volume = of_pod.as_ref().map(
            |PodVolume {
                 pod_namespace,
                 pod_name,
                 volume_name,
                 ..
             }| {
                plain(&format!(
                    "volume {volume_name} of pod {pod_namespace}/{pod_name}"
                ))
            },
        );
        let claim = match (nonempty(entry.pvc_namespace), nonempty(entry.pvc_name)) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            (_, name) => name
                .or(nonempty(entry.pv_name))
                .or(pod_volume)
                .unwrap_or_default(),
        };
        let of_pod = of_pod.map(|of| of.snapshot);
        let snapshot = entry
            .csi_snapshot_info
            .or(entry.native_snapshot_info)
            .or(of_pod)
            .unwrap_or_default();
        let method = nonempty(entry.backup_method.or(entry.restore_method)).unwrap_or_default();
        let skipped = entry.skipped.unwrap_or_default();
        Self {
            claim,
            method: match method.as_str() {
                "CSISnapshot" if entry.snapshot_data_moved == Some(true) => {
                    "moved CSI snapshot".to_owned()
                }
                "CSISnapshot" => "CSI snapshot".to_owned(),
                "NativeSnapshot" => "native snapshot".to_owned(),
                "PodVolumeBackup" | "PodVolumeRestore" => "files of the volume".to_owned(),
                _ => method,
            },
            succeeded: nonempty(entry.result).map(|result| result == "succeeded"),
            size: snapshot.size.unwrap_or_default(),
            handle: nonempty(snapshot.snapshot_handle).unwrap_or_default(),
            skipped: skipped.then(|| nonempty(entry.skipped_reason).unwrap_or_default()),
        }
    }
}

/// The text, safe for a terminal; `None` if it is empty.
fn nonempty(text: Option<String>) -> Option<String> {
    text.map(|text| plain(&text))
        .filter(|text| !text.is_empty())
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
