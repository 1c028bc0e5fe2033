//! Snapshots of CSI volumes, by Velero's four actions for them. They run where `--features` has `EnableCSI`.

use std::sync::Arc;

use backup_core::api::{Backup, BackupPhase};

use super::super::action::BackupItemAction;

pub mod api;
mod claim;
mod class;
pub mod delete;
#[cfg(test)]
mod fake;
mod secrets;
mod snapshot;
pub mod tidy;
pub mod volumes;

pub use api::SnapshotApi;
pub use volumes::Volumes;

/// What the names of all four begin with.
pub const PREFIX: &str = "velero.io/csi-";

/// The actions of one backup; `volumes` learns what became of each claim.
pub fn actions(api: &SnapshotApi, volumes: &Arc<Volumes>) -> Vec<Arc<dyn BackupItemAction>> {
    vec![
        Arc::new(claim::ClaimAction::new(api.clone(), Arc::clone(volumes))),
        Arc::new(snapshot::SnapshotAction::new(api.clone(), Arc::clone(volumes))),
        Arc::new(secrets::SecretAction::of_contents()),
        Arc::new(secrets::SecretAction::of_classes()),
    ]
}

/// Whether the items of a backup are read for the second time, after their operations.
fn is_finalizing(backup: &Backup) -> bool {
    matches!(backup.phase(), BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed)
}
