//! How the data of each volume of a backup is restored: decided once, before any item.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use backup_actions::restore::{self, MovedClaims, json, volume};
use backup_core::{
    names::is_object_name,
    resources::{CLAIMS, VOLUMES},
    volume_data::{DataSource, Evidence, StoredVolume},
    volume_info::VolumeInfo,
};
use backup_store::{Contents, SavedVolumes};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::provisioned::ProvisionedClaim;
use crate::restore::drill::volumes::FreeVolumes;

/// Why data of our data mover is not restored by a controller without it.
const NO_MOVER: &str = "it is in a repository of our data mover, which this controller does not run: start it with --mover-image, \
     and restore again";

/// Where the data of each claim comes from.
#[derive(Debug, Default)]
pub(crate) struct VolumePlan {
    /// By namespace and name of the claim in the backup.
    pub(super) by_claim: BTreeMap<(String, String), PlannedVolume>,
    /// Volumes that are restored themselves, and are bound to their claims again.
    pub(super) kept_volumes: Arc<BTreeSet<String>>,
    /// Why classes provision no volumes, or `None` if they do, by class name.
    pub(super) classes: Mutex<BTreeMap<String, Option<String>>>,
    /// Created claims that get new volumes.
    pub(super) provisioned: Mutex<Vec<ProvisionedClaim>>,
    /// Volumes that no claim has; read once, and only by a drill.
    pub(super) free_volumes: OnceCell<FreeVolumes>,
}

#[derive(Debug)]
pub(super) struct PlannedVolume {
    /// Its name in the backup.
    pub(super) volume: String,
    pub(super) data: DataSource,
    pub(super) record: Option<VolumeInfo>,
    /// Name of the VolumeSnapshot that the claim names in the backup.
    pub(super) snapshot: Option<String>,
}

/// The claims and the PersistentVolumes of a backup.
#[derive(Debug, Default)]
pub(super) struct VolumeObjects {
    /// By namespace and name. Several claims may name one volume.
    claims: BTreeMap<(String, String), ClaimObject>,
    volumes: Vec<VolumeObject>,
}

/// A claim that names a volume.
#[derive(Debug)]
struct ClaimObject {
    volume: String,
    /// Name of its VolumeSnapshot.
    snapshot: Option<String>,
}

#[derive(Debug)]
struct VolumeObject {
    name: String,
    /// Whether it is kept after its claim is deleted.
    is_kept: bool,
    stored: StoredVolume,
}

/// The snapshots of volumes that a backup has.
#[derive(Debug, Default)]
pub(super) struct TakenSnapshots<'a> {
    /// Volumes of which a plugin has a usable snapshot.
    pub(super) usable: BTreeSet<&'a str>,
    /// Volumes of which a plugin failed to take a snapshot.
    pub(super) failed: BTreeSet<&'a str>,
    /// Whether there are VolumeSnapshots, from which claims may be provisioned.
    pub(super) csi: bool,
}

impl VolumeObjects {
    /// Reads the local copy of the backup; skips what cannot be read.
    pub(super) fn read(contents: &Contents) -> Self {
        let mut objects = Self::default();
        for item in contents.items(CLAIMS) {
            let Ok(claim) = contents.object(item) else {
                continue;
            };
            // The field may hold any text, and it is kept.
            if let Some(volume) =
                volume::volume_of_claim(&claim).filter(|name| is_object_name(name))
            {
                let namespace = contents.namespace_of(item).unwrap_or_default();
                let name = json::text(&claim, &["metadata"], "name").unwrap_or_default();
                let object = ClaimObject {
                    volume: volume.to_owned(),
                    snapshot: restore::snapshot_of_claim(&claim).map(str::to_owned),
                };
                objects
                    .claims
                    .insert((namespace.to_owned(), name.to_owned()), object);
            }
        }
        for item in contents.items(VOLUMES) {
            let Ok(volume) = contents.object(item) else {
                continue;
            };
            if let Some(name) = json::text(&volume, &["metadata"], "name") {
                objects.volumes.push(VolumeObject {
                    name: name.to_owned(),
                    is_kept: volume::is_kept(&volume),
                    stored: StoredVolume::of(&volume),
                });
            }
        }
        objects
    }
}

