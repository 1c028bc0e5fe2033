//! Backups of a part of the cluster, with many objects in other parts: their time must not depend
//! on these.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use backup_core::api::{Backup, BackupSpec};
use backup_tests::{World, kubectl::with_kind, world::backups::of_namespaces};
use serde_json::json;

use super::{
    floor,
    large::{PAUSE, TIMEOUT, read, unpack},
};
use crate::bench::{
    backup_watch::BackupWatch,
    objects,
    stats::{Sample, paired_ratio},
    table::{Row, Table},
};

/// Number of other namespaces, which contain the other objects.
const OTHER_NAMESPACES: usize = 48;
/// Maximum ratio between the time and the floor.
const MAX_RATIO: f64 = 1.2;
/// Number of ConfigMaps in the small namespace.
const SMALL_OBJECTS: usize = 500;
/// Maximum time for its backup, from the start of `kubectl create` (seconds).
const MAX_SMALL_SECONDS: f64 = 0.35;

/// Backs up `objects` ConfigMaps in twenty namespaces, before and after `others` are created in 48
/// other ones, then a small namespace.
pub async fn measure(
    world: &mut World,
    objects: usize,
    others: usize,
    rounds: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    eprintln!("creating {objects} ConfigMaps");
    objects::create(&world.client, 0..objects).await?;
    let names = objects::namespaces();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    world.location_available("default").await?;
    let alone = twenty(world, "alone", &names, rounds).await?;
    eprintln!("creating {others} beside them");
    let beside: Vec<String> = (0..OTHER_NAMESPACES)
        .map(|number| format!("beside-{number:02}"))
        .collect();
    objects::create_in(&world.client, &beside, &json!({}), 0..others).await?;
    let found = twenty(world, "beside", &names, rounds).await?;
    for (what, measured) in [("alone", alone), ("beside", found)] {
        let RoundTimes {
            times,
            lists,
            squeezes,
        } = measured;
        let floors: Vec<f64> = lists
            .iter()
            .zip(&squeezes)
            .map(|(list, squeeze)| list + squeeze)
            .collect();
        let ratio = paired_ratio(&times, &floors);
        let [time, list, squeeze] = [times, lists, squeezes].map(crate::bench::stats::median);
        table.row(&Row {
            what: match what {
                "alone" => {
                    format!("twenty namespaces with {objects} ConfigMaps, nothing else there")
                }
                _ => format!("the same beside {others} in {OTHER_NAMESPACES} other namespaces"),
            },
            found: format!("{time:.2} s, {ratio:.2} times the floor"),
            beside: format!("listing just these {list:.2} s, compressing {squeeze:.2} s"),
            asked: format!("{MAX_RATIO} times the floor"),
            met: Some(ratio <= MAX_RATIO),
        });
    }
    small(world, others, rounds, table).await
}

/// Durations of each round (seconds).
#[derive(Default)]
struct RoundTimes {
    times: Vec<f64>,
    lists: Vec<f64>,
    squeezes: Vec<f64>,
}

async fn twenty(
    world: &World,
    prefix: &str,
    names: &[&str],
    rounds: usize,
) -> anyhow::Result<RoundTimes> {
    let mut measured = RoundTimes::default();
    // The first round fills caches.
    for round in 0..=rounds {
        tokio::time::sleep(PAUSE).await;
        let start = Instant::now();
        let listed = floor::list_of(&world.client, names).await?;
        let list = start.elapsed().as_secs_f64();
        tokio::time::sleep(PAUSE).await;
        let name = format!("{prefix}-{round}");
        let mut watch = BackupWatch::start(&world.client).await?;
        let start = Instant::now();
        world.create_backup(&name, of_namespaces(names)).await?;
        let ended = watch
            .completed(std::slice::from_ref(&name), TIMEOUT)
            .await?;
        let time = ended
            .first()
            .context("no backup")?
            .duration_since(start)
            .as_secs_f64();
        let tar = unpack(&read(world, &name).await?)?;
        let start = Instant::now();
        floor::compress(&tar);
        let squeeze = start.elapsed().as_secs_f64();
        eprintln!(
            "{name}: {time:.3} s; listing {listed} objects {list:.3} s, compressing {squeeze:.3} s"
        );
        if round > 0 {
            measured.times.push(time);
            measured.lists.push(list);
            measured.squeezes.push(squeeze);
        }
    }
    Ok(measured)
}

/// A backup of one namespace, as its user experiences it.
async fn small(
    world: &World,
    others: usize,
    rounds: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    objects::create_in(
        &world.client,
        &["bench-one".to_owned()],
        &json!({}),
        0..SMALL_OBJECTS,
    )
    .await?;
    let kubectl = world.kubectl()?;
    let mut seen = Sample::default();
    let mut created = Sample::default();
    for round in 0..=rounds {
        tokio::time::sleep(PAUSE).await;
        let name = format!("one-{round}");
        let spec: BackupSpec = of_namespaces(&["bench-one"]);
        let manifest = kubectl.manifest(&with_kind(&Backup::new(&name, spec)))?;
        let mut watch = BackupWatch::start(&world.client).await?;
        let start = Instant::now();
        let arguments = ["create", "-f", manifest.as_str()];
        let (ran, ended) = tokio::join!(
            kubectl.succeeds(&arguments),
            watch.completed(std::slice::from_ref(&name), TIMEOUT)
        );
        let command = ran?.elapsed;
        let time: Duration = ended?.first().context("no backup")?.duration_since(start);
        eprintln!("{name}: {time:?}, of which kubectl create {command:?}");
        if round > 0 {
            seen.push(time);
            created.push(command);
        }
    }
    let [time, command] = [seen, created].map(|sample| sample.median() / 1e3);
    table.row(&Row {
        what: format!(
            "one namespace of {SMALL_OBJECTS} ConfigMaps beside {others}, from `kubectl create` to Completed"
        ),
        found: format!("{time:.2} s"),
        beside: format!("`kubectl create` alone {command:.2} s"),
        asked: format!("{MAX_SMALL_SECONDS} s"),
        met: Some(time <= MAX_SMALL_SECONDS),
    });
    Ok(())
}
