//! Many small backups queued at once: how long one takes must not depend on how many wait.

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
    backup_watch::BackupWatch,
    table::{Row, Table},
};

/// What the large number is compared with.
const FEW: u16 = 50;
/// Backups of one person.
const EACH: usize = 300;
/// A backup among many may take so many times as long.
const LONGER: f64 = 1.2;
const SMALL: &str = "bench-small";
const PATIENCE: Duration = Duration::from_mins(15);

/// Queues 50 and `many` backups of three ConfigMaps.
pub async fn measure(world: &mut World, many: u16, table: &mut Table) -> anyhow::Result<()> {
    let client = world.client.clone();
    ensure_namespace(&client, SMALL).await?;
    let items = (0..3).map(|number| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("small-{number}"), "namespace": SMALL } })
    });
    create_all(&client, items).await?;
    // Before and after, so that what grows with the age of the cluster hits both.
    let before = each(world, "few", FEW).await?;
    let large = each(world, "many", many).await?;
    let after = each(world, "again", FEW).await?;
    let small = f64::midpoint(before, after);
    table.row(&Row {
        what: format!("each of {many} small backups queued at once"),
        found: format!("{:.0} ms, {:.2} times", large * 1e3, large / small),
        beside: format!("each of {FEW}: {:.0} ms before, {:.0} ms after", before * 1e3, after * 1e3),
        asked: format!("{LONGER} times"),
        met: Some(large <= LONGER * small),
    });
    Ok(())
}

/// Queues so many backups while no controller runs, then lets it work. Seconds from the end of one to the end of the next,
/// on average.
async fn each(world: &mut World, prefix: &str, count: u16) -> anyhow::Result<f64> {
    ensure!(count > 1, "one backup has no next one");
    ensure!(world.controllers[0].stop(Duration::from_mins(1)).await?, "the controller does not end");
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number:04}")).collect();
    // One person's backups may take half of the ledger at most.
    for (person, names) in names.chunks(EACH).enumerate() {
        let client = world.plane.administrator(&format!("person-{person}")).await?;
        let backups = names.iter().map(|name| {
            json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
                "metadata": { "name": name, "namespace": NAMESPACE }, "spec": of_namespaces(&[SMALL]) })
        });
        create_all(&client, backups).await?;
    }
    let mut watch = BackupWatch::start(&world.client).await?;
    world.controllers[0].restart().await?;
    let times = watch.completed(&names, PATIENCE).await?;
    let (first, last) = (times.first().context("none")?, times.last().context("none")?);
    let each = last.duration_since(*first).as_secs_f64() / f64::from(count - 1);
    eprintln!("{count} queued: {:.1} ms each", each * 1e3);
    // They must not be in the way of what is measured next. One person's deletions may take half of the ledger, too, and are
    // free once the object is gone.
    for backup in world.backups().list_metadata(&ListParams::default()).await? {
        let name = backup.name_any();
        eventually("the deletion is admitted", PATIENCE, async || {
            match world.backups().delete_object(&name).await {
                Err(kube::Error::Api(refused)) if refused.code == 403 => Ok(Probe::NotYet(refused.message)),
                done => done.map(Probe::Ready),
            }
        })
        .await?;
    }
    Ok(each)
}
