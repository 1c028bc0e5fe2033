//! Adapts a Backup that was found in a bucket to this cluster. Pure.
//!
//! An imported Backup cannot run: it has ended, has no hooks and no finalizers. Data that only
//! applies to its old cluster is dropped.

use backup_core::sync::NoteKind;
use std::collections::{BTreeMap, HashMap};

use backup_core::{
    api::{Backup, BackupPhase},
    labels::{self, BREAK_GLASS_ANNOTATION, KEEP_ANNOTATION, ON_CONFLICT_ANNOTATION},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::folder_outcome::Skip;

/// The known format of tarballs, as in `status.formatVersion`: anything up to this major version.
const FORMAT_MAJOR: u64 = 1;
/// The tools that set these find their objects by them, and prune unknown ones.
const TRACKING: [&str; 5] = [
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "kubectl.kubernetes.io/last-applied-configuration",
    "app.kubernetes.io/instance",
];
/// Labels and annotations by our programs about an object in its own cluster; the rules by which its
/// schedule keeps it are about its data.
const OURS: [&str; 3] = [
    "backup-controller/",
    BREAK_GLASS_ANNOTATION,
    ON_CONFLICT_ANNOTATION,
];

/// The cluster and location that a Backup is imported into.
pub(super) struct ImportTarget<'a> {
    pub(super) namespace: &'a str,
    pub(super) location: &'a str,
    /// Uids of the Schedules, by name; `None` if they are not known.
    pub(super) schedules: Option<&'a HashMap<String, String>>,
    pub(super) now: Timestamp,
}

pub(super) fn sanitize(stored: Backup, target: &ImportTarget<'_>) -> Result<Backup, Skip> {
    let mut backup = stored;
    if let Some(version) = newer_format(&backup) {
        let reason = format!(
            "its format version is {version}, and this version knows {FORMAT_MAJOR}; update the controller"
        );
        return Err(Skip::new(NoteKind::NewerFormat, reason));
    }
    backup.status.phase = Some(ended(&backup, target.now)?);
    backup.status.queue_position = 0;
    let owners = owners(&backup, target)?;
    backup.metadata = metadata(backup.metadata, target.namespace, owners);
    let label = labels::valid_value(target.location);
    let labels = backup.metadata.labels.get_or_insert_default();
    labels.insert(labels::STORAGE_LOCATION.to_owned(), label);
    backup.spec.storage_location = Some(target.location.to_owned());
    backup.spec.hooks = None;
    // Locations of its old cluster.
    backup.spec.copies.clear();
    backup.status.copies.clear();
    Ok(backup)
}

/// The phase to import with. Only ended backups are imported; an expired one that has not ended
/// becomes PartiallyFailed, so that retention finds it (Velero
/// `pkg/controller/backup_sync_controller.go`, after v1.18).
fn ended(backup: &Backup, now: Timestamp) -> Result<BackupPhase, Skip> {
    let phase = backup.phase();
    match phase {
        BackupPhase::Completed | BackupPhase::PartiallyFailed | BackupPhase::Failed => Ok(phase),
        BackupPhase::Deleting => Err(Skip::new(NoteKind::Deleting, "its deletion has begun")),
        BackupPhase::FailedValidation => Err(Skip::new(
            NoteKind::FailedValidation,
            "it was refused and never ran",
        )),
        BackupPhase::Unknown(_) => Err(Skip::new(
            NoteKind::UnknownPhase,
            format!("its phase is {phase}, which this version does not know"),
        )),
        _ => {
            let has_expired = backup
                .status
                .expiration
                .as_ref()
                .is_some_and(|expiration| expiration.0 < now);
            if has_expired {
                return Ok(BackupPhase::PartiallyFailed);
            }
            Err(Skip::new(
                NoteKind::Unfinished,
                format!("it has not ended: its phase is {phase}"),
            ))
        }
    }
}

fn newer_format(backup: &Backup) -> Option<&str> {
    let version = backup
        .status
        .format_version
        .as_deref()
        .filter(|version| !version.is_empty())?;
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u64>().ok());
    major
        .is_none_or(|major| major > FORMAT_MAJOR)
        .then_some(version)
}

/// Owners that exist in this cluster: Schedules of the same uid. An unknown list is an error, not
/// an absent owner.
fn owners(backup: &Backup, target: &ImportTarget<'_>) -> Result<Vec<OwnerReference>, Skip> {
    let mut kept = Vec::new();
    for owner in backup.metadata.owner_references.iter().flatten() {
        if owner.kind != "Schedule" || !owner.api_version.starts_with("velero.io/") {
            continue;
        }
        let Some(schedules) = target.schedules else {
            let reason = format!(
                "whether its Schedule {} is here could not be found out",
                owner.name
            );
            return Err(Skip::transient(NoteKind::ScheduleUnknown, reason));
        };
        if schedules.get(&owner.name) == Some(&owner.uid) {
            kept.push(owner.clone());
        }
    }
    Ok(kept)
}

/// Name, and the labels and annotations that apply in this cluster.
pub(super) fn metadata(
    stored: ObjectMeta,
    namespace: &str,
    owners: Vec<OwnerReference>,
) -> ObjectMeta {
    ObjectMeta {
        name: stored.name,
        namespace: Some(namespace.to_owned()),
        labels: stored.labels.map(without_tracking),
        annotations: stored.annotations.map(without_tracking),
        owner_references: Some(owners).filter(|owners| !owners.is_empty()),
        ..ObjectMeta::default()
    }
}

