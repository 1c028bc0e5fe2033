//! The sources of restored volumes, for `-volumeinfo.json.gz` of the restore.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::volume_info::{CsiSnapshotInfo, NativeSnapshotInfo, VolumeInfo, VolumeMethod};
use parking_lot::Mutex;

use crate::restore::json::{self, Object};

/// Shared by all code that creates volumes from snapshots in one restore.
#[derive(Clone, Default)]
pub struct RestoredVolumes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Claims, by namespace and name of the VolumeSnapshots from which they are provisioned.
    claims: BTreeMap<(String, String), String>,
    /// Entries of the file, by owner; an item may be processed twice.
    told: BTreeMap<String, VolumeInfo>,
}

impl RestoredVolumes {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock())
    }

    /// Records that a claim will be provisioned from a VolumeSnapshot.
    pub fn expect(&self, namespace: &str, snapshot: &str, claim: &str) {
        self.with(|state| {
            state
                .claims
                .insert((namespace.into(), snapshot.into()), claim.into())
        });
    }

    /// The entries of the claims that will be provisioned from VolumeSnapshots.
    pub fn expected(&self) -> Vec<VolumeInfo> {
        self.with(|state| {
            state
                .claims
                .iter()
                .map(|((namespace, _), claim)| VolumeInfo {
                    pvc_name: claim.as_str().into(),
                    pvc_namespace: namespace.as_str().into(),
                    restore_method: Some(VolumeMethod::CsiSnapshot),
                    ..VolumeInfo::default()
                })
                .collect()
        })
    }

    /// Records that a VolumeSnapshot is usable, from which a claim is provisioned.
    pub fn csi(&self, namespace: &str, snapshot: &str, info: CsiSnapshotInfo) {
        self.with(|state| {
            let claim = state
                .claims
                .get(&(namespace.to_owned(), snapshot.to_owned()));
            let told = VolumeInfo {
                pvc_name: claim.map(String::as_str).into(),
                pvc_namespace: namespace.into(),
                restore_method: Some(VolumeMethod::CsiSnapshot),
                snapshot_data_moved: Some(false),
                csi_snapshot_info: Some(info),
                ..VolumeInfo::default()
            };
            state
                .told
                .insert(format!("claim {namespace}/{snapshot}"), told);
        });
    }

    /// Records that a plugin created a PersistentVolume from a snapshot; `namespace` is its claim's
    /// target namespace.
    pub fn native(&self, volume: &Object, namespace: Option<&str>, info: NativeSnapshotInfo) {
        let name = json::text(volume, &["metadata"], "name").unwrap_or_default();
        let told = VolumeInfo {
            pvc_name: json::text(volume, &["spec", "claimRef"], "name").into(),
            pvc_namespace: namespace.into(),
            pv_name: Some(name.to_owned()),
            restore_method: Some(VolumeMethod::NativeSnapshot),
            snapshot_data_moved: Some(false),
            native_snapshot_info: Some(info),
            ..VolumeInfo::default()
        };
        self.with(|state| state.told.insert(format!("volume {name}"), told));
    }

    pub fn entries(&self) -> Vec<VolumeInfo> {
        self.with(|state| state.told.values().cloned().collect())
    }
}
