//! Snapshots of volumes that our data mover has saved for a backup. With the backup they are
//! removed from their repositories; the space is freed when a repository is maintained.
//!
//! A stored backup names them in `-volumeinfo.json.gz`. Of a backup that was not stored, only the
//! DataUploads in the cluster name them.

use std::{collections::BTreeSet, fmt, str::FromStr};

use backup_core::{
    api::{Backup, DataUpload},
    data_movement::DATA_MOVER,
    labels,
    names::is_dns_label,
    volume_info::VolumeInfo,
};
use backup_runtime::{Cluster, leader::Leadership, list};
use backup_store::{Location, RetainedVersions, is_snapshot_id};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use crate::error::ReconcileError;

/// A snapshot in the repository of a namespace. Shown and parsed as `namespace/id`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MovedSnapshot {
    namespace: String,
    id: String,
}

/// What is known of snapshots after their removal.
#[derive(Debug, Default)]
pub(crate) struct ForgottenSnapshots {
    pub(crate) retained: RetainedVersions,
    /// Snapshots with versions that the store locks.
    pub(crate) locked: Vec<MovedSnapshot>,
}

impl MovedSnapshot {
    /// `None` if namespace or id cannot be part of a key.
    fn new(namespace: &str, id: &str) -> Option<Self> {
        (is_dns_label(namespace) && is_snapshot_id(id)).then(|| Self {
            namespace: namespace.to_owned(),
            id: id.to_owned(),
        })
    }

    /// The snapshots of a stored backup, from its records about its volumes.
    pub(crate) fn of_records(records: &[VolumeInfo]) -> BTreeSet<Self> {
        records.iter().filter_map(Self::of_record).collect()
    }

    fn of_record(record: &VolumeInfo) -> Option<Self> {
        let moved = record.moved_by_us()?;
        let snapshot = Self::new(record.namespace(), &moved.snapshot_handle);
        if snapshot.is_none() {
            tracing::warn!(
                namespace = record.namespace(),
                handle = moved.snapshot_handle,
                "this is no snapshot of a repository, and is not removed"
            );
        }
        snapshot
    }

    /// The snapshots that the DataUploads in the cluster have saved for a backup, complete or not.
    pub(crate) async fn of_uploads(
        cluster: &Cluster,
        backup: &Backup,
    ) -> Result<BTreeSet<Self>, kube::Error> {
        let uid = backup.uid().unwrap_or_default();
        if uid.is_empty() {
            return Ok(BTreeSet::new());
        }
        let selector = format!("{}={uid}", labels::BACKUP_UID);
        let found =
            list::raw::<DataUpload, _>(cluster, &selector, |upload| Self::of_upload(&upload));
        match found.await {
            Ok(snapshots) => Ok(snapshots.into_iter().collect()),
            // The kind is not served: there are none.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(BTreeSet::new()),
            Err(error) => Err(error),
        }
    }

    fn of_upload(upload: &DynamicObject) -> Option<Self> {
        let text = |at: &str| upload.data.pointer(at).and_then(Value::as_str);
        if text("/spec/datamover") != Some(DATA_MOVER) {
            return None;
        }
        Self::new(text("/spec/sourceNamespace")?, text("/status/snapshotID")?)
    }
}

impl fmt::Display for MovedSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.id)
    }
}

/// A text that is no snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoSnapshot;

impl FromStr for MovedSnapshot {
    type Err = NoSnapshot;

    fn from_str(text: &str) -> Result<Self, NoSnapshot> {
        text.split_once('/')
            .and_then(|(namespace, id)| Self::new(namespace, id))
            .ok_or(NoSnapshot)
    }
}

/// Removes snapshots from their repositories; missing ones are no error. With `and_versions`, all
/// versions of them, where the store keeps them. Safe to repeat.
pub(crate) async fn forget(
    leadership: &Leadership,
    store: &Location,
    snapshots: BTreeSet<MovedSnapshot>,
    and_versions: bool,
) -> Result<ForgottenSnapshots, ReconcileError> {
    let mut forgotten = ForgottenSnapshots::default();
    for snapshot in snapshots {
        leadership.check()?;
        let MovedSnapshot { namespace, id } = &snapshot;
        let retained = store
            .delete_volume_snapshot(namespace, id, and_versions)
            .await?;
        let is_locked = retained.is_locked();
        forgotten.retained = std::mem::take(&mut forgotten.retained).and(retained);
        if is_locked {
            forgotten.locked.push(snapshot);
        }
    }
    Ok(forgotten)
}

