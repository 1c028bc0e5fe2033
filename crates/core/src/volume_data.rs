//! How the data of volumes was saved, from a backup's `-volumeinfo.json.gz`, and how a restore gets
//! it back. Pure.
//!
//! Velero: `internal/volume/volumes_information.go` and `pkg/restore/restore.go`, v1.18.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    repository_data::RepositoryVolume,
    text::{counted, listed, shortened},
    volume_info::{DataMovementInfo, MOVE_FAILED, NOTHING_SAVED, VolumeInfo, VolumeMethod},
};

const IN_REPOSITORY: &str = "it is in a repository that only a Velero server reads";
const PARTLY_SAVED: &str = "only a part of it was saved";
/// Maximum number of volumes that are named; the others are only counted.
const MAX_NAMED_VOLUMES: usize = 8;
/// Maximum length of a reason (characters): it may be a driver's message.
const MAX_REASON_CHARS: usize = 200;

/// The volumes of a backup or restore whose data is not stored or was not restored: the content of
/// our annotation of the Backup or Restore, as Velero's status has no field for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingData {
    /// Number of volumes with missing data.
    pub missing: usize,
    /// Number of all volumes.
    pub of: usize,
    /// Number of these volumes of whose data a part is there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub partly: usize,
    /// The reasons, by the names of the first ones: `namespace/claim`, or the volume.
    pub volumes: BTreeMap<String, String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl MissingData {
    /// From `-volumeinfo.json.gz`; `None` if no data is missing.
    pub fn of(entries: &[VolumeInfo]) -> Option<Self> {
        Self::counted(entries).known()
    }

    /// The same, but also if no data is missing.
    pub fn counted(entries: &[VolumeInfo]) -> Self {
        let partly = entries
            .iter()
            .filter(|entry| entry.has_failed() && entry.moved_by_us().is_some());
        Self {
            partly: partly.count(),
            ..Self::count(
                entries
                    .iter()
                    .map(|entry| (entry.name(), entry.missing().map(str::to_owned))),
            )
        }
    }

    /// From names of volumes, each with the reason why its data is missing, if it is; `None` if no
    /// data is missing.
    pub fn among(all: impl IntoIterator<Item = (String, Option<String>)>) -> Option<Self> {
        Self::count(all).known()
    }

    /// The volumes of a backup whose data is in a repository that is not read here; `of` is the
    /// number of all its volumes, as far as known.
    pub fn in_repository(volumes: &[RepositoryVolume], of: usize) -> Option<Self> {
        let found = Self::among(
            volumes
                .iter()
                .map(|one| (repository_volume_name(one), Some(IN_REPOSITORY.to_owned()))),
        )?;
        Some(Self {
            of: found.missing.max(of),
            ..found
        })
    }

    /// The volumes of a backup whose data stays behind when its files are copied into another
    /// location.
    pub fn left_behind(records: &[VolumeInfo], in_repository: &[RepositoryVolume]) -> Option<Self> {
        let recorded = records.iter().map(|record| {
            let why = record.missing().is_none().then(|| stays(record).to_owned());
            (record.name(), why)
        });
        Self::among(recorded).or_else(|| Self::in_repository(in_repository, records.len()))
    }

    /// `None` if nothing is missing.
    fn known(self) -> Option<Self> {
        (self.missing > 0).then_some(self)
    }

    fn count(all: impl IntoIterator<Item = (String, Option<String>)>) -> Self {
        let mut found = Self::default();
        for (name, why) in all {
            found.of += 1;
            let Some(why) = why else { continue };
            found.missing += 1;
            if found.volumes.len() < MAX_NAMED_VOLUMES {
                found
                    .volumes
                    .insert(name, shortened(&why, MAX_REASON_CHARS));
            }
        }
        found
    }

    /// Reads the annotation; `None` if it is missing or unreadable, or says that nothing is
    /// missing.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        serde_json::from_str::<Self>(annotation?).ok()?.known()
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// "the data of 1 of 3 volumes is not in it: db/data (its snapshot failed)"; `what` is the
    /// predicate. A reason that is empty is left out.
    pub fn sentence(&self, what: &str) -> String {
        let Self {
            missing,
            of,
            partly,
            volumes,
        } = self;
        let named: Vec<String> = volumes
            .iter()
            .map(|(name, why)| match why.as_str() {
                "" => name.clone(),
                why => format!("{name} ({why})"),
            })
            .collect();
        let partly = if *partly > 0 { ", or only in part" } else { "" };
        format!(
            "the data of {missing} of {} {what}{partly}: {}",
            counted(*of, "volume"),
            listed(&named, *missing)
        )
    }
}

