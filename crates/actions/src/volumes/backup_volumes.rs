//! The result for the data of each claim: for `-volumeinfo.json.gz`, and for readers of the
//! results.
//!
//! Velero: `internal/volume/volumes_information.go`, v1.18.

use std::collections::BTreeMap;

use backup_core::{
    api::Backup,
    operation::{BackupOperation, OperationPhase},
    snapshot::{SnapshotPhase, VolumeSnapshot},
    time::whole_seconds,
    volume_info::{
        CsiSnapshotInfo, NativeSnapshotInfo, VolumeInfo, VolumeMethod, VolumeProperties,
        VolumeResult,
    },
};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize as _;
use serde_json::Value;

use crate::json::text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeDecision {
    Snapshot {
        /// The VolumeSnapshotClass that the resource policy names for it.
        class: Option<String>,
    },
    /// No snapshot, on request or because another method was requested; with the reason.
    Skip(String),
}

/// Decides about a claim (first argument) and its volume, in addition to the backup's own settings.
pub type VolumePolicy = dyn Fn(&Value, &Value) -> VolumeDecision + Send + Sync;

/// A claim's volume, as in `-volumeinfo.json.gz`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimVolume {
    claim: String,
    namespace: String,
    name: String,
    reclaim_policy: String,
    labels: BTreeMap<String, String>,
}

impl ClaimVolume {
    pub fn of(claim: &Value, volume: &Value) -> Self {
        Self {
            claim: owned(claim, "/metadata/name"),
            namespace: owned(claim, "/metadata/namespace"),
            ..Self::of_volume(volume)
        }
    }

    fn key(&self) -> Key {
        let of_volume = if self.claim.is_empty() {
            self.name.clone()
        } else {
            String::new()
        };
        (self.namespace.clone(), self.claim.clone(), of_volume)
    }

    /// From the volume, which names the claim that it is bound to, if any.
    pub fn of_volume(volume: &Value) -> Self {
        Self {
            claim: owned(volume, "/spec/claimRef/name"),
            namespace: owned(volume, "/spec/claimRef/namespace"),
            name: owned(volume, "/metadata/name"),
            reclaim_policy: owned(volume, "/spec/persistentVolumeReclaimPolicy"),
            labels: volume
                .pointer("/metadata/labels")
                .and_then(|labels| BTreeMap::deserialize(labels).ok())
                .unwrap_or_default(),
        }
    }
}

/// Empty if the text is missing.
fn owned(value: &Value, pointer: &str) -> String {
    text(value, pointer).unwrap_or_default().to_owned()
}

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Snapshot {
        name: String,
        info: CsiSnapshotInfo,
        created: Option<String>,
    },
    Native(Box<VolumeSnapshot>),
    /// The data of its snapshot is moved into a repository; with the name of the DataUpload.
    Moved(String),
    /// Its data was not requested, or was excluded on request.
    Skipped(String),
    /// Its data should be in the backup, but could not be saved.
    Left(String),
    /// No method here saves this kind of volume. One warning counts all of them.
    Unsupported(String),
}

/// Namespace and name of a claim; without one, the name of the volume.
type Key = (String, String, String);

#[derive(Default)]
pub struct BackupVolumes {
    policy: Option<Box<VolumePolicy>>,
    seen: Mutex<BTreeMap<Key, (ClaimVolume, Outcome)>>,
}

impl BackupVolumes {
    pub fn with_policy(policy: Box<VolumePolicy>) -> Self {
        Self {
            policy: Some(policy),
            ..Self::default()
        }
    }

    pub fn decide(&self, claim: &Value, volume: &Value, backup: &Backup) -> VolumeDecision {
        if let Some(policy) = &self.policy {
            policy(claim, volume)
        } else if backup.spec.snapshot_volumes == Some(false) {
            VolumeDecision::Skip("spec.snapshotVolumes is false".to_owned())
        } else {
            VolumeDecision::Snapshot { class: None }
        }
    }

    pub fn snapshot(&self, volume: ClaimVolume, driver: &str, name: &str) {
        let info = CsiSnapshotInfo {
            driver: driver.to_owned(),
            operation_id: Some(String::new()),
            ..CsiSnapshotInfo::default()
        };
        self.record(
            volume,
            Outcome::Snapshot {
                name: name.to_owned(),
                info,
                created: None,
            },
        );
    }

    /// Records that the data of its snapshot is moved into a repository by this DataUpload.
    pub(crate) fn moved(&self, volume: ClaimVolume, upload: &str) {
        self.record(volume, Outcome::Moved(upload.to_owned()));
    }

    /// Records that a plugin was asked for a snapshot. Later results for the volume are ignored.
    pub fn native(&self, volume: ClaimVolume, snapshot: VolumeSnapshot) {
        self.record(volume, Outcome::Native(Box::new(snapshot)));
    }

    /// Records that it was excluded on request.
    pub fn skipped(&self, volume: ClaimVolume, reason: &str) {
        self.record(volume, Outcome::Skipped(reason.to_owned()));
    }

    /// Records that its data could not be saved.
    pub fn left(&self, volume: ClaimVolume, reason: &str) {
        self.record(volume, Outcome::Left(reason.to_owned()));
    }

