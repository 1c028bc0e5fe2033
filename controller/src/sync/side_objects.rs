//! Objects that belong to an imported backup: the Backup has an annotation until all of them exist.

use backup_core::sync::NoteKind;
use std::time::Duration;

use backup_actions::csi::SnapshotApi;
use backup_client::{
    errors::{is_conflict, is_transient, plain},
    retry,
};
use backup_core::{
    api::{Backup, PodVolumeBackup, transfer::MovePhase},
    event_reason::EventReason,
    labels::{self, SYNC_PENDING_ANNOTATION},
    sync::Summary,
};
use backup_runtime::retry::status_patch_in;
use backup_store::{SideFile, StoreError, crash};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Resource as _, ResourceExt as _, api::PostParams};
use serde_json::{json, value::RawValue};

use super::{csi, pass::Pass, sanitize};
use crate::error::ReconcileError;

const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// Creates the remaining objects of a backup that an earlier pass has created.
pub(super) async fn resume(
    pass: &Pass<'_>,
    name: &str,
    summary: &mut Summary,
) -> Result<(), ReconcileError> {
    let Some(backup) = pass.backup(name).await? else {
        return Ok(());
    };
    if !backup.annotations().contains_key(SYNC_PENDING_ANNOTATION) || backup.phase().is_active() {
        return Ok(());
    }
    let folder = pass.store.inspect_folder(name).await?;
    if let Some(reason) = create_all(pass, &backup, &folder.lists).await? {
        summary.note(name, NoteKind::Pending, &reason);
    }
    Ok(())
}

/// Creates all objects, and removes the annotation. An object that can never be created is reported
/// by an Event and skipped. Returns why it must be retried, `None` if it is done.
pub(super) async fn create_all(
    pass: &Pass<'_>,
    backup: &Backup,
    lists: &[SideFile],
) -> Result<Option<String>, ReconcileError> {
    let name = backup.name_any();
    let mut problems = Vec::new();
    for list in lists {
        let objects = match pass.store.read_side_file(&name, *list).await {
            Ok(objects) => objects,
            Err(error @ StoreError::Corrupt { .. }) => {
                problems.push(error.to_string());
                continue;
            }
            Err(error) => return Ok(Some(error.to_string())),
        };
        for object in &objects {
            pass.cluster.leadership.check()?;
            match create(pass, backup, *list, object).await {
                Ok(()) => {}
                Err(Problem::Final(problem)) => problems.push(problem),
                Err(Problem::Transient(reason)) => return Ok(Some(reason)),
            }
        }
    }
    if !problems.is_empty() {
        let text = problems.join("; ");
        tracing::warn!(
            backup = name,
            problems = text,
            "some objects of the backup were left out"
        );
        pass.cluster
            .events
            .warning(backup, EventReason::PartlySynced, &text);
    }
    crash::point("after-extras");
    status_patch_in(
        &pass.cluster.api(),
        &pass.cluster.leadership,
        RETRY_BUDGET,
        backup,
        |current| {
            current
                .annotations()
                .contains_key(SYNC_PENDING_ANNOTATION)
                .then(
                    || json!({ "metadata": { "annotations": { SYNC_PENDING_ANNOTATION: null } } }),
                )
        },
    )
    .await?;
    Ok(None)
}

enum Problem {
    Final(String),
    Transient(String),
}

impl Problem {
    fn of(what: &str, error: &kube::Error) -> Self {
        let text = format!("{what} could not be created: {}", plain(error));
        if is_transient(error) {
            Self::Transient(text)
        } else {
            Self::Final(text)
        }
    }
}

/// Creates one object; an existing one of its name is not changed.
async fn create(
    pass: &Pass<'_>,
    backup: &Backup,
    list: SideFile,
    object: &RawValue,
) -> Result<(), Problem> {
    let snapshots = SnapshotApi::new(&pass.cluster.client, &pass.cluster.leadership);
    match list {
        SideFile::PodVolumeBackups => {
            let object = pod_volume_backup(object, backup).map_err(Problem::Final)?;
            let api: Api<PodVolumeBackup> = pass.cluster.api();
            let params = PostParams::default();
            match retry::read(RETRY_BUDGET, || api.create(&params, &object)).await {
                Err(error) if !is_conflict(&error) => Err(Problem::of(
                    &format!("PodVolumeBackup {}", object.name_any()),
                    &error,
                )),
                _ => Ok(()),
            }
        }
        SideFile::SnapshotClasses => {
            let class = csi::class(object).map_err(Problem::Final)?;
            snapshots
                .create_class(&class)
                .await
                .map_err(|error| Problem::of(&class.name_any(), &error))
        }
        SideFile::SnapshotContents => {
            let content = csi::content(object, backup).map_err(Problem::Final)?;
            snapshots
                .create_content(&content)
                .await
                .map_err(|error| Problem::of(&content.name_any(), &error))
        }
    }
}

