//! Snapshots of CSI volumes, and the operations that follow them: against the real definitions, with a snapshot controller
//! and a driver that the kit plays.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::api::{
    Backup, BackupPhase, BackupSpec, BackupStorageLocation, DeleteBackupRequest, GoDuration, RestorePhase,
    delete_backup_request::DeleteBackupRequestSpec, restore::RestoreSpec,
};
use backup_tests::{
    World,
    install::NAMESPACE,
    snapshots::{self, Behaviour, SnapshotController},
    wait::{Probe, eventually, when},
    world::BUCKET,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use object_store::ObjectStoreExt as _;
use serde_json::{Value, json};

use crate::{
    drills::{blocked, location, of, whole},
    main_job::{backups, create_backup, of_namespaces, restore, s3},
};

crate::tests! {
    a_claim_is_snapshotted_and_completed_means_its_data_is_there,
    a_restore_provisions_claims_from_their_snapshots_and_leaves_those_that_are_there,
    a_restore_whose_snapshot_is_not_usable_is_not_completed,
    a_snapshot_that_errs_is_told_with_its_text_and_fails_no_other,
    a_snapshot_that_is_never_cut_is_an_error_of_its_claim,
    a_snapshot_that_is_never_ready_ends_by_its_deadline,
    a_killed_controller_goes_on_waiting_for_snapshots,
    waiting_backups_hold_no_slot,
    a_person_can_cancel_operations,
    a_deleted_backup_takes_its_running_snapshots_along,
    claims_without_a_snapshot_are_named,
    a_location_that_is_read_only_or_gone_while_operations_run_is_waited_for,
}

/// How long a restore waits for a snapshot that can't be used.
pub const PATIENCE: &str = "--resource-timeout=15s";
const SOON: Duration = Duration::from_mins(1);

async fn ready(world: &World) -> anyhow::Result<SnapshotController> {
    if !snapshots::available() {
        return Err(crate::Skip("the definitions of snapshots come from a Go module").into());
    }
    snapshots::install_definitions(&world.client).await?;
    let client = &world.client;
    snapshots::class(client, "ready", Behaviour::Ready(Duration::from_secs(2)), true).await?;
    snapshots::class(client, "slow", Behaviour::Ready(Duration::from_secs(12)), false).await?;
    snapshots::class(client, "errs", Behaviour::Errs("the array is on fire"), false).await?;
    snapshots::class(client, "never-ready", Behaviour::NeverReady, false).await?;
    snapshots::class(client, "never-cut", Behaviour::NeverCut("no space left"), false).await?;
    Ok(SnapshotController::start(client))
}

async fn a_claim_is_snapshotted_and_completed_means_its_data_is_there(
    world: &mut World,
) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-good", "data", "ready").await?;
    create_backup(world, "csi-good", of_namespaces(&["csi-good"])).await?;
    let backup = world.backup_ended("csi-good").await?;
    let status = &backup.status;
    ensure!(backup.phase() == BackupPhase::Completed, "{status:?}");
    ensure!(
        (status.csi_volume_snapshots_attempted, status.csi_volume_snapshots_completed) == (1, 1),
        "{status:?}"
    );
    ensure!(
        (status.backup_item_operations_attempted, status.backup_item_operations_completed) == (1, 1),
        "{status:?}"
    );

    let stored = driver.stored();
    let handle = stored.iter().next().context("no snapshot is in the storage system")?;
    let info = side_file(world, "csi-good", "volumeinfo.json.gz").await?;
    let entry = &info[0];
    ensure!(entry["pvcName"] == "data" && entry["backupMethod"] == "CSISnapshot", "{info}");
    ensure!(entry["csiSnapshotInfo"]["snapshotHandle"] == json!(handle), "{info}");
    ensure!(entry["csiSnapshotInfo"]["ReadyToUse"] == true && entry["result"] == "succeeded", "{info}");
    let operations = side_file(world, "csi-good", "itemoperations.json.gz").await?;
    ensure!(operations[0]["status"]["phase"] == "Completed", "{operations}");
    ensure!(operations[0]["spec"]["resourceIdentifier"]["Resource"] == "volumesnapshots", "{operations}");

    let snapshot =
        item(world, "csi-good", "volumesnapshots.snapshot.storage.k8s.io/namespaces/csi-good/").await?;
    ensure!(snapshot["status"]["readyToUse"] == true, "not its last form: {snapshot}");
    ensure!(
        snapshot["metadata"]["annotations"]["velero.io/csi-volumesnapshot-handle"] == json!(handle),
        "{snapshot}"
    );
    let content = item(world, "csi-good", "volumesnapshotcontents.snapshot.storage.k8s.io/cluster/").await?;
    ensure!(content["status"]["readyToUse"] == true, "not its last form: {content}");
    let claim = item(world, "csi-good", "persistentvolumeclaims/namespaces/csi-good/data.json").await?;
    ensure!(
        claim["metadata"]["labels"]["velero.io/volume-snapshot-name"] == snapshot["metadata"]["name"],
        "{claim}"
    );
    ensure!(claim["spec"]["resources"]["requests"]["storage"] == "2Gi", "{claim}");
    item(world, "csi-good", "volumesnapshotclasses.snapshot.storage.k8s.io/cluster/ready.json").await?;

    nothing_left(world).await.context("the snapshot has left the cluster")?;
    ensure!(driver.stored() == stored, "the snapshot itself is gone");

    // And with the backup, it goes.
    let spec = DeleteBackupRequestSpec { backup_name: "csi-good".to_owned(), ..Default::default() };
    let request = DeleteBackupRequest::new("csi-good", spec);
    let requests: Api<DeleteBackupRequest> = Api::namespaced(world.client.clone(), NAMESPACE);
    requests.create(&PostParams::default(), &request).await?;
    eventually("the backup is gone", SOON, async || {
        let left = backups(world).get_opt("csi-good").await?;
        Ok::<_, kube::Error>(when(left.is_none(), "it is still there"))
    })
    .await?;
    ensure!(driver.stored().is_empty(), "the backup went before its snapshot: {:?}", driver.stored());
    nothing_left(world).await
}