#[cfg(test)]
mod tests {
    use backup_core::api::BackupSpec;
    use backup_testkit::FakeApi;
    use serde_json::json;

    use super::*;
    use crate::testing;

    fn upload(mover: &str, uid: &str, status: &Value) -> Value {
        json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
            "metadata": {"name": "u", "namespace": "velero", "labels": {labels::BACKUP_UID: uid}},
            "spec": {"datamover": mover, "sourceNamespace": "shop", "sourcePVC": "data",
                "snapshotType": "CSI", "backupStorageLocation": "default", "operationTimeout": "10m"},
            "status": status,
        })
    }

    #[test]
    fn only_whole_ids_of_our_data_mover_are_removed() {
        let id = "4f".repeat(32);
        let record = |mover: &str, namespace: &str, handle: &str| {
            json!({"backupMethod": "CSISnapshot", "snapshotDataMoved": true,
                "pvcName": "data", "pvcNamespace": namespace,
                "snapshotDataMovementInfo": {"dataMover": mover, "snapshotHandle": handle}})
        };
        let records = VolumeInfo::all(&[
            record("backup-mover", "shop", &id),
            record("backup-mover", "shop", &id),
            record("backup-mover", "shop", "4f1c0a7d"),
            record("backup-mover", "..", &id),
            record("backup-mover", "shop", ""),
            record("velero", "shop", &"5f".repeat(32)),
        ]);
        let found = MovedSnapshot::of_records(&records);
        let names: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(names, [format!("shop/{id}")]);
        let parsed = names[0].parse::<MovedSnapshot>().unwrap();
        assert!(found.contains(&parsed));
        assert_eq!("shop/4f".parse::<MovedSnapshot>(), Err(NoSnapshot));
    }

    #[tokio::test]
    async fn snapshots_of_a_backup_that_was_not_stored_are_found_by_its_uploads() {
        let fake = FakeApi::new();
        let path =
            |name: &str| format!("/apis/velero.io/v2alpha1/namespaces/velero/datauploads/{name}");
        let saved = |id: &str| json!({"phase": "Completed", "snapshotID": id.repeat(32)});
        for (name, mover, uid, status) in [
            ("a", "backup-mover", "u", saved("4f")),
            ("b", "backup-mover", "u", json!({"phase": "Failed"})),
            ("c", "backup-mover", "other", saved("5f")),
            ("d", "theirs", "u", saved("6f")),
        ] {
            let mut object = upload(mover, uid, &status);
            object["metadata"]["name"] = json!(name);
            fake.put(&path(name), object);
        }
        let cluster = testing::cluster(fake.client());
        let mut backup = Backup::new("b", BackupSpec::default());
        let none = MovedSnapshot::of_uploads(&cluster, &backup).await;
        assert!(none.unwrap().is_empty(), "without a uid");
        backup.metadata.uid = Some("u".to_owned());
        let found = MovedSnapshot::of_uploads(&cluster, &backup).await.unwrap();
        let names: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(names, [format!("shop/{}", "4f".repeat(32))]);
    }

    #[tokio::test]
    async fn snapshots_are_removed_from_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let store = Location::open(&testing::local_location(folder.path()), None, None).unwrap();
        let snapshots = folder.path().join("restic/shop/snapshots");
        std::fs::create_dir_all(&snapshots).unwrap();
        let (kept, gone) = ("5f".repeat(32), "4f".repeat(32));
        for id in [&kept, &gone] {
            std::fs::write(snapshots.join(id), "s").unwrap();
        }
        let removed: BTreeSet<MovedSnapshot> = [&gone, &"6f".repeat(32)]
            .into_iter()
            .filter_map(|id| MovedSnapshot::new("shop", id))
            .collect();
        let leadership = Leadership::always();
        for _ in 0..2 {
            let forgotten = forget(&leadership, &store, removed.clone(), true)
                .await
                .unwrap();
            assert_eq!(forgotten.retained, RetainedVersions::default());
            assert!(forgotten.locked.is_empty());
        }
        assert!(snapshots.join(&kept).exists() && !snapshots.join(&gone).exists());
    }
}
