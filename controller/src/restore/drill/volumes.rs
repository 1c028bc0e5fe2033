//! Volumes in a drill: which claims it restores, and what it demands of claims and snapshots so
//! that no volume and no snapshot outside of the drill is used or deleted. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use backup_actions::{
    csi::{CONTENTS, SNAPSHOTS},
    restore::{
        json::{self, Object},
        volume,
    },
};
use backup_core::{
    api::Restore,
    labels::{
        DRILL_INSTALLATION_LABEL, DRILL_LABEL, DRILL_RESTORE_ANNOTATION, EXCLUDE_FROM_BACKUP,
    },
    resources::CLAIMS,
    volume_data::DataSource,
    volume_info::VolumeProperties,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// Kinds of objects from which a claim of a drill gets its data.
const DATA_SOURCES: [&str; 2] = ["DataDownload", "VolumeSnapshot"];
/// Annotation of claims and volumes by which old clients set the class.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Whether objects of this type bring the data of volumes into a drill.
pub(super) fn brings_data(group_resource: &str, namespace: Option<&str>) -> bool {
    match namespace {
        Some(_) => [CLAIMS, SNAPSHOTS].contains(&group_resource),
        None => group_resource == CONTENTS,
    }
}

/// Why a drill leaves a claim out; `None` if it restores the claim with its data. `data` is `None`
/// for a claim that had no volume in the backup.
pub(crate) fn reason_to_leave_out(data: Option<&DataSource>) -> Option<String> {
    let why: &str = match data {
        Some(DataSource::CsiSnapshot | DataSource::Moved(_)) => return None,
        Some(DataSource::NativeSnapshot) => {
            "its data is in a snapshot of a plugin, of which a drill makes no volume"
        }
        Some(DataSource::Kept) => {
            "its data is in its volume alone, and a drill uses no volume that exists"
        }
        Some(DataSource::Repository) => {
            "its data is in a repository of files, which only Velero's node agents read"
        }
        Some(DataSource::Lost(why)) => why,
        Some(DataSource::Unsaved(why)) => why.as_str(),
        None => "it had no volume in the backup",
    };
    Some(why.to_owned())
}

/// The properties of a volume that is deleted with its claim.
pub(crate) fn properties() -> VolumeProperties {
    VolumeProperties {
        reclaim_policy: "Delete".to_owned(),
        ..VolumeProperties::default()
    }
}

/// Why an object of a drill is not created: actions or modifiers made something of it that uses what
/// exists outside of the drill. The end of a sentence.
pub(super) fn refusal(
    group_resource: &str,
    object: &Object,
    restore: &Restore,
) -> Option<&'static str> {
    match group_resource {
        CLAIMS => refusal_of_claim(object),
        SNAPSHOTS => non_empty_text(object, &["spec", "source"], "volumeSnapshotContentName")
            .is_none()
            .then_some("it would take a snapshot, and a drill uses those of the backup alone"),
        CONTENTS => refusal_of_content(object, restore),
        _ => None,
    }
}

fn refusal_of_claim(claim: &Object) -> Option<&'static str> {
    if volume::volume_of_claim(claim).is_some() {
        return Some("it names a volume, and a drill uses no volume that exists");
    }
    let selector = json::object(claim, &["spec", "selector"]);
    if selector.is_some_and(|selector| !selector.is_empty()) {
        return Some("it selects among volumes, and a drill uses no volume that exists");
    }
    let source = ["spec", "dataSourceRef"];
    let kind = json::text(claim, &source, "kind").unwrap_or_default();
    if !DATA_SOURCES.contains(&kind) || non_empty_text(claim, &source, "namespace").is_some() {
        return Some("its data source is none of the drill");
    }
    None
}

fn refusal_of_content(content: &Object, restore: &Restore) -> Option<&'static str> {
    if non_empty_text(content, &["spec", "source"], "snapshotHandle").is_none() {
        return Some("it would take a snapshot, and a drill uses those of the backup alone");
    }
    let namespace = json::text(content, &["spec", "volumeSnapshotRef"], "namespace");
    let mut scratch = restore.spec.namespace_mapping.values();
    let is_of_drill = scratch.any(|name| Some(name.as_str()) == namespace);
    (!is_of_drill).then_some("its VolumeSnapshot is outside of the namespaces of the drill")
}

