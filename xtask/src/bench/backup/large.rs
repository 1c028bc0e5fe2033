//! A backup of everything: its time, its size, and the controller's memory.

use anyhow::Context as _;
use backup_core::api::BackupSpec;
use backup_tests::{World, archive::gzip_size_in_go};

use super::rounds::{Rounds, back_up, commanded};
use crate::bench::{
    stats::{Sample, median},
    table::{Row, Table, Target, mib},
};

/// Maximum ratio between the time and the floor.
const MAX_RATIO: f64 = 1.1;
/// Maximum delay until a user who waits for a backup learns of its end (seconds).
const MAX_DELAY_SECONDS: f64 = 0.5;
/// Maximum ratio between the size of the tarball and that by Go's gzip.
const MAX_SIZE_RATIO: f64 = 1.1;
/// Maximum memory (MiB).
const MAX_MEMORY_MIB: f64 = 96.0;
/// Maximum number of objects for which that holds.
const MAX_MEMORY_OBJECTS: usize = 100_000;
/// Maximum growth of memory per additional item (bytes).
const MAX_GROWTH_BYTES: f64 = 100.0;
/// With fewer objects, the growth is noise.
const MIN_OBJECTS_FOR_GROWTH: usize = 50_000;

/// Peak memory of a fresh controller for a backup of everything.
pub struct Peak {
    mib: f64,
    items: u32,
}

/// Backs everything up with a fresh controller.
pub async fn peak(world: &mut World, name: &str) -> anyhow::Result<Peak> {
    world.renew_controller(0).await?;
    world.location_available("default").await?;
    back_up(world, name, BackupSpec::default()).await?;
    let progress = world.backups().get(name).await?.status.progress;
    let items = u32::try_from(progress.context("no progress")?.items_backed_up)?;
    let mib = mib(world.controllers[0].peak_memory_kib()?);
    eprintln!("{name}: {items} items, {mib:.1} MiB");
    Ok(Peak { mib, items })
}

/// Backs everything up, and compares the result with the floor and with `small`, a backup of fewer
/// objects.
pub async fn measure(
    world: &mut World,
    objects: usize,
    rounds: usize,
    small: &Peak,
    table: &mut Table,
) -> anyhow::Result<()> {
    let large = peak(world, "many").await?;
    let Rounds {
        times,
        lists,
        squeezes,
        tarball,
        tar,
    } = Rounds::measure(world, "round", &[], rounds).await?;
    let [time, list, squeeze] = [times, lists, squeezes].map(median);
    let floor = list + squeeze;
    table.row(&Row {
        what: format!("{objects} ConfigMaps of 1 KiB, from admission to Completed"),
        found: format!("{time:.2} s, {:.2} times the floor", time / floor),
        beside: format!("listing everything {list:.2} s, compressing {squeeze:.2} s"),
        target: Target::new(
            format!("{MAX_RATIO} times the floor: {:.2} s", MAX_RATIO * floor),
            time <= MAX_RATIO * floor,
        ),
    });
    waiting(world, rounds, table).await?;
    let ours = u32::try_from(tarball.len())?;
    let theirs = u32::try_from(gzip_size_in_go(&tar).await?)?;
    let ratio = f64::from(ours) / f64::from(theirs);
    table.row(&Row {
        what: "size of the tarball".to_owned(),
        found: format!("{ours} bytes, {ratio:.3} times"),
        beside: format!("Go's gzip of the same archive: {theirs} bytes"),
        target: Target::at_most(ratio, MAX_SIZE_RATIO, " times"),
    });
    memory(objects, small, &large, table);
    Ok(())
}

/// The time between the end of a backup and that of `create --wait`.
async fn waiting(world: &World, rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    let mut waits = Sample::default();
    let mut times = Sample::default();
    for round in 0..rounds {
        let name = format!("waited-for-{round}");
        let person = world.kubectl_backup();
        let arguments = ["create", name.as_str(), "--wait"];
        let (wait, time) = commanded(world, &name, person.succeeds(&arguments)).await?;
        waits.push(wait);
        times.push(time);
    }
    let [wait, time] = [waits, times].map(|sample| sample.median() / 1e3);
    table.row(&Row {
        what: "the same for who types `create --wait`".to_owned(),
        found: format!("{wait:.2} s, {:.2} s later", wait - time),
        beside: format!("from the command to Completed: {time:.2} s"),
        target: Target::at_most(wait - time, MAX_DELAY_SECONDS, " s later"),
    });
    Ok(())
}

fn memory(objects: usize, small: &Peak, large: &Peak, table: &mut Table) {
    table.row(&Row {
        what: "peak memory of a fresh controller".to_owned(),
        found: format!("{:.1} MiB with {} items", large.mib, large.items),
        beside: format!("{:.1} MiB with {} items", small.mib, small.items),
        target: Target::new(
            format!("{MAX_MEMORY_MIB} MiB with {MAX_MEMORY_OBJECTS} objects"),
            large.mib <= MAX_MEMORY_MIB || objects > MAX_MEMORY_OBJECTS,
        ),
    });
    if objects >= MIN_OBJECTS_FOR_GROWTH {
        let further = f64::from(large.items.saturating_sub(small.items).max(1));
        let growth = (large.mib - small.mib) * 1024.0 * 1024.0 / further;
        table.row(&Row {
            what: "memory for each further item".to_owned(),
            found: format!("{growth:.0} bytes"),
            beside: format!("{further} further items"),
            target: Target::at_most(growth, MAX_GROWTH_BYTES, " bytes"),
        });
    }
}