/// Where the saved data of a volume is.
fn stays(record: &VolumeInfo) -> &'static str {
    let is_in_repository = record.backup_method == Some(VolumeMethod::PodVolumeBackup)
        || record.snapshot_data_moved == Some(true);
    if is_in_repository {
        "it is in a repository beside the original"
    } else {
        "it is a snapshot in the storage system"
    }
}

fn repository_volume_name(volume: &RepositoryVolume) -> String {
    match &volume.claim {
        Some(claim) => format!("{}/{claim}", volume.namespace),
        None => volume.to_string(),
    }
}

/// Other known facts about a volume of a backup.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence {
    /// A plugin has a usable snapshot.
    pub native: bool,
    /// Its claim names a CSI snapshot.
    pub csi: bool,
    /// It is kept after its claim is deleted (`Retain`).
    pub kept: bool,
    /// A plugin tried to take a snapshot and failed.
    pub failed: bool,
    pub volume: StoredVolume,
}

/// The PersistentVolume of a claim in the backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoredVolume {
    #[default]
    Absent,
    /// Its data is in a storage system.
    Remote,
    /// Its data is in a directory or on a disk of one node; with the kind of its source.
    OnNode(&'static str),
}

impl StoredVolume {
    /// From a PersistentVolume in the backup.
    pub fn of(volume: &serde_json::Map<String, Value>) -> Self {
        ["hostPath", "local"]
            .into_iter()
            .find(|kind| {
                volume
                    .get("spec")
                    .is_some_and(|spec| spec.get(*kind).is_some())
            })
            .map_or(Self::Remote, Self::OnNode)
    }
}

/// The data of a volume in a repository that our data mover has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedData {
    /// Id of the snapshot in the repository.
    pub snapshot: String,
    /// Bytes; 0 if unknown.
    pub size: i64,
    /// Why only a part of the data is in the repository; `None` if all of it is.
    pub incomplete: Option<String>,
}

impl MovedData {
    /// From the entry of a volume in `-volumeinfo.json.gz` of the backup; `None` if our data mover
    /// has stored nothing.
    pub fn of(record: &VolumeInfo) -> Option<Self> {
        let movement = record.moved_by_us()?;
        let incomplete = record.has_failed().then(|| match record.skipped_reason() {
            "" => PARTLY_SAVED.to_owned(),
            why => format!("{PARTLY_SAVED} ({why})"),
        });
        Some(Self {
            snapshot: movement.snapshot_handle.clone(),
            size: movement.size,
            incomplete,
        })
    }
}

/// The source of a volume's data in a restore, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// A plugin creates the volume from its snapshot.
    NativeSnapshot,
    /// Our data mover fills a new volume from its repository.
    Moved(MovedData),
    /// The data is in a repository that only a Velero server reads: an empty volume is provisioned.
    Repository,
    /// A volume is provisioned from a CSI snapshot.
    CsiSnapshot,
    /// The volume itself is restored: its data never left the storage system.
    Kept,
    /// Its data should have been saved but cannot be restored, with the reason: an empty volume is
    /// provisioned.
    Lost(&'static str),
    /// Its data was not saved, with the reason if known: an empty volume is provisioned.
    Unsaved(String),
}

