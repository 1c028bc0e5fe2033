//! A controller that is killed at every named point of a backup (`backup_store::crash`).

use backup_core::{api::PodVolumeBackup, labels::SYNC_PENDING_ANNOTATION};
use backup_store::crash;
use backup_tests::world::controllers::EndsEarly;

use crate::prelude::*;

crate::tests! {
    a_controller_killed_at_any_point_resumes_to_one_end,
    a_restore_killed_at_any_point_resumes_to_one_end,
    a_restore_made_again_under_its_name_has_files_of_its_own,
    a_controller_killed_before_it_reports_a_refusal_reports_it,
    a_synced_backup_arrives_whole_whenever_a_controller_dies,
}

/// Name of namespace, bucket and location.
const PLACE: &str = "crash-points";

async fn a_controller_killed_at_any_point_resumes_to_one_end(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    world.s3()?.create_versioned_bucket(PLACE).await?;
    world.s3_location(PLACE, &world.s3()?.url()).await?;
    world.noise(PLACE, 22).await?;
    for point in crash::POINTS {
        let name = point.replace('.', "-");
        world.crash_at(point).await?;
        world.create_backup(&name, of_place(PLACE)).await?;
        world.crashed(point).await?;
        let ended = world.backup_ends(&name, BackupPhase::Completed).await;
        let backup = ended.with_context(|| format!("killed at {point}"))?;
        is_whole(world.s3()?, PLACE, &name, &backup)
            .await
            .with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

async fn a_restore_killed_at_any_point_resumes_to_one_end(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let place = "crash-restores";
    world.s3()?.create_versioned_bucket(place).await?;
    world.s3_location(place, &world.s3()?.url()).await?;
    world.config_maps(place, 20).await?;
    world.back_up(place, of_place(place)).await?;
    for point in crash::RESTORE_POINTS {
        let name = format!("killed-{}", point.replace('.', "-"));
        world.crash_at(point).await?;
        world
            .create_restore(&name, into_namespace(place, &name))
            .await?;
        world.crashed(point).await?;
        let ended = world.restore_ends(&name, RestorePhase::Completed).await;
        ended.with_context(|| format!("killed at {point}"))?;
        let there = world.count_config_maps(&name).await?;
        ensure!(there >= 20, "killed at {point}: {there} of 20 are there");
        eventually("its claim is free", POINT_TIMEOUT, async || {
            let claims = world.claims().await?;
            anyhow::Ok(when(!claims.contains(&name), claims))
        })
        .await
        .with_context(|| format!("killed at {point}"))?;
        each_file_is_there_once(world, place, &name)
            .await
            .with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

/// Checks that every file of a restore was written once.
async fn each_file_is_there_once(world: &World, bucket: &str, name: &str) -> anyhow::Result<()> {
    let folder = format!("restores/{name}/");
    let mut files: Vec<String> = Vec::new();
    for (key, is_deletion) in world.s3()?.versions(bucket).await? {
        if let Some(file) = key
            .strip_prefix(&folder)
            .filter(|file| !file.starts_with(".private/"))
        {
            ensure!(!is_deletion, "{key} was deleted");
            files.push(file.to_owned());
        }
    }
    files.sort();
    let suffixes = [
        "itemoperations.json.gz",
        "logs.gz",
        "resource-list.json.gz",
        "results.gz",
    ];
    let mut expected = suffixes
        .map(|suffix| format!("restore-{name}-{suffix}"))
        .to_vec();
    expected.push(format!("{name}-volumeinfo.json.gz"));
    expected.sort();
    ensure!(files == expected, "{files:?}");
    Ok(())
}

/// Files left behind by a deleted Restore do not keep a later one of the same name from ending.
async fn a_restore_made_again_under_its_name_has_files_of_its_own(world: &mut World) -> TestResult {
    let name = "made-again";
    world.backed_up(name, 3).await?;
    world
        .restore(name, into_namespace(name, "made-again-1"))
        .await?;
    // The files are deleted with the object.
    world.restores().delete_object(name).await?;
    world.restores().wait_gone(name, POINT_TIMEOUT).await?;
    let left = world.s3()?.keys(BUCKET).await?;
    ensure!(
        !left
            .iter()
            .any(|key| key.starts_with("restores/made-again/")),
        "{left:?}"
    );
    world
        .restore(name, into_namespace(name, "made-again-2"))
        .await?;
    // A user removes the finalizer that would have deleted them.
    world.restores().delete_at_once(name).await?;
    world.restores().wait_gone(name, POINT_TIMEOUT).await?;
    let left = world.s3()?.keys(BUCKET).await?;
    ensure!(
        left.iter()
            .any(|key| key.starts_with("restores/made-again/")),
        "{left:?}"
    );
    world
        .restore(name, into_namespace(name, "made-again-3"))
        .await?;
    let log = world.restore_log(name).await?;
    ensure!(
        log.contains("made-again-3") && !log.contains("made-again-2"),
        "{log}"
    );
    Ok(())
}

async fn a_controller_killed_before_it_reports_a_refusal_reports_it(
    world: &mut World,
) -> TestResult {
    world.needs_debug_build()?;
    for EndsEarly {
        point,
        name,
        spec,
        phase,
    } in world.refused_and_failed("killed").await?
    {
        world.crash_at(point).await?;
        world.create_backup(&name, spec).await?;
        world.crashed(point).await?;
        world.backup_ends(&name, phase).await?;
    }
    Ok(())
}

/// A backup found in a bucket is imported with all of its objects.
async fn a_synced_backup_arrives_whole_whenever_a_controller_dies(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let bucket = "crash-sync";
    world.s3()?.create_bucket(bucket).await?;
    world
        .synced_location(bucket, &world.s3()?.url(), &json!({}))
        .await?;
    let volumes: Api<PodVolumeBackup> = world.api();
    for point in crash::SYNC_POINTS {
        let name = format!("killed-{point}");
        world.crash_at(point).await?;
        let volume = |number: usize| {
            json!({ "metadata": { "name": format!("{name}-{number}"), "namespace": "old" },
                "spec": { "node": "n", "pod": { "name": "p" }, "volume": "v", "backupStorageLocation": "old",
                    "repoIdentifier": "r", "uploaderType": "kopia" },
                "status": { "phase": "Completed", "snapshotID": "s" } })
        };
        world.store_file(
            bucket,
            &name,
            "podvolumebackups.json.gz",
            &json!([volume(0), volume(1)]),
        )?;
        world.store_completed(bucket, &name)?;
        world.controllers[0]
            .killed(POINT_TIMEOUT)
            .await
            .with_context(|| format!("{point} was not reached"))?;
        let half = world.backups().get(&name).await?;
        ensure!(
            half.annotations().contains_key(SYNC_PENDING_ANNOTATION),
            "{point}: nothing says so"
        );
        world.controllers[0].restart().await?;
        world.backup_synced(&name).await?;
        for number in 0..2 {
            let volume = volumes.get(&format!("{name}-{number}")).await?;
            ensure!(
                volume.owner_references()[0].uid == half.uid().unwrap_or_default(),
                "{point}: {volume:?}"
            );
        }
    }
    world.forget_location(bucket).await
}