impl VolumePlan {
    /// Decides for each volume of the backup. Also returns warnings.
    pub(super) fn of(
        objects: &VolumeObjects,
        saved: &SavedVolumes,
        snapshots: &TakenSnapshots<'_>,
    ) -> (Self, Vec<String>) {
        let records = &saved.records;
        let by_volume: BTreeMap<&str, &VolumeInfo> = records
            .iter()
            .map(|record| (record.volume(), record))
            .collect();
        let by_claim: BTreeMap<(&str, &str), &VolumeInfo> = records
            .iter()
            .map(|record| ((record.namespace(), record.claim()), record))
            .collect();
        let volumes: BTreeMap<&str, &VolumeObject> = objects
            .volumes
            .iter()
            .map(|volume| (volume.name.as_str(), volume))
            .collect();
        let mut plan = Self::default();
        let mut kept_volumes = BTreeSet::new();
        let mut warnings = Vec::new();
        for (claim, name, snapshot) in objects.each() {
            let record = claim
                .and_then(|(namespace, claim)| by_claim.get(&(namespace.as_str(), claim.as_str())))
                .or_else(|| by_volume.get(name))
                .copied();
            let volume = volumes.get(name);
            let failed = snapshots.failed.contains(name);
            let evidence = Evidence {
                native: snapshots.usable.contains(name),
                csi: snapshot.is_some() && snapshots.csi,
                kept: volume.is_some_and(|volume| volume.is_kept),
                failed,
                volume: volume.map(|volume| volume.stored).unwrap_or_default(),
            };
            let data = DataSource::of(record, evidence);
            if failed && data == DataSource::Kept {
                warnings.push(format!(
                    "the backup has no snapshot of PersistentVolume {name:?}: taking it had failed"
                ));
            }
            if data.restores_volume() {
                kept_volumes.insert(name.to_owned());
            }
            if let Some(claim) = claim {
                let planned = PlannedVolume {
                    volume: name.to_owned(),
                    data,
                    record: record.cloned(),
                    snapshot: snapshot.map(str::to_owned),
                };
                plan.by_claim.insert(claim.clone(), planned);
            }
        }
        plan.kept_volumes = Arc::new(kept_volumes);
        plan.add_repository_data(saved);
        (plan, warnings)
    }

    /// The claims whose data our data mover restores.
    pub(super) fn moved(&self) -> MovedClaims {
        let moved = self.by_claim.iter().filter_map(|(claim, planned)| {
            let DataSource::Moved(data) = &planned.data else {
                return None;
            };
            Some((claim.clone(), data.clone()))
        });
        moved.collect()
    }

    /// The plan of a controller that does not run our data mover.
    pub(super) fn without_mover(&mut self) {
        for planned in self.by_claim.values_mut() {
            if matches!(planned.data, DataSource::Moved(_)) {
                planned.data = DataSource::Lost(NO_MOVER);
            }
        }
    }

    /// Backups of old servers record that files are in a repository, and not of which volume.
    fn add_repository_data(&mut self, saved: &SavedVolumes) {
        for volume in &saved.in_repository {
            let Some(claim) = &volume.claim else { continue };
            let none = PlannedVolume {
                volume: String::new(),
                data: DataSource::Repository,
                record: None,
                snapshot: None,
            };
            let key = (volume.namespace.clone(), claim.clone());
            let planned = self.by_claim.entry(key).or_insert(none);
            if matches!(planned.data, DataSource::Unsaved(_)) {
                planned.data = DataSource::Repository;
            }
        }
    }
}

impl VolumeObjects {
    /// Each volume that a claim names, and each other one: the namespace and name of the claim, the
    /// name of the volume, and the name of the claim's CSI snapshot.
    fn each(&self) -> impl Iterator<Item = (Option<&(String, String)>, &str, Option<&str>)> {
        let claimed: BTreeSet<&str> = self
            .claims
            .values()
            .map(|claim| claim.volume.as_str())
            .collect();
        let of_claims = self.claims.iter().map(|(key, claim)| {
            let snapshot = claim.snapshot.as_deref();
            (Some(key), claim.volume.as_str(), snapshot)
        });
        let others = self
            .volumes
            .iter()
            .map(|volume| volume.name.as_str())
            .filter(move |name| !claimed.contains(name))
            .map(|name| (None, name, None));
        of_claims.chain(others)
    }
}

#[cfg(test)]
mod tests {
    use backup_core::repository_data::RepositoryVolume;
    use serde_json::{Value, json};

    use super::*;