async fn a_restore_provisions_claims_from_their_snapshots_and_leaves_those_that_are_there(
    world: &mut World,
) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    let (client, [here, there]) = (&world.client, ["csi-back", "csi-copy"]);
    snapshots::claim(client, here, "data", "ready").await?;
    snapshots::claim(client, here, "kept", "ready").await?;
    // Without its snapshot it would come back as it is.
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes.patch("pv-csi-back-data", &PatchParams::default(), &Patch::Merge(retain)).await?;
    create_backup(world, here, of_namespaces(&[here])).await?;
    let backup = world.backup_ended(here).await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    let stored = driver.stored();

    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), here);
    // Nobody looks after these here.
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    claims.patch("data", &PatchParams::default(), &free).await?;
    volumes.patch("pv-csi-back-data", &PatchParams::default(), &free).await?;
    claims.delete("data", &DeleteParams::default()).await?;
    volumes.delete("pv-csi-back-data", &DeleteParams::default()).await?;
    eventually("the claim is gone", SOON, async || {
        Ok::<_, kube::Error>(when(claims.get_opt("data").await?.is_none(), "it is there"))
    })
    .await?;

    // In place, where one claim is left, and into another namespace, where none is.
    for (name, mapped) in [("csi-in-place", None), ("csi-moved", Some(there))] {
        let mapping = mapped.map(|to| (here.to_owned(), to.to_owned())).into_iter().collect();
        let spec = RestoreSpec {
            backup_name: Some(here.into()),
            namespace_mapping: mapping,
            ..RestoreSpec::default()
        };
        let restore = restore(world, name, spec).await?;
        ensure!(restore.phase() == RestorePhase::Completed, "{:?}", restore.status);
        let namespace = mapped.unwrap_or(here);
        let found = disk(client, namespace, "data").await?;
        let handle = found.strip_prefix("made-of-").with_context(|| format!("of nothing: {found}"))?;
        ensure!(stored.contains(handle), "{handle} of {stored:?}");
        let kept = disk(client, namespace, "kept").await?;
        ensure!(kept.starts_with("made-of-") == mapped.is_some(), "{kept}");

        let info = restore_file(world, name, &format!("{name}-volumeinfo.json.gz")).await?;
        let count = info.as_array().context("no list")?.len();
        ensure!(count == 1 + usize::from(mapped.is_some()), "{info}");
        let told = info.as_array().into_iter().flatten().find(|told| told["pvcName"] == "data");
        let told = told.context("nothing is told of the claim")?;
        ensure!(told["restoreMethod"] == "CSISnapshot" && told["pvcNamespace"] == namespace, "{info}");
        ensure!(told["csiSnapshotInfo"]["snapshotHandle"] == handle, "{info}");
    }

    // Whatever becomes of what the restores have made, the snapshots belong to the backup.
    take_away(world).await?;
    ensure!(driver.stored() == stored, "snapshots are gone: {:?}", driver.stored());
    Ok(())
}

