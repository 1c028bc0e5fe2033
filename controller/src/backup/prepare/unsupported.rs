//! What can be asked for and is not done yet. It is refused; never left out without a word.

use backup_core::{api::BackupSpec, validate::Finding};

/// What refuses a backup; `csi`: volumes of CSI drivers are snapshotted here.
pub fn findings(spec: &BackupSpec, csi: bool) -> Vec<Finding> {
    let fs_backup = spec.default_volumes_to_fs_backup.or(spec.default_volumes_to_restic) == Some(true);
    [
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
            spec.snapshot_volumes == Some(true) && !csi,
            "spec.snapshotVolumes",
            "volume snapshots are only taken of CSI volumes, and where --features has EnableCSI; unset it, or set it to \
             false, to back up resources only",
        ),
        (
            !spec.volume_snapshot_locations.is_empty(),
            "spec.volumeSnapshotLocations",
            "snapshots by other means than CSI are not taken yet; remove it",
        ),
    ]
    .into_iter()
    .filter(|(asked, _, _)| *asked)
    .map(|(_, field, message)| Finding { field: field.to_owned(), message: message.to_owned() })
    .collect()
}
