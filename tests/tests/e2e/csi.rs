//! Snapshots of CSI volumes, and their operations: with the real definitions, and a snapshot
//! controller and driver played by the kit.

mod policies;

use backup_core::{
    api::{BackupStatus, GoDuration},
    labels::{CANCEL_ANNOTATION, MISSING_DATA_ANNOTATION, annotation},
    volume_data::MissingData,
};
use backup_tests::snapshots::{self, Behaviour, SnapshotController};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Client;

use crate::prelude::*;
use policies::{
    a_policy_chooses_claims_by_their_modes_and_the_class_of_snapshots,
    a_policy_for_all_backups_comes_after_those_of_a_backup,
};

crate::tests! {
    a_claim_is_snapshotted_and_completed_means_its_data_is_there,
    a_restore_provisions_missing_claims_from_their_snapshots,
    a_restore_whose_snapshot_is_not_usable_is_not_completed,
    a_policy_chooses_claims_by_their_modes_and_the_class_of_snapshots,
    a_policy_for_all_backups_comes_after_those_of_a_backup,
    a_snapshot_that_errs_is_reported_and_fails_no_other,
    a_snapshot_that_is_never_cut_is_an_error_of_its_claim,
    a_snapshot_that_is_never_ready_ends_by_its_deadline,
    a_killed_controller_goes_on_waiting_for_snapshots,
    waiting_backups_hold_no_slot,
    a_person_can_cancel_operations,
    a_deleted_backup_takes_its_running_snapshots_along,
    claims_without_a_snapshot_are_named,
    a_location_read_only_or_gone_during_operations_is_awaited,
}

/// Timeout of a restore for a snapshot that cannot be used.
pub const PATIENCE: &str = "--resource-timeout=15s";

async fn ready(world: &World) -> anyhow::Result<SnapshotController> {
    let client = &world.client;
    let driver = SnapshotController::start(client).await?;
    snapshots::class(
        client,
        "ready",
        Behaviour::Ready(Duration::from_secs(2)),
        true,
    )
    .await?;
    snapshots::class(
        client,
        "slow",
        Behaviour::Ready(Duration::from_secs(12)),
        false,
    )
    .await?;
    snapshots::class(
        client,
        "errs",
        Behaviour::Errs("the array is on fire"),
        false,
    )
    .await?;
    snapshots::class(client, "never-ready", Behaviour::NeverReady, false).await?;
    snapshots::class(
        client,
        "never-cut",
        Behaviour::NeverCut("no space left"),
        false,
    )
    .await?;
    Ok(driver)
}

/// Number of claims to be snapshotted, and number of snapshots taken.
fn snapshotted(status: &BackupStatus) -> (i64, i64) {
    (
        status.csi_volume_snapshots_attempted,
        status.csi_volume_snapshots_completed,
    )
}

async fn a_claim_is_snapshotted_and_completed_means_its_data_is_there(
    world: &mut World,
) -> TestResult {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-good", "data", "ready").await?;
    let backup = world
        .back_up("csi-good", of_namespaces(&["csi-good"]))
        .await?;
    let status = &backup.status;
    ensure!(
        snapshotted(status) == (1, 1) && status.operations()[..2] == [1, 1],
        "{status:?}"
    );

    let stored = driver.stored();
    let handle = stored
        .iter()
        .next()
        .context("no snapshot is in the storage system")?;
    let info = world.backup_file("csi-good", "volumeinfo.json.gz").await?;
    let entry = &info[0];
    ensure!(
        entry["pvcName"] == "data" && entry["backupMethod"] == "CSISnapshot",
        "{info}"
    );
    ensure!(
        entry["csiSnapshotInfo"]["snapshotHandle"] == json!(handle),
        "{info}"
    );
    ensure!(
        entry["csiSnapshotInfo"]["ReadyToUse"] == true && entry["result"] == "succeeded",
        "{info}"
    );
    let operations = world
        .backup_file("csi-good", "itemoperations.json.gz")
        .await?;
    ensure!(
        operations[0]["status"]["phase"] == "Completed",
        "{operations}"
    );
    ensure!(
        operations[0]["spec"]["resourceIdentifier"]["Resource"] == "volumesnapshots",
        "{operations}"
    );

    let snapshot = world
        .backup_item(
            "csi-good",
            "volumesnapshots.snapshot.storage.k8s.io/namespaces/csi-good/",
        )
        .await?;
    ensure!(
        snapshot["status"]["readyToUse"] == true,
        "not its last form: {snapshot}"
    );
    ensure!(
        snapshot["metadata"]["annotations"]["velero.io/csi-volumesnapshot-handle"] == json!(handle),
        "{snapshot}"
    );
    let content = world
        .backup_item(
            "csi-good",
            "volumesnapshotcontents.snapshot.storage.k8s.io/cluster/",
        )
        .await?;
    ensure!(
        content["status"]["readyToUse"] == true,
        "not its last form: {content}"
    );
    let claim = world
        .backup_item(
            "csi-good",
            "persistentvolumeclaims/namespaces/csi-good/data.json",
        )
        .await?;
    ensure!(
        claim["metadata"]["labels"]["velero.io/volume-snapshot-name"]
            == snapshot["metadata"]["name"],
        "{claim}"
    );
    ensure!(
        claim["spec"]["resources"]["requests"]["storage"] == "2Gi",
        "{claim}"
    );
    world
        .backup_item(
            "csi-good",
            "volumesnapshotclasses.snapshot.storage.k8s.io/cluster/ready.json",
        )
        .await?;

    snapshots::none_left(&world.client)
        .await
        .context("the snapshot has left the cluster")?;
    ensure!(driver.stored() == stored, "the snapshot itself is gone");

    // The snapshot is deleted with the backup.
    world.request_deletion("csi-good").await?;
    world.backup_gone("csi-good").await?;
    ensure!(
        driver.stored().is_empty(),
        "the backup went before its snapshot: {:?}",
        driver.stored()
    );
    snapshots::none_left(&world.client).await
}