/// Deletes the snapshots that restores have left in the cluster, as an admin may.
async fn take_away(world: &World) -> anyhow::Result<()> {
    let client = &world.client;
    for kind in ["VolumeSnapshot", "VolumeSnapshotContent"] {
        let all = snapshots::api(client, kind, None).list(&ListParams::default()).await?.items;
        ensure!(!all.is_empty(), "no {kind} was restored");
        for one in all {
            ensure!(
                !one.labels().contains_key("velero.io/backup-uid"),
                "a backup would take it away: {one:?}"
            );
            let api = snapshots::api(client, kind, one.namespace().as_deref());
            api.delete(&one.name_any(), &DeleteParams::default()).await?;
        }
    }
    nothing_left(world).await
}

/// What the storage system calls the volume of a claim, once it has one.
async fn disk(client: &Client, namespace: &str, claim: &str) -> anyhow::Result<String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    eventually(&format!("claim {namespace}/{claim} has a volume"), SOON, async || {
        let found = claims.get(claim).await?;
        let Some(volume) = found.spec.and_then(|spec| spec.volume_name) else {
            return Ok(Probe::NotYet(format!("{:?}", found.status)));
        };
        let disk = volumes.get(&volume).await?.spec.and_then(|spec| spec.csi).map(|csi| csi.volume_handle);
        Ok::<_, kube::Error>(disk.map_or(Probe::NotYet("no volume of CSI".into()), Probe::Ready))
    })
    .await
}

async fn a_restore_whose_snapshot_is_not_usable_is_not_completed(world: &mut World) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-lost", "data", "ready").await?;
    create_backup(world, "csi-lost", of_namespaces(&["csi-lost"])).await?;
    world.backup_ended("csi-lost").await?;
    for handle in driver.stored() {
        driver.lose(&handle);
    }
    let mapping = [("csi-lost".to_owned(), "csi-lost-copy".to_owned())].into();
    let spec = RestoreSpec {
        backup_name: Some("csi-lost".into()),
        namespace_mapping: mapping,
        ..RestoreSpec::default()
    };
    let restore = restore(world, "csi-lost", spec).await?;
    ensure!(restore.phase() == RestorePhase::PartiallyFailed, "{:?}", restore.status);
    let results = restore_file(world, "csi-lost", "restore-csi-lost-results.gz").await?;
    let errors = results["errors"].to_string();
    ensure!(errors.contains("data") && errors.contains("there is no snapshot"), "{results}");
    let info = restore_file(world, "csi-lost", "csi-lost-volumeinfo.json.gz").await?;
    ensure!(info.as_array().is_some_and(Vec::is_empty), "{info}");
    take_away(world).await
}

