//! `velero.io/csi-pvc-backupper`: claims of CSI volumes are snapshotted (Velero
//! `pkg/backup/actions/csi/pvc_action.go`, v1.18).
//!
//! The snapshot's name is derived from the uids of backup and claim: another attempt after a crash
//! finds the first snapshot instead of taking a second one.
//!
//! With `snapshotMoveData` the data of the snapshot is moved into a repository (`upload`).

mod upload;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use backup_client::{
    backoff::Backoff,
    errors::{is_transient, plain},
};
use backup_core::{
    api::{Backup, GoDuration},
    data_movement::MOVED_LABEL,
    labels::{self, csi},
    names, quantity,
    resource_policy::Volume,
    resources::CLAIMS,
};
use kube::{ResourceExt as _, core::DynamicObject};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::upload::ClaimSnapshot;
use super::class;
use crate::{
    ActionError, ItemId, OperationProgress,
    action::BuiltInAction,
    backup::{BackupActionOutput, BackupItemAction},
    csi::api::{ContentStatus, SNAPSHOTS, SnapshotApi, SnapshotStatus, is_finalizing, status},
    json::{entries, text},
    volumes::{
        backup_volumes::{BackupVolumes, ClaimVolume, VolumeDecision},
        transfers::UploadApi,
    },
};

/// Interval between checks of a snapshot that is being taken.
const STEPS: Backoff = Backoff {
    first: Duration::from_millis(250),
    cap: Duration::from_secs(5),
};
/// Used if the backup has no timeout (it always has one once it has begun).
const TIMEOUT: GoDuration = GoDuration::from_secs(600);

pub(crate) struct ClaimAction {
    api: SnapshotApi,
    uploads: UploadApi,
    volumes: Arc<BackupVolumes>,
    ahead: Mutex<Ahead>,
}

/// How a claim is snapshotted.
#[derive(Clone, Copy)]
struct With<'a> {
    driver: &'a str,
    /// The VolumeSnapshotClass that the resource policy names.
    class: Option<&'a str>,
}

/// Snapshots by namespace and name.
#[derive(Default)]
struct Ahead {
    /// Started in advance for claims that were not executed so far.
    begun: BTreeSet<(String, String)>,
    executed: BTreeSet<(String, String)>,
}

impl ClaimAction {
    pub(super) fn new(
        api: &SnapshotApi,
        uploads: &UploadApi,
        volumes: &Arc<BackupVolumes>,
    ) -> Self {
        Self {
            api: api.clone(),
            uploads: uploads.clone(),
            volumes: Arc::clone(volumes),
            ahead: Mutex::default(),
        }
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock()
    }

    /// Creates the VolumeSnapshot of a claim, or finds an existing one.
    async fn make(
        &self,
        claim: &Value,
        with: With<'_>,
        backup: &Backup,
        ahead: bool,
    ) -> Result<DynamicObject, ActionError> {
        let classes = self.api.classes().await;
        let classes =
            classes.map_err(|error| Self::failed("listing VolumeSnapshotClasses", &error))?;
        let annotations =
            serde_json::from_value(claim["metadata"]["annotations"].clone()).unwrap_or_default();
        let class = class::choose(
            with.driver,
            &annotations,
            with.class,
            backup.annotations(),
            &classes,
        )
        .map_err(|error| Self::refuse(error.to_string()))?
        .name_any();
        let wanted = wanted(claim, &class, backup).map_err(Self::refuse)?;
        let namespace = wanted.namespace().unwrap_or_default();
        let key = (namespace.clone(), wanted.name_any());
        {
            let mut state = self.ahead();
            if !ahead {
                state.begun.remove(&key);
                state.executed.insert(key);
            } else if state.executed.contains(&key) {
                return Err(Self::refuse("it was executed meanwhile"));
            } else {
                state.begun.insert(key);
            }
        }
        let made = self.api.create(&namespace, &wanted).await;
        made.map_err(|error| Self::failed("creating a VolumeSnapshot", &error))
    }

    /// Takes the snapshot, and waits until it has a handle in the storage system: a restore needs
    /// that.
    async fn snapshot(
        &self,
        claim: &Value,
        with: With<'_>,
        backup: &Backup,
    ) -> Result<(DynamicObject, DynamicObject), ActionError> {
        let made = self.make(claim, with, backup, false).await?;
        let namespace = made.namespace().unwrap_or_default();
        let timeout = timeout(backup);
        match self.cut(&namespace, &made.name_any(), timeout).await {
            Ok(both) => Ok(both),
            Err(reason) => {
                let rest = self.clean(&namespace, &made).await;
                Err(Self::refuse(format!(
                    "VolumeSnapshot {namespace}/{}: {reason}{rest}",
                    made.name_any()
                )))
            }
        }
    }

