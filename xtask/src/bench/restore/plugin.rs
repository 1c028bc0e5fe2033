//! `cargo xtask bench restore --plugin`: a restore whose items a plugin changes, compared with the
//! same without it.

use std::time::Duration;

use anyhow::ensure;
use backup_core::api::RestoreSpec;
use backup_tests::{
    World,
    faulty_s3::{FaultyS3, Mood},
    world::backups::into_location,
};
use serde_json::json;

use super::{into, restored};
use crate::bench::{
    objects,
    table::{Row, Table, Target},
};

/// Name of the bucket, the location and the backup.
const NAME: &str = "bench-plugin";
/// Namespaces with the action, and without.
const NAMESPACES: usize = 10;
/// Maximum ratio between the times with and without the action.
const MAX_RATIO: f64 = 1.5;

/// `delay` is the additional time that the bucket takes for a request.
pub async fn measure(
    world: &mut World,
    objects: usize,
    delay: Duration,
    table: &mut Table,
) -> anyhow::Result<()> {
    let plugins = world.plugins()?;
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
    restored_into(world, &without, "first").await?;
    let floor_before = restored_into(world, &without, "before").await?;
    let before = front.asked().len();
    let calls = plugins.calls().len();
    let took = restored_into(world, &with, "changed").await?;
    let calls = plugins.calls().len() - calls;
    let writes = journal_writes(&front, before);
    // Creating gets slower with the number of objects: the floor is the mean of before and after.
    let floor_after = restored_into(world, &without, "after").await?;
    let floor = f64::midpoint(floor_before, floor_after);
    ensure!(
        calls == objects,
        "the plugin was called {calls} times for {objects} items"
    );
    let delay = delay.as_millis();
    table.row(&Row::times(
        format!("restore of {objects} ConfigMaps of 1 KiB that a plugin changes"),
        took,
        format!("without it {floor:.2} s; the bucket takes {delay} ms"),
        floor,
        MAX_RATIO,
    ));
    table.row(&Row {
        what: "its writes to the journal".to_owned(),
        found: writes.to_string(),
        beside: format!("{calls} calls of the plugin"),
        target: Target::new("half as many", writes * 2 <= calls),
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
async fn restored_into(world: &World, names: &[String], restore: &str) -> anyhow::Result<f64> {
    let spec = RestoreSpec {
        included_namespaces: names.to_vec(),
        ..into(NAME, names, restore)
    };
    restored(world, restore, spec).await
}
