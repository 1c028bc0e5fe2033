//! Backups missing from a bucket are removed from the cluster, after a second check and never all
//! at once; an unchanged bucket costs one listing.

use backup_core::sync::NoteKind;
use std::sync::atomic::{AtomicUsize, Ordering};

use backup_core::labels::{FILES_MISSING_ANNOTATION, IMPORTED_ANNOTATION};
use backup_tests::{
    faulty_s3::{Asked, Mood},
    people::CONTROLLER,
    world::other_cluster::metadata,
};

use crate::prelude::*;

crate::tests! {
    a_backup_gone_from_its_bucket_is_removed_and_no_other,
    a_shrunken_listing_removes_nothing_until_a_person_agrees,
    a_backup_missing_from_a_listing_is_looked_up_and_stays,
    a_listing_that_fails_on_page_7_removes_nothing,
    an_unchanged_bucket_costs_one_listing,
}

fn remove(world: &World, bucket: &str, name: &str) -> anyhow::Result<()> {
    Ok(std::fs::remove_dir_all(world.stored_folder(bucket, name)?)?)
}

async fn a_backup_gone_from_its_bucket_is_removed_and_no_other(world: &mut World) -> TestResult {
    let bucket = "shrinks";
    world.s3()?.create_bucket(bucket).await?;
    let names = [
        "gone",
        "gone-failed",
        "gone-deleting",
        "gone-restoring",
        "stays",
        "stays-too",
        "stays-three",
    ];
    for name in names {
        let phase = if name == "gone-failed" {
            "Failed"
        } else {
            "Completed"
        };
        world.store_backup(bucket, name, &metadata(name, phase))?;
    }
    world
        .synced_location(bucket, &world.s3()?.url(), &json!({}))
        .await?;
    world.all_arrive(&names).await?;
    // In the middle of its deletion, according to its phase.
    let controller = world.plane.impersonate(CONTROLLER).await?;
    let backups: Api<Backup> = Api::namespaced(controller, NAMESPACE);
    backups
        .merge_patch(
            "gone-deleting",
            json!({ "status": { "phase": "Deleting" } }),
        )
        .await?;
    for name in ["gone", "gone-failed", "gone-deleting"] {
        remove(world, bucket, name)?;
    }
    world.backup_gone("gone").await?;
    world.sync(bucket, None).await?;
    world.all_arrive(&names[1..]).await?;
    world.forget_location(bucket).await
}

async fn a_shrunken_listing_removes_nothing_until_a_person_agrees(world: &mut World) -> TestResult {
    let bucket = "vanishes";
    let names = [
        "vanishes-0",
        "vanishes-1",
        "vanishes-2",
        "vanishes-3",
        "vanishes-4",
        "vanishes-5",
    ];
    world
        .synced_bucket(bucket, &world.s3()?.url(), &names)
        .await?;
    for name in &names[..5] {
        remove(world, bucket, name)?;
    }
    let told = world.sync(bucket, None).await?;
    ensure!(told.refused == 5 && told.removed == 0, "{told:?}");
    let told = world.sync(bucket, Some(4)).await?;
    ensure!(
        told.refused == 5 && told.removed == 0,
        "more than was agreed to: {told:?}"
    );
    let marked = async |name: &str| -> anyhow::Result<bool> {
        let backup = world.backups().get(name).await?;
        ensure!(
            backup.annotations().contains_key(IMPORTED_ANNOTATION),
            "{:?}",
            backup.metadata
        );
        Ok(backup.annotations().contains_key(FILES_MISSING_ANNOTATION))
    };
    ensure!(
        marked(names[0]).await? && !marked(names[5]).await?,
        "what is gone is not marked"
    );
    let user = world.kubectl_backup();
    let list = user.stdout(&["get", "vanishes-0", "vanishes-5"]).await?;
    ensure!(
        list.matches("its files are not in location vanishes")
            .count()
            == 1,
        "{list}"
    );
    world.store_completed(bucket, names[0])?;
    let told = world.sync(bucket, None).await?;
    ensure!(
        told.refused == 4 && !marked(names[0]).await?,
        "the mark of one that is there again stays: {told:?}"
    );
    remove(world, bucket, names[0])?;
    remove(world, bucket, names[5])?;
    let told = world.sync(bucket, None).await?;
    ensure!(told.refused == 6 && told.found == 0, "{told:?}");
    ensure!(
        told.notes.iter().any(|note| note.reason.contains("empty")),
        "{told:?}"
    );
    world.all_arrive(&names).await?;
    let refused = "velero_backup_sync_refused{backup_location_name=\"vanishes\"}";
    ensure!(
        world.metric(refused).await? == Some(6.0),
        "{refused} is not 6"
    );
    let period = "velero_backup_sync_period_seconds{backup_location_name=\"vanishes\"}";
    ensure!(
        world.metric(period).await?.is_some(),
        "{period} is not served"
    );
    let told = world.sync(bucket, Some(6)).await?;
    ensure!(told.removed == 6 && told.refused == 0, "{told:?}");
    for name in &names {
        world.backup_gone(name).await?;
    }
    world.forget_location(bucket).await
}