impl DataSource {
    /// Decides for one volume.
    pub fn of(record: Option<&VolumeInfo>, found: Evidence) -> Self {
        let snapshot_failed = found.failed || record.is_some_and(VolumeInfo::has_failed);
        // If our data mover has stored nothing, no repository has the data.
        let uses_our_mover = record
            .and_then(|record| record.snapshot_data_movement_info.as_ref())
            .is_some_and(DataMovementInfo::is_ours);
        if found.native {
            Self::NativeSnapshot
        } else if let Some(moved) = record.and_then(MovedData::of) {
            Self::Moved(moved)
        } else if record.is_some_and(VolumeInfo::uses_repository) && !uses_our_mover {
            Self::Repository
        } else if found.csi {
            Self::CsiSnapshot
        } else if found.kept {
            Self::Kept
        } else if uses_our_mover {
            Self::Lost(MOVE_FAILED)
        } else if snapshot_failed {
            Self::Lost("its snapshot could not be taken")
        } else {
            Self::lost_or_unsaved(record, found.volume)
        }
    }

    /// Decides by the method that should have saved the data.
    fn lost_or_unsaved(record: Option<&VolumeInfo>, volume: StoredVolume) -> Self {
        match record.and_then(|record| record.backup_method.as_ref()) {
            Some(VolumeMethod::CsiSnapshot) => {
                Self::Lost("its VolumeSnapshot is not in the backup")
            }
            Some(VolumeMethod::NativeSnapshot) => {
                Self::Lost("its snapshot is not in the list of the backup")
            }
            Some(
                VolumeMethod::PodVolumeBackup
                | VolumeMethod::PodVolumeRestore
                | VolumeMethod::Unknown(_),
            )
            | None => Self::Unsaved(unsaved(record, volume)),
        }
    }

    /// Whether the volume itself is restored, instead of provisioning a new one.
    pub fn restores_volume(&self) -> bool {
        matches!(self, Self::Kept | Self::NativeSnapshot)
    }
}