/// Existing claims are left unchanged.
async fn a_restore_provisions_missing_claims_from_their_snapshots(world: &mut World) -> TestResult {
    let driver = ready(world).await?;
    let (client, [here, there]) = (&world.client, ["csi-back", "csi-copy"]);
    snapshots::claim(client, here, "data", "ready").await?;
    snapshots::claim(client, here, "kept", "ready").await?;
    // Without its snapshot it would be restored unchanged.
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes.merge_patch("pv-csi-back-data", retain).await?;
    world.back_up(here, of_namespaces(&[here])).await?;
    let stored = driver.stored();

    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), here);
    // No controller removes their finalizers here.
    claims.delete_at_once("data").await?;
    volumes.delete_at_once("pv-csi-back-data").await?;
    claims.wait_gone("data", TIMEOUT).await?;

    // In place, where one claim exists, and into another namespace, where none does.
    for (name, mapped) in [("csi-in-place", None), ("csi-moved", Some(there))] {
        let mapping = format!("--namespace-mappings={here}:{}", mapped.unwrap_or(here));
        let plan = world
            .kubectl_backup()
            .stdout(&["restore", here, &mapping, "--plan"])
            .await?;
        let kept = "the data of 1 of 2 volumes would not come back: csi-back/kept (its claim was there already";
        ensure!(plan.contains(kept) == mapped.is_none(), "{plan}");
        ensure!(
            plan.contains("would not come back") == mapped.is_none(),
            "{plan}"
        );
        ensure!(
            driver.stored() == stored,
            "a plan has made or deleted snapshots: {:?}",
            driver.stored()
        );

        let spec = mapped.map_or_else(|| from_backup(here), |to| into_namespace(here, to));
        world.restore(name, spec).await?;
        let namespace = mapped.unwrap_or(here);
        let found = disk(client, namespace, "data").await?;
        let handle = found
            .strip_prefix("made-of-")
            .with_context(|| format!("of nothing: {found}"))?;
        ensure!(stored.contains(handle), "{handle} of {stored:?}");
        let kept = disk(client, namespace, "kept").await?;
        ensure!(kept.starts_with("made-of-") == mapped.is_some(), "{kept}");

        let info = restored_volumes(world, name).await?;
        let count = info.as_array().context("no list")?.len();
        ensure!(count == 2, "{info}");
        // This claim existed, and keeps its data.
        let kept = info
            .as_array()
            .into_iter()
            .flatten()
            .find(|told| told["pvcName"] == "kept");
        ensure!(
            kept.is_some_and(|kept| (kept["skipped"] == true) == mapped.is_none()),
            "{info}"
        );
        let told = info
            .as_array()
            .into_iter()
            .flatten()
            .find(|told| told["pvcName"] == "data");
        let told = told.context("nothing is told of the claim")?;
        ensure!(
            told["restoreMethod"] == "CSISnapshot" && told["pvcNamespace"] == namespace,
            "{info}"
        );
        ensure!(
            told["csiSnapshotInfo"]["snapshotHandle"] == handle,
            "{info}"
        );
    }

    // Whatever happens to the restored objects, the snapshots belong to the backup.
    take_away(world).await?;
    ensure!(
        driver.stored() == stored,
        "snapshots are gone: {:?}",
        driver.stored()
    );
    Ok(())
}