fn non_empty_text<'a>(from: &'a Object, path: &[&str], key: &str) -> Option<&'a str> {
    json::text(from, path, key).filter(|text| !text.is_empty())
}

/// Marks a content as one of a drill, by which it is found and removed, and keeps the snapshot of
/// the backup when that is done.
pub(super) fn isolate_content(content: &mut Object, restore: &Restore, own: &str) {
    let labels = [
        (DRILL_LABEL, restore.uid().unwrap_or_default()),
        (DRILL_INSTALLATION_LABEL, own.to_owned()),
        (EXCLUDE_FROM_BACKUP, "true".to_owned()),
    ];
    for (label, value) in labels {
        json::set(content, &["metadata", "labels"], label, Value::from(value));
    }
    let annotations = ["metadata", "annotations"];
    let name = Value::from(restore.name_any());
    json::set(content, &annotations, DRILL_RESTORE_ANNOTATION, name);
    json::set(content, &["spec"], "deletionPolicy", json!("Retain"));
}

/// The claims that a StatefulSet makes for its pods.
pub(super) struct PodClaims {
    /// Name of the StatefulSet.
    set: String,
    /// Numbers of its pods.
    ordinals: Range<u64>,
}

impl PodClaims {
    pub(super) fn of(set: &Object) -> Self {
        let number = |path: &[&str], key: &str| json::object(set, path)?.get(key)?.as_u64();
        let start = number(&["spec", "ordinals"], "start").unwrap_or(0);
        let replicas = number(&["spec"], "replicas").unwrap_or(1);
        let name = json::text(set, &["metadata"], "name").unwrap_or_default();
        Self {
            set: name.to_owned(),
            ordinals: start..start.saturating_add(replicas),
        }
    }

    /// Whether the claims that a template makes, at least one, are all among these.
    pub(super) fn are_all_in(&self, claims: &BTreeSet<&str>, template: &Value) -> bool {
        let Self { set, ordinals } = self;
        let Some(template) = template["metadata"]["name"].as_str() else {
            return false;
        };
        !ordinals.is_empty()
            && ordinals.clone().all(|ordinal| {
                let claim = format!("{template}-{set}-{ordinal}");
                claims.contains(claim.as_str())
            })
    }
}

/// Volumes in the cluster that no claim has, by their class: a claim may be bound to one of these,
/// whatever data source it names (kubernetes#101878).
#[derive(Debug, Default)]
pub(crate) struct FreeVolumes(BTreeMap<String, String>);

impl FreeVolumes {
    /// Adds a PersistentVolume, if it is free.
    pub(crate) fn add(&mut self, volume: &Object) {
        let has_claim = json::object(volume, &["spec", "claimRef"]).is_some();
        let is_going = json::text(volume, &["metadata"], "deletionTimestamp").is_some();
        if !has_claim && !is_going {
            let name = json::text(volume, &["metadata"], "name").unwrap_or_default();
            let class = class_of(volume).unwrap_or_default();
            self.0.insert(class.to_owned(), name.to_owned());
        }
    }

    /// A free volume to which a claim may be bound. A claim without a class may get any class by
    /// default.
    pub(crate) fn of_class_of(&self, claim: &Object) -> Option<&str> {
        let volume = match class_of(claim) {
            Some(class) => self.0.get(class),
            None => self.0.values().next(),
        };
        volume.map(String::as_str)
    }
}

