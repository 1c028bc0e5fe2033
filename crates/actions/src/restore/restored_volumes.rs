//! What volumes were made of, for `-volumeinfo.json.gz` of the restore (Velero `internal/volume/volumes_information.go`,
//! `RestoreVolumeInfo`, v1.18).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, json};

use super::json::{self, Object};

/// Shared by everything that makes volumes of snapshots in one restore.
#[derive(Clone, Default)]
pub struct RestoredVolumes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Claims, by namespace and name of the VolumeSnapshots that they are provisioned from.
    claims: BTreeMap<(String, String), String>,
    /// What is told, by what the volume belongs to: an item may come up twice.
    told: BTreeMap<String, Value>,
}

impl RestoredVolumes {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A claim is to be provisioned from a VolumeSnapshot.
    pub fn expect(&self, namespace: &str, snapshot: &str, claim: &str) {
        self.with(|state| state.claims.insert((namespace.into(), snapshot.into()), claim.into()));
    }

    /// The claims that are to be provisioned from VolumeSnapshots, as they would be told.
    pub fn expected(&self) -> Vec<Value> {
        let one = |((namespace, _), claim): (&(String, String), &String)| json!({ "pvcName": claim, "pvcNamespace": namespace, "restoreMethod": "CSISnapshot" });
        self.with(|state| state.claims.iter().map(one).collect())
    }

    pub fn csi(&self, namespace: &str, snapshot: &str, info: &Value) {
        self.with(|state| {
            let claim = state.claims.get(&(namespace.to_owned(), snapshot.to_owned()));
            let told = json!({
                "pvcName": claim, "pvcNamespace": namespace,
                "restoreMethod": "CSISnapshot", "snapshotDataMoved": false, "csiSnapshotInfo": info,
            });
            state.told.insert(format!("claim {namespace}/{snapshot}"), told);
        });
    }

    /// A PersistentVolume was made of a snapshot by a plugin; `namespace` is where its claim is now.
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
