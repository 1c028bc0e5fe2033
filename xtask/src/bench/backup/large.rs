//! A backup of everything: its time, its size, and the controller's memory.

use std::{
    io::Read as _,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use backup_core::api::BackupSpec;
use backup_tests::{World, archive::gzip_size_in_go, world::BUCKET};
use flate2::read::MultiGzDecoder;

use super::floor;
use crate::bench::{
    backup_watch::BackupWatch,
    stats::Sample,
    table::{Row, Table},
};

pub(super) const TIMEOUT: Duration = Duration::from_mins(15);
/// Maximum ratio between the time and the floor.
const MAX_RATIO: f64 = 1.1;
/// Maximum delay until a user who waits for a backup learns of its end (seconds).
const MAX_DELAY_SECONDS: f64 = 0.5;
/// Maximum ratio between the size of the tarball and that by Go's gzip.
const MAX_SIZE_RATIO: f64 = 1.1;
/// Maximum memory (MiB).
const MAX_MEMORY_MIB: u32 = 96;
/// Maximum number of objects for which that holds.
const MAX_MEMORY_OBJECTS: usize = 100_000;
/// Maximum growth of memory per additional item (bytes).
const MAX_GROWTH_BYTES: f64 = 100.0;
/// Pause between the floor and the backup: shortly after a list the API server delays another one
/// of the same type (kube-apiserver `pkg/storage/cacher/progress`, v1.34), and in practice a backup
/// does not follow a list of everything.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// With fewer objects, the growth is noise.
const MIN_OBJECTS_FOR_GROWTH: usize = 50_000;

/// Peak memory of a fresh controller for a backup of everything.
pub struct Peak {
    kib: u32,
    items: u32,
}

impl Peak {
    fn mib(&self) -> f64 {
        f64::from(self.kib) / 1024.0
    }
}

/// Backs everything up with a fresh controller.
pub async fn peak(world: &mut World, name: &str) -> anyhow::Result<Peak> {
    world.renew_controller(0).await?;
    world.location_available("default").await?;
    back_up(world, name).await?;
    let items = u32::try_from(
        world
            .backups()
            .get(name)
            .await?
            .status
            .progress
            .context("no progress")?
            .items_backed_up,
    )?;
    let kib = u32::try_from(world.controllers[0].peak_memory_kib()?)?;
    eprintln!("{name}: {items} items, {:.1} MiB", f64::from(kib) / 1024.0);
    Ok(Peak { kib, items })
}

/// Backs everything up, and compares the result with the floor and with `small`, a backup of fewer
/// objects.
pub async fn measure(
    world: &mut World,
    objects: usize,
    rounds: usize,
    small: Peak,
    table: &mut Table,
) -> anyhow::Result<()> {
    // The first list fills the API server's caches for the following ones.
    floor::list(&world.client).await?;
    let large = peak(world, "many").await?;
    let mut times = Sample::default();
    let mut lists = Sample::default();
    let mut squeezes = Sample::default();
    let mut sizes = (0, 0);
    for round in 0..rounds {
        let start = Instant::now();
        let listed = floor::list(&world.client).await?;
        let list = start.elapsed();
        tokio::time::sleep(PAUSE).await;
        let name = format!("round-{round}");
        let time = back_up(world, &name).await?;
        let tarball = read(world, &name).await?;
        let tar = unpack(&tarball)?;
        let start = Instant::now();
        floor::compress(&tar);
        let squeeze = start.elapsed();
        let mib = tar.len() >> 20;
        eprintln!(
            "{name}: {time:?}; listing {listed} objects {list:?}, compressing {mib} MiB {squeeze:?}"
        );
        times.push(time);
        lists.push(list);
        squeezes.push(squeeze);
        if round + 1 == rounds {
            sizes = (
                u32::try_from(tarball.len())?,
                u32::try_from(gzip_size_in_go(&tar).await?)?,
            );
        }
    }
    let [time, list, squeeze] = [times, lists, squeezes].map(|sample| sample.median() / 1e3);
    tell_time(objects, time, list, squeeze, table);
    tell_wait(world, rounds, table).await?;
    tell_size(sizes, table);
    tell_memory(objects, &small, &large, table);
    Ok(())
}

fn tell_time(objects: usize, time: f64, list: f64, squeeze: f64, table: &mut Table) {
    let floor = list + squeeze;
    table.row(&Row {
        what: format!("{objects} ConfigMaps of 1 KiB, from admission to Completed"),
        found: format!("{time:.2} s, {:.2} times the floor", time / floor),
        beside: format!("listing everything {list:.2} s, compressing {squeeze:.2} s"),
        asked: format!("{MAX_RATIO} times the floor: {:.2} s", MAX_RATIO * floor),
        met: Some(time <= MAX_RATIO * floor),
    });
}

/// The time between the end of a backup and that of `create --wait`.
async fn tell_wait(world: &World, rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    let mut waits = Sample::default();
    let mut times = Sample::default();
    for round in 0..rounds {
        let name = format!("waited-for-{round}");
        let mut watch = BackupWatch::start(&world.client).await?;
        let start = Instant::now();
        let command = world.kubectl_backup();
        let arguments = ["create", name.as_str(), "--wait"];
        let (ran, ended) = tokio::join!(
            command.succeeds(&arguments),
            watch.completed(std::slice::from_ref(&name), TIMEOUT)
        );
        waits.push(ran?.elapsed);
        times.push(ended?.first().context("no backup")?.duration_since(start));
    }
    let [wait, time] = [waits, times].map(|sample| sample.median() / 1e3);
    table.row(&Row {
        what: "the same for who types `create --wait`".to_owned(),
        found: format!("{wait:.2} s, {:.2} s later", wait - time),
        beside: format!("from the command to Completed: {time:.2} s"),
        asked: format!("{MAX_DELAY_SECONDS} s later"),
        met: Some(wait - time <= MAX_DELAY_SECONDS),
    });
    Ok(())
}

fn tell_size((ours, theirs): (u32, u32), table: &mut Table) {
    let ratio = f64::from(ours) / f64::from(theirs);
    table.row(&Row {
        what: "size of the tarball".to_owned(),
        found: format!("{ours} bytes, {ratio:.3} times"),
        beside: format!("Go's gzip of the same archive: {theirs} bytes"),
        asked: format!("{MAX_SIZE_RATIO} times"),
        met: Some(ratio <= MAX_SIZE_RATIO),
    });
}

fn tell_memory(objects: usize, small: &Peak, large: &Peak, table: &mut Table) {
    table.row(&Row {
        what: "peak memory of a fresh controller".to_owned(),
        found: format!("{:.1} MiB with {} items", large.mib(), large.items),
        beside: format!("{:.1} MiB with {} items", small.mib(), small.items),
        asked: format!("{MAX_MEMORY_MIB} MiB with {MAX_MEMORY_OBJECTS} objects"),
        met: Some(large.kib <= MAX_MEMORY_MIB * 1024 || objects > MAX_MEMORY_OBJECTS),
    });
    let further = f64::from(large.items.saturating_sub(small.items).max(1));
    let growth = (f64::from(large.kib) - f64::from(small.kib)) * 1024.0 / further;
    if objects >= MIN_OBJECTS_FOR_GROWTH {
        table.row(&Row {
            what: "memory for each further item".to_owned(),
            found: format!("{growth:.0} bytes"),
            beside: format!("{further} further items"),
            asked: format!("{MAX_GROWTH_BYTES} bytes"),
            met: Some(growth <= MAX_GROWTH_BYTES),
        });
    }
}

/// Creates a Backup of everything, and waits until it is Completed.
async fn back_up(world: &World, name: &str) -> anyhow::Result<Duration> {
    let mut watch = BackupWatch::start(&world.client).await?;
    let start = Instant::now();
    world.create_backup(name, BackupSpec::default()).await?;
    let times = watch.completed(&[name.to_owned()], TIMEOUT).await?;
    Ok(times.first().context("no backup")?.duration_since(start))
}

pub(super) async fn read(world: &World, name: &str) -> anyhow::Result<bytes::Bytes> {
    let s3 = world
        .s3
        .as_ref()
        .context("there is no S3 server: install Go")?;
    s3.read(BUCKET, &format!("backups/{name}/{name}.tar.gz"))
        .await
}

pub(super) fn unpack(tarball: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut tar = Vec::new();
    MultiGzDecoder::new(tarball)
        .read_to_end(&mut tar)
        .context("unpack the tarball")?;
    Ok(tar)
}
