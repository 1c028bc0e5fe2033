//! A controller that is killed at every named point of a backup (`backup_store::crash`).

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Backup, BackupPhase, BackupSpec, PodVolumeBackup},
    labels::SYNC_PENDING_ANNOTATION,
};
use backup_store::crash;
use backup_tests::{
    World,
    install::NAMESPACE,
    wait::{eventually, when},
};
use kube::{Api, ResourceExt as _};
use object_store::ObjectStoreExt as _;
use serde_json::json;

use crate::{
    drills::{location, noise, of, whole},
    main_job::{backups, create_backup, s3},
    sync,
};

crate::tests! {
    a_controller_that_is_killed_at_any_point_is_continued_to_one_end,
    a_controller_that_is_killed_before_it_tells_a_refusal_tells_it_afterwards,
    a_backup_that_is_found_in_a_bucket_arrives_whole_whenever_the_controller_is_killed,
}

/// So that the next process may work at once.
pub const ALONE: &str = "--leader-elect=false";

/// Time for a backup to come to its point.
pub const REACHED: Duration = Duration::from_mins(2);

/// Skips a test where the programs have no points.
pub fn debug_build(world: &World) -> anyhow::Result<()> {
    if world.programs().controller.display().to_string().contains("/release/") {
        return Err(crate::Skip("a release build has no such points").into());
    }
    Ok(())
}

/// Namespace, bucket and location.
const PLACE: &str = "crash-points";

async fn a_controller_that_is_killed_at_any_point_is_continued_to_one_end(
    world: &mut World,
) -> anyhow::Result<()> {
    debug_build(world)?;
    s3(world)?.create_versioned_bucket(PLACE).await?;
    location(world, PLACE, PLACE, &s3(world)?.url()).await?;
    noise(world, PLACE, 22).await?;
    for point in crash::POINTS {
        let name = point.replace('.', "-");
        world.controllers[0].restart_with("BACKUP_CRASH_AT", point).await?;
        create_backup(world, &name, of(PLACE)).await?;
        world.controllers[0].killed(REACHED).await.with_context(|| format!("{point} was not reached"))?;
        world.controllers[0].restart().await?;
        let backup = world.backup_ended(&name).await.with_context(|| format!("killed at {point}"))?;
        ensure!(backup.phase() == BackupPhase::Completed, "killed at {point}: {:?}", backup.status);
        whole(s3(world)?, PLACE, &name, &backup).await.with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

async fn a_controller_that_is_killed_before_it_tells_a_refusal_tells_it_afterwards(
    world: &mut World,
) -> anyhow::Result<()> {
    debug_build(world)?;
    for (point, name, spec, phase) in refused_and_failed(world, "killed").await? {
        world.controllers[0].restart_with("BACKUP_CRASH_AT", point).await?;
        create_backup(world, &name, spec).await?;
        world.controllers[0].killed(REACHED).await.with_context(|| format!("{point} was not reached"))?;
        world.controllers[0].restart().await?;
        let backup = world.backup_ended(&name).await?;
        ensure!(backup.phase() == phase, "killed at {point}: {:?}", backup.status);
    }
    Ok(())
}

async fn a_backup_that_is_found_in_a_bucket_arrives_whole_whenever_the_controller_is_killed(
    world: &mut World,
) -> anyhow::Result<()> {
    debug_build(world)?;
    let bucket = "crash-sync";
    s3(world)?.create_bucket(bucket).await?;
    sync::location(world, bucket, &s3(world)?.url(), &json!({})).await?;
    let volumes: Api<PodVolumeBackup> = Api::namespaced(world.client.clone(), NAMESPACE);
    for point in crash::SYNC_POINTS {
        let name = format!("killed-{point}");
        world.controllers[0].restart_with("BACKUP_CRASH_AT", point).await?;
        let volume = |number: usize| {
            json!({ "metadata": { "name": format!("{name}-{number}"), "namespace": "old" },
                "spec": { "node": "n", "pod": { "name": "p" }, "volume": "v", "backupStorageLocation": "old",
                    "repoIdentifier": "r", "uploaderType": "kopia" },
                "status": { "phase": "Completed", "snapshotID": "s" } })
        };
        let list = sync::gzip(&json!([volume(0), volume(1)]))?;
        let folder = sync::folder(world, bucket, &name)?;
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{name}-podvolumebackups.json.gz")), list)?;
        sync::put(world, bucket, &name, &sync::metadata(&name, "Completed"))?;
        world.controllers[0].killed(REACHED).await.with_context(|| format!("{point} was not reached"))?;
        let half = backups(world).get(&name).await?;
        ensure!(half.annotations().contains_key(SYNC_PENDING_ANNOTATION), "{point}: nothing says so");
        world.controllers[0].restart().await?;
        eventually("it is no longer pending", REACHED, async || {
            let backup = backups(world).get(&name).await?;
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
    sync::end(world, bucket).await
}

/// A backup without a location, and one whose name is taken in the bucket: the point before its end is published, name, spec
/// and end of each.
pub async fn refused_and_failed(
    world: &World,
    prefix: &str,
) -> anyhow::Result<[(&'static str, String, BackupSpec, BackupPhase); 2]> {
    let [refusal, failure] = crash::REFUSAL_POINTS;
    let (refused, failed) = (format!("{prefix}-refused"), format!("{prefix}-failed"));
    s3(world)?.create_bucket(&failed).await?;
    location(world, &failed, &failed, &s3(world)?.url()).await?;
    let mut other = Backup::new(&failed, BackupSpec::default());
    other.metadata.uid = Some("of-another-cluster".to_owned());
    let key = format!("backups/{failed}/velero-backup.json");
    let bytes = serde_json::to_vec(&other)?;
    s3(world)?.bucket(&failed)?.put(&key.as_str().into(), bytes.into()).await?;
    let nowhere = BackupSpec { storage_location: Some("nowhere".to_owned()), ..of(PLACE) };
    let taken = BackupSpec { storage_location: Some(failed.clone()), ..of(PLACE) };
    Ok([
        (refusal, refused, nowhere, BackupPhase::FailedValidation),
        (failure, failed, taken, BackupPhase::Failed),
    ])
}
