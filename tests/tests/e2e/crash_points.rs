//! A controller that is killed at every named point of a backup (`backup_store::crash`).

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{BackupPhase, PodVolumeBackup},
    labels::SYNC_PENDING_ANNOTATION,
};
use backup_store::crash;
use backup_tests::{
    World,
    wait::{eventually, when},
    world::{
        backups::of_place,
        controllers::{EndsEarly, REACHED},
        stored::is_whole,
    },
};
use kube::{Api, ResourceExt as _};
use serde_json::json;

crate::tests! {
    a_controller_killed_at_any_point_resumes_to_one_end,
    a_controller_killed_before_it_reports_a_refusal_reports_it,
    a_synced_backup_arrives_whole_whenever_a_controller_dies,
}

/// Namespace, bucket and location.
const PLACE: &str = "crash-points";

async fn a_controller_killed_at_any_point_resumes_to_one_end(world: &mut World) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    world.s3()?.create_versioned_bucket(PLACE).await?;
    world.s3_location(PLACE, &world.s3()?.url()).await?;
    world.noise(PLACE, 22).await?;
    for point in crash::POINTS {
        let name = point.replace('.', "-");
        world.crash_at(point).await?;
        world.create_backup(&name, of_place(PLACE)).await?;
        world.crashed(point).await?;
        let backup = world.backup_ended(&name).await.with_context(|| format!("killed at {point}"))?;
        ensure!(backup.phase() == BackupPhase::Completed, "killed at {point}: {:?}", backup.status);
        is_whole(world.s3()?, PLACE, &name, &backup).await.with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

async fn a_controller_killed_before_it_reports_a_refusal_reports_it(world: &mut World) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    for EndsEarly { point, name, spec, phase } in world.refused_and_failed("killed").await? {
        world.crash_at(point).await?;
        world.create_backup(&name, spec).await?;
        world.crashed(point).await?;
        world.backup_ends(&name, phase).await?;
    }
    Ok(())
}

/// A backup that is found in a bucket arrives with all of its objects.
async fn a_synced_backup_arrives_whole_whenever_a_controller_dies(world: &mut World) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    let bucket = "crash-sync";
    world.s3()?.create_bucket(bucket).await?;
    world.synced_location(bucket, &world.s3()?.url(), &json!({})).await?;
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
        world.store_file(bucket, &name, "podvolumebackups", &json!([volume(0), volume(1)]))?;
        world.store_completed(bucket, &name)?;
        world.controllers[0].killed(REACHED).await.with_context(|| format!("{point} was not reached"))?;
        let half = world.backups().get(&name).await?;
        ensure!(half.annotations().contains_key(SYNC_PENDING_ANNOTATION), "{point}: nothing says so");
        world.controllers[0].restart().await?;
        eventually("it is no longer pending", REACHED, async || {
            let backup = world.backups().get(&name).await?;
            let pending = backup.annotations().contains_key(SYNC_PENDING_ANNOTATION);
            Ok::<_, kube::Error>(when(!pending, "pending"))
        })
        .await?;
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
