//! Volume snapshots by a plugin of Velero's kind (`tests/plugins/disks.go`): disks and snapshots
//! are files beside the plugin's own files.

use backup_core::api::{DeleteBackupRequest, DeleteBackupRequestPhase, VolumeSnapshotLocation};
use backup_store::crash;
use backup_tests::{install::ensure_secret, snapshots, velero_plugins::VeleroPlugins};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::prelude::*;

crate::tests! {
    a_volume_is_snapshotted_by_a_plugin_and_restored,
    a_snapshot_that_a_plugin_fails_to_take_is_reported,
    a_crash_around_a_snapshot_takes_none_twice,
    snapshots_of_plugins_are_taken_side_by_side_and_a_crash_loses_none,
    a_deleted_backup_deletes_the_snapshots_of_plugins,
    a_crash_while_a_volume_is_made_makes_none_twice,
    a_location_without_its_plugin_is_refused_with_its_name,
}

/// The plugins, and a location served by `example.io/disks`, with its own credentials.
async fn ready(world: &World) -> anyhow::Result<VeleroPlugins> {
    let plugins = world.plugins()?;
    ensure_secret(&world.client, NAMESPACE, "disks", "cloud", "open-sesame").await?;
    let spec = json!({ "provider": "example.io/disks", "config": { "region": "east" },
        "credential": { "name": "disks", "key": "cloud" } });
    location(world, "disks", spec).await?;
    Ok(plugins)
}

async fn location(world: &World, name: &str, spec: Value) -> anyhow::Result<()> {
    let api: Api<VolumeSnapshotLocation> = world.api();
    let object = VolumeSnapshotLocation::new(name, serde_json::from_value(spec)?);
    match api.create_object(&object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => Ok(made.map(|_| ())?),
    }
}

/// A claim that is bound to a disk.
async fn disk(world: &World, namespace: &str, name: &str, id: &str) -> anyhow::Result<()> {
    snapshots::host_path_claim(&world.client, namespace, name, &format!("/disks/{id}")).await?;
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    volumes
        .merge_patch(
            &format!("pv-{namespace}-{name}"),
            json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": "z1" } } }),
        )
        .await?;
    Ok(())
}

async fn delete_backup(world: &World, backup: &str, request: &str) -> anyhow::Result<Vec<String>> {
    world.request_deletion_as(request, backup).await?;
    let requests: Api<DeleteBackupRequest> = world.api();
    eventually(
        "the backup is gone, or stays with an answer",
        POINT_TIMEOUT,
        async || {
            if world.backups().get_opt(backup).await?.is_none() {
                return Ok::<_, kube::Error>(Probe::Ready(Vec::new()));
            }
            let status = requests
                .get_opt(request)
                .await?
                .map(|request| request.status)
                .unwrap_or_default();
            Ok(match status.phase {
                Some(DeleteBackupRequestPhase::Processed) => Probe::Ready(status.errors),
                other => Probe::NotYet(format!("{other:?}")),
            })
        },
    )
    .await
}

/// Path of the disk of a PersistentVolume.
async fn path_of(world: &World, volume: &str) -> anyhow::Result<String> {
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let spec = volumes.get(volume).await?.spec.context("no spec")?;
    Ok(spec.host_path.context("it is no folder")?.path)
}

