//! Snapshots of CSI volumes, by Velero's four actions for them. They are used if `--features` has
//! `EnableCSI`.

mod claim;
mod class;
mod secrets;
mod snapshot;

use std::sync::Arc;

use super::{action::BackupItemAction, volumes::BackupVolumes};
use crate::csi::SnapshotApi;

pub use class::{NoClass, choose as choose_class};

/// The actions of one backup; they record in `volumes` the result for each claim.
pub(super) fn actions(
    api: &SnapshotApi,
    volumes: &Arc<BackupVolumes>,
) -> Vec<Arc<dyn BackupItemAction>> {
    vec![
        Arc::new(claim::ClaimAction::new(api, volumes)),
        Arc::new(snapshot::SnapshotAction {
            api: api.clone(),
            volumes: Arc::clone(volumes),
        }),
        Arc::new(secrets::SecretAction::of_contents()),
        Arc::new(secrets::SecretAction::of_classes()),
    ]
}