    async fn cut(
        &self,
        namespace: &str,
        name: &str,
        timeout: GoDuration,
    ) -> Result<(DynamicObject, DynamicObject), String> {
        let started = Instant::now();
        let mut looks = 0;
        let mut last = String::new();
        loop {
            match self.look(namespace, name, &mut last).await {
                Ok(Some(both)) => return Ok(both),
                Ok(None) => {}
                Err(error) => {
                    if !is_transient(&error) {
                        return Err(plain(&error));
                    }
                    last = plain(&error);
                }
            }
            let left = timeout.as_std().saturating_sub(started.elapsed());
            if left.is_zero() {
                let why = if last.is_empty() {
                    "the driver has said nothing"
                } else {
                    &last
                };
                return Err(format!(
                    "it was not cut within {timeout} (spec.csiSnapshotTimeout): {why}"
                ));
            }
            looks += 1;
            tokio::time::sleep(STEPS.delay(looks).min(left)).await;
        }
    }

    /// Snapshot and content, if there is a handle; otherwise `last` may be set to the reason.
    async fn look(
        &self,
        namespace: &str,
        name: &str,
        last: &mut String,
    ) -> Result<Option<(DynamicObject, DynamicObject)>, kube::Error> {
        let Some(snapshot) = self.api.snapshot(namespace, name).await? else {
            "somebody has deleted it".clone_into(last);
            return Ok(None);
        };
        let seen: SnapshotStatus = status(&snapshot);
        if let Some(error) = seen.error {
            *last = error.to_string();
        }
        let Some(bound) = seen.bound_volume_snapshot_content_name else {
            return Ok(None);
        };
        let Some(content) = self.api.content(&bound).await? else {
            return Ok(None);
        };
        let seen: ContentStatus = status(&content);
        if let Some(error) = seen.error {
            *last = error.to_string();
        }
        Ok(seen
            .snapshot_handle
            .is_some()
            .then_some((snapshot, content)))
    }

    /// Removes a failed snapshot. Returns part of a sentence if it could not be removed.
    async fn clean(&self, namespace: &str, made: &DynamicObject) -> String {
        let removed = match self.api.snapshot(namespace, &made.name_any()).await {
            Ok(Some(now)) => self.api.destroy(&now).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        removed.err().map_or_else(String::new, |error| {
            format!(
                "; it could not be removed and is still there: {}",
                plain(&error)
            )
        })
    }
}

impl BuiltInAction for ClaimAction {
    const NAME: &'static str = "velero.io/csi-pvc-backupper";
    const RESOURCE: &'static str = CLAIMS;
}

#[async_trait]
impl BackupItemAction for ClaimAction {
    async fn begin(&self, claim: &Value, backup: &Backup) {
        let (Some(volume), Some("Bound")) = (
            text(claim, "/spec/volumeName"),
            text(claim, "/status/phase"),
        ) else {
            return;
        };
        let Ok(Some(volume)) = self.api.volume(volume).await else {
            return;
        };
        if let Some(driver) = text(&volume, "/spec/csi/driver")
            && let VolumeDecision::Snapshot { class } = self.volumes.decide(claim, &volume, backup)
        {
            let _ = self
                .make(
                    claim,
                    With {
                        driver,
                        class: class.as_deref(),
                    },
                    backup,
                    true,
                )
                .await;
        }
    }

