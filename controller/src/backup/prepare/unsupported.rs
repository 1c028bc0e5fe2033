//! What can be asked for and is not done yet. It is refused, or warned of where a backup without it is still what was
//! asked for; never left out without a word.

use backup_core::{api::BackupSpec, validate::Finding};

/// What refuses a backup.
pub fn findings(spec: &BackupSpec) -> Vec<Finding> {
    let fs_backup = spec.default_volumes_to_fs_backup.or(spec.default_volumes_to_restic) == Some(true);
    let hooks = spec.hooks.as_ref().is_some_and(|hooks| !hooks.resources.is_empty());
    [
        (
            spec.resource_policy.is_some(),
            "spec.resourcePolicy",
            "resource policies are not followed yet; remove it",
        ),
        (
            spec.snapshot_move_data == Some(true),
            "spec.snapshotMoveData",
            "moving snapshot data is not done yet; unset it",
        ),
        (
            fs_backup,
            if spec.default_volumes_to_fs_backup == Some(true) {
                "spec.defaultVolumesToFsBackup"
            } else {
                "spec.defaultVolumesToRestic"
            },
            "file-system backup of volumes is not done yet; unset it",
        ),
        (
            spec.snapshot_volumes == Some(true),
            "spec.snapshotVolumes",
            "volume snapshots are not taken yet; unset it, or set it to false, to back up resources only",
        ),
        (
            !spec.volume_snapshot_locations.is_empty(),
            "spec.volumeSnapshotLocations",
            "volume snapshots are not taken yet; remove it",
        ),
        (hooks, "spec.hooks", "commands in pods are not run yet; remove them"),
    ]
    .into_iter()
    .filter(|(asked, _, _)| *asked)
    .map(|(_, field, message)| Finding { field: field.to_owned(), message: message.to_owned() })
    .collect()
}

/// What a backup runs without, as warnings for its results.
pub fn warnings(spec: &BackupSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    if !spec.ordered_resources.is_empty() {
        warnings.push(
            "spec.orderedResources is not followed yet: items were written in the order of their lists"
                .to_owned(),
        );
    }
    warnings
}