/// Deletes the snapshots that restores have left in the cluster, as an administrator may.
async fn take_away(world: &World) -> anyhow::Result<()> {
    let client = &world.client;
    for kind in ["VolumeSnapshot", "VolumeSnapshotContent"] {
        let all = snapshots::api(client, kind, None).list_all().await?;
        ensure!(!all.is_empty(), "no {kind} was restored");
        for one in all {
            ensure!(
                !one.labels().contains_key("velero.io/backup-uid"),
                "a backup would take it away: {one:?}"
            );
            let api = snapshots::api(client, kind, one.namespace().as_deref());
            api.delete_object(&one.name_any()).await?;
        }
    }
    snapshots::none_left(&world.client).await
}

/// The storage system's name of a claim's volume, once it has one.
async fn disk(client: &Client, namespace: &str, claim: &str) -> anyhow::Result<String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    eventually(
        &format!("claim {namespace}/{claim} has a volume"),
        TIMEOUT,
        async || {
            let found = claims.get(claim).await?;
            let Some(volume) = found.spec.and_then(|spec| spec.volume_name) else {
                return Ok(Probe::NotYet(format!("{:?}", found.status)));
            };
            let disk = volumes
                .get(&volume)
                .await?
                .spec
                .and_then(|spec| spec.csi)
                .map(|csi| csi.volume_handle);
            Ok::<_, kube::Error>(
                disk.map_or(Probe::NotYet("no volume of CSI".into()), Probe::Ready),
            )
        },
    )
    .await
}

async fn a_restore_whose_snapshot_is_not_usable_is_not_completed(world: &mut World) -> TestResult {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-lost", "data", "ready").await?;
    world
        .back_up("csi-lost", of_namespaces(&["csi-lost"]))
        .await?;
    for handle in driver.stored() {
        driver.lose(&handle);
    }
    let spec = into_namespace("csi-lost", "csi-lost-copy");
    let restore = world
        .run_restore("csi-lost", spec, RestorePhase::PartiallyFailed)
        .await?;
    let missing = MissingData::read(annotation(&restore, MISSING_DATA_ANNOTATION));
    let missing = missing.context("nothing is said of the data")?;
    ensure!((missing.missing, missing.of) == (1, 1), "{missing:?}");
    ensure!(
        missing.volumes.contains_key("csi-lost-copy/data"),
        "{missing:?}"
    );
    let errors = world.restore_errors("csi-lost").await?;
    says(&errors, &["data", "there is no snapshot"])?;
    let info = restored_volumes(world, "csi-lost").await?;
    ensure!(
        info.as_array().is_some_and(|told| told.len() == 1),
        "{info}"
    );
    ensure!(
        info[0]["pvcName"] == "data" && info[0]["skipped"] == true,
        "{info}"
    );
    take_away(world).await
}

async fn a_snapshot_that_errs_is_reported_and_fails_no_other(world: &mut World) -> TestResult {
    let _driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-two", "good", "ready").await?;
    snapshots::claim(&world.client, "csi-two", "bad", "errs").await?;
    let spec = of_namespaces(&["csi-two"]);
    let status = world
        .run_backup("csi-two", spec, BackupPhase::PartiallyFailed)
        .await?
        .status;
    ensure!(snapshotted(&status) == (2, 1), "{status:?}");
    ensure!(
        status.backup_item_operations_failed == 1 && status.errors == 1,
        "{status:?}"
    );
    let results = world.backup_file("csi-two", "results.gz").await?;
    let error = results["errors"]["namespaces"]["csi-two"][0]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    ensure!(error.contains("the array is on fire"), "{results}");
    let info = world.backup_file("csi-two", "volumeinfo.json.gz").await?;
    let results: Vec<_> = info
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| entry["result"].clone())
        .collect();
    ensure!(results == [json!("failed"), json!("succeeded")], "{info}");
    let described = world
        .kubectl_backup()
        .stdout(&["describe", "csi-two"])
        .await?;
    let missing = "the data of 1 of 2 volumes is not in it: csi-two/bad (its snapshot failed)";
    says(&described, &[missing])?;
    let listed = world.kubectl_backup().stdout(&["get", "csi-two"]).await?;
    says(&listed, &["PartiallyFailed (1 volume without data)"])?;
    snapshots::none_left(&world.client).await
}