    fn objects(claims: &[(&str, &str, bool)], volumes: &[(&str, bool)]) -> VolumeObjects {
        let claims = claims.iter().map(|(claim, volume, has_snapshot)| {
            let object = ClaimObject {
                volume: (*volume).to_owned(),
                snapshot: has_snapshot.then(|| "snapshot".to_owned()),
            };
            (("a".to_owned(), (*claim).to_owned()), object)
        });
        let volumes = volumes.iter().map(|(name, is_kept)| VolumeObject {
            name: (*name).to_owned(),
            is_kept: *is_kept,
            stored: StoredVolume::Remote,
        });
        VolumeObjects {
            claims: claims.collect(),
            volumes: volumes.collect(),
        }
    }

    fn saved(records: &[Value]) -> SavedVolumes {
        SavedVolumes {
            records: VolumeInfo::all(records),
            in_repository: Vec::new(),
        }
    }

    fn source<'a>(plan: &'a VolumePlan, claim: &str) -> &'a DataSource {
        &plan.by_claim[&("a".to_owned(), claim.to_owned())].data
    }

    #[test]
    fn a_kept_volume_without_its_snapshot_is_restored_with_a_warning() {
        let objects = objects(
            &[("data", "kept", false)],
            &[("kept", true), ("free", true), ("gone", false)],
        );
        let snapshots = TakenSnapshots {
            failed: ["kept", "gone"].into(),
            ..TakenSnapshots::default()
        };
        let (plan, warnings) = VolumePlan::of(&objects, &SavedVolumes::default(), &snapshots);
        assert_eq!(source(&plan, "data"), &DataSource::Kept);
        let kept: Vec<&str> = plan.kept_volumes.iter().map(String::as_str).collect();
        assert_eq!(kept, ["free", "kept"]);
        assert_eq!(
            warnings,
            ["the backup has no snapshot of PersistentVolume \"kept\": taking it had failed"]
        );
    }

    #[test]
    fn a_record_of_the_claim_is_preferred_to_one_of_its_volume() {
        let objects = objects(&[("data", "pv", true), ("other", "pv", true)], &[]);
        let saved = saved(&[
            json!({ "pvName": "pv", "backupMethod": "PodVolumeBackup" }),
            json!({ "pvcNamespace": "a", "pvcName": "data", "backupMethod": "CSISnapshot" }),
        ]);
        let snapshots = TakenSnapshots {
            csi: true,
            ..TakenSnapshots::default()
        };
        let (plan, _) = VolumePlan::of(&objects, &saved, &snapshots);
        assert_eq!(source(&plan, "data"), &DataSource::CsiSnapshot);
        assert_eq!(source(&plan, "other"), &DataSource::Repository);
        let (plan, _) = VolumePlan::of(&objects, &saved, &TakenSnapshots::default());
        assert!(matches!(source(&plan, "data"), DataSource::Lost(_)));
    }

    #[test]
    fn data_of_our_mover_is_restored_where_the_mover_runs() {
        let objects = objects(&[("data", "pv", false)], &[("pv", true)]);
        let saved = saved(&[
            json!({ "pvcNamespace": "a", "pvcName": "data", "pvName": "pv", "backupMethod": "CSISnapshot",
                "snapshotDataMoved": true,
                "snapshotDataMovementInfo": { "dataMover": "backup-mover", "snapshotHandle": "k1", "size": 7 } }),
        ]);
        let (mut plan, _) = VolumePlan::of(&objects, &saved, &TakenSnapshots::default());
        let moved = plan.moved();
        let data = &moved[&("a".to_owned(), "data".to_owned())];
        assert_eq!((data.snapshot.as_str(), data.size), ("k1", 7));
        assert_eq!(data.incomplete, None);
        // A new volume is filled, also if the old one was kept.
        assert!(plan.kept_volumes.is_empty());
        plan.without_mover();
        assert!(plan.moved().is_empty());
        assert!(
            matches!(source(&plan, "data"), DataSource::Lost(why) if why.contains("--mover-image"))
        );
    }

    #[test]
    fn a_claim_that_only_the_list_of_a_repository_names_is_planned() {
        let objects = objects(
            &[("data", "pv", false), ("kept", "kept", false)],
            &[("kept", true)],
        );
        let in_repository = ["data", "kept", "more"].map(|claim| RepositoryVolume {
            namespace: "a".to_owned(),
            claim: Some(claim.to_owned()),
            mount: None,
        });
        let saved = SavedVolumes {
            records: Vec::new(),
            in_repository: in_repository.to_vec(),
        };
        let (plan, _) = VolumePlan::of(&objects, &saved, &TakenSnapshots::default());
        assert_eq!(source(&plan, "data"), &DataSource::Repository);
        assert_eq!(source(&plan, "kept"), &DataSource::Kept);
        assert_eq!(source(&plan, "more"), &DataSource::Repository);
    }
}
