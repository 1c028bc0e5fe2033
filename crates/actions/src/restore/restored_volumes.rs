//! The sources of restored volumes, for `-volumeinfo.json.gz` of the restore (Velero
//! `internal/volume/volumes_information.go`, `RestoreVolumeInfo`, v1.18).

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::json::{self, Object};

/// Shared by all code that creates volumes from snapshots in one restore.
#[derive(Clone, Default)]
pub struct RestoredVolumes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Claims, by namespace and name of the VolumeSnapshots from which they are provisioned.
    claims: BTreeMap<(String, String), String>,
    /// Entries of the file, by owner; an item may be processed twice.
    told: BTreeMap<String, Value>,
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
    pub fn expected(&self) -> Vec<Value> {
        self.with(|state| {
            state
                .claims
                .iter()
                .map(|((namespace, _), claim)| {
                    json!({
                        "pvcName": claim, "pvcNamespace": namespace, "restoreMethod": "CSISnapshot",
                    })
                })
                .collect()
        })
    }

    pub fn csi(&self, namespace: &str, snapshot: &str, info: &Value) {
        self.with(|state| {
            let claim = state
                .claims
                .get(&(namespace.to_owned(), snapshot.to_owned()));
            let told = json!({
                "pvcName": claim, "pvcNamespace": namespace,
                "restoreMethod": "CSISnapshot", "snapshotDataMoved": false, "csiSnapshotInfo": info,
            });
            state
                .told
                .insert(format!("claim {namespace}/{snapshot}"), told);
        });
    }

    /// Records that a plugin created a PersistentVolume from a snapshot; `namespace` is its claim's
    /// target namespace.
    pub fn native(&self, volume: &Object, namespace: Option<&str>, info: &Value) {
        let name = json::text(volume, &["metadata"], "name").unwrap_or_default();
        let told = json!({
            "pvcName": json::text(volume, &["spec", "claimRef"], "name"), "pvcNamespace": namespace, "pvName": name,
            "restoreMethod": "NativeSnapshot", "snapshotDataMoved": false, "nativeSnapshotInfo": info,
        });
        self.with(|state| state.told.insert(format!("volume {name}"), told));
    }

    pub fn entries(&self) -> Vec<Value> {
        self.with(|state| state.told.values().cloned().collect())
    }
}