async fn a_snapshot_that_is_never_cut_is_an_error_of_its_claim(world: &mut World) -> TestResult {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-uncut", "data", "never-cut").await?;
    let spec = BackupSpec {
        csi_snapshot_timeout: Some(GoDuration::from_secs(3)),
        ..of_namespaces(&["csi-uncut"])
    };
    world
        .run_backup("csi-uncut", spec, BackupPhase::PartiallyFailed)
        .await?;
    let results = world.backup_file("csi-uncut", "results.gz").await?;
    let error = results["errors"]["namespaces"]["csi-uncut"][0]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    ensure!(
        error.contains("csi-uncut/data") && error.contains("no space left"),
        "{results}"
    );
    ensure!(driver.stored().is_empty(), "{:?}", driver.stored());
    snapshots::none_left(&world.client).await
}

async fn a_snapshot_that_is_never_ready_ends_by_its_deadline(world: &mut World) -> TestResult {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-stuck", "data", "never-ready").await?;
    let spec = BackupSpec {
        item_operation_timeout: Some(GoDuration::from_secs(6)),
        ..of_namespaces(&["csi-stuck"])
    };
    world.create_backup("csi-stuck", spec).await?;
    world.backup_waits("csi-stuck").await?;
    world
        .backup_ends("csi-stuck", BackupPhase::PartiallyFailed)
        .await?;
    let operations = world
        .backup_file("csi-stuck", "itemoperations.json.gz")
        .await?;
    let error = operations[0]["status"]["error"]
        .as_str()
        .unwrap_or_default();
    ensure!(
        error.starts_with("Asynchronous action timed out"),
        "{operations}"
    );
    ensure!(
        driver.stored().is_empty(),
        "what nobody can use stays: {:?}",
        driver.stored()
    );
    snapshots::none_left(&world.client).await
}

async fn a_killed_controller_goes_on_waiting_for_snapshots(world: &mut World) -> TestResult {
    let driver = ready(world).await?;
    for name in ["one", "two", "three"] {
        snapshots::claim(&world.client, "csi-killed", name, "slow").await?;
    }
    world.start_backup("csi-killed").await?;
    world.backup_waits("csi-killed").await?;
    let cut = driver.stored();
    ensure!(cut.len() == 3, "{cut:?}");
    world.controllers[0].restart().await?;
    let backup = world
        .backup_ends("csi-killed", BackupPhase::Completed)
        .await?;
    ensure!(
        backup.status.csi_volume_snapshots_completed == 3,
        "{:?}",
        backup.status
    );
    ensure!(driver.stored() == cut, "snapshots were cut twice, or lost");
    snapshots::none_left(&world.client).await
}

async fn waiting_backups_hold_no_slot(world: &mut World) -> TestResult {
    let _driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-long", "data", "slow").await?;
    world.start_backup("csi-long").await?;
    world.backup_waits("csi-long").await?;
    world.backed_up("csi-beside", 3).await?;
    let phase = world.backups().get("csi-long").await?.phase();
    ensure!(phase == BackupPhase::WaitingForPluginOperations, "{phase}");
    world
        .backup_ends("csi-long", BackupPhase::Completed)
        .await?;
    Ok(())
}

async fn a_person_can_cancel_operations(world: &mut World) -> TestResult {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-cancel", "data", "never-ready").await?;
    world.start_backup("csi-cancel").await?;
    world.backup_waits("csi-cancel").await?;
    let cancel = json!({ "metadata": { "annotations": { CANCEL_ANNOTATION: "true" } } });
    world.backups().merge_patch("csi-cancel", cancel).await?;
    world
        .backup_ends("csi-cancel", BackupPhase::PartiallyFailed)
        .await?;
    let operations = world
        .backup_file("csi-cancel", "itemoperations.json.gz")
        .await?;
    let error = operations[0]["status"]["error"]
        .as_str()
        .unwrap_or_default();
    ensure!(error.starts_with("cancelled"), "{operations}");
    snapshots::none_left(&world.client).await?;
    ensure!(driver.stored().is_empty(), "{:?}", driver.stored());
    Ok(())
}