/// Its snapshot is deleted with the backup.
async fn a_volume_is_snapshotted_by_a_plugin_and_restored(world: &mut World) -> TestResult {
    let plugins = ready(world).await?;
    let (name, volume) = ("native-good", "pv-native-good-data");
    disk(world, name, "data", "good-fast").await?;
    let backup = world.back_up(name, of_namespaces(&[name])).await?;
    let status = &backup.status;
    ensure!(
        (
            status.volume_snapshots_attempted,
            status.volume_snapshots_completed
        ) == (1, 1),
        "{status:?}"
    );
    ensure!(status.warnings == 0, "its data is there: {status:?}");
    ensure!(
        backup.spec.volume_snapshot_locations == ["disks"],
        "{:?}",
        backup.spec
    );
    ensure!(plugins.file("credentials-east")? == "open-sesame");
    let person = world.reader().await?;
    let listed = person
        .stdout(&["locations", "snapshots", "-o", "wide"])
        .await?;
    says(
        &listed,
        &["disks ", "example.io/disks", "disks/cloud", "region=east"],
    )?;

    let snapshot = plugins
        .files("snap-east-good-fast")
        .pop()
        .context("no snapshot was taken")?;
    ensure!(plugins.file(&snapshot)? == format!("of good-fast in z1 for {name} {volume}"));
    let key = format!("backups/{name}/{name}-volumesnapshots.json.gz");
    let text = world.s3()?.text(BUCKET, &key).await?;
    let recorded: Value = serde_json::from_str(&text)?;
    let expected = json!([{
        "spec": { "backupName": name, "backupUID": backup.metadata.uid, "location": "disks",
            "persistentVolumeName": volume, "providerVolumeID": "good-fast", "volumeType": "fast", "volumeAZ": "z1",
            "volumeIOPS": 3000 },
        "status": { "providerSnapshotID": snapshot, "phase": "Completed" },
    }]);
    ensure!(
        recorded == expected && text.ends_with("]\n"),
        "{text}\n{expected}"
    );
    let info = world.backup_file(name, "volumeinfo.json.gz").await?;
    ensure!(
        info == json!([{ "pvcName": "data", "pvcNamespace": name, "pvName": volume, "backupMethod": "NativeSnapshot",
            "snapshotDataMoved": false, "preserveLocalSnapshot": false, "skipped": false, "result": "succeeded",
            "nativeSnapshotInfo": { "snapshotHandle": snapshot, "volumeType": "fast", "volumeAZ": "z1", "iops": "3000",
                "Phase": "Completed" },
            "pvInfo": { "reclaimPolicy": "Delete", "labels": { "topology.kubernetes.io/zone": "z1" } } }])
    );

    ensure!(
        world
            .backup_log(name)
            .await?
            .contains("snapshotting disk good-fast")
    );

    // Beside the existing volume: a volume of another name, to which its claim is bound.
    let copied = world
        .restore("native-copy", into_namespace(name, "native-copy"))
        .await?;
    ensure!(
        world
            .restore_log("native-copy")
            .await?
            .contains("a disk is made of snap-")
    );
    ensure!(
        copied.status.warnings > 0,
        "at its level: {:?}",
        copied.status
    );
    let claims =
        |namespace: &str| Api::<PersistentVolumeClaim>::namespaced(world.client.clone(), namespace);
    let claim = claims("native-copy").get("data").await?;
    let copy = claim
        .spec
        .and_then(|spec| spec.volume_name)
        .unwrap_or_default();
    ensure!(copy.starts_with("velero-clone-"), "{copy}");
    let disk = path_of(world, &copy).await?;
    let made = plugins.file(disk.trim_start_matches("/disks/"))?;
    ensure!(made == format!("from {snapshot}, fast in z1, 3000"));
    ensure!(
        path_of(world, volume).await? == "/disks/good-fast",
        "the one that was there was touched"
    );

    // If it was lost: under its own name.
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    claims(name).delete_at_once("data").await?;
    volumes.delete_at_once(volume).await?;
    world.restore("native-back", from_backup(name)).await?;
    let disk = path_of(world, volume).await?;
    ensure!(
        plugins
            .file(disk.trim_start_matches("/disks/"))?
            .starts_with(&format!("from {snapshot}")),
        "{disk}"
    );
    let claim = claims(name).get("data").await?;
    ensure!(claim.spec.and_then(|spec| spec.volume_name).as_deref() == Some(volume));

    let errors = delete_backup(world, name, "native-good").await?;
    ensure!(errors.is_empty(), "{errors:?}");
    ensure!(
        plugins.files("snap-east-good-fast").is_empty(),
        "the snapshot is still there"
    );
    Ok(())
}

