//! Volumes that come back from CSI snapshots, by Velero's four actions for them (`pkg/restore/actions/csi`, v1.18). They run
//! where the backup has VolumeSnapshots, whatever features are on: what was backed up is restored.
//!
//! A VolumeSnapshot comes back under a name of its restore, bound by hand to a content that has the handle of the snapshot in
//! the storage system, and a claim that is provisioned from it. Both keep the snapshot when they are deleted (`Retain`): it
//! belongs to the backup.

use std::sync::Arc;

use backup_core::{api::Restore, labels, names};

use super::{
    action::RestoreItemAction,
    json::{self, Object},
    restored_volumes::RestoredVolumes,
    rules::RestoreRules,
};
use crate::{action::BuiltInAction as _, csi::SnapshotApi};
use claims::ClaimAction;
use snapshots::{ClassAction, ContentAction, SnapshotAction};

mod claims;
mod snapshots;
#[cfg(test)]
mod tests;

pub use claims::snapshot_of as snapshot_of_claim;

pub const NAMES: [&str; 4] =
    [ClaimAction::NAME, SnapshotAction::NAME, ContentAction::NAME, ClassAction::NAME];

/// The actions of one restore; `restored` learns which claims are provisioned from which snapshots.
pub fn actions(
    api: &SnapshotApi,
    rules: &Arc<RestoreRules>,
    restored: &RestoredVolumes,
) -> Vec<Arc<dyn RestoreItemAction>> {
    vec![
        Arc::new(ClaimAction { api: api.clone(), rules: Arc::clone(rules), restored: restored.clone() }),
        Arc::new(SnapshotAction),
        Arc::new(ContentAction { api: api.clone(), rules: Arc::clone(rules) }),
        Arc::new(ClassAction),
    ]
}

/// What a VolumeSnapshot of the backup, and its content, are called here. It is another name for each restore of a backup, so that
/// two do not meet, and the same however often one is taken up again. (Velero's leaves the namespace out.)
fn name_here(restore: &Restore, namespace: &str, snapshot: &str) -> String {
    let uid = restore.metadata.uid.as_deref().unwrap_or_default();
    names::derived("restored", snapshot, &[uid, namespace, snapshot])
}

/// Whether the restore leaves the data of volumes alone.
fn leaves_data(restore: &Restore) -> bool {
    restore.spec.restore_pvs == Some(false)
}

const NO_DATA_WANTED: &str = "spec.restorePVs is false";

/// Takes off what only means something to the backup that made it. Above all the label by which a backup finds the snapshots that
/// it may take away.
fn disown(item: &mut Object) {
    json::remove(item, &["metadata", "labels"], &[labels::BACKUP_UID]);
    json::remove(item, &["metadata", "annotations"], &[labels::MUST_INCLUDE_ADDITIONAL_ITEMS]);
    // Its controller puts them on again.
    json::remove(item, &["metadata"], &["finalizers"]);
}
