//! Snapshots of CSI volumes, by Velero's four actions for them. They are used if `--features` has
//! `EnableCSI`.

mod claim;
mod class;
mod secrets;
mod snapshot;

use std::sync::Arc;

use super::SnapshotApi;
use crate::{
    backup::BackupItemAction,
    volumes::{backup_volumes::BackupVolumes, transfers::UploadApi},
};

pub use class::{NoClass, choose as choose_class};

/// The actions of one backup; they record in `volumes` the result for each claim.
pub(crate) fn actions(
    api: &SnapshotApi,
    uploads: &UploadApi,
    volumes: &Arc<BackupVolumes>,
) -> Vec<Arc<dyn BackupItemAction>> {
    vec![
        Arc::new(claim::ClaimAction::new(api, uploads, volumes)),
        Arc::new(snapshot::SnapshotAction {
            api: api.clone(),
            volumes: Arc::clone(volumes),
        }),
        Arc::new(secrets::SecretAction::of_contents()),
        Arc::new(secrets::SecretAction::of_classes()),
    ]
}