/// A backup is kept if the plugin fails to delete its snapshot.
async fn a_snapshot_that_a_plugin_fails_to_take_is_reported(world: &mut World) -> TestResult {
    let plugins = ready(world).await?;
    let name = "native-bad";
    for disk_name in ["burns", "hangs", "works"] {
        disk(world, name, disk_name, &format!("bad-{disk_name}")).await?;
    }
    plugins.tell("do-snapshot-bad-burns", "fail=array-on-fire")?;
    plugins.tell("do-snapshot-bad-hangs", "hang")?;
    let spec = BackupSpec {
        snapshot_volumes: Some(true),
        ..of_namespaces(&[name])
    };
    let backup = world
        .run_backup(name, spec, BackupPhase::PartiallyFailed)
        .await?;
    let status = &backup.status;
    ensure!(
        (
            status.volume_snapshots_attempted,
            status.volume_snapshots_completed
        ) == (3, 1),
        "{status:?}"
    );
    let errors = world.backup_errors(name).await?;
    ensure!(status.errors == 2, "{errors}");
    for words in [
        ["pv-native-bad-burns", "array-on-fire", "example.io/disks"],
        [
            "pv-native-bad-hangs",
            "has not answered CreateSnapshot",
            "whether there is a snapshot is not known",
        ],
    ] {
        ensure!(
            words.iter().all(|word| errors.contains(word)),
            "nothing of {words:?}: {errors}"
        );
    }
    world
        .backup_item(name, "persistentvolumes/cluster/pv-native-bad-burns.json")
        .await?;
    let calls = |id: &str| plugins.processes("snapshot", &format!("bad-{id}")).len();
    ensure!(
        (calls("burns"), calls("hangs"), calls("works")) == (1, 1, 1),
        "{:?}",
        plugins.calls()
    );

    plugins.tell("do-delete-bad-works", "fail=still-in-use")?;
    let errors = delete_backup(world, name, "native-bad").await?;
    ensure!(
        errors.len() == 1 && errors[0].contains("still-in-use"),
        "{errors:?}"
    );
    ensure!(errors[0].contains("pv-native-bad-works"), "{errors:?}");
    world
        .backup_file(name, "volumesnapshots.json.gz")
        .await
        .context("its files are there")?;
    plugins.untell("do-delete-bad-works")?;
    let errors = delete_backup(world, name, "native-bad-again").await?;
    ensure!(
        errors.is_empty() && plugins.files("snap-east-bad").is_empty(),
        "{errors:?}"
    );
    Ok(())
}

/// If it is unknown whether a snapshot was taken, an error says so.
async fn a_crash_around_a_snapshot_takes_none_twice(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let plugins = ready(world).await?;
    for (point, taken, known) in [
        ("before-snapshot", 0, false),
        ("after-snapshot", 1, false),
        ("after-snapshot-recorded", 1, true),
    ] {
        ensure!(crash::SNAPSHOT_POINTS.contains(&point), "{point}");
        let (name, id) = (format!("native-{point}"), format!("killed-{point}"));
        disk(world, &name, "data", &id).await?;
        world.crash_at(point).await?;
        world.start_backup(&name).await?;
        world.crashed(point).await?;
        let phase = if known {
            BackupPhase::Completed
        } else {
            BackupPhase::PartiallyFailed
        };
        let backup = world
            .backup_ends(&name, phase)
            .await
            .with_context(|| format!("killed at {point}"))?;
        ensure!(
            plugins.processes("snapshot", &id).len() == taken,
            "{point}: {:?}",
            plugins.calls()
        );
        let status = &backup.status;
        let counts = (
            status.volume_snapshots_attempted,
            status.volume_snapshots_completed,
        );
        ensure!(
            counts == (1, i64::from(known)),
            "killed at {point}: {status:?}"
        );
        if !known {
            let errors = world.backup_errors(&name).await?;
            ensure!(
                errors.contains(&id) && errors.contains("is not known"),
                "killed at {point}: {errors}"
            );
        }
    }
    Ok(())
}

/// Eight disks whose plugin takes two seconds for a snapshot.
async fn snapshots_of_plugins_are_taken_side_by_side_and_a_crash_loses_none(
    world: &mut World,
) -> TestResult {
    world.needs_debug_build()?;
    let plugins = ready(world).await?;
    let name = "native-many";
    let ids: Vec<_> = (0..8).map(|number| format!("many-{number}")).collect();
    for id in &ids {
        disk(world, name, id, id).await?;
    }
    plugins.tell("do-snapshot-many", "slow=2s")?;
    let status = world.back_up(name, of_namespaces(&[name])).await?.status;
    ensure!(
        (
            status.volume_snapshots_attempted,
            status.volume_snapshots_completed
        ) == (8, 8),
        "{status:?}"
    );
    let seconds = |time: Option<Time>| time.map_or(0, |time| time.0.as_second());
    let took = seconds(status.completion_timestamp) - seconds(status.start_timestamp);
    ensure!(took < 8, "{took} s, of 16 s one after the other");

    let (killed, point) = ("native-many-killed", "after-snapshot#3");
    world.crash_at(point).await?;
    world.create_backup(killed, of_namespaces(&[name])).await?;
    world.crashed(point).await?;
    let status = world
        .backup_ends(killed, BackupPhase::PartiallyFailed)
        .await?
        .status;
    plugins.untell("do-snapshot-many")?;
    ensure!(status.volume_snapshots_attempted == 8, "{status:?}");
    let errors = world.backup_errors(killed).await?;
    let recorded = world
        .backup_file(killed, "volumesnapshots.json.gz")
        .await?
        .to_string();
    for id in &ids {
        ensure!(
            plugins.processes("snapshot", id).len() == 2,
            "{id}: {:?}",
            plugins.calls()
        );
        for snapshot in plugins.files(&format!("snap-east-{id}")) {
            let is_of_killed = plugins.file(&snapshot)?.contains(killed);
            let is_known =
                recorded.contains(&snapshot) || errors.contains(&format!("pv-{name}-{id} "));
            ensure!(
                !is_of_killed || is_known,
                "{snapshot} is neither recorded nor reported: {errors}"
            );
        }
    }
    for backup in [killed, name] {
        let problems = delete_backup(world, backup, backup).await?;
        ensure!(problems.is_empty(), "{problems:?}");
    }
    Ok(())
}

