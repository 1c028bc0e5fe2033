//! A controller that is killed at every named point of a backup (`backup_store::crash`).

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::api::BackupPhase;
use backup_store::crash;
use backup_tests::World;

use crate::{
    drills::{location, noise, of, whole},
    main_job::{create_backup, s3},
};

crate::tests! {
    a_controller_that_is_killed_at_any_point_is_continued_to_one_end,
}

/// So that the next process may work at once.
pub const ALONE: &str = "--leader-elect=false";

/// Time for a backup to come to its point.
const REACHED: Duration = Duration::from_mins(2);

/// Namespace, bucket and location.
const PLACE: &str = "crash-points";

async fn a_controller_that_is_killed_at_any_point_is_continued_to_one_end(
    world: &mut World,
) -> anyhow::Result<()> {
    let programs = world.programs().controller.display().to_string();
    if programs.contains("/release/") {
        return Err(crate::Skip("a release build has no such points").into());
    }
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