/// The class of a volume or claim; `None` if it names none.
fn class_of(object: &Object) -> Option<&str> {
    let annotated = json::text(object, &["metadata", "annotations"], CLASS_ANNOTATION);
    annotated.or_else(|| json::text(object, &["spec"], "storageClassName"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)] // tables read better with values

    use backup_core::{drill::restore_spec, volume_data::MovedData};
    use rstest::rstest;

    use super::*;

    const SCRATCH: &str = "drill-0123abcd-shop";

    fn object(value: Value) -> Object {
        match value {
            Value::Object(object) => object,
            other => panic!("{other}"),
        }
    }

    /// A drill of namespace `shop`.
    fn drill() -> Restore {
        let drill = serde_json::from_value(json!({ "volumes": true })).unwrap();
        let spec = restore_spec("b", "0123abcd", &["shop".to_owned()].into(), drill);
        let mut restore = Restore::new("r", spec);
        restore.metadata.uid = Some("uid-r".to_owned());
        restore
    }

    #[rstest]
    #[case::csi(Some(DataSource::CsiSnapshot), None)]
    #[case::moved(
        Some(DataSource::Moved(MovedData { snapshot: "k1".to_owned(), size: 7, incomplete: None })),
        None
    )]
    #[case::native(Some(DataSource::NativeSnapshot), Some("snapshot of a plugin"))]
    #[case::kept(Some(DataSource::Kept), Some("no volume that exists"))]
    #[case::repository(Some(DataSource::Repository), Some("only Velero's node agents"))]
    #[case::lost(
        Some(DataSource::Lost("its snapshot could not be taken")),
        Some("could not be taken")
    )]
    #[case::unsaved(Some(DataSource::Unsaved("no class".to_owned())), Some("no class"))]
    #[case::unbound(None, Some("no volume in the backup"))]
    fn claims_without_data_for_a_new_volume_are_left_out(
        #[case] data: Option<DataSource>,
        #[case] expected: Option<&str>,
    ) {
        let why = reason_to_leave_out(data.as_ref());
        assert_eq!(why.is_some(), expected.is_some(), "{why:?}");
        assert_says!(why.unwrap_or_default(), expected.unwrap_or_default());
    }

    #[rstest]
    #[case::claim_of_snapshot(CLAIMS, json!({ "spec": { "dataSourceRef": { "kind": "VolumeSnapshot", "name": "s" } } }), None)]
    #[case::claim_of_download(CLAIMS, json!({ "spec": { "dataSourceRef": { "kind": "DataDownload", "name": "d" } } }), None)]
    #[case::claim_of_a_volume(
        CLAIMS,
        json!({ "spec": { "volumeName": "pv", "dataSourceRef": { "kind": "VolumeSnapshot", "name": "s" } } }),
        Some("names a volume")
    )]
    #[case::claim_with_a_selector(
        CLAIMS,
        json!({ "spec": { "selector": { "matchLabels": { "a": "b" } }, "dataSourceRef": { "kind": "VolumeSnapshot" } } }),
        Some("selects among volumes")
    )]
    #[case::claim_without_a_source(CLAIMS, json!({ "spec": {} }), Some("data source"))]
    #[case::claim_of_another_claim(
        CLAIMS,
        json!({ "spec": { "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": "data" } } }),
        Some("data source")
    )]
    #[case::claim_of_another_namespace(
        CLAIMS,
        json!({ "spec": { "dataSourceRef": { "kind": "VolumeSnapshot", "name": "s", "namespace": "shop" } } }),
        Some("data source")
    )]
    #[case::snapshot(SNAPSHOTS, json!({ "spec": { "source": { "volumeSnapshotContentName": "c" } } }), None)]
    #[case::snapshot_to_take(
        SNAPSHOTS,
        json!({ "spec": { "source": { "persistentVolumeClaimName": "data" } } }),
        Some("would take a snapshot")
    )]
    #[case::content(
        CONTENTS,
        json!({ "spec": { "source": { "snapshotHandle": "h" }, "volumeSnapshotRef": { "namespace": SCRATCH } } }),
        None
    )]
    #[case::content_to_take(
        CONTENTS,
        json!({ "spec": { "source": { "volumeHandle": "h" }, "volumeSnapshotRef": { "namespace": SCRATCH } } }),
        Some("would take a snapshot")
    )]
    #[case::content_of_another_namespace(
        CONTENTS,
        json!({ "spec": { "source": { "snapshotHandle": "h" }, "volumeSnapshotRef": { "namespace": "shop" } } }),
        Some("outside of the namespaces")
    )]
    #[case::config_map("configmaps", json!({}), None)]
    fn nothing_is_created_that_uses_what_exists(
        #[case] group_resource: &str,
        #[case] made: Value,
        #[case] expected: Option<&str>,
    ) {
        let why = refusal(group_resource, &object(made), &drill());
        assert_eq!(why.is_some(), expected.is_some(), "{why:?}");
        assert_says!(why.unwrap_or_default(), expected.unwrap_or_default());
    }

    #[test]
    fn a_content_is_marked_and_keeps_the_snapshot_of_the_backup() {
        let stored = json!({ "metadata": { "name": "c", "labels": { "team": "a" } },
            "spec": { "deletionPolicy": "Delete", "driver": "disk" } });
        let mut content = object(stored);
        isolate_content(&mut content, &drill(), "velero");
        let expected = json!({
            "metadata": { "name": "c", "annotations": { DRILL_RESTORE_ANNOTATION: "r" },
                "labels": { "team": "a", DRILL_LABEL: "uid-r", DRILL_INSTALLATION_LABEL: "velero", EXCLUDE_FROM_BACKUP: "true" } },
            "spec": { "deletionPolicy": "Retain", "driver": "disk" },
        });
        assert_eq!(Value::Object(content), expected);
    }

    #[rstest]
    #[case::all(json!({ "replicas": 2 }), &["data-db-0", "data-db-1"], true)]
    #[case::one_is_missing(json!({ "replicas": 3 }), &["data-db-0", "data-db-1"], false)]
    #[case::one_pod_by_default(json!({}), &["data-db-0"], true)]
    #[case::later_numbers(json!({ "replicas": 1, "ordinals": { "start": 5 } }), &["data-db-5"], true)]
    #[case::no_pods(json!({ "replicas": 0 }), &["data-db-0"], false)]
    #[case::of_another_template(json!({}), &["logs-db-0"], false)]
    #[case::no_volumes(json!({}), &[], false)]
    fn a_template_of_claims_is_used_if_the_claims_of_all_pods_are_restored(
        #[case] spec: Value,
        #[case] claims: &[&str],
        #[case] expected: bool,
    ) {
        let set = object(json!({ "metadata": { "name": "db" }, "spec": spec }));
        let template = json!({ "metadata": { "name": "data" } });
        let claims = claims.iter().copied().collect();
        assert_eq!(PodClaims::of(&set).are_all_in(&claims, &template), expected);
    }

    #[rstest]
    #[case::same_class(json!({ "storageClassName": "fast" }), json!({ "storageClassName": "fast" }), true)]
    #[case::other_class(json!({ "storageClassName": "fast" }), json!({ "storageClassName": "slow" }), false)]
    #[case::has_a_claim(json!({ "storageClassName": "fast", "claimRef": { "name": "x" } }), json!({ "storageClassName": "fast" }), false)]
    #[case::default_class(json!({ "storageClassName": "fast" }), json!({}), true)]
    #[case::no_class(json!({}), json!({ "storageClassName": "" }), true)]
    fn a_free_volume_of_the_class_could_be_bound(
        #[case] volume: Value,
        #[case] claim: Value,
        #[case] expected: bool,
    ) {
        let mut free = FreeVolumes::default();
        free.add(&object(
            json!({ "metadata": { "name": "pv" }, "spec": volume }),
        ));
        let claim = object(json!({ "metadata": { "name": "data" }, "spec": claim }));
        let found = free.of_class_of(&claim);
        assert_eq!(found, expected.then_some("pv"));
    }

    #[test]
    fn a_volume_that_is_being_deleted_is_not_free() {
        let mut free = FreeVolumes::default();
        let going = json!({ "metadata": { "name": "pv", "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": {} });
        free.add(&object(going));
        let claim = object(json!({ "spec": {} }));
        assert_eq!(free.of_class_of(&claim), None);
    }
}