/// Unless the backup is stored: then its snapshots are kept, and deleted with the whole backup.
async fn a_deleted_backup_deletes_the_snapshots_of_plugins(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let plugins = ready(world).await?;
    for (point, stays) in [
        ("after-snapshot-recorded", false),
        ("before-claim-returned", false),
        ("before-record", false),
        ("after-record", true),
        ("after-volumesnapshots.json.gz", true),
        ("after-metadata", true),
        ("before-terminal-patch", true),
    ] {
        let id = format!("deleted-{}", point.replace('.', "-"));
        let (name, taken) = (format!("native-{id}"), format!("snap-east-{id}"));
        disk(world, &name, "data", &id).await?;
        world.crash_at(point).await?;
        world.start_backup(&name).await?;
        world.controllers[0]
            .killed(POINT_TIMEOUT)
            .await
            .with_context(|| format!("{point} was not reached"))?;
        ensure!(
            plugins.files(&taken).len() == 1,
            "{point}: no snapshot was taken"
        );
        world.backups().delete_object(&name).await?;
        world.controllers[0].restart().await?;
        world.backup_gone(&name).await?;
        ensure!(
            plugins.files(&taken).len() == usize::from(stays),
            "{point}: {:?}",
            plugins.files(&taken)
        );
        if stays {
            world.sync("default", None).await?;
            world
                .backup_ends(&name, BackupPhase::Completed)
                .await
                .with_context(|| point.to_owned())?;
            let errors = delete_backup(world, &name, &name).await?;
            ensure!(
                errors.is_empty() && plugins.files(&taken).is_empty(),
                "{point}: {errors:?}"
            );
        }
    }
    Ok(())
}

/// If it is unknown whether a volume was made, an error says so.
async fn a_crash_while_a_volume_is_made_makes_none_twice(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let plugins = ready(world).await?;
    let name = "native-killed";
    disk(world, name, "data", "remade").await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let snapshot = plugins
        .files("snap-east-remade")
        .pop()
        .context("no snapshot was taken")?;
    for (point, known) in crash::VOLUME_POINTS.iter().zip([false, false, true]) {
        let restore = format!("{name}-{point}");
        let before = plugins.processes("create", &snapshot).len();
        world.crash_at(point).await?;
        world
            .create_restore(&restore, into_namespace(name, &restore))
            .await?;
        world.crashed(point).await?;
        let phase = if known {
            RestorePhase::Completed
        } else {
            RestorePhase::PartiallyFailed
        };
        world
            .restore_ends(&restore, phase)
            .await
            .with_context(|| format!("killed at {point}"))?;
        let times = plugins.processes("create", &snapshot).len() - before;
        ensure!(
            times == usize::from(*point != "before-volume"),
            "at {point}: {:?}",
            plugins.calls()
        );
        if known {
            continue;
        }
        let results = world
            .restore_file(&restore, "results.gz")
            .await?
            .to_string();
        says(&results, &[&snapshot, "is not known"])?;
    }
    Ok(())
}

async fn a_location_without_its_plugin_is_refused_with_its_name(world: &mut World) -> TestResult {
    ready(world).await?;
    location(world, "clouds", json!({ "provider": "aws" })).await?;
    let spec = BackupSpec {
        volume_snapshot_locations: vec!["clouds".to_owned(), "ghost".to_owned()],
        ..of_namespaces(&["default"])
    };
    let backup = world
        .run_backup("native-refused", spec, BackupPhase::FailedValidation)
        .await?;
    let errors = backup.status.validation_errors.join("\n");
    says(
        &errors,
        &[
            "spec.volumeSnapshotLocations",
            "velero.io/aws",
            "--plugin-dir",
            "\"ghost\" does not exist",
        ],
    )?;
    // The location need not be named: then it is filled in.
    let backup = world
        .back_up("native-without", of_namespaces(&["default"]))
        .await?;
    ensure!(
        backup.spec.volume_snapshot_locations == ["disks"],
        "{:?}",
        backup.spec
    );
    Ok(())
}
