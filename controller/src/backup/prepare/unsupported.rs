//! What can be asked for and is not done yet. It is refused; never left out without a word.

use backup_core::{api::BackupSpec, validate::Finding};

use crate::snapshots::choose::Chosen;

/// What refuses a backup; `csi`: volumes of CSI drivers are snapshotted here; `snapshots`: where plugins take some.
pub fn findings(spec: &BackupSpec, csi: bool, snapshots: &Chosen) -> Vec<Finding> {
    let nobody = !csi && snapshots.names.is_empty();
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
    ]
    .into_iter()
    .filter(|(asked, _, _)| *asked)
    .map(|(_, field, message)| Finding { field: field.to_owned(), message: message.to_owned() })
    .chain((spec.snapshot_volumes == Some(true) && nobody).then(|| no_snapshots(snapshots)))
    .collect()
}

/// Snapshots are asked for, and there is nobody to take them.
fn no_snapshots(snapshots: &Chosen) -> Finding {
    let mut message =
        "volume snapshots are only taken of CSI volumes, where --features has EnableCSI, and by plugins in \
                       VolumeSnapshotLocations; unset it, or set it to false, to back up resources only"
            .to_owned();
    for reason in &snapshots.unusable {
        message.push_str("; ");
        message.push_str(reason);
    }
    Finding { field: "spec.snapshotVolumes".to_owned(), message }
}