    /// Records a bound claim that was written, if no action has processed its volume so far.
    pub fn unsupported(&self, claim: &Value, reason: &str) {
        let name = text(claim, "/spec/volumeName")
            .unwrap_or_default()
            .to_owned();
        let volume = ClaimVolume {
            name,
            ..ClaimVolume::of(claim, &Value::Null)
        };
        let key = volume.key();
        self.lock()
            .entry(key)
            .or_insert_with(|| (volume, Outcome::Unsupported(reason.to_owned())));
    }

    /// Records the details of a snapshot, and when it was created.
    pub(crate) fn describe(
        &self,
        namespace: &str,
        snapshot: &str,
        more: CsiSnapshotInfo,
        at: Option<String>,
    ) {
        for (volume, outcome) in self.lock().values_mut() {
            if let Outcome::Snapshot {
                name,
                info,
                created,
            } = outcome
                && volume.namespace == namespace
                && name == snapshot
            {
                *info = more;
                *created = at;
                return;
            }
        }
    }

    /// Claims whose data should be in the backup but is not: namespace, and a sentence.
    pub fn missing(&self) -> Vec<(String, String)> {
        let seen = self.lock();
        let left = seen.values().filter_map(|(volume, outcome)| match outcome {
            // A volume without a claim needs no warning.
            Outcome::Left(reason) if !volume.claim.is_empty() => Some((
                volume.namespace.clone(),
                format!(
                    "the data of PersistentVolumeClaim {}/{} is not in this backup: {reason}",
                    volume.namespace, volume.claim
                ),
            )),
            _ => None,
        });
        left.collect()
    }

    /// The entries of `-volumeinfo.json.gz`.
    pub fn info(&self) -> Vec<VolumeInfo> {
        self.lock()
            .values()
            .map(|(volume, outcome)| entry(volume, outcome))
            .collect()
    }

    /// The number of claims that an action has processed.
    pub fn claims(&self) -> u64 {
        self.lock()
            .values()
            .filter(|(volume, outcome)| {
                !volume.claim.is_empty() && !matches!(outcome, Outcome::Unsupported(_))
            })
            .count() as u64
    }

    fn record(&self, volume: ClaimVolume, outcome: Outcome) {
        let key = volume.key();
        let mut seen = self.lock();
        // Volumes are processed before their claims.
        let is_native = matches!(seen.get(&key), Some((_, Outcome::Native(_))));
        if !is_native || matches!(outcome, Outcome::Native(_)) {
            seen.insert(key, (volume, outcome));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, (ClaimVolume, Outcome)>> {
        self.seen.lock()
    }
}

fn entry(volume: &ClaimVolume, outcome: &Outcome) -> VolumeInfo {
    let entry = VolumeInfo {
        pvc_name: volume.claim.as_str().into(),
        pvc_namespace: volume.namespace.as_str().into(),
        pv_name: Some(volume.name.clone()),
        snapshot_data_moved: Some(false),
        preserve_local_snapshot: Some(false),
        skipped: Some(false),
        pv_info: Some(VolumeProperties {
            reclaim_policy: volume.reclaim_policy.clone(),
            labels: volume.labels.clone(),
            ..VolumeProperties::default()
        }),
        ..VolumeInfo::default()
    };
    match outcome {
        Outcome::Skipped(reason) | Outcome::Left(reason) | Outcome::Unsupported(reason) => {
            VolumeInfo {
                skipped: Some(true),
                skipped_reason: Some(reason.clone()),
                ..entry
            }
        }
        Outcome::Moved(upload) => VolumeInfo {
            pv_info: entry.pv_info,
            ..VolumeInfo::moved(&volume.namespace, &volume.claim, &volume.name, upload)
        },
        Outcome::Native(snapshot) => VolumeInfo {
            backup_method: Some(VolumeMethod::NativeSnapshot),
            result: Some(result(snapshot.status.phase == SnapshotPhase::Completed)),
            native_snapshot_info: Some(NativeSnapshotInfo::of(snapshot)),
            ..entry
        },
        Outcome::Snapshot { info, created, .. } => VolumeInfo {
            backup_method: Some(VolumeMethod::CsiSnapshot),
            preserve_local_snapshot: Some(true),
            start_timestamp: created.clone(),
            csi_snapshot_info: Some(info.clone()),
            ..entry
        },
    }
}

fn result(succeeded: bool) -> VolumeResult {
    if succeeded {
        VolumeResult::Succeeded
    } else {
        VolumeResult::Failed
    }
}

/// Completes the entries with the results of the operations.
pub fn complete_info(info: &mut [VolumeInfo], operations: &[BackupOperation]) {
    for entry in info {
        let Some(snapshot) = &mut entry.csi_snapshot_info else {
            continue;
        };
        let Some(operation) = operations
            .iter()
            .find(|operation| snapshot.operation_id.as_ref() == Some(&operation.spec.operation_id))
        else {
            continue;
        };
        let succeeded = match operation.status.phase {
            OperationPhase::Completed => true,
            OperationPhase::Failed => false,
            _ => continue,
        };
        snapshot.ready_to_use = Some(succeeded);
        entry.result = Some(result(succeeded));
        if let Some(updated) = operation.status.updated {
            entry.completion_timestamp = Some(whole_seconds(updated).to_string());
        }
    }
}

#[cfg(test)]
mod tests;
