//! Volumes whose data Velero has put into a file repository (Kopia, restic), which only its node
//! agents read. Pure.
//!
//! Velero: `internal/volume/volumes_information.go` and
//! `pkg/apis/velero/v1/pod_volume_backup_types.go`, v1.18.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use crate::volume_info::{PodVolumeInfo, VolumeInfo, VolumeMethod};

/// A volume of a backup whose data is in a repository.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RepositoryVolume {
    /// Namespace of the claim and the pod; empty if unknown.
    pub namespace: String,
    pub claim: Option<String>,
    /// The pod that mounted it and the volume's name there; for files that were read through a pod.
    pub mount: Option<(String, String)>,
}

impl fmt::Display for RepositoryVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            claim,
            mount,
        } = self;
        match (claim, mount) {
            (Some(claim), _) => write!(f, "claim {namespace}/{claim}"),
            (None, Some((pod, volume))) => write!(f, "volume {volume} of pod {namespace}/{pod}"),
            (None, None) => f.write_str("volumes that it does not name"),
        }
    }
}

impl RepositoryVolume {
    /// Data moved by Velero up to 1.12, of which there is no list.
    pub fn unnamed() -> Self {
        Self {
            namespace: String::new(),
            claim: None,
            mount: None,
        }
    }

    /// An entry in a restore's file for a pod's volume without a claim that was not restored, like
    /// [`VolumeInfo::not_restored`]; `namespace` is the pod's target. `None` if the volume is unknown
    /// or has a claim.
    pub fn not_restored(&self, namespace: &str, why: &str) -> Option<VolumeInfo> {
        let (pod, name) = self.mount.as_ref().filter(|_| self.claim.is_none())?;
        Some(VolumeInfo {
            pvr_info: Some(PodVolumeInfo {
                pod_namespace: namespace.to_owned(),
                pod_name: pod.clone(),
                volume_name: name.clone(),
                ..PodVolumeInfo::default()
            }),
            skipped: Some(true),
            skipped_reason: Some(why.to_owned()),
            ..VolumeInfo::default()
        })
    }

    /// From an entry of `-volumeinfo.json.gz`; `None` if its data is not in a repository of
    /// Velero's node agents, or was not saved.
    fn of_info(info: &VolumeInfo) -> Option<Self> {
        let of_pod = info.pvb_info.as_ref();
        let handle = if info.backup_method == Some(VolumeMethod::PodVolumeBackup) {
            of_pod.and_then(|of_pod| of_pod.snapshot_handle.as_deref())
        } else {
            let moved = info.snapshot_data_movement_info.as_ref();
            moved.map(|moved| moved.snapshot_handle.as_str())
        };
        let is_saved = handle.and_then(nonempty).is_some() || !info.has_failed();
        if !(info.uses_repository() && is_saved) {
            return None;
        }
        let namespace = nonempty(info.namespace())
            .or_else(|| nonempty(&of_pod?.pod_namespace))
            .unwrap_or_default();
        let mount =
            of_pod.and_then(|of_pod| nonempty(&of_pod.pod_name).zip(nonempty(&of_pod.volume_name)));
        Some(Self {
            namespace: namespace.to_owned(),
            claim: nonempty(info.claim()).map(str::to_owned),
            mount: mount.map(|(pod, volume)| (pod.to_owned(), volume.to_owned())),
        })
    }

    /// From an object of `-podvolumebackups.json.gz`; `None` if it has saved nothing.
    fn of_pod_volume_backup(object: &Value) -> Option<Self> {
        text(object, "/status/snapshotID")?;
        Some(Self {
            namespace: text(object, "/spec/pod/namespace")?.to_owned(),
            claim: None,
            mount: Some((
                text(object, "/spec/pod/name")?.to_owned(),
                text(object, "/spec/volume")?.to_owned(),
            )),
        })
    }
}

/// `None` if the field is missing, empty or no text.
fn text<'a>(object: &'a Value, at: &str) -> Option<&'a str> {
    object
        .pointer(at)
        .and_then(Value::as_str)
        .and_then(nonempty)
}

fn nonempty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The volumes of a backup whose data is in a repository of Velero's node agents, each once. Data
/// of our data mover is not included: it is restored and deleted here.
pub fn volumes(infos: &[VolumeInfo], pod_volume_backups: &[Value]) -> Vec<RepositoryVolume> {
    let mut found: BTreeSet<RepositoryVolume> =
        infos.iter().filter_map(RepositoryVolume::of_info).collect();
    for more in pod_volume_backups
        .iter()
        .filter_map(RepositoryVolume::of_pod_volume_backup)
    {
        if !found
            .iter()
            .any(|known| known.namespace == more.namespace && known.mount == more.mount)
        {
            found.insert(more);
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_volume_in_a_repository_is_named_once_and_no_other() {
        let infos = [
            json!({ "pvcName": "data", "pvcNamespace": "shop", "backupMethod": "PodVolumeBackup", "snapshotDataMoved": false,
                "pvbInfo": { "snapshotHandle": "k1", "podName": "db-0", "podNamespace": "shop", "volumeName": "data" } }),
            json!({ "pvcName": "moved", "pvcNamespace": "shop", "backupMethod": "CSISnapshot", "snapshotDataMoved": true,
                "snapshotDataMovementInfo": { "snapshotHandle": "k2" } }),
            json!({ "pvcName": "ours", "pvcNamespace": "shop", "backupMethod": "CSISnapshot", "snapshotDataMoved": true,
                "snapshotDataMovementInfo": { "snapshotHandle": "k4", "dataMover": "backup-mover" } }),
            json!({ "pvcName": "lost", "pvcNamespace": "shop", "backupMethod": "CSISnapshot", "snapshotDataMoved": true,
                "result": "failed" }),
            json!({ "pvcName": "cut", "pvcNamespace": "shop", "backupMethod": "CSISnapshot", "snapshotDataMoved": false }),
            json!({ "pvName": "pv", "backupMethod": "NativeSnapshot" }),
            json!("junk"),
        ];
        let backup = |pod: &str, volume: &str, snapshot: &str| {
            json!({ "spec": { "pod": { "namespace": "shop", "name": pod }, "volume": volume },
                "status": { "phase": "Completed", "snapshotID": snapshot } })
        };
        let files = [
            backup("db-0", "data", "k1"),
            backup("web-0", "cache", "k3"),
            backup("web-1", "cache", ""),
        ];
        let told = volumes(&VolumeInfo::all(&infos), &files)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        assert_eq!(
            told,
            [
                "volume cache of pod shop/web-0",
                "claim shop/data",
                "claim shop/moved"
            ]
        );
        assert_eq!(volumes(&[], &[]), []);
        // Without `-volumeinfo.json.gz`, which Velero writes since 1.13.
        assert_eq!(
            volumes(&[], &files[..1])[0].to_string(),
            "volume data of pod shop/db-0"
        );
    }
}