async fn a_snapshot_that_errs_is_told_with_its_text_and_fails_no_other(
    world: &mut World,
) -> anyhow::Result<()> {
    let _driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-two", "good", "ready").await?;
    snapshots::claim(&world.client, "csi-two", "bad", "errs").await?;
    create_backup(world, "csi-two", of_namespaces(&["csi-two"])).await?;
    let backup = world.backup_ended("csi-two").await?;
    let status = &backup.status;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{status:?}");
    ensure!(
        (status.csi_volume_snapshots_attempted, status.csi_volume_snapshots_completed) == (2, 1),
        "{status:?}"
    );
    ensure!(status.backup_item_operations_failed == 1 && status.errors == 1, "{status:?}");
    let results = side_file(world, "csi-two", "results.gz").await?;
    let error = results["errors"]["namespaces"]["csi-two"][0].as_str().unwrap_or_default().to_owned();
    ensure!(error.contains("the array is on fire"), "{results}");
    let info = side_file(world, "csi-two", "volumeinfo.json.gz").await?;
    let results: Vec<_> =
        info.as_array().into_iter().flatten().map(|entry| entry["result"].clone()).collect();
    ensure!(results == [json!("failed"), json!("succeeded")], "{info}");
    nothing_left(world).await
}

async fn a_snapshot_that_is_never_cut_is_an_error_of_its_claim(world: &mut World) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-uncut", "data", "never-cut").await?;
    let spec =
        BackupSpec { csi_snapshot_timeout: Some(GoDuration::from_secs(3)), ..of_namespaces(&["csi-uncut"]) };
    create_backup(world, "csi-uncut", spec).await?;
    let backup = world.backup_ended("csi-uncut").await?;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{:?}", backup.status);
    let results = side_file(world, "csi-uncut", "results.gz").await?;
    let error = results["errors"]["namespaces"]["csi-uncut"][0].as_str().unwrap_or_default().to_owned();
    ensure!(error.contains("csi-uncut/data") && error.contains("no space left"), "{results}");
    ensure!(driver.stored().is_empty(), "{:?}", driver.stored());
    nothing_left(world).await
}

async fn a_snapshot_that_is_never_ready_ends_by_its_deadline(world: &mut World) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-stuck", "data", "never-ready").await?;
    let spec = BackupSpec {
        item_operation_timeout: Some(GoDuration::from_secs(6)),
        ..of_namespaces(&["csi-stuck"])
    };
    create_backup(world, "csi-stuck", spec).await?;
    waiting(world, "csi-stuck").await?;
    let backup = world.backup_ended("csi-stuck").await?;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{:?}", backup.status);
    let operations = side_file(world, "csi-stuck", "itemoperations.json.gz").await?;
    let error = operations[0]["status"]["error"].as_str().unwrap_or_default();
    ensure!(error.starts_with("Asynchronous action timed out"), "{operations}");
    ensure!(driver.stored().is_empty(), "what nobody can use stays: {:?}", driver.stored());
    nothing_left(world).await
}

async fn a_killed_controller_goes_on_waiting_for_snapshots(world: &mut World) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    for name in ["one", "two", "three"] {
        snapshots::claim(&world.client, "csi-killed", name, "slow").await?;
    }
    create_backup(world, "csi-killed", of_namespaces(&["csi-killed"])).await?;
    waiting(world, "csi-killed").await?;
    let cut = driver.stored();
    ensure!(cut.len() == 3, "{cut:?}");
    world.controllers[0].kill().await?;
    world.controllers[0].restart().await?;
    let backup = world.backup_ended("csi-killed").await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    ensure!(backup.status.csi_volume_snapshots_completed == 3, "{:?}", backup.status);
    ensure!(driver.stored() == cut, "snapshots were cut twice, or lost");
    nothing_left(world).await
}

async fn waiting_backups_hold_no_slot(world: &mut World) -> anyhow::Result<()> {
    let _driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-long", "data", "slow").await?;
    create_backup(world, "csi-long", of_namespaces(&["csi-long"])).await?;
    waiting(world, "csi-long").await?;
    crate::main_job::config_maps(world, "csi-beside", 3).await?;
    create_backup(world, "csi-beside", of_namespaces(&["csi-beside"])).await?;
    world.backup_ended("csi-beside").await?;
    let phase = backups(world).get("csi-long").await?.phase();
    ensure!(phase == BackupPhase::WaitingForPluginOperations, "{phase}");
    let backup = world.backup_ended("csi-long").await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    Ok(())
}

