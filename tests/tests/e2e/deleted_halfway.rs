//! Backups that are deleted before they have ended: only committed data is kept.

use std::collections::BTreeSet;

use backup_store::crash;
use backup_tests::{
    faulty_s3::{Asked, FaultyS3, Mood},
    snapshots::{self, Behaviour, SnapshotController},
};

use crate::prelude::*;

crate::tests! {
    a_backup_deleted_at_any_point_keeps_its_snapshot_if_and_only_if_it_is_stored,
    a_deletion_killed_at_any_point_leaves_nothing,
    a_store_that_is_down_keeps_no_restore_out_and_no_deletion_back,
}

const PLACE: &str = "deleted-halfway";

/// A bucket and a location, and a claim whose volume is snapshotted at once.
async fn ready(world: &World, place: &str, url: &str) -> anyhow::Result<SnapshotController> {
    let driver = SnapshotController::start(&world.client).await?;
    snapshots::class(
        &world.client,
        place,
        Behaviour::Ready(Duration::ZERO),
        false,
    )
    .await?;
    world.s3()?.create_versioned_bucket(place).await?;
    world.s3_location(place, url).await?;
    snapshots::claim(&world.client, place, "data", place).await?;
    Ok(driver)
}

/// The snapshots in the storage system, once the cluster has no objects of snapshots.
async fn stored_snapshots(
    world: &World,
    driver: &SnapshotController,
) -> anyhow::Result<BTreeSet<String>> {
    snapshots::none_left(&world.client).await?;
    Ok(driver.stored())
}

async fn is_stored(world: &World, bucket: &str, name: &str) -> anyhow::Result<bool> {
    Ok(world
        .s3()?
        .keys(bucket)
        .await?
        .contains(&format!("backups/{name}/velero-backup.json")))
}

async fn a_backup_deleted_at_any_point_keeps_its_snapshot_if_and_only_if_it_is_stored(
    world: &mut World,
) -> TestResult {
    world.needs_debug_build()?;
    let url = world.s3()?.url();
    let driver = ready(world, PLACE, &url).await?;
    let mut kept = Vec::new();
    // A backup with operations does not reach the excluded point.
    let points = crash::POINTS
        .iter()
        .filter(|point| **point != "after-finalizing-patch");
    for point in ["before-operations", "after-operations", "after-renewal"]
        .iter()
        .chain(points)
    {
        let name = format!("halfway-{}", point.replace('.', "-"));
        let before = driver.stored();
        world.crash_at(point).await?;
        world.create_backup(&name, of_place(PLACE)).await?;
        world.controllers[0]
            .killed(POINT_TIMEOUT)
            .await
            .with_context(|| format!("{point} was not reached"))?;
        world.backups().delete_object(&name).await?;
        world.controllers[0].restart().await?;
        let ends = async {
            world.backup_gone(&name).await?;
            let more = stored_snapshots(world, &driver)
                .await?
                .difference(&before)
                .count();
            let stored = is_stored(world, PLACE, &name).await?;
            ensure!(
                more == usize::from(stored),
                "{more} snapshots of a backup that is stored: {stored}"
            );
            anyhow::Ok(stored)
        };
        let stored = ends.await.with_context(|| format!("deleted at {point}"))?;
        if stored {
            kept.push(*point);
        } else {
            // Its name is free again.
            world
                .back_up(&name, of_place(PLACE))
                .await
                .with_context(|| format!("after {point}"))?;
        }
    }
    ensure!(
        kept.first() == Some(&"after-record") && kept.contains(&"before-terminal-patch"),
        "{kept:?}"
    );
    // A kept backup is like any other: it is imported again, can be restored, and can be deleted as
    // a whole.
    let name = "halfway-after-record";
    world.sync(PLACE, None).await?;
    world.backup_ends(name, BackupPhase::Completed).await?;
    let before = driver.stored().len();
    world.request_deletion(name).await?;
    world.backup_gone(name).await?;
    ensure!(
        driver.stored().len() + 1 == before,
        "{before} before, then {:?}",
        driver.stored()
    );
    Ok(())
}