fn without_tracking(mut all: BTreeMap<String, String>) -> BTreeMap<String, String> {
    all.retain(|key, _| {
        key == KEEP_ANNOTATION
            || !TRACKING
                .iter()
                .chain(&OURS)
                .any(|start| key.starts_with(start))
    });
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stored(patch: &Value) -> Backup {
        let mut object = json!({
            "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": "b", "namespace": "old", "uid": "u0", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["velero.io/x"], "managedFields": [{ "manager": "velero" }],
                "labels": { "velero.io/storage-location": "other", "velero.io/schedule-name": "nightly", "team": "a",
                    "app.kubernetes.io/instance": "argo" },
                "annotations": { "velero.io/source-cluster-k8s-gitversion": "v1.33.1", "backup-lock/break-glass": "why",
                    "backup-controller/cancel": "", "backup-controller/keep": "{}", "argocd.argoproj.io/tracking-id": "x" } },
            "spec": { "storageLocation": "other", "hooks": { "resources": [{ "name": "h" }] }, "ttl": "1h0m0s",
                "copies": [{ "location": "second" }], "later": 1 },
            "status": { "phase": "Completed", "copies": [{ "location": "second", "phase": "Completed" }], "formatVersion": "1.1.0", "expiration": "2026-01-02T00:00:00Z", "errors": 2 },
        });
        json_patch::merge(&mut object, patch);
        serde_json::from_value(object).unwrap()
    }

    fn arrive(patch: &Value, now: &str) -> Result<Backup, Skip> {
        let schedules = HashMap::from([("nightly".to_owned(), "s1".to_owned())]);
        let now = now.parse().unwrap();
        let target = ImportTarget {
            namespace: "velero",
            location: "default",
            schedules: Some(&schedules),
            now,
        };
        sanitize(stored(patch), &target)
    }

    const BEFORE: &str = "2026-01-01T12:00:00Z";
    const AFTER: &str = "2026-01-03T00:00:00Z";

    #[test]
    fn what_arrives_is_of_this_cluster_and_can_not_run() {
        let arrived = serde_json::to_value(arrive(&json!({}), BEFORE).unwrap()).unwrap();
        let expected = json!({
            "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": "b", "namespace": "velero",
                "labels": { "velero.io/storage-location": "default", "velero.io/schedule-name": "nightly", "team": "a" },
                "annotations": { "velero.io/source-cluster-k8s-gitversion": "v1.33.1",
                    "backup-controller/keep": "{}" } },
            "spec": { "storageLocation": "default", "ttl": "1h0m0s", "later": 1 },
            "status": { "phase": "Completed", "formatVersion": "1.1.0", "expiration": "2026-01-02T00:00:00Z", "errors": 2 },
        });
        assert_eq!(arrived, expected);
    }

    #[test]
    fn table_of_phases_each_of_which_arrives_ended_or_not_at_all() {
        let mut phases: Vec<&str> = BackupPhase::KNOWN.to_vec();
        phases.extend(["", "Later"]);
        for phase in phases {
            for (now, expired) in [(BEFORE, false), (AFTER, true)] {
                let arrived = arrive(&json!({ "status": { "phase": phase } }), now);
                let expected = match phase {
                    "Completed" | "PartiallyFailed" | "Failed" => Ok(phase),
                    "Deleting" => Err(NoteKind::Deleting),
                    "FailedValidation" => Err(NoteKind::FailedValidation),
                    "" | "Later" => Err(NoteKind::UnknownPhase),
                    _ if expired => Ok("PartiallyFailed"),
                    _ => Err(NoteKind::Unfinished),
                };
                let found = arrived
                    .as_ref()
                    .map(Backup::phase)
                    .map_err(|skip| skip.what.clone());
                assert_eq!(
                    found,
                    expected.map(BackupPhase::from),
                    "{phase}, expired {expired}"
                );
                assert!(
                    arrived.is_err() || found.unwrap().is_terminal(),
                    "{phase} would run"
                );
            }
        }
        // Without a phase it counts as New, and never ran.
        assert_eq!(
            arrive(&json!({ "status": { "phase": null } }), BEFORE)
                .unwrap_err()
                .what,
            NoteKind::Unfinished
        );
        let forever = json!({ "status": { "phase": "Finalizing", "expiration": null } });
        assert_eq!(
            arrive(&forever, AFTER).unwrap_err().what,
            NoteKind::Unfinished
        );
    }

    #[test]
    fn owners_are_schedules_that_are_here_and_unknown_is_not_absent() {
        let owner = |kind: &str, name: &str, uid: &str| json!({ "apiVersion": "velero.io/v1", "kind": kind, "name": name, "uid": uid });
        let of = |owners: Value| json!({ "metadata": { "ownerReferences": owners } });
        let all = of(json!([
            owner("Schedule", "nightly", "s1"),
            owner("Schedule", "nightly", "s2"),
            owner("Schedule", "gone", "s1"),
            { "apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "u" },
        ]));
        let kept = arrive(&all, BEFORE)
            .unwrap()
            .metadata
            .owner_references
            .unwrap();
        assert_eq!((kept.len(), kept[0].uid.as_str()), (1, "s1"));

        let now = BEFORE.parse().unwrap();
        let unknown = ImportTarget {
            namespace: "velero",
            location: "default",
            schedules: None,
            now,
        };
        let skip = sanitize(stored(&all), &unknown).unwrap_err();
        assert!(skip.what == NoteKind::ScheduleUnknown && skip.transient);
        sanitize(stored(&json!({})), &unknown).unwrap();
    }

    #[test]
    fn a_format_that_is_newer_is_told_and_an_older_one_arrives() {
        for (version, fits) in [
            ("1", true),
            ("1.1.0", true),
            ("1.9.0", true),
            ("2.0.0", false),
            ("x", false),
            ("", true),
        ] {
            let arrived = arrive(&json!({ "status": { "formatVersion": version } }), BEFORE);
            assert_eq!(arrived.is_ok(), fits, "{version}");
        }
    }
}