async fn a_person_can_cancel_operations(world: &mut World) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-cancel", "data", "never-ready").await?;
    create_backup(world, "csi-cancel", of_namespaces(&["csi-cancel"])).await?;
    waiting(world, "csi-cancel").await?;
    let patch = json!({ "metadata": { "annotations": { "backup-controller/cancel": "true" } } });
    backups(world).patch("csi-cancel", &PatchParams::default(), &Patch::Merge(patch)).await?;
    let backup = world.backup_ended("csi-cancel").await?;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{:?}", backup.status);
    let operations = side_file(world, "csi-cancel", "itemoperations.json.gz").await?;
    ensure!(
        operations[0]["status"]["error"].as_str().is_some_and(|error| error.starts_with("cancelled")),
        "{operations}"
    );
    ensure!(driver.stored().is_empty(), "{:?}", driver.stored());
    nothing_left(world).await
}

async fn a_deleted_backup_takes_its_running_snapshots_along(world: &mut World) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-deleted", "data", "never-ready").await?;
    create_backup(world, "csi-deleted", of_namespaces(&["csi-deleted"])).await?;
    waiting(world, "csi-deleted").await?;
    backups(world).delete("csi-deleted", &DeleteParams::default()).await?;
    eventually("the backup is gone", SOON, async || {
        let left = backups(world).get_opt("csi-deleted").await?;
        Ok::<_, kube::Error>(when(left.is_none(), "it is still there"))
    })
    .await?;
    nothing_left(world).await?;
    ensure!(driver.stored().is_empty(), "{:?}", driver.stored());
    Ok(())
}

async fn claims_without_a_snapshot_are_named(world: &mut World) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-none", "data", "ready").await?;
    snapshots::host_path_claim(&world.client, "csi-none", "local").await?;
    create_backup(world, "csi-none", of_namespaces(&["csi-none"])).await?;
    let backup = world.backup_ended("csi-none").await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    let results = side_file(world, "csi-none", "results.gz").await?;
    let warning = results["warnings"]["namespaces"]["csi-none"][0].as_str().unwrap_or_default().to_owned();
    ensure!(warning.contains("csi-none/local"), "{results}");

    // Asked for, it is an error; not wanted, nothing is done or said.
    let spec = BackupSpec { snapshot_volumes: Some(true), ..of_namespaces(&["csi-none"]) };
    create_backup(world, "csi-asked", spec).await?;
    let backup = world.backup_ended("csi-asked").await?;
    ensure!(backup.phase() == BackupPhase::PartiallyFailed, "{:?}", backup.status);
    let before = driver.stored();
    let spec = BackupSpec { snapshot_volumes: Some(false), ..of_namespaces(&["csi-none"]) };
    create_backup(world, "csi-unwanted", spec).await?;
    let backup = world.backup_ended("csi-unwanted").await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    ensure!(
        driver.stored() == before && backup.status.csi_volume_snapshots_attempted == 0,
        "it was snapshotted"
    );
    Ok(())
}