/// Why the data of a volume cannot be restored, if nothing was going to save it.
fn unsaved(record: Option<&VolumeInfo>, volume: StoredVolume) -> String {
    let reason = record.map_or("", VolumeInfo::skipped_reason);
    let skipped = match reason {
        "" => NOTHING_SAVED.to_owned(),
        reason => format!("{NOTHING_SAVED} ({reason})"),
    };
    let name = record.map_or("", VolumeInfo::volume);
    let is_retained = record
        .and_then(|record| record.pv_info.as_ref())
        .is_some_and(|volume| volume.reclaim_policy == "Retain");
    match volume {
        StoredVolume::OnNode(kind) => {
            format!(
                "{skipped}; its volume was of type {kind}, whose data is on one node and is not part of a backup"
            )
        }
        StoredVolume::Absent if !name.is_empty() => {
            let kept = if is_retained {
                "; by its reclaim policy (Retain) the volume may still have the data"
            } else {
                ""
            };
            format!("{skipped}, and its volume {name:?} is not in the backup{kept}")
        }
        StoredVolume::Absent | StoredVolume::Remote => skipped,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const NONE: Evidence = Evidence {
        native: false,
        csi: false,
        kept: false,
        failed: false,
        volume: StoredVolume::Remote,
    };
    const ABSENT: Evidence = Evidence {
        volume: StoredVolume::Absent,
        ..NONE
    };
    const NATIVE: Evidence = Evidence {
        native: true,
        ..NONE
    };
    const CSI: Evidence = Evidence { csi: true, ..NONE };
    const KEPT: Evidence = Evidence { kept: true, ..NONE };
    const FAILED: Evidence = Evidence {
        failed: true,
        ..NONE
    };

    /// An entry of our data mover.
    fn ours(snapshot: &str, result: &str) -> Value {
        json!({"backupMethod": "CSISnapshot", "snapshotDataMoved": true, "result": result,
            "snapshotDataMovementInfo": {"dataMover": "backup-mover", "snapshotHandle": snapshot, "size": 7}})
    }

    fn json_patched(mut entry: Value, patch: &Value) -> Value {
        json_patch::merge(&mut entry, patch);
        entry
    }

    fn moved(incomplete: Option<&str>) -> DataSource {
        DataSource::Moved(MovedData {
            snapshot: "k1".to_owned(),
            size: 7,
            incomplete: incomplete.map(str::to_owned),
        })
    }

    #[test]
    fn volumes_without_their_data_are_named_with_the_reason() {
        let good = json!({"pvcNamespace": "shop", "pvcName": "a", "backupMethod": "CSISnapshot", "result": "succeeded"});
        assert_eq!(MissingData::of(&[]), None);
        assert_eq!(
            MissingData::of(&VolumeInfo::all(&[
                good.clone(),
                json!({"pvName": "older server"}),
                json!("nonsense")
            ])),
            None
        );
        let failed = json!({"pvcNamespace": "db", "pvcName": "pgdata-7", "backupMethod": "CSISnapshot", "result": "failed"});
        let skipped =
            json!({"pvcName": "", "pvName": "pv-8", "skipped": true, "skippedReason": "no driver"});
        let silent = json!({"pvName": "pv-9", "skipped": true});
        let entries = VolumeInfo::all(&[good, failed.clone(), skipped, silent]);
        let missing = MissingData::of(&entries).unwrap();
        assert_eq!(
            missing.sentence("is not in it"),
            "the data of 3 of 4 volumes is not in it: db/pgdata-7 (its snapshot failed), pv-8 (no driver), \
             pv-9 (nothing of it was saved)"
        );
        assert_eq!(
            MissingData::read(Some(&missing.annotation())),
            Some(missing)
        );
        assert_eq!(MissingData::read(Some("[]")), None);
        let all_there = MissingData::counted(&[]).annotation();
        assert_eq!(all_there, r#"{"missing":0,"of":0,"volumes":{}}"#);
        assert_eq!(MissingData::read(Some(&all_there)), None);
        let many: Vec<Value> = (0..30)
            .map(|n| json!({"pvName": format!("pv-{n:02}"), "result": "failed"}))
            .collect();
        let missing = MissingData::of(&VolumeInfo::all(&many)).unwrap();
        let text = missing.sentence("is not in it");
        assert!(
            text.ends_with("pv-07 (its snapshot failed) and 22 more"),
            "{text}"
        );
        assert!(missing.annotation().len() < 1000);
        let long = MissingData::among([("pv".to_owned(), Some("x".repeat(1_000_000)))]).unwrap();
        assert!(long.annotation().len() < 1000);
    }

    #[test]
    fn a_volume_of_which_a_part_is_there_is_not_said_to_be_missing() {
        let entry = json_patched(
            ours("k1", "failed"),
            &json!({"pvcNamespace": "shop", "pvcName": "a", "skippedReason": "1 file is missing"}),
        );
        let data = MissingData::of(&VolumeInfo::all(&[entry])).unwrap();
        assert_eq!((data.missing, data.partly), (1, 1));
        assert_eq!(
            data.sentence("is not in it"),
            "the data of 1 of 1 volume is not in it, or only in part: shop/a (1 file is missing)"
        );
        assert_eq!(
            MissingData::read(Some(&data.annotation())),
            Some(data.clone())
        );
        let named = MissingData {
            partly: 0,
            volumes: [("shop/a".to_owned(), String::new())].into(),
            ..data
        };
        assert!(named.sentence("is not in it").ends_with("in it: shop/a"));
    }

    #[test]
    fn a_volume_that_did_not_come_back_is_missing_in_the_file_of_its_restore() {
        let of_pod = RepositoryVolume {
            namespace: "shop".to_owned(),
            claim: None,
            mount: Some(("web".to_owned(), "cache".to_owned())),
        };
        let restored =
            json!({"pvcNamespace": "shop", "pvcName": "a", "restoreMethod": "CSISnapshot"});
        let restored = VolumeInfo::of(&restored).unwrap();
        let missing =
            VolumeInfo::not_restored("shop", "data", "pv-1", "its snapshot was not restored");
        let pod = of_pod.not_restored("copy", "elsewhere").unwrap();
        let data = MissingData::of(&[restored, missing, pod]).unwrap();
        assert_eq!(
            data.sentence("was not restored"),
            "the data of 2 of 3 volumes was not restored: shop/data (its snapshot was not restored), \
             volume cache of pod copy/web (elsewhere)"
        );
        assert_eq!(
            RepositoryVolume::unnamed().not_restored("copy", "elsewhere"),
            None
        );
    }

    #[rstest]
    #[case::plugin(json!({"backupMethod": "NativeSnapshot"}), NATIVE, DataSource::NativeSnapshot)]
    #[case::plugin_of_one_that_is_kept(json!({"backupMethod": "NativeSnapshot"}), Evidence { kept: true, ..NATIVE }, DataSource::NativeSnapshot)]
    #[case::plugin_without_its_snapshot(json!({"backupMethod": "NativeSnapshot"}), NONE, DataSource::Lost("its snapshot is not in the list of the backup"))]
    #[case::plugin_that_failed(json!({"backupMethod": "NativeSnapshot", "result": "failed"}), FAILED, DataSource::Lost("its snapshot could not be taken"))]
    #[case::plugin_that_failed_of_one_that_is_kept(json!({"backupMethod": "NativeSnapshot", "result": "failed"}), Evidence { kept: true, ..FAILED }, DataSource::Kept)]
    #[case::csi(json!({"backupMethod": "CSISnapshot"}), CSI, DataSource::CsiSnapshot)]
    #[case::csi_of_one_that_is_kept(json!({"backupMethod": "CSISnapshot"}), Evidence { kept: true, ..CSI }, DataSource::CsiSnapshot)]
    #[case::csi_without_its_snapshot(json!({"backupMethod": "CSISnapshot"}), NONE, DataSource::Lost("its VolumeSnapshot is not in the backup"))]
    #[case::moved(json!({"backupMethod": "CSISnapshot", "snapshotDataMoved": true}), NONE, DataSource::Repository)]
    #[case::moved_by_a_velero_server(
        json!({"snapshotDataMoved": true, "snapshotDataMovementInfo": {"dataMover": "velero", "snapshotHandle": "k1"}}),
        NONE,
        DataSource::Repository
    )]
    #[case::moved_by_us(ours("k1", "succeeded"), NONE, moved(None))]
    #[case::moved_by_us_of_one_that_is_kept(ours("k1", "succeeded"), KEPT, moved(None))]
    #[case::moved_by_us_with_a_snapshot(ours("k1", "succeeded"), CSI, moved(None))]
    #[case::moved_by_us_and_snapshotted_by_a_plugin(
        ours("k1", "succeeded"),
        NATIVE,
        DataSource::NativeSnapshot
    )]
    #[case::moved_by_us_in_part(
        ours("k1", "failed"),
        NONE,
        moved(Some("only a part of it was saved"))
    )]
    #[case::moved_by_us_in_part_and_named(
        json_patched(ours("k1", "failed"), &json!({"skippedReason": "2 files"})),
        NONE,
        moved(Some("only a part of it was saved (2 files)"))
    )]
    #[case::not_moved_by_us(ours("", "failed"), NONE, DataSource::Lost(MOVE_FAILED))]
    #[case::not_moved_by_us_of_one_that_is_kept(ours("", "failed"), KEPT, DataSource::Kept)]
    #[case::moved_to_nowhere(ours("", "succeeded"), NONE, DataSource::Lost(MOVE_FAILED))]
    #[case::files(json!({"backupMethod": "PodVolumeBackup"}), NONE, DataSource::Repository)]
    #[case::files_of_one_that_is_kept(json!({"backupMethod": "PodVolumeBackup"}), KEPT, DataSource::Repository)]
    #[case::kept(json!({"skipped": true, "skippedReason": "x"}), KEPT, DataSource::Kept)]
    #[case::skipped(json!({"skipped": true, "skippedReason": "no class"}), NONE, DataSource::Unsaved("nothing of it was saved (no class)".to_owned()))]
    // Backups of Velero before 1.13 have no such file.
    #[case::old_plugin(json!(null), NATIVE, DataSource::NativeSnapshot)]
    #[case::old_csi(json!(null), CSI, DataSource::CsiSnapshot)]
    #[case::old_kept(json!(null), KEPT, DataSource::Kept)]
    #[case::old(json!(null), NONE, DataSource::Unsaved("nothing of it was saved".to_owned()))]
    #[case::on_a_node(
        json!({"skipped": true, "skippedReason": "snapshots are off"}),
        Evidence { volume: StoredVolume::OnNode("hostPath"), ..NONE },
        DataSource::Unsaved(
            "nothing of it was saved (snapshots are off); its volume was of type hostPath, whose data is on one node and is not part \
             of a backup".to_owned()
        )
    )]
    #[case::nowhere(
        json!({"pvName": "pv"}),
        ABSENT,
        DataSource::Unsaved("nothing of it was saved, and its volume \"pv\" is not in the backup".to_owned())
    )]
    #[case::unknown(json!(null), ABSENT, DataSource::Unsaved("nothing of it was saved".to_owned()))]
    #[case::retained_and_not_in_the_backup(
        json!({"pvName": "pv", "pvInfo": {"reclaimPolicy": "Retain"}}),
        ABSENT,
        DataSource::Unsaved(
            "nothing of it was saved, and its volume \"pv\" is not in the backup; by its reclaim policy (Retain) the volume may still \
             have the data".to_owned()
        )
    )]
    #[case::old_that_failed(json!(null), FAILED, DataSource::Lost("its snapshot could not be taken"))]
    fn where_the_data_of_a_volume_comes_from(
        #[case] record: Value,
        #[case] found: Evidence,
        #[case] expected: DataSource,
    ) {
        let record = VolumeInfo::of(&record);
        assert_eq!(DataSource::of(record.as_ref(), found), expected);
    }

    #[test]
    fn data_outside_of_the_files_of_a_backup_stays_behind() {
        let of = |claim: &str, more: &Value| {
            let entry = json!({"pvcNamespace": "db", "pvcName": claim});
            VolumeInfo::of(&json_patched(entry, more)).unwrap()
        };
        let records = [
            of(
                "moved",
                &json!({"backupMethod": "CSISnapshot", "snapshotDataMoved": true}),
            ),
            of("snapshot", &json!({"backupMethod": "CSISnapshot"})),
            of("none", &json!({"skipped": true})),
        ];
        let found = MissingData::left_behind(&records, &[]).unwrap();
        assert_eq!((found.missing, found.of), (2, 3));
        assert!(found.volumes["db/moved"].contains("repository"));
        assert!(found.volumes["db/snapshot"].contains("storage system"));
        assert_eq!(MissingData::left_behind(&records[2..], &[]), None);
    }

    #[test]
    fn a_volume_on_a_node_is_known_by_its_source() {
        let of = |source: Value| StoredVolume::of(json!({ "spec": source }).as_object().unwrap());
        assert_eq!(
            of(json!({ "hostPath": { "path": "/data" } })),
            StoredVolume::OnNode("hostPath")
        );
        assert_eq!(
            of(json!({ "local": { "path": "/disk" } })),
            StoredVolume::OnNode("local")
        );
        assert_eq!(of(json!({ "nfs": {} })), StoredVolume::Remote);
        assert_eq!(
            StoredVolume::of(&serde_json::Map::new()),
            StoredVolume::Remote
        );
    }
}
