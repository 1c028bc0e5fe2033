//! A controller that is killed at every named point of a backup (`backup_store::crash`).

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::api::{Backup, BackupPhase, BackupSpec};
use backup_store::crash;
use backup_tests::World;
use object_store::ObjectStoreExt as _;

use crate::{
    drills::{location, noise, of, whole},
    main_job::{create_backup, s3},
};

crate::tests! {
    a_controller_that_is_killed_at_any_point_is_continued_to_one_end,
    a_controller_that_is_killed_before_it_tells_a_refusal_tells_it_afterwards,
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
