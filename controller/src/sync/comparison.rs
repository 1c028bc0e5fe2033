//! Compares a bucket with the cluster.

use std::collections::{BTreeMap, HashMap};

use backup_core::{
    api::{Backup, BackupPhase, backup::CopyPhase},
    brake::{Brake, BrakeDecision},
    labels::{FILES_MISSING_ANNOTATION, KEEP_ANNOTATION, SYNC_PENDING_ANNOTATION},
    names,
};
use backup_runtime::{Cluster, list};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

/// More than one, and more than half: a user has to agree.
const BRAKE: Brake = Brake {
    free: 1,
    percent: 50,
};

/// The fields of a Backup that are compared with a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterBackup {
    /// Its BackupStorageLocation; empty if it has none yet.
    pub(super) location: String,
    pub(super) stored: bool,
    /// Time at which it may be deleted; `None` if the rules of its schedule may keep it longer.
    pub(super) expiration: Option<Timestamp>,
    /// Whether its deletion was requested.
    pub(super) deleting: bool,
    /// Whether objects that belong to it are still to be created.
    pub(super) pending: bool,
    /// Whether it is marked as having no files.
    pub(super) marked: bool,
    /// Locations of its copies, and whether each is complete.
    pub(super) copies: BTreeMap<String, bool>,
}

/// By name.
pub(super) type ClusterBackups = HashMap<String, ClusterBackup>;

impl ClusterBackup {
    /// Accepts fields of any type, so that an object that is not a valid Backup counts, too.
    pub(super) fn of(backup: &DynamicObject) -> Self {
        let spec = &backup.data["spec"];
        let status = &backup.data["status"];
        let phase = status["phase"]
            .as_str()
            .map_or(BackupPhase::New, BackupPhase::from);
        Self {
            location: spec["storageLocation"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            stored: is_stored(&phase),
            expiration: status["expiration"]
                .as_str()
                .filter(|_| !backup.annotations().contains_key(KEEP_ANNOTATION))
                .and_then(|text| text.parse().ok()),
            deleting: backup.metadata.deletion_timestamp.is_some(),
            pending: backup.annotations().contains_key(SYNC_PENDING_ANNOTATION),
            marked: backup.annotations().contains_key(FILES_MISSING_ANNOTATION),
            copies: copies(spec, status),
        }
    }

    fn has_expired(&self, now: Timestamp) -> bool {
        self.expiration.is_some_and(|expiration| expiration <= now)
    }
}

/// The copies that the spec names, and those that the status knows.
fn copies(spec: &Value, status: &Value) -> BTreeMap<String, bool> {
    let lists = [&spec["copies"], &status["copies"]];
    let all = lists.into_iter().filter_map(Value::as_array).flatten();
    all.filter_map(|copy| {
        let is_complete = copy["phase"].as_str().map(CopyPhase::from) == Some(CopyPhase::Completed);
        Some((copy["location"].as_str()?.to_owned(), is_complete))
    })
    .collect()
}

/// All Backups, in any phase, from a fresh list.
pub(super) async fn cluster_backups(cluster: &Cluster) -> Result<ClusterBackups, kube::Error> {
    let all = list::raw::<Backup, _>(cluster, "", |backup| {
        Some((backup.name_any(), ClusterBackup::of(&backup)))
    });
    Ok(all.await?.into_iter().collect())
}

/// The phases of a backup that is complete in its bucket; backups in other phases may have ended
/// without files.
pub(super) fn is_stored(phase: &BackupPhase) -> bool {
    matches!(phase, BackupPhase::Completed | BackupPhase::PartiallyFailed)
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison<'a> {
    /// In the bucket, and no Backup of that name is in the cluster.
    pub(super) missing: Vec<&'a str>,
    /// In the bucket, but the Backup of that name belongs to the location that is named second, and
    /// has no copy here.
    pub(super) conflicts: Vec<(&'a str, &'a str)>,
    /// Folders whose names no Backup can have.
    pub(super) foreign: Vec<&'a str>,
    /// Stored in this location according to the cluster, and not in the bucket.
    pub(super) orphans: Vec<(&'a str, &'a ClusterBackup)>,
    /// Backups of this location that are stored according to the cluster, including orphans.
    stored: Vec<&'a ClusterBackup>,
    /// Backups of this location whose objects are still to be created.
    pub(super) pending: Vec<&'a str>,
    /// Backups of this location that are stored according to the cluster, and have a folder.
    pub(super) with_folder: Vec<(&'a str, &'a ClusterBackup)>,
    /// Backups of other locations with a copy here that is complete according to the cluster, and
    /// not in the bucket.
    pub(super) lost_copies: Vec<&'a str>,
}

impl<'a> Comparison<'a> {
    /// `folders` must be sorted, and listed after the cluster: backups that the cluster shows as
    /// stored were stored when the listing began.
    pub(super) fn of(folders: &'a [String], cluster: &'a ClusterBackups, location: &str) -> Self {
        let mut compared = Self::default();
        for folder in folders {
            let Some(backup) = cluster.get(folder) else {
                if names::is_object_name(folder) {
                    compared.missing.push(folder);
                } else {
                    compared.foreign.push(folder);
                }
                continue;
            };
            // A Backup without a location is not stored anywhere yet.
            if backup.location == location || backup.location.is_empty() {
                compared
                    .pending
                    .extend(backup.pending.then_some(folder.as_str()));
            } else if !backup.copies.contains_key(location) {
                compared.conflicts.push((folder, &backup.location));
            }
        }
        for (name, backup) in cluster {
            if backup.stored && !backup.deleting && backup.location == location {
                compared.stored.push(backup);
                if folders.binary_search(name).is_err() {
                    compared.orphans.push((name, backup));
                } else {
                    compared.with_folder.push((name, backup));
                }
            }
            let has_copy = backup.copies.get(location) == Some(&true);
            if has_copy && backup.location != location && folders.binary_search(name).is_err() {
                compared.lost_copies.push(name);
            }
        }
        compared.lost_copies.sort_unstable();
        compared.orphans.sort_unstable_by_key(|(name, _)| *name);
        compared
    }