    async fn end_begun(&self) -> Vec<String> {
        let begun = std::mem::take(&mut self.ahead().begun);
        let mut problems = Vec::new();
        for (namespace, name) in begun {
            let removed = match self.api.snapshot(&namespace, &name).await {
                Ok(Some(snapshot)) => self.api.destroy(&snapshot).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = removed {
                problems.push(format!(
                    "VolumeSnapshot {namespace}/{name}, whose claim is not in this backup, could not be removed: {}",
                    plain(&error)
                ));
            }
        }
        problems
    }

    async fn execute(
        &self,
        claim: &Value,
        backup: &Backup,
    ) -> Result<BackupActionOutput, ActionError> {
        if is_finalizing(backup) {
            return Ok(BackupActionOutput::default());
        }
        let (Some(volume), Some("Bound")) = (
            text(claim, "/spec/volumeName"),
            text(claim, "/status/phase"),
        ) else {
            return Ok(BackupActionOutput::default()); // it has no data
        };
        let found = self.api.volume(volume).await;
        let found =
            found.map_err(|error| Self::failed(&format!("reading the volume {volume}"), &error))?;
        let Some(volume) = found else {
            return Err(Self::refuse(format!(
                "its volume {volume} is not there, so it can't be snapshotted"
            )));
        };
        let seen = ClaimVolume::of(claim, &volume);
        let driver = text(&volume, "/spec/csi/driver");
        let decision = self.volumes.decide(claim, &volume, backup);
        let (driver, class) = match (decision, driver) {
            (VolumeDecision::Snapshot { class }, Some(driver)) => (driver, class),
            (VolumeDecision::Snapshot { .. }, None) => {
                let kind = Volume::persistent(Some(&volume), None).kind;
                let kind = if kind.is_empty() {
                    String::new()
                } else {
                    format!(" but {kind}")
                };
                let why =
                    format!("its volume is not one of CSI{kind}, and there is no other way yet");
                self.volumes.left(seen, &why);
                let mut claim = claim.clone();
                entries(
                    &mut claim,
                    "annotations",
                    [(csi::SKIPPED_NO_CSI_VOLUME, "true")],
                );
                return Ok(BackupActionOutput {
                    item: Some(claim),
                    ..BackupActionOutput::default()
                });
            }
            (VolumeDecision::Skip(reason), _) => {
                self.volumes.skipped(seen, &reason);
                return Ok(BackupActionOutput::default());
            }
        };
        let storage_class = if moves_data(backup) {
            Some(upload::storage_class(claim, &volume).map_err(Self::refuse)?)
        } else {
            None
        };
        let (snapshot, content) = self
            .snapshot(
                claim,
                With {
                    driver,
                    class: class.as_deref(),
                },
                backup,
            )
            .await?;
        if let Some(storage_class) = storage_class {
            let of_claim = ClaimSnapshot {
                claim,
                driver,
                storage_class,
                snapshot: &snapshot,
            };
            return self.move_data(of_claim, &content, seen, backup).await;
        }
        self.volumes.snapshot(seen, driver, &snapshot.name_any());
        Ok(executed(claim, &snapshot, &content, backup))
    }

    async fn progress(
        &self,
        operation: &str,
        _: &Backup,
    ) -> Result<OperationProgress, ActionError> {
        self.upload_progress(operation).await
    }

    async fn cancel(&self, operation: &str, _: &Backup) -> Result<(), ActionError> {
        self.cancel_upload(operation).await
    }
}

/// Whether the data of snapshots is moved into a repository.
fn moves_data(backup: &Backup) -> bool {
    backup.spec.snapshot_move_data == Some(true)
}

/// Timeout for the creation of a snapshot.
fn timeout(backup: &Backup) -> GoDuration {
    backup
        .spec
        .csi_snapshot_timeout
        .filter(|timeout| !timeout.is_zero())
        .unwrap_or(TIMEOUT)
}

/// The VolumeSnapshot of a claim.
fn wanted(claim: &Value, class: &str, backup: &Backup) -> Result<DynamicObject, String> {
    let uid = backup.uid().unwrap_or_default();
    let name = text(claim, "/metadata/name");
    let claim_uid = text(claim, "/metadata/uid");
    let (Some(name), Some(claim_uid)) = (name, claim_uid) else {
        return Err("it has no name or uid".to_owned());
    };
    let mut labels: Value = claim["metadata"]["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    labels[labels::BACKUP_NAME] = json!(labels::valid_value(&backup.name_any()));
    labels[labels::BACKUP_UID] = json!(uid);
    if moves_data(backup) {
        // Its data is in the backup, and it is removed at the end.
        labels[MOVED_LABEL] = json!("true");
        labels[labels::EXCLUDE_FROM_BACKUP] = json!("true");
    }
    let object = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {
            "name": names::derived("velero", name, &[&uid, claim_uid]),
            "namespace": claim["metadata"]["namespace"], "labels": labels,
        },
        "spec": { "source": { "persistentVolumeClaimName": name }, "volumeSnapshotClassName": class },
    });
    serde_json::from_value(object).map_err(|error| format!("it can not be read: {error}"))
}

/// The claim as it is stored, with the marks that a restore needs.
fn executed(
    claim: &Value,
    snapshot: &DynamicObject,
    content: &DynamicObject,
    backup: &Backup,
) -> BackupActionOutput {
    let mut claim = claim.clone();
    let name = snapshot.name_any();
    let backup_name = labels::valid_value(&backup.name_any());
    entries(
        &mut claim,
        "annotations",
        [
            (csi::VOLUME_SNAPSHOT_NAME, name.as_str()),
            (labels::MUST_INCLUDE_ADDITIONAL_ITEMS, "true"),
        ],
    );
    entries(
        &mut claim,
        "labels",
        [
            (csi::VOLUME_SNAPSHOT_NAME, name.as_str()),
            (labels::BACKUP_NAME, backup_name.as_str()),
        ],
    );
    enlarge(&mut claim, content);
    let additional = ItemId {
        group_resource: SNAPSHOTS.to_owned(),
        namespace: snapshot.namespace(),
        name,
    };
    BackupActionOutput {
        item: Some(claim),
        additional: vec![additional],
        ..BackupActionOutput::default()
    }
}

/// Sets the requested size to that of the snapshot if that is larger: a driver may create larger
/// volumes than requested, and a claim of the requested size could then not be restored.
fn enlarge(claim: &mut Value, content: &DynamicObject) {
    let requested = text(claim, "/spec/resources/requests/storage").and_then(quantity::bytes);
    let content: ContentStatus = status(content);
    if let Some(size) = content
        .restore_size
        .filter(|size| requested.is_none_or(|asked| asked < u128::from(*size)))
    {
        claim["spec"]["resources"]["requests"]["storage"] = json!(quantity::binary(size));
    }
}

#[cfg(test)]
mod tests;
