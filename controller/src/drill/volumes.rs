//! Volumes of a drill at its end. Those that were provisioned for its claims go with them, and the
//! contents of its snapshots are removed. The snapshots of the backup stay, and so do volumes that
//! existed before.
//!
//! Volumes are found by the namespaces of their claims, so they are prepared while the namespaces
//! are there. Contents are found by their label, and are removed when the namespaces are gone.

mod decide;

use std::time::Duration;

use backup_actions::csi::SnapshotApi;
use backup_client::{
    errors::{is_conflict, is_gone},
    paging, retry,
};
use backup_core::api::Restore;
use backup_runtime::{Cluster, retry::WRITE_TIMEOUT};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::error::ReconcileError;
use decide::PolicyChange;

/// Time limit for the retries of one page.
const PAGE_BUDGET: Duration = Duration::from_secs(10);

/// Whether a namespace of a drill is not removed yet, as a volume is being provisioned for one of
/// its claims.
pub(super) async fn is_awaited(
    cluster: &Cluster,
    namespace: &Namespace,
    restore: Option<&Restore>,
    now: Timestamp,
) -> Result<bool, ReconcileError> {
    let is_going = namespace.metadata.deletion_timestamp.is_some();
    if is_going || !decide::may_wait(restore, now) {
        return Ok(false);
    }
    let name = namespace.name_any();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), &name);
    let listed = claims.list(&ListParams::default()).await?;
    let awaited = listed
        .items
        .iter()
        .find(|claim| decide::is_being_provisioned(claim));
    if let Some(claim) = awaited {
        tracing::debug!(
            namespace = name,
            claim = claim.name_any(),
            "the removal of a scratch namespace waits for a volume that is being provisioned"
        );
    }
    Ok(awaited.is_some())
}

/// Prepares the volumes of claims in scratch namespaces for the removal of these. Returns whether
/// all are prepared; if not, no namespace may be removed.
pub(super) async fn prepare(
    cluster: &Cluster,
    namespaces: &[&Namespace],
) -> Result<bool, ReconcileError> {
    if namespaces.is_empty() {
        return Ok(true);
    }
    let api: &Api<PersistentVolume> = &Api::all(cluster.client.clone());
    let changes = paging::collect(
        ListParams::default().limit(cluster.page_size),
        |page| async move { retry::read(PAGE_BUDGET, || api.list(&page)).await },
        |volume: PersistentVolume| decide::policy_change(&volume, namespaces),
    )
    .await?;
    let mut are_prepared = true;
    for change in &changes {
        are_prepared &= apply(cluster, api, change).await?;
    }
    Ok(are_prepared)
}

/// Changes the reclaim policy of a volume. Returns whether that is stored.
async fn apply(
    cluster: &Cluster,
    api: &Api<PersistentVolume>,
    change: &PolicyChange,
) -> Result<bool, ReconcileError> {
    let PolicyChange {
        volume,
        resource_version,
        policy,
    } = change;
    if change.keeps_data() {
        tracing::warn!(
            volume = volume.as_str(),
            "a volume that existed before was bound to a claim of a drill; it is kept (Retain), and its data may have been used"
        );
    }
    let patch = json!({
        "metadata": { "resourceVersion": resource_version },
        "spec": { "persistentVolumeReclaimPolicy": policy },
    });
    let params = PatchParams::default();
    let merge = Patch::Merge(&patch);
    let patched = api.patch(volume, &params, &merge);
    match cluster.leadership.write(WRITE_TIMEOUT, patched).await {
        Ok(stored) => Ok(change.is_done(&stored)),
        // The next call looks at all volumes again.
        Err(error) if is_gone(&error, volume) || is_conflict(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The contents that drills of this installation have created for their snapshots.
pub(super) async fn contents(cluster: &Cluster) -> Result<Vec<DynamicObject>, ReconcileError> {
    let mut all = snapshots(cluster).of_drills(&cluster.namespace).await?;
    all.retain(decide::is_of_drill);
    Ok(all)
}

/// Asks for the removal of a content, unless that was done. The snapshot of the backup stays.
pub(super) async fn remove_content(
    cluster: &Cluster,
    content: &DynamicObject,
) -> Result<(), ReconcileError> {
    if content.metadata.deletion_timestamp.is_none() {
        let api = snapshots(cluster);
        api.remove_content(content, "Retain").await?;
        let name = content.name_any();
        tracing::info!(
            content = name,
            "the content of a drill's snapshot is removed"
        );
    }
    Ok(())
}

fn snapshots(cluster: &Cluster) -> SnapshotApi {
    SnapshotApi::new(&cluster.client, &cluster.leadership)
}
