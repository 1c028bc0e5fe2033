//! Snapshots of volumes that our data mover has saved for a backup. With the backup they are
//! removed from their repositories; the space is freed when a repository is maintained.
//!
//! A stored backup names them in `-volumeinfo.json.gz`, and the DataUploads in the cluster do. A
//! snapshot that none of them names, as its pod was gone before its outcome was read, has a note in
//! the repository.

use std::{collections::BTreeSet, fmt, str::FromStr};

use backup_core::{
    api::{DataUpload, transfer::MovePhase},
    data_movement::DATA_MOVER,
    labels,
    names::is_dns_label,
    volume_info::{DataMovementInfo, VolumeInfo},
};
use backup_runtime::{Cluster, leader::Leadership, list};
use backup_store::{Location, RetainedVersions, SnapshotNote, StoreError, is_snapshot_id};
use kube::api::DynamicObject;
use serde_json::Value;

use crate::error::ReconcileError;

/// A snapshot in the repository of a namespace. Shown and parsed as `namespace/id`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MovedSnapshot {
    namespace: String,
    id: String,
}

/// Snapshots that are to be removed, and their notes.
#[derive(Debug, Default)]
pub(crate) struct BackupSnapshots {
    snapshots: BTreeSet<MovedSnapshot>,
    notes: Vec<SnapshotNote>,
    /// Namespaces whose repositories may have notes.
    namespaces: BTreeSet<String>,
    /// Whether a pod may still write the snapshot of a note.
    has_running_uploads: bool,
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
}

impl BackupSnapshots {
    /// The snapshots of a stored backup, from its records about its volumes.
    pub(crate) fn of_records(records: &[VolumeInfo]) -> Self {
        let mut found = Self {
            snapshots: records
                .iter()
                .filter_map(MovedSnapshot::of_record)
                .collect(),
            ..Self::default()
        };
        let movements = records.iter().filter(|record| {
            let movement = record.snapshot_data_movement_info.as_ref();
            movement.is_some_and(DataMovementInfo::is_ours)
        });
        found.may_be_in(movements.map(|record| record.namespace().to_owned()));
        found
    }

    pub(crate) fn count(&self) -> usize {
        self.snapshots.len()
    }

    /// All of them, as `namespace/id`.
    #[cfg(test)]
    pub(crate) fn names(&self) -> Vec<String> {
        self.snapshots.iter().map(ToString::to_string).collect()
    }

