//! Backups of a part of the cluster, with many objects in other parts: their time must not depend
//! on these.

use backup_core::api::Backup;
use backup_tests::{World, kubectl::with_kind, world::backups::of_namespaces};
use serde_json::json;

use super::rounds::{PAUSE, Rounds, commanded};
use crate::bench::{
    objects,
    stats::{Sample, median, paired_ratio},
    table::{Row, Table, Target},
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
    world: &World,
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
    let alone = Rounds::measure(world, "alone", &names, rounds).await?;
    eprintln!("creating {others} beside them");
    let beside: Vec<String> = (0..OTHER_NAMESPACES)
        .map(|number| format!("beside-{number:02}"))
        .collect();
    objects::create_in(&world.client, &beside, &json!({}), 0..others).await?;
    let found = Rounds::measure(world, "beside", &names, rounds).await?;
    let what = format!("twenty namespaces with {objects} ConfigMaps, nothing else there");
    twenty(what, alone, table);
    let what = format!("the same beside {others} in {OTHER_NAMESPACES} other namespaces");
    twenty(what, found, table);
    small(world, others, rounds, table).await
}

fn twenty(what: String, measured: Rounds, table: &mut Table) {
    let Rounds {
        times,
        lists,
        squeezes,
        ..
    } = measured;
    let floors: Vec<f64> = lists
        .iter()
        .zip(&squeezes)
        .map(|(list, squeeze)| list + squeeze)
        .collect();
    let ratio = paired_ratio(&times, &floors);
    let [time, list, squeeze] = [times, lists, squeezes].map(median);
    table.row(&Row {
        what,
        found: format!("{time:.2} s, {ratio:.2} times the floor"),
        beside: format!("listing just these {list:.2} s, compressing {squeeze:.2} s"),
        target: Target::at_most(ratio, MAX_RATIO, " times the floor"),
    });
}

/// A backup of one namespace, as its user experiences it.
async fn small(
    world: &World,
    others: usize,
    rounds: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    let namespace = "bench-one";
    let namespaces = [namespace.to_owned()];
    objects::create_in(&world.client, &namespaces, &json!({}), 0..SMALL_OBJECTS).await?;
    let kubectl = world.kubectl()?;
    let mut seen = Sample::default();
    let mut created = Sample::default();
    // The first round fills caches.
    for round in 0..=rounds {
        tokio::time::sleep(PAUSE).await;
        let name = format!("one-{round}");
        let backup = Backup::new(&name, of_namespaces(&[namespace]));
        let manifest = kubectl.manifest(&with_kind(&backup))?;
        let arguments = ["create", "-f", manifest.as_str()];
        let (command, time) = commanded(world, &name, kubectl.succeeds(&arguments)).await?;
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
        target: Target::at_most(time, MAX_SMALL_SECONDS, " s"),
    });
    Ok(())
}
