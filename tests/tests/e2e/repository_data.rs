//! Volumes whose data Velero has put into a file repository: they are never reported as restored,
//! and never omitted silently.

use backup_core::api::{DeleteBackupRequest, DeleteBackupRequestPhase};
use backup_tests::snapshots;

use crate::prelude::*;

crate::tests! {
    data_in_a_repository_is_an_error_of_a_restore_and_is_not_forgotten,
}

async fn data_in_a_repository_is_an_error_of_a_restore_and_is_not_forgotten(
    world: &mut World,
) -> TestResult {
    let name = "in-repository";
    world.config_maps(name, 3).await?;
    snapshots::host_path_claim(&world.client, name, "data", "/tmp").await?;
    world
        .back_up(
            name,
            BackupSpec {
                snapshot_volumes: Some(false),
                ..of_namespaces(&[name])
            },
        )
        .await?;
    // As written by Velero's node agent.
    let info = json!([{
        "pvcName": "data", "pvcNamespace": name, "backupMethod": "PodVolumeBackup", "snapshotDataMoved": false,
        "pvbInfo": { "snapshotHandle": "k1", "podName": "db-0", "podNamespace": name, "volumeName": "data" },
    }]);
    world.store_file(BUCKET, name, "volumeinfo.json.gz", &info)?;

    world
        .run_restore(
            "with-data",
            into_namespace(name, "with-data"),
            RestorePhase::PartiallyFailed,
        )
        .await?;
    says(
        &world.restore_errors("with-data").await?,
        &["the data of claim in-repository/data is not restored"],
    )?;
    let unwanted = RestoreSpec {
        restore_pvs: Some(false),
        ..into_namespace(name, "without-data")
    };
    world
        .run_restore("without-data", unwanted, RestorePhase::Completed)
        .await?;

    let requests: Api<DeleteBackupRequest> = world.api();
    world.request_deletion_as("refused", name).await?;
    let answered = |request: &DeleteBackupRequest| {
        request.status.phase == Some(DeleteBackupRequestPhase::Processed)
    };
    let request = requests
        .wait_until("refused", "is answered", POINT_TIMEOUT, answered)
        .await?;
    says(
        &request.status.errors.join("; "),
        &["claim in-repository/data", "--forget-data"],
    )?;
    let phase = world.backups().get(name).await?.phase();
    ensure!(
        phase == BackupPhase::Completed,
        "it can still be restored from: {phase}"
    );
    world
        .kubectl_backup()
        .succeeds(&["delete", name, "--yes", "--forget-data", "--wait"])
        .await?;
    world.backup_gone(name).await
}