/// Whether a request lists all backups.
fn lists_all(asked: &Asked) -> bool {
    asked.query.contains("delimiter=") && asked.query.contains("prefix=backups%2F&")
        || asked.query.contains("delimiter=") && asked.query.ends_with("prefix=backups%2F")
}

async fn a_backup_missing_from_a_listing_is_looked_up_and_stays(world: &mut World) -> TestResult {
    let bucket = "hidden";
    let store = world.faulty_s3().await?;
    world
        .synced_bucket(
            bucket,
            &store.url(),
            &["hidden-1", "hidden-2", "really-gone"],
        )
        .await?;
    remove(world, bucket, "really-gone")?;
    store.affect(Mood::EmptyListing, lists_all);
    // Even if a user agrees to all removals, only missing backups are removed.
    let told = world.sync(bucket, Some(100)).await?;
    ensure!(told.found == 0 && told.removed == 1, "{told:?}");
    world.backup_gone("really-gone").await?;
    world.all_arrive(&["hidden-1", "hidden-2"]).await?;
    world.forget_location(bucket).await
}

async fn a_listing_that_fails_on_page_7_removes_nothing(world: &mut World) -> TestResult {
    let bucket = "pages";
    let store = world.faulty_s3().await?;
    world
        .synced_bucket(bucket, &store.url(), &["zz-first", "zz-gone"])
        .await?;
    let synced = async |world: &World| -> anyhow::Result<_> {
        Ok(world.locations().get(bucket).await?.status.last_synced_time)
    };
    let pages = AtomicUsize::new(0);
    store.rule(move |asked| {
        if !lists_all(asked) {
            return Mood::Pass;
        }
        if !asked.query.contains("continuation-token") {
            pages.store(1, Ordering::SeqCst);
        } else if pages.fetch_add(1, Ordering::SeqCst) == 6 {
            return Mood::Answer(403);
        }
        Mood::Pass
    });
    // No Backup can have these names, so they cause no requests.
    for number in 0..7_500 {
        let folder = world.stored_folder(bucket, &format!("F{number:04}"))?;
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("x"), b"")?;
    }
    // After the folders: a pass that lists before there are seven pages succeeds, and would rightly
    // remove it.
    remove(world, bucket, "zz-gone")?;
    eventually("the failing listing is told", TIMEOUT, async || {
        let told = world.sync_summary(bucket).await?;
        let error = told.error.clone().unwrap_or_default();
        anyhow::Ok(when(error.contains("403"), format!("{told:?}")))
    })
    .await?;
    let before = synced(world).await?;
    let told = world.sync(bucket, None).await?;
    ensure!(told.error.is_some() && told.removed == 0, "{told:?}");
    ensure!(synced(world).await? == before, "it counts as synced");
    world.backup_arrives("zz-gone").await?;
    store.calm();
    // One of two backups is missing, and the listing is long.
    world.backup_gone("zz-gone").await?;
    let told = world.sync(bucket, None).await?;
    ensure!(
        told.error.is_none() && told.skipped_as(&NoteKind::InvalidName) == 7_500,
        "{told:?}"
    );
    ensure!(told.notes.len() <= 20, "{}", told.notes.len());
    world.forget_location(bucket).await
}

/// A new backup costs four more requests: they also find out which volume data cannot be restored.
async fn an_unchanged_bucket_costs_one_listing(world: &mut World) -> TestResult {
    let bucket = "steady";
    world.s3()?.create_bucket(bucket).await?;
    let names: Vec<String> = (0..30)
        .map(|number| format!("steady-{number:02}"))
        .collect();
    for name in &names {
        world.store_completed(bucket, name)?;
    }
    let store = world.faulty_s3().await?;
    // Validated once, so that only passes are counted.
    let spec = json!({ "backupSyncPeriod": "0", "validationFrequency": "0" });
    world.synced_location(bucket, &store.url(), &spec).await?;
    ensure!(
        world.sync(bucket, None).await?.created == 30,
        "not all have arrived"
    );

    let before = world.backups().list_all().await?;
    let asked = store.asked().len();
    for _ in 0..3 {
        world.sync(bucket, None).await?;
    }
    let requests = store.asked().split_off(asked);
    ensure!(
        requests.len() == 3 && requests.iter().all(lists_all),
        "{requests:?}"
    );
    let versions = |list: &[backup_core::api::Backup]| -> Vec<_> {
        list.iter()
            .map(|backup| (backup.name_any(), backup.resource_version()))
            .collect()
    };
    let after = world.backups().list_all().await?;
    ensure!(
        versions(&before) == versions(&after),
        "a Backup was written"
    );

    world.store_completed(bucket, "steady-new")?;
    let asked = store.asked().len();
    ensure!(
        world.sync(bucket, None).await?.created == 1,
        "it has not arrived"
    );
    let requests = store.asked().split_off(asked);
    ensure!(
        requests.len() == 5 && lists_all(&requests[0]),
        "{requests:?}"
    );
    world.forget_location(bucket).await
}