async fn a_location_that_is_read_only_or_gone_while_operations_run_is_waited_for(
    world: &mut World,
) -> anyhow::Result<()> {
    let driver = ready(world).await?;
    let url = s3(world)?.url();
    for (name, class) in [("csi-read-only", "gate-read-only"), ("csi-gone", "gate-gone")] {
        s3(world)?.create_versioned_bucket(name).await?;
        location(world, name, name, &url).await?;
        snapshots::class(&world.client, class, Behaviour::NeverReady, false).await?;
        snapshots::claim(&world.client, name, "data", class).await?;
        create_backup(world, name, of(name)).await?;
        waiting(world, name).await?;
    }
    let cut = driver.stored();
    let locations: Api<BackupStorageLocation> = Api::namespaced(world.client.clone(), NAMESPACE);
    let mode = async |mode: &str| {
        let patch = json!({ "spec": { "accessMode": mode } });
        locations.patch("csi-read-only", &PatchParams::default(), &Patch::Merge(patch)).await
    };
    mode("ReadOnly").await?;
    locations.delete("csi-gone", &DeleteParams::default()).await?;
    let mut before = Vec::new();
    for (name, class) in [("csi-read-only", "gate-read-only"), ("csi-gone", "gate-gone")] {
        before.push(s3(world)?.versions(name).await?);
        snapshots::class(&world.client, class, Behaviour::Ready(Duration::ZERO), false).await?;
    }
    for (name, words) in [("csi-read-only", "is read-only"), ("csi-gone", "not found")] {
        let reason = blocked(world, name, &BackupPhase::WaitingForPluginOperations).await?;
        ensure!(reason.contains(words), "{name}: {reason}");
    }
    // Another process sees it the same way.
    world.renew_controller(0).await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    for (name, before) in ["csi-read-only", "csi-gone"].iter().zip(before) {
        let phase = backups(world).get(name).await?.phase();
        ensure!(phase == BackupPhase::WaitingForPluginOperations, "{name} is {phase}");
        ensure!(s3(world)?.versions(name).await? == before, "{name} was written to");
    }
    mode("ReadWrite").await?;
    location(world, "csi-gone", "csi-gone", &url).await?;
    for name in ["csi-read-only", "csi-gone"] {
        let backup = world.backup_ended(name).await?;
        ensure!(backup.phase() == BackupPhase::Completed, "{name}: {:?}", backup.status);
        whole(s3(world)?, name, name, &backup).await?;
    }
    ensure!(driver.stored() == cut, "cut {cut:?}, then {:?}", driver.stored());
    Ok(())
}

/// Waits until a backup waits for operations.
pub async fn waiting(world: &World, name: &str) -> anyhow::Result<Backup> {
    eventually(&format!("backup {name} waits for operations"), SOON, async || {
        let backup = backups(world).get(name).await?;
        let phase = backup.phase();
        Ok::<_, kube::Error>(match phase {
            BackupPhase::WaitingForPluginOperations => backup_tests::wait::Probe::Ready(backup),
            other => backup_tests::wait::Probe::NotYet(other.to_string()),
        })
    })
    .await
}

/// Waits until no VolumeSnapshot and no content is in the cluster.
async fn nothing_left(world: &World) -> anyhow::Result<()> {
    eventually("no snapshot is left in the cluster", Duration::from_secs(20), async || {
        let mut left = Vec::new();
        for kind in ["VolumeSnapshot", "VolumeSnapshotContent"] {
            let api = snapshots::api(&world.client, kind, None);
            left.extend(
                api.list(&ListParams::default()).await?.items.iter().map(kube::ResourceExt::name_any),
            );
        }
        Ok::<_, kube::Error>(when(left.is_empty(), left.join(", ")))
    })
    .await
}

/// A side file of a restore.
async fn restore_file(world: &World, restore: &str, name: &str) -> anyhow::Result<Value> {
    let key = format!("restores/{restore}/{name}");
    let bytes = s3(world)?.bucket(BUCKET)?.get(&key.into()).await?.bytes().await?;
    Ok(serde_json::from_reader(flate2::read::MultiGzDecoder::new(&*bytes))?)
}

/// A side file of a backup.
pub async fn side_file(world: &World, backup: &str, suffix: &str) -> anyhow::Result<Value> {
    let key = format!("backups/{backup}/{backup}-{suffix}");
    let bytes = s3(world)?.bucket(BUCKET)?.get(&key.as_str().into()).await?.bytes().await?;
    Ok(serde_json::from_reader(flate2::read::MultiGzDecoder::new(bytes.as_ref()))?)
}

/// The last item of a backup whose path begins so.
pub async fn item(world: &World, backup: &str, path: &str) -> anyhow::Result<Value> {
    let key = format!("backups/{backup}/{backup}.tar.gz");
    let bytes = s3(world)?.bucket(BUCKET)?.get(&key.as_str().into()).await?.bytes().await?;
    let mut tar = tar::Archive::new(flate2::read::MultiGzDecoder::new(bytes.as_ref()));
    let (wanted, mut found) = (format!("resources/{path}"), None);
    for entry in tar.entries()? {
        let entry = entry?;
        if entry.path()?.to_string_lossy().starts_with(&wanted) {
            found = Some(serde_json::from_reader(entry)?);
        }
    }
    found.with_context(|| format!("{wanted}… is not in the backup"))
}