async fn a_deletion_killed_at_any_point_leaves_nothing(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let (url, place) = (world.s3()?.url(), "deletion-killed");
    let driver = ready(world, place, &url).await?;
    snapshots::class(&world.client, place, Behaviour::NeverReady, false).await?;
    let before = driver.stored();
    for point in crash::DELETION_POINTS {
        world.crash_at(point).await?;
        world.create_backup(point, of_place(place)).await?;
        world.backup_waits(point).await?;
        world.backups().delete_object(point).await?;
        world.crashed(point).await?;
        world
            .backup_gone(point)
            .await
            .with_context(|| format!("killed at {point}"))?;
        let left = stored_snapshots(world, &driver)
            .await
            .with_context(|| format!("killed at {point}"))?;
        ensure!(left == before, "killed at {point}: {left:?}");
        let mut keys = world.s3()?.keys(place).await?;
        keys.retain(|key| key.starts_with(&format!("backups/{point}/")));
        let mark = |key: &String| {
            ["/owner", "/record-", "/journal-", "/operations-"]
                .iter()
                .any(|mark| key.contains(mark))
        };
        ensure!(
            keys.iter().all(mark) && !keys.is_empty(),
            "killed at {point}: {keys:?}"
        );
        ensure!(
            world.s3()?.uploads(place).await?.is_empty(),
            "killed at {point}: parts are left"
        );
    }
    Ok(())
}

/// Everything is collected, but the store refuses all writes.
async fn a_store_that_is_down_keeps_no_restore_out_and_no_deletion_back(
    world: &mut World,
) -> TestResult {
    let (place, elsewhere) = ("store-down", "store-down-saved");
    world.config_maps(place, 20).await?;
    world.back_up(elsewhere, of_namespaces(&[place])).await?;
    let front: FaultyS3 = world.faulty_s3().await?;
    let driver = ready(world, place, &front.url()).await?;
    let down = |asked: &Asked| asked.key.contains("/record-2") || asked.makes_final();
    front.affect(Mood::Answer(503), down);
    for name in ["stuck", "stuck-and-deleted"] {
        world.create_backup(name, of_place(place)).await?;
        world.backup_blocked(name, &BackupPhase::Finalizing).await?;
    }
    // From another location, into namespaces that the stuck backups have read, and those that they
    // could still read.
    let restore = world
        .restore("beside-stuck", from_backup(elsewhere))
        .await?;
    ensure!(
        restore.status.phase == Some(RestorePhase::Completed),
        "{:?}",
        restore.status
    );

    front.rule(|_| Mood::Answer(503));
    world.backups().delete_object("stuck-and-deleted").await?;
    world
        .backup_gone("stuck-and-deleted")
        .await
        .context("a deletion waits for a dead store")?;
    ensure!(
        driver.stored().len() == 2,
        "whether it is stored is not known: {:?}",
        driver.stored()
    );
    front.calm();
    world.backup_ends("stuck", BackupPhase::Completed).await?;
    let stuck = world.backups().get("stuck").await?;
    is_whole(world.s3()?, place, "stuck", &stuck).await?;
    // The next synchronisation removes the rest of the deleted one, and its name is free again.
    world.location_available(place).await?;
    let compared = world.sync(place, None).await?;
    let told = compared
        .notes
        .iter()
        .find(|note| note.name == "stuck-and-deleted");
    ensure!(
        told.is_some_and(|note| note.reason.contains("the Backup is gone")),
        "{compared:?}"
    );
    let left = stored_snapshots(world, &driver).await?;
    ensure!(left.len() == 1, "{left:?}");
    world.back_up("stuck-and-deleted", of_place(place)).await?;
    world.remove_location(place).await
}
