//! `velero.io/csi-pvc-restorer`: a claim that was snapshotted is provisioned from its snapshot.
//!
//! Unlike Velero it waits until the snapshot is usable, so that a restore without its data does not
//! end as Completed.

use std::sync::Arc;

use async_trait::async_trait;
use backup_core::{
    api::Restore, labels, labels::csi, quantity, resources::CLAIMS, volume_info::CsiSnapshotInfo,
};
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::json;

use super::{is_foreign_claim, leaves_data, name_here};
use crate::{
    ActionError, ItemId,
    action::BuiltInAction,
    csi::api::{ContentStatus, SNAPSHOTS, SnapshotApi, SnapshotStatus, snapshot_info, status},
    restore::{
        RestoreActionInput, RestoreActionOutput, RestoreItemAction, RestoreRules, RestoreWait,
        json::{self, Object},
    },
    volumes::restored_volumes::RestoredVolumes,
};

pub(super) struct ClaimAction {
    pub(super) api: SnapshotApi,
    pub(super) rules: Arc<RestoreRules>,
    pub(super) restored: RestoredVolumes,
}

/// The VolumeSnapshot with the data of a claim of a backup.
pub fn snapshot_of(claim: &Object) -> Option<&str> {
    json::text(
        claim,
        &["metadata", "annotations"],
        csi::VOLUME_SNAPSHOT_NAME,
    )
    .filter(|name| !name.is_empty())
}

fn lost(why: &str) -> ActionError {
    ClaimAction::refuse(format!(
        "{why}, so the claim has no data to come back to: it waits for a volume until it is deleted"
    ))
}

/// A claim without the marks of the backup that snapshotted it: no snapshot of that name exists
/// here.
fn unmarked(item: &Object) -> Object {
    let mut item = item.clone();
    let marks = [
        csi::VOLUME_SNAPSHOT_NAME,
        labels::MUST_INCLUDE_ADDITIONAL_ITEMS,
    ];
    for kind in ["annotations", "labels"] {
        json::remove(&mut item, &["metadata", kind], &marks);
    }
    item
}

fn provisioned_from(claim: &mut Object, snapshot: &str) {
    json::remove(claim, &["spec"], &["volumeName"]);
    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot });
    // The API server copies the first to the second; a claim that is compared later has both.
    json::set(claim, &["spec"], "dataSource", source.clone());
    json::set(claim, &["spec"], "dataSourceRef", source);
}

/// The part of an entry of a restore's `-volumeinfo.json.gz` about a usable snapshot.
fn info(snapshot: &DynamicObject, content: &DynamicObject) -> CsiSnapshotInfo {
    let mut info = CsiSnapshotInfo {
        ready_to_use: Some(true),
        ..snapshot_info(content)
    };
    if info.size == 0 {
        let size = snapshot
            .annotations()
            .get(csi::RESTORE_SIZE)
            .and_then(|size| quantity::bytes(size));
        info.size = size
            .and_then(|size| i64::try_from(size).ok())
            .unwrap_or_default();
    }
    info
}

impl BuiltInAction for ClaimAction {
    const NAME: &'static str = "velero.io/csi-pvc-restorer";
    const RESOURCE: &'static str = CLAIMS;
}

#[async_trait]
impl RestoreItemAction for ClaimAction {
    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        let Some(snapshot) = snapshot_of(input.from_backup) else {
            return Ok(RestoreActionOutput::default());
        };
        let namespace =
            json::text(input.from_backup, &["metadata"], "namespace").unwrap_or_default();
        let claim = json::text(input.from_backup, &["metadata"], "name").unwrap_or_default();
        let mut item = unmarked(input.item);
        if leaves_data(input.restore) {
            json::remove(&mut item, &["spec"], &["dataSource", "dataSourceRef"]);
            return Ok(RestoreActionOutput {
                item: Some(item),
                ..RestoreActionOutput::default()
            });
        }
        let target = self.rules.target(namespace);
        let is_foreign =
            is_foreign_claim(&self.api, &self.rules, target, claim, input.restore).await;
        if is_foreign.map_err(|error| Self::failed("looking for the claim", &error))? {
            // The claim stays unchanged, with its own data; it is only compared.
            return Ok(RestoreActionOutput {
                item: Some(item),
                ..RestoreActionOutput::default()
            });
        }
        let here = name_here(input.restore, namespace, snapshot);
        provisioned_from(&mut item, &here);
        let additional = ItemId::new(SNAPSHOTS, Some(namespace), snapshot);
        self.restored.expect(target, &here, claim);
        let wait = Some(RestoreWait { limit: None });
        Ok(RestoreActionOutput {
            item: Some(item),
            additional: vec![additional],
            wait,
            ..RestoreActionOutput::default()
        })
    }

    /// Whether a volume can be created from the snapshot.
    async fn are_ready(&self, there: &[ItemId], restore: &Restore) -> Result<bool, ActionError> {
        let [
            ItemId {
                namespace: Some(namespace),
                name,
                ..
            },
        ] = there
        else {
            return Err(lost(
                "its VolumeSnapshot was not restored (the log says why)",
            ));
        };
        let here = name_here(restore, namespace, name);
        let namespace = self.rules.target(namespace);
        let reading = format!("reading VolumeSnapshot {namespace}/{here}");
        let found = self.api.snapshot(namespace, &here).await;
        let Some(snapshot) = found.map_err(|error| Self::failed(&reading, &error))? else {
            return Err(lost(&format!("VolumeSnapshot {namespace}/{here} is gone")));
        };
        let found = self.api.content(&here).await;
        let Some(content) = found.map_err(|error| Self::failed(&reading, &error))? else {
            return Err(lost(&format!(
                "VolumeSnapshotContent {here} was not restored (the log says why)"
            )));
        };
        let seen: SnapshotStatus = status(&snapshot);
        if seen.ready_to_use == Some(true) {
            self.restored
                .csi(namespace, &here, info(&snapshot, &content));
            return Ok(true);
        }
        let of_content: ContentStatus = status(&content);
        match seen.error.or(of_content.error) {
            // Their controllers retry after both kinds of error.
            Some(error) => Err(ActionError::Retryable {
                action: Self::NAME.to_owned(),
                reason: format!("VolumeSnapshot {namespace}/{here} can't be used: {error}"),
            }),
            None => Ok(false),
        }
    }
}
