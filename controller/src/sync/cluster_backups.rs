//! The Backups of the cluster, as far as they are compared with a bucket.

use std::collections::HashMap;

use backup_core::{
    api::{Backup, BackupPhase},
    labels::SYNC_PENDING_ANNOTATION,
};
use backup_runtime::{Cluster, list};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterBackup {
    /// Its BackupStorageLocation; empty if it has none yet.
    pub(super) location: String,
    pub(super) stored: bool,
    /// When it may be deleted.
    pub(super) expiration: Option<Timestamp>,
    /// Whether its deletion was asked for.
    pub(super) deleting: bool,
    /// Whether objects that belong to it are still to be created.
    pub(super) pending: bool,
}

/// By name.
pub(super) type ClusterBackups = HashMap<String, ClusterBackup>;

impl ClusterBackup {
    /// Whatever type the fields have, so that an object that is not a valid Backup counts, too.
    fn of(backup: &DynamicObject) -> Self {
        let (spec, status) = (&backup.data["spec"], &backup.data["status"]);
        let phase = status["phase"].as_str().map_or(BackupPhase::New, BackupPhase::from);
        Self {
            location: spec["storageLocation"].as_str().unwrap_or_default().to_owned(),
            stored: is_stored(&phase),
            expiration: status["expiration"].as_str().and_then(|text| text.parse().ok()),
            deleting: backup.metadata.deletion_timestamp.is_some(),
            pending: backup.annotations().contains_key(SYNC_PENDING_ANNOTATION),
        }
    }
}

/// All Backups, in whatever phase.
pub(super) async fn list(cluster: &Cluster) -> Result<ClusterBackups, kube::Error> {
    let all = list::raw::<Backup, _>(cluster, |backup| Some((backup.name_any(), ClusterBackup::of(&backup))));
    Ok(all.await?.into_iter().collect())
}

/// The phases of a backup that is in its bucket as a whole; others may have ended without anything there.
pub(super) fn is_stored(phase: &BackupPhase) -> bool {
    matches!(phase, BackupPhase::Completed | BackupPhase::PartiallyFailed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_compared_is_read_from_good_objects_and_bad_ones() {
        let read = |object: Value| ClusterBackup::of(&serde_json::from_value(object).unwrap());
        let good = json!({ "metadata": { "name": "b", "annotations": { SYNC_PENDING_ANNOTATION: "" } },
            "spec": { "storageLocation": "default", "ttl": "1h" },
            "status": { "phase": "Completed", "expiration": "2026-01-01T00:00:00Z" } });
        let expected = ClusterBackup {
            location: "default".to_owned(),
            stored: true,
            expiration: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            deleting: false,
            pending: true,
        };
        assert_eq!(read(good), expected);
        for bare in [
            json!({ "metadata": { "name": "b" } }),
            json!({ "metadata": { "name": "b" }, "spec": { "storageLocation": 7 }, "status": { "phase": [] } }),
        ] {
            assert_eq!(read(bare), ClusterBackup::default());
        }
        let deleting = json!({ "metadata": { "name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Failed" } });
        assert_eq!(read(deleting), ClusterBackup { deleting: true, ..ClusterBackup::default() });
    }
}
