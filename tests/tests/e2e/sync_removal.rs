//! What is gone from a bucket leaves the cluster, after a second look and never all at once; what has not changed costs one
//! listing.

use anyhow::ensure;
use backup_tests::{
    World,
    faulty_s3::{Asked, FaultyS3, Mood},
    wait::{eventually, when},
};
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    main_job::{backups, s3},
    sync::{SOON, arrives, end, folder, leaves, location, locations, metadata, pass, put, summary},
};

crate::tests! {
    a_backup_that_is_gone_from_its_bucket_leaves_and_nothing_else_does,
    a_listing_that_is_empty_or_shrunken_removes_nothing_until_a_person_agrees,
    a_backup_that_a_listing_does_not_show_is_looked_at_again_and_stays,
    a_listing_that_fails_on_page_7_removes_nothing_and_is_told,
    what_has_not_changed_costs_one_listing_and_a_new_backup_two_requests_more,
}

fn remove(world: &World, bucket: &str, name: &str) -> anyhow::Result<()> {
    Ok(std::fs::remove_dir_all(folder(world, bucket, name)?)?)
}

async fn a_backup_that_is_gone_from_its_bucket_leaves_and_nothing_else_does(
    world: &mut World,
) -> anyhow::Result<()> {
    let bucket = "shrinks";
    s3(world)?.create_bucket(bucket).await?;
    let names =
        ["gone", "gone-failed", "gone-deleting", "gone-restoring", "stays", "stays-too", "stays-three"];
    for name in names {
        let phase = if name == "gone-failed" { "Failed" } else { "Completed" };
        put(world, bucket, name, &metadata(name, phase))?;
    }
    location(world, bucket, &s3(world)?.url(), &json!({})).await?;
    for name in names {
        arrives(world, name).await?;
    }
    // In the middle of its deletion, which is by whoever deletes.
    let patch = json!({ "status": { "phase": "Deleting" } });
    let glass = json!({ "metadata": { "annotations": { "backup-lock/break-glass": "test" } } });
    for patch in [glass, patch] {
        backups(world).patch("gone-deleting", &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    for name in ["gone", "gone-failed", "gone-deleting"] {
        remove(world, bucket, name)?;
    }
    leaves(world, "gone").await?;
    pass(world, bucket, None).await?;
    for name in &names[1..] {
        arrives(world, name).await?;
    }
    end(world, bucket).await
}

async fn a_listing_that_is_empty_or_shrunken_removes_nothing_until_a_person_agrees(
    world: &mut World,
) -> anyhow::Result<()> {
    let bucket = "vanishes";
    s3(world)?.create_bucket(bucket).await?;
    let names: Vec<String> = (0..6).map(|number| format!("vanishes-{number}")).collect();
    for name in &names {
        put(world, bucket, name, &metadata(name, "Completed"))?;
    }
    location(world, bucket, &s3(world)?.url(), &json!({})).await?;
    for name in &names {
        arrives(world, name).await?;
    }
    for name in &names[..5] {
        remove(world, bucket, name)?;
    }
    let told = pass(world, bucket, None).await?;
    ensure!(told.refused == 5 && told.removed == 0, "{told:?}");
    let told = pass(world, bucket, Some(4)).await?;
    ensure!(told.refused == 5 && told.removed == 0, "more than was agreed to: {told:?}");
    remove(world, bucket, &names[5])?;
    let told = pass(world, bucket, None).await?;
    ensure!(told.refused == 6 && told.found == 0, "{told:?}");
    ensure!(told.notes.iter().any(|note| note.reason.contains("empty")), "{told:?}");
    for name in &names {
        arrives(world, name).await?;
    }
    let metrics =
        reqwest::get(format!("http://{}/metrics", world.controller_health[0])).await?.text().await?;
    let line = "velero_backup_sync_refused{backup_location_name=\"vanishes\"} 6";
    ensure!(metrics.lines().any(|found| found == line), "no {line}");
    let told = pass(world, bucket, Some(6)).await?;
    ensure!(told.removed == 6 && told.refused == 0, "{told:?}");
    for name in &names {
        leaves(world, name).await?;
    }
    end(world, bucket).await
}

/// The listing of all backups.
fn lists_all(asked: &Asked) -> bool {
    asked.query.contains("delimiter=") && asked.query.contains("prefix=backups%2F&")
        || asked.query.contains("delimiter=") && asked.query.ends_with("prefix=backups%2F")
}

async fn a_backup_that_a_listing_does_not_show_is_looked_at_again_and_stays(
    world: &mut World,
) -> anyhow::Result<()> {
    let bucket = "hidden";
    s3(world)?.create_bucket(bucket).await?;
    let names = ["hidden-1", "hidden-2", "really-gone"];
    for name in names {
        put(world, bucket, name, &metadata(name, "Completed"))?;
    }
    let store = FaultyS3::start(s3(world)?.address()).await?;
    location(world, bucket, &store.url(), &json!({})).await?;
    for name in names {
        arrives(world, name).await?;
    }
    remove(world, bucket, "really-gone")?;
    store.rule(|asked| if lists_all(asked) { Mood::EmptyListing } else { Mood::Pass });
    // Even a person that agrees to all of it agrees to what is gone only.
    let told = pass(world, bucket, Some(100)).await?;
    ensure!(told.found == 0 && told.removed == 1, "{told:?}");
    leaves(world, "really-gone").await?;
    for name in &names[..2] {
        arrives(world, name).await?;
    }
    end(world, bucket).await
}

async fn a_listing_that_fails_on_page_7_removes_nothing_and_is_told(world: &mut World) -> anyhow::Result<()> {
    let bucket = "pages";
    s3(world)?.create_bucket(bucket).await?;
    for name in ["zz-first", "zz-gone"] {
        put(world, bucket, name, &metadata(name, "Completed"))?;
    }
    let store = FaultyS3::start(s3(world)?.address()).await?;
    location(world, bucket, &store.url(), &json!({})).await?;
    for name in ["zz-first", "zz-gone"] {
        arrives(world, name).await?;
    }
    let synced = async |world: &World| -> anyhow::Result<_> {
        Ok(locations(world).get(bucket).await?.status.last_synced_time)
    };
    let pages = std::sync::atomic::AtomicUsize::new(0);
    store.rule(move |asked| {
        if !lists_all(asked) {
            return Mood::Pass;
        }
        if !asked.query.contains("continuation-token") {
            pages.store(1, std::sync::atomic::Ordering::SeqCst);
        } else if pages.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 6 {
            return Mood::Answer(403);
        }
        Mood::Pass
    });
    remove(world, bucket, "zz-gone")?;
    // No Backup can have these names, so nothing is asked about them.
    for number in 0..7_500 {
        let folder = folder(world, bucket, &format!("F{number:04}"))?;
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("x"), b"")?;
    }
    let told = eventually("the failing listing is told", SOON, async || {
        let told = summary(world, bucket).await?;
        let error = told.error.clone().unwrap_or_default();
        anyhow::Ok(when(error.contains("403"), format!("{told:?}")))
    })
    .await;
    told?;
    let before = synced(world).await?;
    let told = pass(world, bucket, None).await?;
    ensure!(told.error.is_some() && told.removed == 0, "{told:?}");
    ensure!(synced(world).await? == before, "it counts as synced");
    arrives(world, "zz-gone").await?;
    store.calm();
    // One of two is gone, and the listing is long.
    leaves(world, "zz-gone").await?;
    let told = pass(world, bucket, None).await?;
    ensure!(told.error.is_none() && told.skipped.get("not_a_name") == Some(&7_500), "{told:?}");
    ensure!(told.notes.len() <= 20, "{}", told.notes.len());
    end(world, bucket).await
}

async fn what_has_not_changed_costs_one_listing_and_a_new_backup_two_requests_more(
    world: &mut World,
) -> anyhow::Result<()> {
    let bucket = "steady";
    s3(world)?.create_bucket(bucket).await?;
    let names: Vec<String> = (0..30).map(|number| format!("steady-{number:02}")).collect();
    for name in &names {
        put(world, bucket, name, &metadata(name, "Completed"))?;
    }
    let store = FaultyS3::start(s3(world)?.address()).await?;
    // Validated once, so that only passes are counted.
    let spec = json!({ "backupSyncPeriod": "0", "validationFrequency": "0" });
    location(world, bucket, &store.url(), &spec).await?;
    ensure!(pass(world, bucket, None).await?.created == 30, "not all have arrived");

    let before = backups(world).list(&ListParams::default()).await?.items;
    let asked = store.asked().len();
    for _ in 0..3 {
        pass(world, bucket, None).await?;
    }
    let requests = store.asked().split_off(asked);
    ensure!(requests.len() == 3 && requests.iter().all(lists_all), "{requests:?}");
    let versions = |list: &[backup_core::api::Backup]| -> Vec<_> {
        list.iter().map(|backup| (backup.name_any(), backup.resource_version())).collect()
    };
    let after = backups(world).list(&ListParams::default()).await?.items;
    ensure!(versions(&before) == versions(&after), "a Backup was written");

    put(world, bucket, "steady-new", &metadata("steady-new", "Completed"))?;
    let asked = store.asked().len();
    ensure!(pass(world, bucket, None).await?.created == 1, "it has not arrived");
    let requests = store.asked().split_off(asked);
    ensure!(requests.len() == 3 && lists_all(&requests[0]), "{requests:?}");
    end(world, bucket).await
}
