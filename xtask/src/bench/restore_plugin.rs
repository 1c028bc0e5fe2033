//! `cargo xtask bench restore --plugin`: a restore whose items a plugin changes, compared with the
//! same without it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::api::RestoreSpec;
use backup_tests::{
    World,
    faulty_s3::{FaultyS3, Mood},
    world::backups::{from_backup, into_location},
};
use serde_json::json;

use super::{
    objects,
    restore::ended,
    table::{Row, Table},
};

/// Name of the bucket, the location and the backup.
const NAME: &str = "bench-plugin";
/// Namespaces with the action, and without.
const NAMESPACES: usize = 10;
/// Maximum ratio between the times with and without the action.
const MAX_RATIO: f64 = 1.5;

/// `delay` is the additional time that the bucket takes for a request.
pub async fn run(objects: usize, delay: Duration) -> anyhow::Result<()> {
    let builder = World::builder().plugins();
    super::in_world(builder, async |world, table| {
        measure(world, objects, delay, table).await
    })
    .await
}

async fn measure(
    world: &mut World,
    objects: usize,
    delay: Duration,
    table: &mut Table,
) -> anyhow::Result<()> {
    let plugins = world
        .plugins
        .clone()
        .context("the plugins are built with Go: install it")?;
    let front = world.faulty_s3().await?;
    if !delay.is_zero() {
        front.rule(move |_| Mood::Slow(delay));
    }
    world.s3()?.create_bucket(NAME).await?;
    world.s3_location(NAME, &front.url()).await?;
    let without = namespaces("plain");
    let with = namespaces("changed");
    // The objects differ only in the name of the action that selects them: no action has the first
    // name.
    for (names, action) in [(&without, "none"), (&with, "move")] {
        let metadata = json!({ "labels": { "example.io/restored-by": action }, "annotations": { "example.io/restore": "mark" } });
        objects::create_in(&world.client, names, &metadata, 0..objects).await?;
    }
    let all: Vec<&str> = without.iter().chain(&with).map(String::as_str).collect();
    world.back_up(NAME, into_location(NAME, &all)).await?;

    // The first restore of a process is slower than later ones.
    restored(world, &without, "first").await?;
    let floor_before = restored(world, &without, "before").await?;
    let before = front.asked().len();
    let calls = plugins.calls().len();
    let took = restored(world, &with, "changed").await?;
    let calls = plugins.calls().len() - calls;
    let writes = journal_writes(&front, before);
    // Creating gets slower with the number of objects: the floor is the mean of before and after.
    let floor = f64::midpoint(floor_before, restored(world, &without, "after").await?);
    ensure!(
        calls == objects,
        "the plugin was called {calls} times for {objects} items"
    );
    table.row(&Row {
        what: format!("restore of {objects} ConfigMaps of 1 KiB that a plugin changes"),
        found: format!("{took:.2} s, {:.2} times", took / floor),
        beside: format!(
            "without it {floor:.2} s; the bucket takes {} ms",
            delay.as_millis()
        ),
        asked: format!("{MAX_RATIO} times"),
        met: Some(took <= floor * MAX_RATIO),
    });
    table.row(&Row {
        what: "its writes to the journal".to_owned(),
        found: writes.to_string(),
        beside: format!("{calls} calls of the plugin"),
        asked: "half as many".to_owned(),
        met: Some(writes * 2 <= calls),
    });
    Ok(())
}

fn journal_writes(front: &FaultyS3, before: usize) -> usize {
    let all = front.asked();
    all[before..]
        .iter()
        .filter(|asked| asked.makes_visible() && asked.key.contains("/journal-"))
        .count()
}

fn namespaces(kind: &str) -> Vec<String> {
    (0..NAMESPACES)
        .map(|number| format!("bench-{kind}-{number:02}"))
        .collect()
}

/// The duration of a restore of these namespaces into others (seconds).
async fn restored(world: &World, names: &[String], restore: &str) -> anyhow::Result<f64> {
    let spec = RestoreSpec {
        included_namespaces: names.to_vec(),
        namespace_mapping: names
            .iter()
            .map(|name| (name.clone(), format!("{name}-{restore}")))
            .collect(),
        ..from_backup(NAME)
    };
    world.create_restore(restore, spec).await?;
    ended(world, restore).await
}
