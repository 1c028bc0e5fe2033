//! Volumes restored from CSI snapshots, by Velero's four actions for them
//! (`pkg/restore/actions/csi`, v1.18). They run if the backup has VolumeSnapshots, regardless of
//! features: restores use what was backed up.
//!
//! A VolumeSnapshot is restored under a name specific to its restore, statically bound to a content
//! with the handle of the snapshot in the storage system, and the claim is provisioned from it.
//! Both keep the snapshot when they are deleted (`Retain`): it belongs to the backup.

use std::sync::Arc;

use backup_core::{api::Restore, labels, names};

use serde_json::Value;

use super::SnapshotApi;
use crate::{
    action::BuiltInAction as _,
    restore::{
        RestoreItemAction, RestoreRules, existing,
        json::{self, Object},
    },
    volumes::restored_volumes::RestoredVolumes,
};
use claims::ClaimAction;
use snapshots::{ClassAction, ContentAction, SnapshotAction};

mod claims;
mod snapshots;
#[cfg(test)]
mod tests;

pub use claims::snapshot_of as snapshot_of_claim;

pub const NAMES: [&str; 4] = [
    ClaimAction::NAME,
    SnapshotAction::NAME,
    ContentAction::NAME,
    ClassAction::NAME,
];

/// The actions of one restore; they record in `restored` the snapshots from which claims are
/// provisioned.
pub fn actions(
    api: &SnapshotApi,
    rules: &Arc<RestoreRules>,
    restored: &RestoredVolumes,
) -> Vec<Arc<dyn RestoreItemAction>> {
    vec![
        Arc::new(ClaimAction {
            api: api.clone(),
            rules: Arc::clone(rules),
            restored: restored.clone(),
        }),
        Arc::new(SnapshotAction),
        Arc::new(ContentAction {
            api: api.clone(),
            rules: Arc::clone(rules),
        }),
        Arc::new(ClassAction),
    ]
}

/// The name here of a VolumeSnapshot of the backup, and of its content. It differs for each restore
/// of a backup, so that two do not collide, and is the same in all attempts of one. (Velero's omits
/// the namespace.)
fn name_here(restore: &Restore, namespace: &str, snapshot: &str) -> String {
    let uid = restore.metadata.uid.as_deref().unwrap_or_default();
    names::derived("restored", snapshot, &[uid, namespace, snapshot])
}

/// Whether a claim exists that this restore has not created: it stays unchanged, with its own data.
pub(crate) async fn is_foreign_claim(
    api: &SnapshotApi,
    rules: &RestoreRules,
    namespace: &str,
    name: &str,
    restore: &Restore,
) -> Result<bool, kube::Error> {
    let found = api.claim(namespace, name).await?;
    let created = existing::created(restore);
    Ok(found
        .as_ref()
        .and_then(Value::as_object)
        .filter(|found| !existing::is_going(found))
        .is_some_and(|found| !existing::is_ours(found, rules, created.as_deref())))
}

/// Whether the restore does not restore data of volumes.
fn leaves_data(restore: &Restore) -> bool {
    restore.spec.restore_pvs == Some(false)
}

const NO_DATA_WANTED: &str = "spec.restorePVs is false";

/// Removes metadata that is only valid for the backup that took the snapshot, especially the label
/// by which a backup finds snapshots to remove.
fn disown(item: &mut Object) {
    json::remove(item, &["metadata", "labels"], &[labels::BACKUP_UID]);
    json::remove(
        item,
        &["metadata", "annotations"],
        &[labels::MUST_INCLUDE_ADDITIONAL_ITEMS],
    );
    // The controller adds them again.
    json::remove(item, &["metadata"], &["finalizers"]);
}
