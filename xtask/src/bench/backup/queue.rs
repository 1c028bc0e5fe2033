//! Many small backups queued at once: the time for one must not depend on the number of queued
//! ones.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_tests::{
    World,
    api::{ApiExt as _, create_all},
    install::{NAMESPACE, ensure_namespace},
    wait::{Probe, eventually},
    world::backups::of_namespaces,
};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;

use crate::bench::{
    backup_watch::{BackupWatch, TIMEOUT},
    table::{Row, Table, Target},
};

/// Number of backups for comparison.
const FEW_BACKUPS: u16 = 50;
/// Number of backups per user.
const BACKUPS_PER_USER: usize = 300;
/// Maximum ratio between the time of a backup among many and among few.
const MAX_RATIO: f64 = 1.2;
const SMALL: &str = "bench-small";

/// Queues 50 and `many` backups of three ConfigMaps.
pub async fn measure(world: &mut World, many: u16, table: &mut Table) -> anyhow::Result<()> {
    let client = world.client.clone();
    ensure_namespace(&client, SMALL).await?;
    let items = (0..3).map(|number| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("small-{number}"), "namespace": SMALL } })
    });
    create_all(&client, items).await?;
    // Measured before and after, so that effects of the cluster's age are averaged out.
    let before = each(world, "few", FEW_BACKUPS).await?;
    let large = each(world, "many", many).await?;
    let after = each(world, "again", FEW_BACKUPS).await?;
    let small = f64::midpoint(before, after);
    table.row(&Row {
        what: format!("each of {many} small backups queued at once"),
        found: format!("{:.0} ms, {:.2} times", large * 1e3, large / small),
        beside: format!(
            "each of {FEW_BACKUPS}: {:.0} ms before, {:.0} ms after",
            before * 1e3,
            after * 1e3
        ),
        target: Target::at_most(large / small, MAX_RATIO, " times"),
    });
    Ok(())
}

/// Queues `count` backups while no controller runs, then starts it. Returns the average time from
/// the end of one to the end of the next (seconds).
async fn each(world: &mut World, prefix: &str, count: u16) -> anyhow::Result<f64> {
    ensure!(count > 1, "one backup has no next one");
    ensure!(
        world.controllers[0].stop(Duration::from_mins(1)).await?,
        "the controller does not end"
    );
    let names: Vec<String> = (0..count)
        .map(|number| format!("{prefix}-{number:04}"))
        .collect();
    // Backups of one user may take half of the ledger at most.
    for (person, names) in names.chunks(BACKUPS_PER_USER).enumerate() {
        let client = world
            .plane
            .administrator(&format!("person-{person}"))
            .await?;
        let backups = names.iter().map(|name| {
            json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
                "metadata": { "name": name, "namespace": NAMESPACE }, "spec": of_namespaces(&[SMALL]) })
        });
        create_all(&client, backups).await?;
    }
    let mut watch = BackupWatch::start(&world.client).await?;
    world.controllers[0].restart().await?;
    let times = watch.completed(&names).await?;
    let first = times.first().context("none")?;
    let last = times.last().context("none")?;
    let each = last.duration_since(*first).as_secs_f64() / f64::from(count - 1);
    eprintln!("{count} queued: {:.1} ms each", each * 1e3);
    // They must not affect the next measurement. Deletions by one user may also take half of the
    // ledger at most; their claims are freed once the objects are gone.
    for backup in world
        .backups()
        .list_metadata(&ListParams::default())
        .await?
    {
        let name = backup.name_any();
        eventually("the deletion is admitted", TIMEOUT, async || {
            match world.backups().delete_object(&name).await {
                Err(kube::Error::Api(refused)) if refused.code == 403 => {
                    Ok(Probe::NotYet(refused.message))
                }
                done => done.map(Probe::Ready),
            }
        })
        .await?;
    }
    Ok(each)
}