/// The PodVolumeBackup to create: owned by this Backup, in its location, and ended, so that no node
/// starts work for it.
fn pod_volume_backup(object: &RawValue, backup: &Backup) -> Result<PodVolumeBackup, String> {
    let mut object: PodVolumeBackup = serde_json::from_str(object.get())
        .map_err(|error| format!("a PodVolumeBackup cannot be read: {error}"))?;
    let name = object.name_any();
    if object.kind != "PodVolumeBackup" && !object.kind.is_empty() {
        return Err(format!(
            "among the PodVolumeBackups is a {} {name}",
            object.kind
        ));
    }
    object.api_version = PodVolumeBackup::api_version(&()).into_owned();
    object.kind = PodVolumeBackup::kind(&()).into_owned();
    let ended = [MovePhase::Completed, MovePhase::Failed, MovePhase::Canceled];
    if !object
        .status
        .transfer
        .phase
        .as_ref()
        .is_some_and(|phase| ended.contains(phase))
    {
        return Err(format!("PodVolumeBackup {name} has not ended"));
    }
    let owner = OwnerReference {
        controller: Some(true),
        block_owner_deletion: None,
        ..backup.owner_ref(&()).unwrap_or_default()
    };
    object.metadata = sanitize::metadata(
        object.metadata,
        &backup.namespace().unwrap_or_default(),
        vec![owner],
    );
    let labels = object.metadata.labels.get_or_insert_default();
    labels.insert(
        labels::BACKUP_NAME.to_owned(),
        labels::valid_value(&backup.name_any()),
    );
    labels.insert(
        labels::BACKUP_UID.to_owned(),
        backup.uid().unwrap_or_default(),
    );
    object.spec.volume.backup_storage_location =
        backup.spec.storage_location.clone().unwrap_or_default();
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn made(patch: impl FnOnce(&mut Value)) -> Result<Value, String> {
        let mut stored = json!({
            "metadata": { "name": "b-x7z", "namespace": "old", "uid": "u", "resourceVersion": "3",
                "labels": { "velero.io/backup-name": "b", "velero.io/backup-uid": "u-old", "velero.io/pvc-uid": "p" },
                "ownerReferences": [
                    { "apiVersion": "velero.io/v1", "kind": "Backup", "name": "b", "uid": "u-old", "controller": true },
                    { "apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y" }] },
            "spec": { "node": "n", "pod": { "name": "x" }, "volume": "v", "backupStorageLocation": "old",
                "repoIdentifier": "r", "uploaderType": "kopia" },
            "status": { "phase": "Completed", "snapshotID": "s1" },
        });
        patch(&mut stored);
        let mut backup = Backup::new("b", backup_core::api::BackupSpec::default());
        backup.metadata.uid = Some("u-new".to_owned());
        backup.metadata.namespace = Some("velero".to_owned());
        backup.spec.storage_location = Some("here".to_owned());
        let object = RawValue::from_string(stored.to_string()).unwrap();
        pod_volume_backup(&object, &backup).map(|object| serde_json::to_value(object).unwrap())
    }

    #[test]
    fn a_pod_volume_backup_is_of_the_backup_that_is_here() {
        let made = made(|_| ()).unwrap();
        assert_eq!(
            made["metadata"],
            json!({ "name": "b-x7z", "namespace": "velero",
                "labels": { "velero.io/backup-name": "b", "velero.io/backup-uid": "u-new", "velero.io/pvc-uid": "p" },
                "ownerReferences": [{ "apiVersion": "velero.io/v1", "kind": "Backup", "name": "b", "uid": "u-new",
                    "controller": true }] })
        );
        assert_eq!(made["spec"]["backupStorageLocation"], "here");
        assert_eq!(
            (&made["kind"], &made["apiVersion"]),
            (&json!("PodVolumeBackup"), &json!("velero.io/v1"))
        );
        assert_eq!(made["status"]["snapshotID"], "s1");
    }

    #[test]
    fn one_that_a_node_would_take_for_work_does_not_come() {
        for phase in [
            "",
            "New",
            "Accepted",
            "Prepared",
            "InProgress",
            "Canceling",
            "Later",
        ] {
            let made = made(|object| object["status"]["phase"] = json!(phase));
            assert!(made.unwrap_err().contains("has not ended"), "{phase}");
        }
        assert!(made(|object| object["status"] = Value::Null).is_err());
        assert!(
            made(|object| object["kind"] = json!("Secret"))
                .unwrap_err()
                .contains("Secret")
        );
        assert!(made(|object| object["spec"] = json!("x")).is_err());
    }
}
