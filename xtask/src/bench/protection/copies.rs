//! Copies of a backup: between two stores, beside one stream each way; and within one store, where
//! no contents may pass through the controller.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use backup_core::api::{
    Backup,
    backup::{BackupCopy, CopyPhase},
};
use backup_tests::{World, api::ApiExt as _, object_store::S3, world::BUCKET};
use kube::runtime::wait::await_condition;
use serde_json::json;
use tokio::time::timeout;

use super::{Args, BACKUP, BackupFiles, TIMEOUT, set_delay, speed};
use crate::bench::{
    stats::{median, paired_ratio},
    table::{Row, Table, Target, mib},
};

/// Minimum ratio between the rate of a copy and that of one stream each way.
const MIN_RATIO: f64 = 0.9;
/// Maximum traffic between controller and store for a copy within one store (KiB): requests and
/// metadata.
const MAX_PASSED_KIB: u64 = 1024;
/// Bucket of the second store for the floor.
const FLOOR: &str = "bench-floor";
/// Bucket and location for the copy within one store.
const SECOND: &str = "bench-second";

pub async fn measure(
    world: &World,
    files: &BackupFiles,
    args: &Args,
    table: &mut Table,
) -> anyhow::Result<()> {
    let other = S3::start(&world.folder().join("other-server")).await?;
    other.create_bucket(FLOOR).await?;
    for delay in args.delays() {
        between(world, &other, files, args.rounds, delay, table).await?;
    }
    within(world, table).await
}

/// Copies into the other store.
async fn between(
    world: &World,
    other: &S3,
    files: &BackupFiles,
    rounds: u16,
    delay: Duration,
    table: &mut Table,
) -> anyhow::Result<()> {
    let s3 = world.s3()?;
    let mut copies = Vec::new();
    let mut floors = Vec::new();
    // The first round fills caches.
    for round in 0..=rounds {
        let location = format!("bench-copies-{}-{round}", delay.as_millis());
        other.create_bucket(&location).await?;
        world.s3_location(&location, &other.url()).await?;
        set_delay(&[s3, other], delay);
        let floor = streams(s3, other, files).await?;
        let copy = copy(world, &location).await?;
        set_delay(&[s3, other], Duration::ZERO);
        let rate = mib(copy.bytes >> 10) / copy.seconds;
        eprintln!("{location}: {rate:.1} MiB/s beside {floor:.1} MiB/s");
        if round > 0 {
            copies.push(rate);
            floors.push(floor);
        }
    }
    let ratio = paired_ratio(&copies, &floors);
    let [rate, floor] = [copies, floors].map(median);
    table.row(&Row {
        what: format!(
            "copy of a backup of {:.0} MiB to another store, {}",
            mib(files.contents.len() as u64 >> 10),
            speed(delay)
        ),
        found: format!("{rate:.1} MiB/s, {ratio:.2} times"),
        beside: format!("one stream that reads it while another one writes it: {floor:.1} MiB/s"),
        target: Target::new(format!("at least {MIN_RATIO} times"), ratio >= MIN_RATIO),
    });
    Ok(())
}

/// The rate of a stream that reads the tarball from one store while another stream writes the same
/// bytes to the other store (MiB/s).
async fn streams(from: &S3, to: &S3, files: &BackupFiles) -> anyhow::Result<f64> {
    let start = Instant::now();
    let (read, ()) = tokio::try_join!(
        from.stream_down(BUCKET, files.tarball()),
        to.stream_up(FLOOR, "tarball", files.contents.clone()),
    )?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(
        read == files.contents.len() as u64,
        "only {read} bytes were read"
    );
    Ok(mib(read >> 10) / seconds)
}

/// Copies into another bucket of the store.
async fn within(world: &World, table: &mut Table) -> anyhow::Result<()> {
    let s3 = world.s3()?;
    s3.create_bucket(SECOND).await?;
    world.s3_location(SECOND, &s3.url()).await?;
    let before = s3.front.passed();
    let CopyRun { seconds, bytes } = copy(world, SECOND).await?;
    let passed = (s3.front.passed() - before) >> 10;
    table.row(&Row {
        what: "traffic of the controller for a copy within the store".to_owned(),
        found: format!("{passed} KiB"),
        beside: format!("{:.0} MiB copied in {seconds:.2} s", mib(bytes >> 10)),
        target: Target::new(
            format!("no contents: at most {MAX_PASSED_KIB} KiB"),
            passed <= MAX_PASSED_KIB,
        ),
    });
    Ok(())
}

/// A complete copy.
struct CopyRun {
    /// Time from the request until the Backup says that the copy is complete (seconds).
    seconds: f64,
    /// Size of all files (bytes).
    bytes: u64,
}

/// Copies the backup into this location.
async fn copy(world: &World, location: &str) -> anyhow::Result<CopyRun> {
    let copies = [BackupCopy {
        location: location.to_owned(),
        ..BackupCopy::default()
    }];
    let start = Instant::now();
    let wanted = json!({ "spec": { "copies": copies } });
    world.backups().merge_patch(BACKUP, wanted).await?;
    let ended = await_condition(world.backups(), BACKUP, |backup: Option<&Backup>| {
        let copy = backup.and_then(|backup| backup.copy_in(location));
        copy.is_some_and(|copy| copy.is_complete() || copy.phase() == CopyPhase::Failed)
    });
    let ended = timeout(TIMEOUT, ended).await;
    let seconds = start.elapsed().as_secs_f64();
    let backup = ended.with_context(|| format!("no copy in {location} within {TIMEOUT:?}"))??;
    let backup = backup.context("the backup is gone")?;
    let copy = backup.copy_in(location).context("no state of the copy")?;
    ensure!(copy.is_complete(), "{location}: {}", copy.message);
    Ok(CopyRun {
        seconds,
        bytes: u64::try_from(copy.bytes)?,
    })
}