    /// Why orphans are not removed; `None` if they may be. A wrong prefix, another bucket, or
    /// credentials that list nothing look like a bucket whose backups were deleted.
    ///
    /// `folders` is the number of listed folders, `agreed` the number of removals to which a user
    /// has agreed. Backups that have expired are expected to be gone, and count on neither side.
    pub(super) fn removal_refusal(
        &self,
        folders: usize,
        now: Timestamp,
        agreed: Option<u64>,
    ) -> Option<String> {
        let gone = self.orphans.len();
        if gone == 0 {
            return None;
        }
        let lost = self
            .orphans
            .iter()
            .filter(|(_, known)| !known.has_expired(now))
            .count();
        let all = self
            .stored
            .iter()
            .filter(|known| !known.has_expired(now))
            .count();
        match BRAKE.decide(gone as u64, lost as u64, all as u64, agreed) {
            BrakeDecision::BeyondConsent(agreed) => Some(format!(
                "{gone} backups are gone from the bucket, more than the {agreed} that were agreed to"
            )),
            _ if folders == 0 && agreed.is_none() => Some(format!(
                "the listing of the bucket is empty, and would take all {gone} stored backups out of the cluster; check bucket, \
                 prefix and credentials"
            )),
            BrakeDecision::NeedsConsent => Some(format!(
                "{lost} of {all} stored backups that have not expired are gone from the bucket at once; check bucket, prefix and \
                 credentials"
            )),
            BrakeDecision::Free => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_compared_is_read_from_good_objects_and_bad_ones() {
        let read = |object: Value| ClusterBackup::of(&serde_json::from_value(object).unwrap());
        let good = json!({ "metadata": { "name": "b", "annotations": { SYNC_PENDING_ANNOTATION: "" } },
            "spec": { "storageLocation": "default", "ttl": "1h",
                "copies": [{ "location": "second" }, { "location": "third" }] },
            "status": { "phase": "Completed", "expiration": "2026-01-01T00:00:00Z",
                "copies": [{ "location": "second", "phase": "Completed" }] } });
        let expected = ClusterBackup {
            location: "default".to_owned(),
            stored: true,
            expiration: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            deleting: false,
            pending: true,
            marked: false,
            copies: BTreeMap::from([("second".to_owned(), true), ("third".to_owned(), false)]),
        };
        assert_eq!(read(good), expected);
        let kept = json!({ "metadata": { "name": "b", "annotations": { KEEP_ANNOTATION: "{}" } },
            "spec": { "storageLocation": "default" },
            "status": { "phase": "Completed", "expiration": "2026-01-01T00:00:00Z" } });
        assert_eq!(read(kept).expiration, None);
        for bare in [
            json!({ "metadata": { "name": "b" } }),
            json!({ "metadata": { "name": "b" }, "spec": { "storageLocation": 7, "copies": 7 },
                "status": { "phase": [], "copies": [{ "location": 7 }] } }),
        ] {
            assert_eq!(read(bare), ClusterBackup::default());
        }
        let deleting = json!({ "metadata": { "name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Failed" } });
        assert_eq!(
            read(deleting),
            ClusterBackup {
                deleting: true,
                ..ClusterBackup::default()
            }
        );
    }

    #[test]
    fn each_backup_is_in_one_place_of_the_comparison() {
        let known = |location: &str, stored| ClusterBackup {
            location: location.to_owned(),
            stored,
            ..ClusterBackup::default()
        };
        let pending = ClusterBackup {
            pending: true,
            ..known("here", true)
        };
        let leaves = ClusterBackup {
            deleting: true,
            ..known("here", true)
        };
        let marked = ClusterBackup {
            marked: true,
            ..known("here", true)
        };
        let copied = |complete: bool| ClusterBackup {
            copies: BTreeMap::from([("here".to_owned(), complete)]),
            ..known("there", true)
        };
        let cluster: ClusterBackups = [
            ("back", marked),
            ("both", known("here", true)),
            ("copied", copied(true)),
            ("copying", copied(false)),
            ("elsewhere", known("there", true)),
            ("gone", known("here", true)),
            ("gone-there", known("there", true)),
            ("leaves", leaves),
            ("lost-copy", copied(true)),
            ("new", ClusterBackup::default()),
            ("pending", pending),
            ("runs", known("here", false)),
        ]
        .into_iter()
        .map(|(name, known)| (name.to_owned(), known))
        .collect();
        let mut folders: Vec<String> = [
            "back",
            "both",
            "copied",
            "elsewhere",
            "lost+found",
            "missing",
            "new",
            "pending",
            "UPPER",
        ]
        .map(String::from)
        .into();
        folders.sort_unstable();
        let compared = Comparison::of(&folders, &cluster, "here");
        assert_eq!(compared.missing, ["missing"]);
        assert_eq!(compared.foreign, ["UPPER", "lost+found"]);
        assert_eq!(compared.conflicts, [("elsewhere", "there")]);
        assert_eq!(compared.lost_copies, ["lost-copy"]);
        assert_eq!(compared.pending, ["pending"]);
        let orphans: Vec<_> = compared.orphans.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            orphans,
            ["gone"],
            "not what runs, leaves, is new or of another location"
        );
        let mut with_folder: Vec<_> = compared.with_folder.iter().map(|(name, _)| *name).collect();
        with_folder.sort_unstable();
        assert_eq!(with_folder, ["back", "both", "pending"]);
        assert_eq!(compared.stored.len(), 4);
    }

    #[test]
    fn table_of_shrunken_listings() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let fresh = ClusterBackup {
            expiration: Some("2027-01-01T00:00:00Z".parse().unwrap()),
            ..ClusterBackup::default()
        };
        let expired = ClusterBackup {
            expiration: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            ..ClusterBackup::default()
        };
        let forever = ClusterBackup::default();
        for (stays, lost, lost_expired, folders, agreed, allowed) in [
            (0, 0, 0, 0, None, true),
            (10, 1, 0, 10, None, true),
            (10, 10, 0, 10, None, true),
            (10, 11, 0, 10, None, false),
            // One alone may be removed, unless the bucket is empty.
            (0, 1, 0, 5, None, true),
            (0, 1, 0, 0, None, false),
            (0, 2, 0, 5, None, false),
            (1, 2, 0, 1, None, false),
            (2, 2, 0, 2, None, true),
            // After a week without a controller most have expired, and new ones exist.
            (0, 0, 500, 30, None, true),
            (2, 2, 500, 2, None, true),
            (0, 0, 500, 0, None, false),
            (1, 40, 0, 1, Some(40), true),
            (0, 40, 0, 0, Some(40), true),
            (1, 41, 0, 1, Some(40), false),
            (100, 3, 0, 100, Some(2), false),
        ] {
            let mut compared = Comparison::default();
            compared.stored.extend(std::iter::repeat_n(&forever, stays));
            for (count, known) in [(lost, &fresh), (lost_expired, &expired)] {
                compared.stored.extend(std::iter::repeat_n(known, count));
                compared
                    .orphans
                    .extend(std::iter::repeat_n(("b", known), count));
            }
            let refusal = compared.removal_refusal(folders, now, agreed);
            assert_eq!(
                refusal.is_none(),
                allowed,
                "{stays} stay, {lost} and {lost_expired} expired ones lost, {folders} folders, {agreed:?}: {refusal:?}"
            );
        }
    }
}
