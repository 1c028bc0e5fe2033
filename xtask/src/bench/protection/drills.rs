//! Drills of a backup, beside restores of the same objects into mapped namespaces.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{DrillSpec, Restore},
    drill::{self, DrillState},
};
use backup_tests::{World, world::backups::of_namespaces};
use kube::runtime::wait::await_condition;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::TIMEOUT;
use crate::bench::{
    objects,
    restore::{self, PAUSE},
    stats::median,
    table::{Row, Table},
};

/// Maximum ratio between the time of a drill and that of a restore.
const MAX_RATIO: f64 = 1.2;
/// Number of namespaces with the objects.
const NAMESPACES: usize = 10;
/// Name of the backup.
const BACKUP: &str = "bench-drills";

pub async fn measure(
    world: &World,
    objects: usize,
    rounds: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    let names: Vec<String> = (0..NAMESPACES)
        .map(|number| format!("bench-drill-{number:02}"))
        .collect();
    objects::create_in(&world.client, &names, &json!({}), 0..objects).await?;
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    world.back_up(BACKUP, of_namespaces(&all)).await?;

    let mut times = Vec::new();
    let mut removals = Vec::new();
    let mut floors = Vec::new();
    // The first restore of a process is slower than later ones.
    for round in 0..=rounds {
        sleep(PAUSE).await;
        let name = format!("bench-restore-{round}");
        let spec = restore::into(BACKUP, &names, &format!("restored-{round}"));
        let floor = restore::restored(world, &name, spec).await?;
        sleep(PAUSE).await;
        let name = format!("bench-drill-{round}");
        let DrillRun { seconds, removal } = run(world, &name, &names, objects).await?;
        eprintln!("{name}: {seconds:.2} s, removal {removal:.2} s, restore {floor:.2} s");
        if round > 0 {
            times.push(seconds);
            removals.push(removal);
            floors.push(floor);
        }
    }
    let [time, removal, floor] = [times, removals, floors].map(median);
    table.row(&Row::times(
        format!("drill of {objects} ConfigMaps in {NAMESPACES} namespaces, until its result"),
        time,
        format!("restore into mapped namespaces {floor:.2} s; then removal {removal:.1} s"),
        floor,
        MAX_RATIO,
    ));
    Ok(())
}

/// A drill that is over.
struct DrillRun {
    /// Time from the creation of the Restore until the drill has its result (seconds).
    seconds: f64,
    /// Time from then until no scratch namespace is left (seconds).
    removal: f64,
}

/// Restores the backup of these namespaces on trial.
async fn run(
    world: &World,
    name: &str,
    namespaces: &[String],
    objects: usize,
) -> anyhow::Result<DrillRun> {
    let namespaces = namespaces.iter().cloned().collect();
    let id = drill::id(&[name]);
    let spec = drill::restore_spec(BACKUP, &id, &namespaces, DrillSpec::default());
    world.create_restore(name, spec).await?;
    let start = Instant::now();
    let state = reached(world, name, |state| state.result.is_some()).await?;
    let seconds = start.elapsed().as_secs_f64();
    let result = state.result.context("no result")?;
    ensure!(
        !result.has_failed() && result.restored >= objects,
        "{name}: {result:?}"
    );
    let start = Instant::now();
    reached(world, name, |state| state.is_over).await?;
    Ok(DrillRun {
        seconds,
        removal: start.elapsed().as_secs_f64(),
    })
}

/// Waits until the state of a drill fulfils a condition.
async fn reached(
    world: &World,
    name: &str,
    is_so: fn(&DrillState) -> bool,
) -> anyhow::Result<DrillState> {
    let reached = await_condition(world.restores(), name, |restore: Option<&Restore>| {
        restore.is_some_and(|restore| is_so(&DrillState::of(restore)))
    });
    let reached = timeout(TIMEOUT, reached).await;
    let restore =
        reached.with_context(|| format!("drill {name} makes no progress within {TIMEOUT:?}"))??;
    Ok(DrillState::of(&restore.context("the drill is gone")?))
}
