//! The sources of restored volumes, for `-volumeinfo.json.gz` of the restore.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use backup_core::{
    data_movement::{DATA_MOVER, REPOSITORY_TYPE},
    volume_data::MovedData,
    volume_info::{
        CsiSnapshotInfo, DataMovementInfo, NativeSnapshotInfo, VolumeInfo, VolumeMethod,
        VolumeResult,
    },
};
use parking_lot::Mutex;

use crate::restore::json::{self, Object};

/// Shared by all code that restores the data of volumes in one restore.
#[derive(Clone, Default)]
pub struct RestoredVolumes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Claims, by namespace and name of the VolumeSnapshots from which they are provisioned.
    claims: BTreeMap<(String, String), String>,
    /// Entries of the file, by owner; an item may be processed twice.
    told: BTreeMap<String, VolumeInfo>,
    /// Claims that exist and into whose volumes data is restored: namespace and name.
    in_place: BTreeSet<(String, String)>,
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

    /// Records that a DataDownload fills the volume of a claim from the repository. If only a part
    /// of the data was saved, the entry has failed.
    pub fn moved(&self, namespace: &str, claim: &str, download: &str, data: &MovedData) {
        let movement = DataMovementInfo {
            data_mover: DATA_MOVER.to_owned(),
            operation_id: download.to_owned(),
            size: data.size,
            snapshot_handle: data.snapshot.clone(),
            uploader_type: REPOSITORY_TYPE.to_owned(),
            ..DataMovementInfo::default()
        };
        let told = VolumeInfo {
            pvc_name: claim.into(),
            pvc_namespace: namespace.into(),
            restore_method: Some(VolumeMethod::CsiSnapshot),
            result: data.incomplete.as_ref().map(|_| VolumeResult::Failed),
            skipped_reason: data.incomplete.clone(),
            snapshot_data_moved: Some(true),
            snapshot_data_movement_info: Some(movement),
            ..VolumeInfo::default()
        };
        self.with(|state| {
            state
                .told
                .insert(format!("claim {namespace}/{claim}"), told)
        });
    }

    /// Records that a claim exists, and that a DataDownload restores data into its volume.
    pub fn moved_in_place(&self, namespace: &str, claim: &str, download: &str, data: &MovedData) {
        self.moved(namespace, claim, download, data);
        self.with(|state| state.in_place.insert((namespace.into(), claim.into())));
    }

    /// Whether data is restored into the volume of a claim that exists.
    pub fn is_in_place(&self, namespace: &str, claim: &str) -> bool {
        let key = (namespace.to_owned(), claim.to_owned());
        self.with(|state| state.in_place.contains(&key))
    }

    /// Namespace and name of each claim that exists and into whose volume data is restored.
    pub fn in_place(&self) -> Vec<(String, String)> {
        self.with(|state| state.in_place.iter().cloned().collect())
    }

    pub fn entries(&self) -> Vec<VolumeInfo> {
        self.with(|state| state.told.values().cloned().collect())
    }
}
