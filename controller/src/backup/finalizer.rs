//! The finalizer of a Backup that is worked on: a deleted Backup keeps its claim until its worker has stopped.

use backup_core::api::Backup;

/// Set before the first work, removed with the terminal patch.
pub const NAME: &str = "backup-controller.velero.io/work";

/// Whether a Backup carries it.
pub fn is_on(backup: &Backup) -> bool {
    backup.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == NAME)
}

/// All finalizers with ours.
pub fn with(backup: &Backup) -> Vec<String> {
    let mut all = backup.metadata.finalizers.clone().unwrap_or_default();
    if !is_on(backup) {
        all.push(NAME.to_owned());
    }
    all
}

/// All finalizers without ours; none if nothing is left.
pub fn without(backup: &Backup) -> Option<Vec<String>> {
    let others = backup.metadata.finalizers.iter().flatten().filter(|finalizer| *finalizer != NAME);
    Some(others.cloned().collect::<Vec<_>>()).filter(|others| !others.is_empty())
}