async fn a_deleted_backup_takes_its_running_snapshots_along(world: &mut World) -> TestResult {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-deleted", "data", "never-ready").await?;
    world.start_backup("csi-deleted").await?;
    world.backup_waits("csi-deleted").await?;
    world.backups().delete_object("csi-deleted").await?;
    world.backup_gone("csi-deleted").await?;
    snapshots::none_left(&world.client).await?;
    ensure!(driver.stored().is_empty(), "{:?}", driver.stored());
    Ok(())
}

async fn claims_without_a_snapshot_are_named(world: &mut World) -> TestResult {
    let driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-none", "data", "ready").await?;
    snapshots::host_path_claim(&world.client, "csi-none", "local", "/tmp").await?;
    world
        .back_up("csi-none", of_namespaces(&["csi-none"]))
        .await?;
    let results = world.backup_file("csi-none", "results.gz").await?;
    let warning = results["warnings"]["namespaces"]["csi-none"][0]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    ensure!(warning.contains("csi-none/local"), "{results}");

    // Requested snapshots are an error; unwanted ones are skipped silently.
    let spec = BackupSpec {
        snapshot_volumes: Some(true),
        ..of_namespaces(&["csi-none"])
    };
    world
        .run_backup("csi-asked", spec, BackupPhase::PartiallyFailed)
        .await?;
    let before = driver.stored();
    let spec = BackupSpec {
        snapshot_volumes: Some(false),
        ..of_namespaces(&["csi-none"])
    };
    let backup = world.back_up("csi-unwanted", spec).await?;
    ensure!(
        driver.stored() == before && backup.status.csi_volume_snapshots_attempted == 0,
        "it was snapshotted"
    );
    Ok(())
}

async fn a_location_read_only_or_gone_during_operations_is_awaited(
    world: &mut World,
) -> TestResult {
    let driver = ready(world).await?;
    let url = world.s3()?.url();
    for (name, class) in [
        ("csi-read-only", "gate-read-only"),
        ("csi-gone", "gate-gone"),
    ] {
        world.s3()?.create_versioned_bucket(name).await?;
        world.s3_location(name, &url).await?;
        snapshots::class(&world.client, class, Behaviour::NeverReady, false).await?;
        snapshots::claim(&world.client, name, "data", class).await?;
        world.create_backup(name, of_place(name)).await?;
        world.backup_waits(name).await?;
    }
    let cut = driver.stored();
    let locations = world.locations();
    let mode = async |mode: &str| {
        locations
            .merge_patch("csi-read-only", json!({ "spec": { "accessMode": mode } }))
            .await
    };
    mode("ReadOnly").await?;
    world.remove_location("csi-gone").await?;
    let mut before = Vec::new();
    for (name, class) in [
        ("csi-read-only", "gate-read-only"),
        ("csi-gone", "gate-gone"),
    ] {
        before.push(world.s3()?.versions(name).await?);
        snapshots::class(
            &world.client,
            class,
            Behaviour::Ready(Duration::ZERO),
            false,
        )
        .await?;
    }
    for (name, words) in [("csi-read-only", "is read-only"), ("csi-gone", "not found")] {
        let reason = world
            .backup_blocked(name, &BackupPhase::WaitingForPluginOperations)
            .await?;
        ensure!(reason.contains(words), "{name}: {reason}");
    }
    // Another process sees the same.
    world.renew_controller(0).await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    for (name, before) in ["csi-read-only", "csi-gone"].iter().zip(before) {
        let phase = world.backups().get(name).await?.phase();
        ensure!(
            phase == BackupPhase::WaitingForPluginOperations,
            "{name} is {phase}"
        );
        ensure!(
            world.s3()?.versions(name).await? == before,
            "{name} was written to"
        );
    }
    mode("ReadWrite").await?;
    world.s3_location("csi-gone", &url).await?;
    for name in ["csi-read-only", "csi-gone"] {
        let backup = world.backup_ends(name, BackupPhase::Completed).await?;
        is_whole(world.s3()?, name, name, &backup).await?;
    }
    ensure!(
        driver.stored() == cut,
        "cut {cut:?}, then {:?}",
        driver.stored()
    );
    Ok(())
}

/// The stored volume information of a restore.
async fn restored_volumes(world: &World, restore: &str) -> anyhow::Result<Value> {
    world
        .s3()?
        .document(
            BUCKET,
            &format!("restores/{restore}/{restore}-volumeinfo.json.gz"),
        )
        .await
}
