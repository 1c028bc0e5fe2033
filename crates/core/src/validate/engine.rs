//! Features of Velero that this engine does not support yet. They are refused, never ignored
//! silently.

use super::{Finding, add_new, backup, restore};
use crate::{
    api::{BackupSpec, RestoreSpec},
    data_movement::{DATA_MOVER, is_our_mover},
};

/// All reasons for which this engine refuses a Backup that can be found without the cluster.
pub fn engine_backup(spec: &BackupSpec) -> Vec<Finding> {
    let mut found = backup(spec);
    let mut unsupported = Vec::new();
    // Whether snapshot data can be moved depends on the installation, so the controller checks it.
    if let Some(mover) = spec
        .datamover
        .as_deref()
        .filter(|mover| !is_our_mover(mover))
    {
        let problem = format!(
            "data mover {mover:?} does not exist here; unset it, or set it to {DATA_MOVER:?}"
        );
        unsupported.push(Finding::new("spec.datamover", problem));
    }
    if spec
        .default_volumes_to_fs_backup
        .or(spec.default_volumes_to_restic)
        == Some(true)
    {
        let is_renamed = spec.default_volumes_to_fs_backup == Some(true);
        let field = if is_renamed {
            "spec.defaultVolumesToFsBackup"
        } else {
            "spec.defaultVolumesToRestic"
        };
        unsupported.push(Finding::new(
            field,
            "file-system backup of volumes is not done yet; unset it",
        ));
    }
    if spec
        .uploader_config
        .as_ref()
        .is_some_and(|config| config.parallel_files_upload > 0)
    {
        let problem =
            "files of volumes are not copied here, so nothing is uploaded in parallel; unset it";
        unsupported.push(Finding::new("spec.uploaderConfig", problem));
    }
    add_new(&mut found, unsupported);
    found
}

/// All reasons for which this engine refuses a Restore that can be found without the cluster.
pub fn engine_restore(spec: &RestoreSpec) -> Vec<Finding> {
    let mut found = restore(spec);
    // Velero's command may send an empty value.
    let uploads = spec.uploader_config.as_ref().is_some_and(|config| {
        config.write_sparse_files == Some(true) || config.parallel_files_download > 0
    });
    if uploads {
        let problem = "is not supported yet; remove it to restore without it";
        found.push(Finding::new("spec.uploaderConfig", problem));
    }
    found
}