    /// Whether no repository is known to have data of the backup.
    pub(crate) fn has_no_repository(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// Adds one; without effect if namespace or id cannot be part of a key.
    pub(crate) fn add(&mut self, namespace: &str, id: &str) {
        self.snapshots.extend(MovedSnapshot::new(namespace, id));
    }

    /// Adds a snapshot that is noted in the repository of a namespace, and its note.
    pub(crate) fn add_note(&mut self, namespace: &str, note: SnapshotNote) {
        self.add(namespace, &note.snapshot);
        self.notes.push(note);
    }

    /// The repositories of these namespaces may have notes.
    pub(crate) fn may_be_in(&mut self, namespaces: impl IntoIterator<Item = String>) {
        let namespaces = namespaces.into_iter();
        self.namespaces
            .extend(namespaces.filter(|namespace| is_dns_label(namespace)));
    }

    /// Adds the snapshots of the DataUploads in the cluster that belong to the Backup of this uid,
    /// complete or not.
    pub(crate) async fn add_uploads(
        &mut self,
        cluster: &Cluster,
        backup_uid: &str,
    ) -> Result<(), kube::Error> {
        if backup_uid.is_empty() {
            return Ok(());
        }
        let selector = format!("{}={backup_uid}", labels::BACKUP_UID);
        let listed =
            list::raw::<DataUpload, _>(cluster, &selector, |upload| Self::of_upload(&upload));
        let uploads = match listed.await {
            Ok(uploads) => uploads,
            // The kind is not served: there are none.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error),
        };
        for upload in uploads {
            self.snapshots.extend(upload.snapshots);
            self.namespaces.extend(upload.namespaces);
            self.has_running_uploads |= upload.has_running_uploads;
        }
        Ok(())
    }

    /// `None` for a DataUpload of another data mover.
    fn of_upload(upload: &DynamicObject) -> Option<Self> {
        let text = |at: &str| upload.data.pointer(at).and_then(Value::as_str);
        if text("/spec/datamover") != Some(DATA_MOVER) {
            return None;
        }
        let namespace = text("/spec/sourceNamespace")?;
        let phase = MovePhase::from(text("/status/phase").unwrap_or_default());
        let mut found = Self {
            has_running_uploads: !phase.has_ended(),
            ..Self::default()
        };
        found.may_be_in([namespace.to_owned()]);
        found.add(namespace, text("/status/snapshotID").unwrap_or_default());
        Some(found)
    }

    /// Adds the snapshots that are noted for the Backup of this uid. Only its own stored backup may
    /// name them.
    pub(crate) async fn add_noted(
        &mut self,
        store: &Location,
        backup_uid: &str,
    ) -> Result<(), StoreError> {
        if backup_uid.is_empty() {
            return Ok(());
        }
        for namespace in self.namespaces.clone() {
            for note in store.snapshot_notes(&namespace, backup_uid).await? {
                self.add_note(&namespace, note);
            }
        }
        Ok(())
    }
}

impl FromIterator<MovedSnapshot> for BackupSnapshots {
    fn from_iter<I: IntoIterator<Item = MovedSnapshot>>(snapshots: I) -> Self {
        Self {
            snapshots: snapshots.into_iter().collect(),
            ..Self::default()
        }
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

/// Removes snapshots from their repositories, then their notes, unless a snapshot may still be
/// written; missing ones are no error. With `and_versions`, all versions of them, where the store
/// keeps them. Safe to repeat.
pub(crate) async fn forget(
    leadership: &Leadership,
    store: &Location,
    of: BackupSnapshots,
    and_versions: bool,
) -> Result<ForgottenSnapshots, ReconcileError> {
    let mut forgotten = ForgottenSnapshots::default();
    for snapshot in of.snapshots {
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
    if of.has_running_uploads {
        return Ok(forgotten);
    }
    for note in &of.notes {
        leadership.check()?;
        store.delete_snapshot_note(note, and_versions).await?;
    }
    Ok(forgotten)
}

#[cfg(test)]
mod tests {
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
            record("backup-mover", "cart", ""),
            record("velero", "elsewhere", &"5f".repeat(32)),
        ]);
        let found = BackupSnapshots::of_records(&records);
        let names = found.names();
        assert_eq!(names, [format!("shop/{id}")]);
        let parsed = names[0].parse::<MovedSnapshot>().unwrap();
        assert!(found.snapshots.contains(&parsed));
        assert_eq!("shop/4f".parse::<MovedSnapshot>(), Err(NoSnapshot));
        let namespaces = ["cart", "shop"].map(str::to_owned);
        assert_eq!(
            found.namespaces,
            BTreeSet::from(namespaces),
            "of failed ones, too"
        );
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
        let mut found = BackupSnapshots::default();
        found.add_uploads(&cluster, "").await.unwrap();
        assert!(found.has_no_repository(), "without a uid");
        found.add_uploads(&cluster, "u").await.unwrap();
        assert_eq!(found.names(), [format!("shop/{}", "4f".repeat(32))]);
        assert!(!found.has_no_repository());
    }

    #[tokio::test]
    async fn snapshots_are_removed_from_the_store_with_their_notes() {
        let folder = tempfile::tempdir().unwrap();
        let store = Location::open(&testing::local_location(folder.path()), None, None).unwrap();
        let repository = folder.path().join("restic/shop");
        let [kept, named, noted] = ["5f", "4f", "6f"].map(|digits| digits.repeat(32));
        for key in [
            format!("snapshots/{kept}"),
            format!("snapshots/{named}"),
            format!("snapshots/{noted}"),
            format!("uploads/uid-a/uid-1/{kept}"),
            format!("uploads/uid-b/uid-2/{named}"),
            format!("uploads/uid-b/uid-2/{noted}"),
        ] {
            let file = repository.join(key);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "s").unwrap();
        }
        let leadership = Leadership::always();
        for _ in 0..2 {
            let mut of = BackupSnapshots::default();
            of.add("shop", &named);
            of.may_be_in(["shop", "cart", ".."].map(str::to_owned));
            of.add_noted(&store, "").await.unwrap();
            of.add_noted(&store, "uid-b").await.unwrap();
            let forgotten = forget(&leadership, &store, of, true).await.unwrap();
            assert_eq!(forgotten.retained, RetainedVersions::default());
            assert!(forgotten.locked.is_empty());
        }
        assert!(repository.join("snapshots").join(&kept).exists());
        assert!(repository.join("uploads/uid-a/uid-1").join(&kept).exists());
        for id in [&named, &noted] {
            assert!(!repository.join("snapshots").join(id).exists());
            assert!(!repository.join("uploads/uid-b/uid-2").join(id).exists());
        }
    }
}
